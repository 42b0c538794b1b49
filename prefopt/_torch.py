"""torch, imported when it is first used.

`prefopt losses` and `prefopt check` read the registry, hence every loss file, and must answer at once. A loss file says
`from prefopt._torch import F, torch` and reads like any other torch code; nothing is imported until a loss is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch as torch
    import torch.nn.functional as F
else:
    from importlib import import_module
    from types import ModuleType

    class _OnFirstUse(ModuleType):
        def __getattr__(self, name: str) -> object:
            value = getattr(import_module(self.__name__), name)
            setattr(self, name, value)  # the next look-up is an ordinary attribute
            return value

    torch = _OnFirstUse("torch")
    F = _OnFirstUse("torch.nn.functional")

__all__ = ["F", "torch"]
