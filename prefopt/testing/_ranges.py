"""Values that a loss's parameters say they refuse."""

from __future__ import annotations

from typing import Any

from prefopt.params import LossParams


def out_of_range(params: type[LossParams]) -> dict[str, list[float]]:
    """For each parameter with a declared bound, values just outside of it."""
    found: dict[str, list[float]] = {}
    for name, field in params.model_fields.items():
        for bound in field.metadata:
            for kind, value in vars(bound).items() if hasattr(bound, "__dict__") else _slots(bound):
                step = {"gt": 0.0, "ge": -1e-6, "lt": 0.0, "le": 1e-6}.get(kind)
                if step is not None:
                    found.setdefault(name, []).append(float(value) + step)
    return found


def _slots(bound: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(bound, name)) for name in ("gt", "ge", "lt", "le") if hasattr(bound, name)]
