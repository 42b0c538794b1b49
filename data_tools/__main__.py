"""`python -m data_tools COMMAND ...`."""

from data_tools.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
