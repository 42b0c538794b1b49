"""Training. `prefopt.train(recipe)` runs a recipe: the package is callable, because users expect the function under
this name and readers the folder.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefopt.config import Recipe
    from prefopt.train.build import TrainResult


class _Train(ModuleType):
    def __call__(self, recipe: Recipe, **options: Any) -> TrainResult:
        """See `prefopt.train.build.train`."""
        from prefopt.train.build import train

        return train(recipe, **options)


sys.modules[__name__].__class__ = _Train
