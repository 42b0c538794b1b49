"""What the registry knows about a loss, as plain data, as text, and as a row of a table."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prefopt.config.foreign import unknown_loss
from prefopt.config.paths import short
from prefopt.config.shipped import recipes_dir
from prefopt.errors import ConfigError
from prefopt.losses import LossSpec, ModifierSpec, loss_names, loss_spec, modifier_names, modifier_spec
from prefopt.params import LossParams, shown, unit_of

BEGIN, END = "<!-- losses: begin -->", "<!-- losses: end -->"
BEGIN_SHORT = "<!-- losses, in short: begin -->"


def loss_sheet(name: str) -> dict[str, Any]:
    """Everything about one loss, or one weighting of losses. `needs` holds for the default hyperparameters.

    Raises: `ConfigError` for an unknown name, with a suggestion.
    """
    if name in modifier_names():
        return _modifier_sheet(modifier_spec(name))
    told = unknown_loss(name)
    if told:
        raise ConfigError(told)
    spec = loss_spec(name)
    recipe = recipe_of(spec.name)
    return {
        "name": spec.name,
        "kind": "loss",
        "aliases": list(spec.aliases),
        "summary": spec.summary,
        "needs": _needs(spec),
        "needs_depend_on_parameters": callable(spec.needs),
        "responses": spec.responses,
        "aggregate": spec.aggregate,
        "coupled": bool(spec.window_for(spec.params.model_construct())),
        "state": spec.state is not None,
        "parameters": _parameters(spec.params),
        "source": spec.source,
        "relative": _last_line(spec.function),
        "origin": spec.origin,
        "recipe": None if recipe is None else short(recipe),
    }


def _modifier_sheet(spec: ModifierSpec) -> dict[str, Any]:
    recipe = recipe_of(spec.name)
    return {
        "name": spec.name,
        "kind": "weighting",
        "aliases": [],
        "summary": spec.summary,
        "needs": sorted(str(need) for need in spec.needs),
        "needs_depend_on_parameters": False,
        "parameters": _parameters(spec.params),
        "source": spec.source,
        "recipe": None if recipe is None else short(recipe),
    }


def _last_line(function: Any) -> str:
    """The end of a loss's docstring, which by custom names its relatives."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    lines = paragraphs[-1].split("\n")
    start = max((number for number, line in enumerate(lines) if _SECTION.match(line)), default=0)
    rest = [line for line in lines[start + 1 :] if not line.startswith(" ")]
    return " ".join(rest)


_SECTION = re.compile(r"(Shapes|Metrics|Raises|Source|Differs):")


def recipe_of(name: str) -> Path | None:
    """The recipe that ships for a loss or a weighting."""
    file = recipes_dir() / "losses" / f"{name}.yaml"
    return file if file.is_file() else None


def _needs(spec: LossSpec) -> list[str]:
    defaults = spec.params.model_construct()  # a plug-in's parameter may lack a default, and the sheet must not fail
    return sorted(str(need) for need in spec.needs_for(defaults))


def _parameters(params: type[LossParams]) -> list[dict[str, Any]]:
    properties = params.model_json_schema(mode="validation").get("properties", {})
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
    weighting = sheet["kind"] == "weighting"
    function = modifier_spec(name).function if weighting else loss_spec(name).function
    lines = [sheet["name"] + (f"  (also {', '.join(sheet['aliases'])})" if sheet["aliases"] else ""), ""]
    lines += ["  " + line if line else "" for line in inspect.cleandoc(function.__doc__ or "").split("\n")]
    lines += ["", "Hyperparameters" if sheet["parameters"] else "Hyperparameters: none"]
    for parameter in sheet["parameters"]:
        default = "required" if parameter["required"] else f"default {shown(parameter['default'])}"
        lines.append(f"  {parameter['name']}: {parameter['description']}; {range_of(parameter)}; {default}")
    needs = ", ".join(sheet["needs"]) or "nothing beyond the policy's log-probabilities"
    lines += ["", f"Needs      {needs}" + (" (by its options)" if sheet["needs_depend_on_parameters"] else "")]
    if weighting:
        lines.append(f"Used as    a weighting of any loss on pairs, `loss.modify: [{name}]`")
        return "\n".join([*lines, f"Source     {sheet['source']}", f"Recipe     {sheet['recipe'] or 'none'}"])
    lines += [f"Responses  {_RESPONSES[sheet['responses']]}", f"Per token  {_AGGREGATE[sheet['aggregate']]}"]
    spec = loss_spec(name)
    if sheet["coupled"] or callable(spec.window):
        by_options = " (by its options)" if callable(spec.window) else ""
        lines.append(f"Batch      looks at all prompts of the batch; scoring.coupling says which they are{by_options}")
    if spec.select is not None:
        lines.append("Draws      which of many responses a step compares, keyed by run seed, step and row")
    if sheet["state"]:
        lines.append("State      kept with checkpoints, frozen in evaluation")
    lines += [
        f"Source     {sheet['source']}",
        f"From       {sheet['origin']}",
        f"Recipe     {sheet['recipe'] or 'none'}",
    ]
    return "\n".join(lines)


_RESPONSES = {"single": "one per prompt", "pair": "a pair per prompt", "many": "any number per prompt"}
_AGGREGATE = {"sum": "log-probabilities are summed", "mean": "log-probabilities are averaged over a response"}


def list_text() -> str:
    """One line for each loss and weighting: name, needs, what it does."""
    rows = [(s["name"], ", ".join(s["needs"]) or "-", s["summary"]) for s in sheets()]
    rows.insert(0, ("loss", "needs", "what it does"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)


def markdown_table(folder: Path) -> str:
    """Our own losses as a Markdown table, links relative to `folder`."""
    rows = ["| loss | what it does | needs | options | source | recipe |", "|---|---|---|---|---|---|"]
    for sheet in _own():
        options = ", ".join(f"`{p['name']}` {shown(p['default'])}" for p in sheet["parameters"])
        cells = [f"`{sheet['name']}`", sheet["summary"], ", ".join(sheet["needs"]), options, sheet["source"]]
        rows.append(_row([*cells, _link(sheet["name"], folder, text=f"{sheet['name']}.yaml")]))
    return "\n".join(rows)


def short_table(folder: Path) -> str:
    """Our own losses with what they do, each linked to its recipe."""
    rows = ["| loss | what it does |", "|---|---|"]
    return "\n".join([*rows, *(_row([_link(s["name"], folder, text=f"`{s['name']}`"), s["summary"]]) for s in _own())])


def _own() -> list[dict[str, Any]]:
    return [sheet for sheet in sheets() if sheet.get("origin", "prefopt") == "prefopt"]


def _link(name: str, folder: Path, *, text: str) -> str:
    recipe = recipe_of(name)
    return f"[{text}]({Path(os.path.relpath(recipe, folder)).as_posix()})" if recipe else text


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_table(text: str, folder: Path) -> str:
    """A Markdown text with the table between its two markers brought up to date, in full or, as its marker says, short.

    Raises: `ConfigError` when the markers are missing or out of order.
    """
    brief = BEGIN_SHORT in text
    opening = BEGIN_SHORT if brief else BEGIN
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"there is no place for the table: the lines {BEGIN} and {END} are missing.")
    table = short_table(folder) if brief else markdown_table(folder)
    return f"{before}{opening}\n{table}\n{END}{after}"


def sheets(names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The sheets of all losses and weightings, or of some."""
    return [loss_sheet(name) for name in ([*loss_names(), *modifier_names()] if names is None else names)]
