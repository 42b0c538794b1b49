"""The table of shapes, and which of them a record has."""

from collections.abc import Iterator, Mapping
from typing import Any

from data_tools.errors import DataToolsError
from data_tools.reading import Record
from data_tools.shapes.conversations import is_transcript, pair, sharegpt, transcript
from data_tools.shapes.instructions import alpaca, responses_jk, stepwise
from data_tools.shapes.scored import group, is_ultrafeedback, ultrafeedback
from data_tools.shapes.shape import Shape, ShapeOptions, Source, has

__all__ = ["SHAPES", "Shape", "ShapeOptions", "convert_record", "detect"]

SHAPES: dict[str, Shape] = {
    "sharegpt": Shape(
        "conversations of from and value, perhaps with chosen and rejected",
        has("conversations"),
        sharegpt,
        ("conversations", "chosen", "rejected", "system", "kto_tag"),
    ),
    "ultrafeedback": Shape(
        "instruction and completions with scores", is_ultrafeedback, ultrafeedback, ("instruction", "completions")
    ),
    "alpaca": Shape(
        "instruction, input, and output or chosen and rejected",
        has("instruction"),
        alpaca,
        ("instruction", "input", "output", "chosen", "rejected", "system", "history", "kto_tag"),
    ),
    "response_jk": Shape(
        "question, response_j (better), response_k",
        has("question", "response_j", "response_k"),
        responses_jk,
        ("question", "response_j", "response_k"),
    ),
    "stepwise": Shape(
        "prompt, completions (steps) and labels",
        has("completions", "labels"),
        stepwise,
        ("prompt", "completions", "labels"),
    ),
    "hh": Shape(
        "chosen and rejected as transcripts of Human and Assistant", is_transcript, transcript, ("chosen", "rejected")
    ),
    "group": Shape(
        "prompt, responses, and rewards or scores",
        lambda record: has("responses")(record) and ("rewards" in record or "scores" in record),
        group,
        ("prompt", "responses", "rewards", "scores"),
    ),
    "pair": Shape(
        "our own rows, or messages that both sides share",
        has("chosen", "rejected"),
        pair,
        ("prompt", "chosen", "rejected"),
    ),
}
"""By name, in the order in which they are tried."""


def detect(record: Mapping[str, Any]) -> str | None:
    """The name of the first shape that a record fits, or None."""
    return next((name for name, shape in SHAPES.items() if shape.fits(record)), None)


def convert_record(record: Record, name: str, *, id: str, where: str, options: ShapeOptions) -> Iterator[Record]:
    """The rows of a record in the shape of that name.

    Columns that the shape does not use go along. Several rows of one record get `#0`, `#1`, ... behind its id.

    Raises: `RecordError` for a record that does not have what the shape needs; `DataToolsError` for an unknown shape.
    """
    if name not in SHAPES:
        raise DataToolsError(f"there is no shape '{name}'. Shapes: {', '.join(SHAPES)}.")
    shape = SHAPES[name]
    source = Source(record, id, where, options)
    if not shape.fits(record):
        raise source.refuse("wrong_shape", f"the record is not of shape '{name}': {shape.says}.")
    kept = {column: value for column, value in record.items() if column not in shape.uses and column != "id"}
    rows = list(shape.rows(source))
    for number, row in enumerate(rows):
        beside = {column: value for column, value in kept.items() if column not in row}
        yield {"id": id if len(rows) == 1 else f"{id}#{number}", **row, **beside, "converted_from": name}
