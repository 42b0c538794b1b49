"""`prefopt schema`: what an editor needs to complete a recipe."""

from __future__ import annotations

import json

from prefopt.config.schema import recipe_schema


def schema() -> None:
    """Print the JSON schema."""
    print(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
