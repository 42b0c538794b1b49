"""`prefopt data step-pairs`: problems in, pairs of a right and a wrong next step out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field

from data_tools.command import RunInfo, stream_command
from data_tools.errors import DataToolsError
from data_tools.generators import Generator, GeneratorOptions, files_read, journal_path, open_generator
from data_tools.pipelines.judge import ByJudge
from data_tools.pipelines.localise import ByEquations, ByLabels, ByRollouts, InTurn, Localiser
from data_tools.pipelines.problem import COLUMNS
from data_tools.pipelines.samples import Sampling
from data_tools.pipelines.step_dpo import StepDPO
from data_tools.pipelines.windows import through
from data_tools.run import Output, Row, StreamFunction

WAYS = ("equations", "labels", "judge", "rollouts")


class StepPairsOptions(GeneratorOptions):
    """How wrong solutions are found, located and put right."""

    instruction: str = Field("", description="what is put behind every prompt when the model is asked")
    prefill: str = Field("Let's think step by step.\nStep 1:", description="how every solution begins")
    splitter: Literal["auto", "numbered", "paragraph", "line", "sentence", "code"] = Field(
        "numbered", description="how solutions are split into steps"
    )
    samples: int = Field(2, ge=1, le=1000, description="solutions per problem")
    temperature: float = Field(0.8, ge=0, le=5, description="of all samples, those of corrections included")
    top_p: float = Field(0.95, gt=0, le=1, description="of all samples: share of the probability that takes part")
    max_tokens: int = Field(2048, ge=1, description="longest answer of the model")
    wrong_from: str | None = Field(None, description="column with wrong solutions, which are then not sampled")
    wrong_per_problem: int = Field(1, ge=1, description="wrong solutions of a problem that are used")
    count_open_as_wrong: bool = Field(False, description="solutions that state no answer count as wrong")
    locate: list[str] = Field(
        default_factory=lambda: ["equations"], description=f"one of {', '.join(WAYS)}; repeated: one after the other"
    )
    rollouts: int = Field(8, ge=1, le=1000, description="rollouts: continuations behind a step")
    judge_model: str | None = Field(None, description="judge: another model of the same server or kind")
    judge_url: str | None = Field(None, description="judge: another server")
    neutral: Literal["error", "right"] = Field("error", description="judge: what a step called neutral counts as")
    corrections: int = Field(20, ge=1, le=10_000, description="continuations that are drawn to put a step right")
    pairs: int = Field(20, ge=1, le=10_000, description="most pairs of one wrong solution")
    check: bool = Field(
        True, description="leave out right steps with a false equation, and pairs that come to the same result"
    )
    abs_tol: float | None = Field(None, gt=0, description="tolerance of answers; 0.001 is the rule of Step-DPO")
    dataset: str = Field("step-dpo", description="what the rows' column 'dataset' says")


def _reads(options: StepPairsOptions) -> list[str]:
    given = options.wrong_from
    return [*COLUMNS, "first_error_step", *([given, f"{given}_steps"] if given else [])]


@stream_command(StepPairsOptions, tally=("located_by", "solution_step"), also=files_read, reads=_reads, distinct=True)
def step_pairs(options: StepPairsOptions, run: RunInfo) -> StreamFunction:
    """Make Step-DPO pairs: a model's own wrong steps, and right ones that it writes in their place.

    Records have `prompt` and `answer` (or `solution`). Wrong solutions are sampled, their first wrong step is located,
    continuations are drawn from the steps before it, and each new first step of one that ends right becomes `chosen`
    against the wrong step. All answers are kept in OUT.answers.jsonl: a run that was cut off asks nothing twice.
    """
    unknown = [way for way in options.locate if way not in WAYS]
    if unknown:
        raise DataToolsError(f"--locate must be one of {', '.join(WAYS)}; got '{unknown[0]}'.")

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        with open_generator(options, run) as generator, open_judge(options, run, generator) as judge:
            pipeline = StepDPO(
                generator,
                InTurn([_localiser(way, options, run, generator, judge) for way in options.locate]),
                sampling(options, run, options.samples),
                sampling(options, run, options.corrections),
                splitter=options.splitter,
                wrong_per_problem=options.wrong_per_problem,
                pairs=options.pairs,
                check=options.check,
                count_open_as_wrong=options.count_open_as_wrong,
                given=options.wrong_from,
                dataset=options.dataset,
            )
            yield from through(pipeline, records, run, window=options.window, instruction=options.instruction)

    return rows


def sampling(options: StepPairsOptions, run: RunInfo, samples: int) -> Sampling:
    """How solutions and corrections are drawn."""
    return Sampling(
        samples=samples,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        prefill=options.prefill,
        seed=run.seed,
        abs_tol=options.abs_tol,
    )


@contextmanager
def open_judge(options: StepPairsOptions, run: RunInfo, generator: Generator) -> Iterator[Generator]:
    """The model that judges: the one that answers, or another with a journal of its own."""
    if options.judge_model is None and options.judge_url is None:
        yield generator
        return
    changed = {"model": options.judge_model or options.model, "url": options.judge_url or options.url}
    other = options.model_copy(update=changed)
    journal = journal_path(options, run)
    with open_generator(
        other.model_copy(update={"journal": journal.with_name(f"{journal.stem}.judge{journal.suffix}")}), run
    ) as judge:
        yield judge


def _localiser(way: str, options: StepPairsOptions, run: RunInfo, generator: Generator, judge: Generator) -> Localiser:
    if way == "equations":
        return ByEquations()
    if way == "labels":
        return ByLabels()
    if way == "judge":
        return ByJudge(judge, neutral_is_error=options.neutral == "error", seed=run.seed)
    return ByRollouts(
        generator,
        rollouts=options.rollouts,
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        seed=run.seed,
        abs_tol=options.abs_tol,
    )
