"""`prefopt data convert`: data sets as they are published, as rows that training reads."""

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from pydantic import Field

from data_tools.command import Options, RunInfo, record_command
from data_tools.run import Output, RecordFunction, Reject, Row
from data_tools.shapes import SHAPES, ShapeOptions, convert_record, detect

MAX_COLUMNS = 20


class ConvertOptions(Options):
    """The shape of the input, and what is made of it."""

    shape: Literal["auto", "sharegpt", "ultrafeedback", "alpaca", "response_jk", "stepwise", "hh", "group", "pair"] = (
        Field("auto", description="shape of the records; auto: told by the columns of each")
    )
    pairs: Literal["best_worst", "best_random", "all", "group"] = Field(
        "best_worst", description="of several scored responses: which pairs, or one row with all of them"
    )
    min_gap: float = Field(0.0, ge=0, description="least difference of scores in a pair")
    step_separator: str = Field("\n", description="stepwise: what stands between steps that bring no line ends")


@record_command(ConvertOptions, tally=("converted_from",), reads=lambda options: _columns(options.shape))
def convert(options: ConvertOptions, run: RunInfo) -> RecordFunction:
    """Turn published shapes into rows: ShareGPT, Alpaca, response_j/k, stepwise, HH transcripts, UltraFeedback.

    Columns that a shape does not use go along; `converted_from` names the shape. Records of no known shape are
    rejected. Equal scores make no pair.
    """
    choices = ShapeOptions(options.pairs, options.min_gap, options.step_separator, run.seed)

    def rows(row: Row) -> Iterator[Output]:
        name = detect(row.record) if options.shape == "auto" else options.shape
        if name is None:
            named = (name if value is not None else f"{name} (null)" for name, value in row.record.items())
            columns = ", ".join(list(islice(named, MAX_COLUMNS))) or "none"
            yield Reject("unknown_shape", f"no known shape has the columns {columns}.")
            return
        yield from convert_record(row.record, name, id=row.id, where=row.where, options=choices)

    return rows


def _columns(shape: str) -> tuple[str, ...]:
    """What the records of a shape, or of any shape, are read by."""
    used = (column for name in SHAPES for column in SHAPES[name].uses if shape in ("auto", name))
    return tuple(dict.fromkeys(used))
