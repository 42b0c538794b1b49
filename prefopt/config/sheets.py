"""What the registry knows about a loss, as plain data, as text, and as a row of a table."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prefopt.config.foreign import unknown_loss
from prefopt.config.paths import short
from prefopt.config.shipped import recipes_dir
from prefopt.errors import ConfigError
from prefopt.losses import LossSpec, loss_names, loss_spec
from prefopt.params import shown, unit_of

BEGIN, END = "<!-- losses: begin -->", "<!-- losses: end -->"


def loss_sheet(name: str) -> dict[str, Any]:
    """Everything about one loss. `needs` holds for the default hyperparameters.

    Raises: `ConfigError` for an unknown name, with a suggestion.
    """
    told = unknown_loss(name)
    if told:
        raise ConfigError(told)
    spec = loss_spec(name)
    recipe = recipe_of(spec)
    return {
        "name": spec.name,
        "aliases": list(spec.aliases),
        "summary": spec.summary,
        "needs": _needs(spec),
        "needs_depend_on_parameters": callable(spec.needs),
        "responses": spec.responses,
        "aggregate": spec.aggregate,
        "coupled": bool(spec.window_for(spec.params.model_construct())),
        "parameters": _parameters(spec),
        "source": spec.source,
        "origin": spec.origin,
        "recipe": None if recipe is None else short(recipe),
    }


def recipe_of(spec: LossSpec) -> Path | None:
    """The recipe that ships for a loss."""
    file = recipes_dir() / "losses" / f"{spec.name}.yaml"
    return file if file.is_file() else None


def _needs(spec: LossSpec) -> list[str]:
    defaults = spec.params.model_construct()  # a plug-in's parameter may lack a default, and the sheet must not fail
    return sorted(str(need) for need in spec.needs_for(defaults))


def _parameters(spec: LossSpec) -> list[dict[str, Any]]:
    properties = spec.params.model_json_schema(mode="validation").get("properties", {})
    return [_parameter(name, schema, required="default" not in schema) for name, schema in properties.items()]


def _parameter(name: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    description = schema.get("description", "")
    bounds = {key: schema[key] for key in _BOUNDS if key in schema}
    return {
        "name": name,
        "type": schema.get("type") or "/".join(part.get("type", "any") for part in schema.get("anyOf", [{}])),
        "default": schema.get("default"),
        "required": required,
        **bounds,
        **({"choices": schema["enum"]} if "enum" in schema else {}),
        "unit": unit_of(description),
        "description": description,
    }


_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


def range_of(parameter: Mapping[str, Any]) -> str:
    """`> 0`, `>= 0, < 0.5`, `a | b`, or the type."""
    if "choices" in parameter:
        return " | ".join(map(str, parameter["choices"]))
    bounds = [f"{sign} {parameter[key]:g}" for key, sign in _BOUNDS.items() if key in parameter]
    return ", ".join(bounds) or {"boolean": "true | false"}.get(parameter["type"], parameter["type"])


def sheet_text(name: str) -> str:
    """The sheet of one loss for people: its docstring with the formula, hyperparameters, needs, where it comes from."""
    sheet = loss_sheet(name)
    lines = [sheet["name"] + (f"  (also {', '.join(sheet['aliases'])})" if sheet["aliases"] else ""), ""]
    lines += [
        "  " + line if line else "" for line in inspect.cleandoc(loss_spec(name).function.__doc__ or "").split("\n")
    ]
    lines += ["", "Hyperparameters" if sheet["parameters"] else "Hyperparameters: none"]
    for parameter in sheet["parameters"]:
        default = "required" if parameter["required"] else f"default {shown(parameter['default'])}"
        lines.append(f"  {parameter['name']}: {parameter['description']}; {range_of(parameter)}; {default}")
    needs = ", ".join(sheet["needs"]) or "nothing beyond the policy's log-probabilities"
    lines += ["", f"Needs      {needs}" + (" (by its options)" if sheet["needs_depend_on_parameters"] else "")]
    lines += [f"Responses  {_RESPONSES[sheet['responses']]}", f"Per token  {_AGGREGATE[sheet['aggregate']]}"]
    if sheet["coupled"]:
        lines.append("Batch      looks at all prompts of the batch")
    lines += [
        f"Source     {sheet['source']}",
        f"From       {sheet['origin']}",
        f"Recipe     {sheet['recipe'] or 'none'}",
    ]
    return "\n".join(lines)


_RESPONSES = {"single": "one per prompt", "pair": "a pair per prompt", "many": "any number per prompt"}
_AGGREGATE = {"sum": "log-probabilities are summed", "mean": "log-probabilities are averaged over a response"}


def list_text() -> str:
    """One line for each loss: name, needs, what it does."""
    sheets = [loss_sheet(name) for name in loss_names()]
    rows = [(s["name"], ", ".join(s["needs"]) or "-", s["summary"]) for s in sheets]
    rows.insert(0, ("loss", "needs", "what it does"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)


def markdown_table(folder: Path) -> str:
    """Our own losses as a Markdown table, links relative to `folder`."""
    rows = ["| loss | what it does | needs | options | source | recipe |", "|---|---|---|---|---|---|"]
    for name in loss_names():
        spec, sheet = loss_spec(name), loss_sheet(name)
        if spec.origin != "prefopt":
            continue
        options = ", ".join(f"`{p['name']}` {shown(p['default'])}" for p in sheet["parameters"])
        recipe = recipe_of(spec)
        link = f"[{recipe.name}]({Path(os.path.relpath(recipe, folder)).as_posix()})" if recipe else ""
        cells = [f"`{name}`", sheet["summary"], ", ".join(sheet["needs"]), options, sheet["source"], link]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def with_table(text: str, folder: Path) -> str:
    """A Markdown text with the table between its two markers brought up to date.

    Raises: `ConfigError` when the markers are missing or out of order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"there is no place for the table: the lines {BEGIN} and {END} are missing.")
    return f"{before}{BEGIN}\n{markdown_table(folder)}\n{END}{after}"


def sheets(names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The sheets of all losses, or of some."""
    return [loss_sheet(name) for name in (loss_names() if names is None else names)]
