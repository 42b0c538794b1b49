"""`prefopt data split`: parts that share no problem."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from pydantic import Field

from data_tools.command import Options, RunInfo, record_command
from data_tools.errors import DataToolsError, RecordError
from data_tools.run import RESERVED, Output, Part, RecordFunction, Row
from data_tools.texts import COLUMNS


class SplitOptions(Options):
    """The parts, and what must stay together."""

    part: list[str] = Field(
        default_factory=lambda: ["train=0.9", "heldout=0.1"],
        description="NAME=SHARE; may be repeated, shares add up to 1",
    )
    by: str = Field("prompt", description="rows with the same value of this column stay together")


@record_command(
    SplitOptions,
    parts=lambda options: [name for name, _ in _shares(options.part)],
    reads=lambda options: tuple(dict.fromkeys((options.by, *COLUMNS))),
)
def split(options: SplitOptions, run: RunInfo) -> RecordFunction:
    """Divide a file into parts that share no problem: OUT.jsonl gives OUT.train.jsonl, OUT.heldout.jsonl.

    A row's part depends on the seed and on its problem, on nothing else: rows that are added later, another order or a
    file of other rows of the same problems never move a problem from one part to another. Sizes are therefore near the
    shares, not equal to them.
    """
    shares = _shares(options.part)

    def rows(row: Row) -> Iterator[Output]:
        if options.by not in row.record:
            raise RecordError(f"{row.where}: column '{options.by}' is missing.", reason="missing_column")
        yield Part(_part_of(row.record[options.by], run.seed, shares), row.record)

    return rows


def _part_of(value: object, seed: int, shares: Sequence[tuple[str, float]]) -> str:
    key = value.strip() if isinstance(value, str) else json.dumps(value, sort_keys=True)
    digest = blake2b(f"{seed}|{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    point = int.from_bytes(digest) / 2**64
    for name, share in shares:
        point -= share
        if point < 0:
            return name
    return shares[-1][0]


def _shares(given: Sequence[str]) -> list[tuple[str, float]]:
    """Raises: `DataToolsError` for parts that are not NAME=SHARE with shares that add up to 1."""
    shares: list[tuple[str, float]] = []
    for text in given or ["train=0.9", "heldout=0.1"]:
        name, _, share = text.partition("=")
        try:
            shares.append((name, float(share)))
        except ValueError:
            raise DataToolsError(f"--part must be NAME=SHARE, for instance train=0.9; got '{text}'.") from None
        if name in RESERVED:
            raise DataToolsError(f"--part: '{name}' is a name that the run itself uses; give the part another.")
        if not name.replace("_", "").replace("-", "").isalnum() or not 0 < shares[-1][1] <= 1:
            raise DataToolsError(f"--part must be a plain name and a share above 0; got '{text}'.")
    if abs(sum(share for _, share in shares) - 1) > 1e-9 or len({name for name, _ in shares}) < len(shares):
        raise DataToolsError(
            f"the parts must have different names, and their shares add up to 1; got {' '.join(given)}."
        )
    return shares
