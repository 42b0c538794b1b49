"""Do similar pairs lower their chosen responses? DPO on subsets at percentiles of several scores, and what helps.

    python recipes/studies/displacement/study.py run MODEL [key=value ...] [--out RESULTS.json] [--work FOLDER]
    python recipes/studies/displacement/study.py show [--out RESULTS.json]

MODEL is `tiny-math` or `smollm2`. For each seed some of the pairs are drawn; pairs are ranked by each score of
`prefopt diagnose`; the pairs around each percentile are trained on by the recipe of the model, and the same pairs are
measured afterwards: how far log-probabilities moved from where they started. Then (`tiny-math`) other losses and
filters on all drawn pairs, measured on all of them, every run with the same number of steps. Each outcome is written
when it is there, and a second start goes on behind the last one. Further `key=value` settings go to the recipes.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger("study")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RESULTS = HERE / "results.json"
SCORES = ("ln_ches", "ches", "similarity", "last_inner_product")
"""What pairs are ranked by, higher meaning more alike; `similarity` is minus the normalised edit distance."""


@dataclass(frozen=True)
class Design:
    """One model's part: pairs drawn per seed (None for all), pairs per subset, and pairs the losses are compared on."""

    recipe: str
    data: str
    drawn: int | None
    subset: int
    percentiles: tuple[int, ...]
    seeds: tuple[int, ...]
    compared: int = 0


DESIGNS = {
    "tiny-math": Design("tiny_math.yaml", "tiny-math", 400, 48, (0, 25, 50, 75, 100), (0, 1, 2), 144),
    "smollm2": Design("smollm2.yaml", "gsm8k", None, 12, (0, 50, 100), (0,)),
}

METHODS: dict[str, dict[str, Any]] = {
    "dpo": {},
    "dpop": {"loss": {"name": "dpop", "beta": 0.1, "lam": 5.0}},
    "dpo + nll": {"loss": [{"name": "dpo", "beta": 0.1}, {"name": "nll", "weight": 0.2}]},
    "dpo_shift": {"loss": {"name": "dpo_shift", "beta": 0.1, "lam": 0.75}},
    "lowest quarter": {},
    "random quarter": {},
}
"""What is compared on the same pairs. The quarters are those with the lowest ln-CHES and, as a control, any; they are
seen four times as often, so that every run takes the same number of steps."""


@dataclass(frozen=True)
class Task:
    """One run: the pairs around a percentile of a score, or a method (`score` None)."""

    seed: int
    score: str | None = None
    percentile: int | None = None
    method: str = "dpo"


@dataclass(frozen=True)
class Outcome:
    """What became of the measured pairs: means in nats per response, shares of pairs, and the run's minutes."""

    seed: int
    score: str | None
    percentile: int | None
    method: str
    trained_pairs: int
    measured_pairs: int
    mean_score: float | None
    chosen_delta: float
    rejected_delta: float
    chosen_delta_per_token: float
    chosen_dropped: float
    both_dropped: float
    accuracy: float
    minutes: float

    @property
    def task(self) -> Task:
        return Task(self.seed, self.score, self.percentile, self.method)


def tasks(design: Design) -> Iterator[Task]:
    """Every run, seed by seed, so that an unfinished study has whole seeds."""
    for seed in design.seeds:
        for score in SCORES:
            for percentile in design.percentiles:
                yield Task(seed, score, percentile)
        if design.compared:
            for method in METHODS:
                yield Task(seed, method=method)


