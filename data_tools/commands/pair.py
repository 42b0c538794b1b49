"""`prefopt data pair`: pairs of right and wrong samples of the same problem."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.command import Options, RunInfo, stream_command
from data_tools.inject import row_random
from data_tools.pairing import COLUMNS, Pool, different_pairs, irpo_pairs, pools, rank_pairs, without_similar
from data_tools.run import Output, Reject, Row, StreamFunction

_COUNTS = {"irpo": 10, "dpo_st": 3}


class PairOptions(Options):
    """How pairs are chosen among samples."""

    method: Literal["irpo", "dpo_st"] = Field(
        "irpo", description="irpo: both lists advance together; dpo_st: the pairs that share least"
    )
    count: int = Field(0, ge=0, le=1000, description="most pairs of a problem; 0: 10 for irpo, 3 for dpo_st")
    gold: bool = Field(True, description="a `solution` that comes with the problem counts as a right sample, the first")
    unclear: Literal["drop", "wrong"] = Field(
        "drop", description="samples that state no answer: left out, or counted as wrong"
    )
    max_characters: int = Field(20_000, ge=1, description="longer samples are left out")
    max_similarity: float = Field(
        0.7, ge=0, le=1, description="dpo_st: token-set similarity from which samples of one side count as the same"
    )
    threshold: float = Field(0.5, description="least reward of a right sample, where nothing else says what is right")


@stream_command(PairOptions, tally=("pair_kind",), reads=lambda options: COLUMNS, together="prompt")
def pair(options: PairOptions, run: RunInfo) -> StreamFunction:
    """Pair right with wrong samples of the same problem, as IRPO or DPO-ST do.

    Rows have `prompt` and `completion` with `label` (or `responses` with `labels`); without labels `answer` decides,
    without an answer a `reward`. Rows of one prompt may stand anywhere in the file. Problems with one side only are
    rejected.
    """

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        for found in pools(records, threshold=options.threshold):
            if isinstance(found, Reject):
                yield found
            else:
                yield from _pairs(found, options, run.seed)

    return rows


def _pairs(pool: Pool, options: PairOptions, seed: int) -> Iterator[Output]:
    right, wrong = pool.texts(True), pool.texts(False)
    if options.unclear == "wrong":
        wrong = list(dict.fromkeys([*wrong, *(sample.text for sample in pool.samples if sample.right is None)]))
    right, wrong = ([text for text in side if len(text) <= options.max_characters] for side in (right, wrong))
    if options.gold and pool.gold:
        right = list(dict.fromkeys([pool.gold, *right]))
    wrong = [text for text in wrong if text not in right]
    if not right or not wrong:
        yield Reject("no_right_sample" if not right else "no_wrong_sample", line=pool.line, id=pool.id)
        return
    for number, (chosen, rejected) in enumerate(_chosen(pool, right, wrong, options, seed)):
        yield {
            "id": f"{pool.id}#{options.method}-{number}",
            "source_id": pool.id,
            "prompt": pool.prompt,
            "chosen": chosen,
            "rejected": rejected,
            **({} if pool.answer is None else {"answer": pool.answer}),
            "pair_kind": "naive",
            "pairing": options.method,
        }


def _chosen(
    pool: Pool, right: list[str], wrong: list[str], options: PairOptions, seed: int
) -> Iterator[tuple[str, str]]:
    count = options.count or _COUNTS[options.method]
    if options.method == "irpo":
        for side in (right, wrong):
            row_random(seed, " ".join(pool.asked.split()), "pair").shuffle(side)
        yield from irpo_pairs(right, wrong, min(count, different_pairs(right, wrong)))
        return
    right, wrong = (without_similar(side, options.max_similarity) for side in (right, wrong))
    for ranked in rank_pairs(right, wrong)[:count]:
        yield right[ranked.positive], wrong[ranked.negative]
