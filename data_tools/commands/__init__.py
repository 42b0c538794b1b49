"""The commands of `prefopt data`: one module each, found by being here. How to write one: `data_tools.command`."""
