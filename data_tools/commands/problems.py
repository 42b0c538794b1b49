"""`prefopt data problems`: seeded arithmetic word problems."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from data_tools.command import app
from data_tools.errors import DataToolsError
from data_tools.job import require_file, require_outputs
from data_tools.manifest import FileNote, Plan, manifest, refuse_folders, refuse_foreign, write_manifest
from data_tools.problems import FLAW_ELSEWHERE, Flaw, make_problems
from data_tools.records import read_numbered, text_field, write_records
from data_tools.shards import Shard


@app.command()
def problems(
    out: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="JSON-lines file to write", show_default=False)],
    number: Annotated[int, typer.Option("--count", min=0, help="how many problems")] = 1000,
    seed: Annotated[int, typer.Option(help="the same seed gives the same problems")] = 0,
    flaw: Annotated[
        float, typer.Option(min=0, max=1, help="probability of the wrong operation for the planted surface forms")
    ] = 0.0,
    flaw_elsewhere: Annotated[
        float, typer.Option(min=0, max=1, help="the same for all other forms; counts only with --flaw above 0")
    ] = FLAW_ELSEWHERE,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="JSON-lines file whose prompts must not occur; may be repeated")
    ] = None,
    shard: Annotated[
        str, typer.Option("--shard", metavar="i/n", help="only every n-th of the problems, from the i-th on")
    ] = "1/1",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a file that another run made")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="do everything but write")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="report as one JSON object")] = False,
) -> None:
    """Write seeded arithmetic word problems with step-by-step solutions and answers."""
    options = {"count": number, "flaw": flaw, "flaw_elsewhere": flaw_elsewhere}
    part = Shard.parse(shard)
    for path in exclude or ():
        require_file(path)
    plan = Plan("problems", options, seed, str(part), [FileNote.of(path) for path in exclude or ()])
    manifest_file = out.with_name(f"{out.name}.manifest.json")
    require_outputs((out, manifest_file), exclude or ())
    if out.suffix not in (".jsonl", ".ndjson"):
        raise DataToolsError(f"{out}: must end in .jsonl; problems are written as JSON lines.")
    if not dry_run:
        refuse_folders(out, manifest_file)
        if not overwrite:
            refuse_foreign(manifest_file, plan.key, [out])
    excluded = {prompt for path in exclude or () for prompt in _prompts(path)}
    made = make_problems(number, seed=seed, flaw=Flaw(flaw, flaw_elsewhere) if flaw > 0 else None, exclude=excluded)
    made = [problem for place, problem in enumerate(made) if part.takes(place)]
    summary = {
        "command": "problems",
        "out": str(out),
        "written": not dry_run,
        "count": len(made),
        "seed": seed,
        "excluded_prompts": len(excluded),
        "with_distractor": sum(problem.distractor for problem in made),
        "with_planted_flaw": sum(bool(problem.planted) for problem in made),
    }
    if not dry_run:
        write_records(out, (problem.record() for problem in made))
        counts = {name: summary[name] for name in ("count", "with_distractor", "with_planted_flaw")}
        write_manifest(manifest_file, manifest(plan, [FileNote.of(out, out.name)], counts))
    flawed = f", {summary['with_planted_flaw']} with a planted flaw" if flaw > 0 else ""
    _report(summary, f"{out}: {'would write' if dry_run else 'wrote'} {len(made)} problems{flawed}.", as_json=as_json)


def _report(summary: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print what the command did: one JSON object and nothing else, or one sentence."""
    typer.echo(json.dumps(summary, ensure_ascii=False) if as_json else sentence)


def _prompts(path: Path) -> list[str]:
    return [text_field(record, "prompt", f"{path}:{line}") for line, record in read_numbered(path)]
