"""The JSON schema (draft 2020-12) of a recipe file, from the same declarations that check it."""

from __future__ import annotations

from typing import Any

from prefopt.config.sections import SECTIONS
from prefopt.config.training import NAMES, OWNED, choices_of
from prefopt.losses import LossSpec, loss_names, loss_spec, modifier_names, modifier_spec

_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "str": "string", "list": "array", "dict": "object"}
_TYPES |= {"null": "null"}


def recipe_schema() -> dict[str, Any]:
    """The schema. What a base may have said is not required; rules across sections are left to `prefopt check`."""
    definitions: dict[str, Any] = {}
    base = {"type": ["string", "null"], "description": "a recipe to build on, relative to this file"}
    properties: dict[str, Any] = {"base": base}
    for name, model in SECTIONS.items():
        schema = model.model_json_schema(mode="validation", ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        definitions[model.__name__] = schema
        properties[name] = _or_null({"$ref": f"#/$defs/{model.__name__}"})
    for schema in definitions.values():
        schema.pop("required", None)
        schema.pop("title", None)
    definitions |= {f"loss-{name}": _loss(loss_spec(name)) for name in loss_names()}
    _allow_short_sources(definitions["DataSection"]["properties"])
    one = {"oneOf": [{"$ref": f"#/$defs/loss-{name}"} for name in loss_names()]}
    properties["loss"] = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    properties["training"] = _or_null(_training())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "prefopt recipe",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "anyOf": [{"required": ["base"]}, {"required": ["model", "data", "loss", "training"]}],
        "$defs": definitions,
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _allow_short_sources(properties: dict[str, Any]) -> None:
    """A path stands for a source, and one source for a list of one."""
    source = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/SourceSection"}]}
    properties["train"] |= {"anyOf": [*source["anyOf"], {"type": "array", "items": source, "minItems": 1}]}
    for name in ("type", "items", "minItems"):
        properties["train"].pop(name, None)
    for name in ("additionalProperties", "patternProperties"):
        if isinstance(properties["eval"].get(name), dict):
            held = properties["eval"][name]
            properties["eval"][name] = dict.fromkeys(held, source) if name == "patternProperties" else source


def _loss(spec: LossSpec) -> dict[str, Any]:
    schema = spec.params.model_json_schema(mode="validation")
    options = schema.get("properties", {})
    name = {"description": spec.summary, "enum": [spec.name, *spec.aliases]}
    weight = {"type": "number", "exclusiveMinimum": 0, "default": 1.0, "description": "share in a sum of losses"}
    modify = {"modify": _modifiers()} if spec.responses == "pair" and spec.reweightable else {}
    return {
        "type": "object",
        "description": spec.summary,
        "properties": {"name": name, "weight": weight, **modify, **options},
        "required": ["name"],
        "additionalProperties": False,
        **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
    }


def _modifiers() -> dict[str, Any]:
    """Names of weightings, or mappings with a name and options."""
    choices: list[dict[str, Any]] = [{"enum": modifier_names()}]
    for name in modifier_names():
        options = modifier_spec(name).params.model_json_schema(mode="validation").get("properties", {})
        properties = {"name": {"const": name, "description": modifier_spec(name).summary}, **options}
        choices.append(
            {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
        )
    return {"type": "array", "description": "weightings of each prompt's loss", "items": {"anyOf": choices}}


def _training() -> dict[str, Any]:
    arguments = {name: _argument(name) for name in NAMES if name not in OWNED}
    return {"type": "object", "properties": arguments, "additionalProperties": False}


def _argument(name: str) -> dict[str, Any]:
    entry = NAMES[name]
    types = sorted({_TYPES[kind] for kind in entry["kinds"]} | {"null"})
    schema: dict[str, Any] = {"type": types, "default": entry["default"]}
    choices = choices_of(name)
    return schema | ({"enum": [*choices, None]} if choices else {})
