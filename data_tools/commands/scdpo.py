"""`prefopt data scdpo`: problems in, pairs that part at a step and end right and wrong out."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.command import RunInfo, stream_command
from data_tools.generators import GeneratorOptions, files_read, open_generator
from data_tools.pipelines.problem import COLUMNS
from data_tools.pipelines.samples import Sampling
from data_tools.pipelines.scdpo import SCDPO, Heat
from data_tools.pipelines.windows import through
from data_tools.run import Output, Row, StreamFunction


class ScdpoOptions(GeneratorOptions):
    """How right solutions are found, and how they are led astray."""

    instruction: str = Field("", description="what is put behind every prompt when the model is asked")
    prefill: str = Field("Step 1:", description="how every solution begins")
    splitter: Literal["numbered", "paragraph", "line"] = Field(
        "numbered", description="how solutions are split into steps"
    )
    samples: int = Field(8, ge=1, le=1000, description="solutions per problem and round")
    rounds: int = Field(12, ge=1, le=1000, description="most rounds, while right or wrong ones are missing")
    temperature: float = Field(1.0, ge=0, le=5, description="of whole solutions")
    top_p: float = Field(1.0, gt=0, le=1, description="share of the probability that takes part")
    max_tokens: int = Field(2048, ge=1, description="longest answer of the model")
    ends: Literal["sampled", "rule"] = Field("sampled", description="who writes wrong ends: the model, or rules")
    heat_start: float = Field(1.1, ge=0, le=5, description="temperature of the first step behind the cut")
    heat_step: float = Field(0.05, ge=0, le=5, description="added for each further step; the released code adds 0.1")
    heat_cap: float = Field(1.4, ge=0, le=5, description="highest temperature")
    tries: int = Field(4, ge=1, le=100, description="ends that are written until one is wrong")
    negatives: int = Field(2, ge=1, le=100, description="pairs with a shared beginning per problem")
    naive: int = Field(1, ge=0, le=100, description="ordinary pairs of a right and a wrong sample per problem")
    max_steps: int = Field(24, ge=1, le=1000, description="longest solution, in steps")


@stream_command(
    ScdpoOptions, tally=("pair_kind", "solution_step"), also=files_read, reads=lambda options: COLUMNS, distinct=True
)
def scdpo(options: ScdpoOptions, run: RunInfo) -> StreamFunction:
    """Make SCDPO pairs: right solutions, and the same continued from a random step until they end wrong.

    Records have `prompt` and `answer` (or `solution`). A right sample is kept up to a step; from there the model writes
    on, hotter with every step. All answers are kept in OUT.answers.jsonl: a run that was cut off asks nothing twice.
    """

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        with open_generator(options, run) as generator:
            pipeline = SCDPO(
                generator,
                Sampling(
                    samples=options.samples,
                    temperature=options.temperature,
                    top_p=options.top_p,
                    max_tokens=options.max_tokens,
                    prefill=options.prefill,
                    seed=run.seed,
                ),
                heat=Heat(options.heat_start, options.heat_step, options.heat_cap),
                splitter=options.splitter,
                rounds=options.rounds,
                naive=options.naive,
                negatives=options.negatives,
                tries=options.tries,
                max_steps=options.max_steps,
                by_rule=options.ends == "rule",
            )
            yield from through(pipeline, records, run, window=options.window, instruction=options.instruction)

    return rows
