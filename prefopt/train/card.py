"""The model card: what was trained from what, on what, with which objective, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefopt.losses import Objective


def model_card(
    *,
    base_model: str,
    objective: Objective,
    reference: Mapping[str, Any],
    rows: int,
    plan: Mapping[str, Any],
    metrics: Mapping[str, float],
    adapter: bool,
) -> str:
    """Markdown with the front matter that model hubs read."""
    terms = "\n".join(
        f"- `{loss.name}`{_weight(weight)}: {_options(loss.describe())}" for loss, weight in _parts(objective)
    )
    sources = "; ".join(dict.fromkeys(loss.spec.source for loss in objective.losses))
    shown = "\n".join(f"| {name} | {value:.4g} |" for name, value in metrics.items() if isinstance(value, int | float))
    library = "peft" if adapter else "transformers"
    local = base_model.startswith(("demo:", "/", "."))
    front = "" if local else f"base_model: {base_model}\n"
    load = (
        "from peft import AutoPeftModelForCausalLM\n\nmodel = AutoPeftModelForCausalLM.from_pretrained(FOLDER)"
        if adapter
        else "from transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained(FOLDER)"
    )
    return f"""---
library_name: {library}
{front}tags:
- prefopt
- preference-optimization
---

# {objective.name} on {base_model.split("/")[-1]}

Fine-tuned with prefopt from `{base_model}` on {rows:,} rows.
The exact settings are in `recipe.yaml`, versions and hashes in `run.json`.

## Objective

{terms}

Reference: {_options(dict(reference))}. Source: {sources}.

## Settings

{chr(10).join(f"- {name}: {value}" for name, value in plan.items())}

## Evaluation

| metric | value |
| --- | --- |
{shown or "| none was run | |"}

## Use

```python
{load}
```
"""


def _parts(objective: Objective) -> Sequence[tuple[Any, float]]:
    return list(zip(objective.losses, objective.weights, strict=True))


def _weight(weight: float) -> str:
    return "" if weight == 1 else f" (weight {weight:g})"


def _options(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if name not in ("name",)) or "no options"
