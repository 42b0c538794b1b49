"""`prefopt data rise`: problems in, pairs of a right step and the same step edited out."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.command import RunInfo, stream_command
from data_tools.generators import GeneratorOptions, files_read, open_generator
from data_tools.inject import Filters
from data_tools.pipelines.problem import COLUMNS
from data_tools.pipelines.rise import RISE
from data_tools.pipelines.samples import Sampling
from data_tools.pipelines.windows import through
from data_tools.run import Output, Row, StreamFunction


class RiseOptions(GeneratorOptions):
    """How solutions are sampled and edited."""

    instruction: str = Field("", description="what is put behind every prompt when the model is asked")
    prefill: str = Field("Let's think step by step.\nStep 1:", description="how every solution begins")
    splitter: Literal["auto", "numbered", "paragraph", "line", "sentence", "code"] = Field(
        "numbered", description="how solutions are split into steps"
    )
    samples: int = Field(5, ge=1, le=1000, description="solutions per problem and round")
    rounds: int = Field(1, ge=1, le=1000, description="most rounds, while right or wrong ones are missing")
    temperature: float = Field(0.2, ge=0, le=5, description="of whole solutions")
    top_p: float = Field(0.9, gt=0, le=1, description="share of the probability that takes part")
    max_tokens: int = Field(2048, ge=1, description="longest answer of the model")
    editor: Literal["rule", "model"] = Field("model", description="who edits steps: the model itself, or rules")
    edits: int = Field(1, ge=1, le=100, description="pairs with an edited step per problem")
    naive: int = Field(1, ge=0, le=1, description="ordinary pairs of a right and a wrong sample per problem")
    min_similarity: float = Field(0.8, ge=0, le=1, description="least similarity of right and edited step, 1 is equal")


@stream_command(
    RiseOptions, tally=("pair_kind", "error_kind"), also=files_read, reads=lambda options: COLUMNS, distinct=True
)
def rise(options: RiseOptions, run: RunInfo) -> StreamFunction:
    """Make RISE pairs: steps of right samples against the same steps with one error, beside ordinary pairs.

    Records have `prompt` and `answer` (or `solution`). A right and a wrong sample of a problem make an ordinary pair;
    steps of the right one are edited by the model itself, or by rules. All answers are kept in OUT.answers.jsonl: a
    run that was cut off asks nothing twice.
    """

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        with open_generator(options, run) as generator:
            pipeline = RISE(
                generator,
                Sampling(
                    samples=options.samples,
                    temperature=options.temperature,
                    top_p=options.top_p,
                    max_tokens=options.max_tokens,
                    prefill=options.prefill,
                    seed=run.seed,
                ),
                splitter=options.splitter,
                edits=options.edits,
                naive=options.naive,
                rounds=options.rounds,
                by_model=options.editor == "model",
                filters=Filters(min_similarity=options.min_similarity),
            )
            yield from through(pipeline, records, run, window=options.window, instruction=options.instruction)

    return rows
