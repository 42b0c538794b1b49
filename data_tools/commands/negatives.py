"""`prefopt data negatives`: the wrong samples that are hardest to tell from right ones."""

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.command import Options, RunInfo, stream_command
from data_tools.errors import DataToolsError
from data_tools.pairing import COLUMNS, Pool, best_right, plausible, pools
from data_tools.run import Output, Reject, Row, StreamFunction


class NegativesOptions(Options):
    """Which wrong samples count as plausible."""

    by: Literal["score", "mean_logp", "similarity"] = Field(
        "score",
        description="score of a reward model, mean log-probability of a token, or likeness to the right response",
    )
    count: int = Field(1, ge=1, le=100, description="negatives of a problem; several become a list in `rejected`")
    form: str = Field("", description="regular expression that a sample must contain, for instance 'The answer is'")
    max_value: float | None = Field(None, description="samples that rank above this are too good to reject")
    threshold: float = Field(0.5, description="least reward of a right sample, where nothing else says what is right")


@stream_command(NegativesOptions, reads=lambda options: COLUMNS, together="prompt")
def negatives(options: NegativesOptions, run: RunInfo) -> StreamFunction:
    """Choose plausible negatives: of each problem's wrong samples those that look most like right ones.

    Rows are those of `pair`, with `score` or `mean_logp` beside each sample. Chosen is the problem's `solution`, else
    the right sample that ranks first.
    """
    try:
        form = re.compile(options.form) if options.form else None
    except re.error as error:
        raise DataToolsError(f"--form is no regular expression: {error}.") from None

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        for found in pools(records, threshold=options.threshold):
            yield found if isinstance(found, Reject) else _row(found, options, form)

    return rows


def _row(pool: Pool, options: NegativesOptions, form: re.Pattern[str] | None) -> Output:
    chosen = best_right(pool, options.by)
    if chosen is None:
        return Reject("no_right_sample", line=pool.line, id=pool.id)
    limit = float("inf") if options.max_value is None else options.max_value
    found = plausible(pool.samples, chosen, options.by, len(pool.samples), form)
    found = [item for item in found if item[1] <= limit][: options.count]
    if not found:
        return Reject("no_plausible_negative", f"no wrong sample has the form and a {options.by}", pool.line, pool.id)
    texts, values = [sample.text for sample, _ in found], [value for _, value in found]
    return {
        "id": f"{pool.id}#negatives",
        "source_id": pool.id,
        "prompt": pool.prompt,
        "chosen": chosen,
        "rejected": texts[0] if options.count == 1 else texts,
        **({} if pool.answer is None else {"answer": pool.answer}),
        "negative_by": options.by,
        "negative_values": values,
    }
