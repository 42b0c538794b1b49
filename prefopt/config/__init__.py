"""Recipes: read, checked, explained. Nothing here imports torch or transformers."""

from prefopt.config.parse import load_recipe
from prefopt.config.paths import recipes_dir
from prefopt.config.recipe import Recipe

__all__ = ["Recipe", "load_recipe", "recipes_dir"]
