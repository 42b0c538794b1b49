"""Recipes: read, checked, explained. Nothing here imports torch or transformers."""

from prefopt.config.parse import load_recipe
from prefopt.config.recipe import Recipe
from prefopt.config.shipped import recipes_dir

__all__ = ["Recipe", "load_recipe", "recipes_dir"]