@dataclass(frozen=True)
class Study:
    """A design at work in a folder, with every pair's scores and its record."""

    design: Design
    work: Path
    settings: tuple[str, ...]
    scores: dict[str, dict[str, Any]]
    lines: dict[str, str]

    @classmethod
    def open(cls, design: Design, work: Path, settings: Sequence[str]) -> Study:
        """Score the pairs, unless that is done."""
        from prefopt.cli import main

        out, recipe = work / "scores", str(HERE / design.recipe)
        if not (out / "summary.json").exists() and main(["diagnose", recipe, *settings, "--out", str(out)]):
            raise SystemExit(1)
        records = map(json.loads, (out / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
        scores = {record["id"]: {**record, "similarity": -record["edit_distance"]} for record in records}
        data = ROOT / "recipes" / "data" / design.data / "pairs.jsonl"
        lines = {json.loads(line)["id"]: line for line in data.read_text(encoding="utf-8").splitlines()}
        return cls(design, work, tuple(settings), scores, lines)

    def run(self, task: Task) -> Outcome:
        """Train on the task's pairs and measure."""
        from prefopt import load_recipe, train

        began = time.monotonic()
        trained, measured = self.pairs(task)
        folder = self.work / "run"
        files = {"data.train": trained, "data.eval.pairs": measured}
        settings: dict[str, Any] = {name: self._written(name, ids) for name, ids in files.items()}
        settings |= {"training.output_dir": str(folder), "training.seed": task.seed, **METHODS[task.method]}
        if len(trained) < len(measured):
            settings["training.num_train_epochs"] = 2 * len(measured) / len(trained)
        recipe = load_recipe(
            HERE / self.design.recipe, [*self.settings, *(_assigned(*item) for item in settings.items())]
        )
        found = train(recipe, overwrite=True).after
        shutil.rmtree(folder)
        values = {name.rpartition("/")[2]: value for name, value in found.items() if "/" in name}
        return Outcome(
            **asdict(task),
            trained_pairs=len(trained),
            measured_pairs=len(measured),
            mean_score=None if task.score is None else statistics.mean(self.scores[i][task.score] for i in trained),
            **{name: values[name] for name in _MEASURED},
            accuracy=values["accuracies"],
            minutes=round((time.monotonic() - began) / 60, 2),
        )

    def pairs(self, task: Task) -> tuple[list[str], list[str]]:
        """Ids of the pairs to train on and of those to measure."""
        from prefopt.diagnostics.filters import quantile_window

        draw = random.Random(task.seed)
        drawn = sorted(draw.sample(sorted(self.scores), self.design.drawn or len(self.scores)))
        if task.score is not None:
            ranked = sorted(drawn, key=lambda i: self.scores[i][task.score])
            window = quantile_window(len(ranked), self.design.subset, (task.percentile or 0) / 100)
            subset = [ranked[place] for place in window]
            return subset, subset
        compared = draw.sample(drawn, self.design.compared)
        quarter = len(compared) // 4
        if task.method == "lowest quarter":
            return sorted(compared, key=lambda i: self.scores[i]["ln_ches"])[:quarter], compared
        return (compared[:quarter] if task.method == "random quarter" else compared), compared

    def _written(self, name: str, ids: Sequence[str]) -> str:
        file = self.work / f"{name}.jsonl"
        file.write_text("".join(self.lines[i] + "\n" for i in ids), encoding="utf-8")
        return str(file)


_MEASURED = ("chosen_delta", "rejected_delta", "chosen_delta_per_token", "chosen_dropped", "both_dropped")


def _assigned(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def read(out: Path) -> dict[str, list[Outcome]]:
    """Outcomes by model."""
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    return {model: [Outcome(**line) for line in lines] for model, lines in found.items()}


def write(out: Path, outcomes: dict[str, list[Outcome]]) -> None:
    """As JSON, whole."""
    content = {model: [asdict(outcome) for outcome in found] for model, found in outcomes.items()}
    partial = out.with_name(f".{out.name}.unfinished")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(out)


_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t for a two-sided interval of 95 %, by the number of seeds."""


def interval(values: Sequence[float]) -> str:
    """Mean and half width of its 95 % interval over seeds."""
    mean = statistics.mean(values)
    if len(values) not in _T:
        return f"{mean:+.2f}"
    return f"{mean:+.2f} ± {_T[len(values)] * statistics.stdev(values) / len(values) ** 0.5:.2f}"


def show(outcomes: dict[str, list[Outcome]]) -> None:
    """Markdown tables of everything."""
    for model, found in outcomes.items():
        print(f"\n## {model}\n")
        _show_percentiles([outcome for outcome in found if outcome.score is not None])
        _show_methods([outcome for outcome in found if outcome.score is None])
        print(f"\n{len(found)} runs, {sum(outcome.minutes for outcome in found):.0f} minutes")


def _show_percentiles(found: Sequence[Outcome]) -> None:
    from prefopt.diagnostics.filters import spearman

    percentiles = sorted({o.percentile for o in found if o.percentile is not None})
    _row("ranked by", *(f"{p} %" for p in percentiles), "rank correlation")
    _row(*["---"] * (len(percentiles) + 2))
    for score in SCORES:
        mine = [o for o in found if o.score == score]
        if not mine:
            continue
        cells = [interval([o.chosen_delta for o in mine if o.percentile == p]) for p in percentiles]
        seeds = sorted({o.seed for o in mine})
        each = [[o for o in mine if o.seed == seed] for seed in seeds]
        ranks = [spearman([o.percentile or 0 for o in one], [o.chosen_delta for o in one]) for one in each]
        _row(score, *cells, interval([rank for rank in ranks if rank is not None]))


def _show_methods(found: Sequence[Outcome]) -> None:
    if not found:
        return
    print()
    _row("method", "chosen", "rejected", "chosen fell", "both fell", "chosen preferred")
    _row(*["---"] * 6)
    for method in METHODS:
        mine = [o for o in found if o.method == method]
        columns = ("chosen_delta", "rejected_delta", "chosen_dropped", "both_dropped", "accuracy")
        if mine:
            _row(method, *(interval([getattr(o, name) for o in mine]) for name in columns))


def _row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "show"):
        command = commands.add_parser(name)
        command.add_argument("--out", type=Path, default=RESULTS)
    run = commands.choices["run"]
    run.add_argument("model", choices=DESIGNS)
    run.add_argument("settings", nargs="*", metavar="key=value")
    run.add_argument("--work", type=Path, default=ROOT / "runs" / "displacement")
    options = parser.parse_args()
    outcomes = read(options.out)
    if options.command == "run":
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        log.setLevel(logging.INFO)
        work = options.work.resolve() / options.model
        work.mkdir(parents=True, exist_ok=True)
        study = Study.open(DESIGNS[options.model], work, options.settings)
        done = {outcome.task for outcome in outcomes.get(options.model, ())}
        for task in tasks(study.design):
            if task not in done:
                outcome = study.run(task)
                log.info("%s", outcome)
                outcomes = read(options.out)  # another model's part may be at work beside this one
                write(options.out, outcomes | {options.model: [*outcomes.get(options.model, ()), outcome]})
        outcomes = read(options.out)
    show(outcomes)


if __name__ == "__main__":
    main()
