"""The probe set and the alarms of a run: what they say is what the models say, and a run may be cut or shared."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from prefopt import RunError, train
from prefopt.cli import main
from prefopt.config.sections import AlarmSection
from prefopt.diagnostics.probes import ProbeSet, probe_places
from prefopt.runs import RunDirectory
from prefopt.train.alarms import Alarms, LossSpike, chosen_below_start, runaway_margins, squeezing
from tests.diagnostics.independent import logps_of, next_probabilities
from tests.train.folder import model_folder, pairs, recipe
from tests.train.tiny import tiny_rows

PROBED = {"diagnostics": {"every": 2, "probes": 5}}


def tables(run: Path) -> dict[int, list[dict[str, Any]]]:
    """Records by step."""
    files = sorted((run / "diagnostics").glob("probes-*.parquet"))
    found = [pq.read_table(file).to_pylist() for file in files]
    return {records[0]["step"]: records for records in found}


def probed(run: Path) -> list[dict[str, Any]]:
    """Logged lines of probes."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "probes/chosen_delta" in line]


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if isinstance(value, float)}


def test_the_same_rows_are_looked_at_at_the_start_every_so_many_steps_and_at_the_end(tmp_path: Path) -> None:
    train(recipe(tmp_path, training={"max_steps": 5}, **PROBED))
    found = tables(tmp_path / "run")
    assert list(found) == [0, 2, 4, 5]
    ids = [[record["id"] for record in records] for records in found.values()]
    assert ids == [[f"sum-{place}" for place in probe_places(12, 5)]] * 4
    assert {record["chosen_delta"] for record in found[0]} == {0.0}
    assert {record["quadrant"] for record in found[0]} == {"flat"}
    assert [line["step"] for line in probed(tmp_path / "run")] == [0, 2, 4, 5]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5], "no step's own line is lost"


def test_records_are_what_the_models_before_and_after_say(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    train(recipe(tmp_path, loss={"name": "simpo"}, **PROBED))  # without a reference the start is known all the same
    now, start = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("run", "model"))
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    given = {row["id"]: row for row in map(json.loads, (tmp_path / "pairs.jsonl").read_text().splitlines())}
    records = tables(tmp_path / "run")[4]
    for record in records:
        row = given[record["id"]]
        prompt = words(row["prompt"]).input_ids
        sides = {s: [*words(row[s]).input_ids, words.eos_token_id] for s in ("chosen", "rejected")}
        for side, ids in sides.items():
            sums = [float(logps_of(model, prompt, ids).sum()) for model in (start, now)]
            assert [record[f"{side}_start"], record[f"{side}_now"]] == pytest.approx(sums, rel=1e-5)
            assert record[f"{side}_delta"] == pytest.approx(sums[1] - sums[0], abs=1e-4)
        at = record["branch_position"]
        assert sides["chosen"][:at] == sides["rejected"][:at]
        tokens = sides["chosen"][at], sides["rejected"][at]
        masses = [next_probabilities(model, [*prompt, *sides["chosen"][:at]]) for model in (start, now)]
        for when, mass in zip(("start", "now"), masses, strict=True):
            assert record[f"branch_chosen_{when}"] == pytest.approx(float(mass[tokens[0]]), rel=1e-4)
            assert record[f"branch_rejected_{when}"] == pytest.approx(float(mass[tokens[1]]), rel=1e-4)
        assert record["branch_gain"] == pytest.approx(float((masses[1] - masses[0]).max()), rel=1e-3)
        tracks = [_track(model, prompt, sides["chosen"]) for model in (start, now)]
        assert record["greedy_start"] == pytest.approx(float(tracks[0].max(-1).values.mean()), rel=1e-4)
        assert record["greedy_now"] == pytest.approx(float(tracks[1].max(-1).values.mean()), rel=1e-4)
        held = tracks[1].gather(-1, tracks[0].argmax(-1, keepdim=True)).mean()
        assert record["greedy_held"] == pytest.approx(float(held), rel=1e-4)
    line = probed(tmp_path / "run")[-1]
    deltas = [record["chosen_delta"] for record in records]
    assert line["probes/chosen_delta"] == pytest.approx(sum(deltas) / len(deltas))
    assert line["probes/chosen_dropped"] == sum(delta < 0 for delta in deltas) / len(deltas)
    tracks_now = [record["greedy_now"] for record in records]
    assert line["displacement/greedy_track"] == pytest.approx(sum(tracks_now) / len(tracks_now))


@torch.no_grad()
def _track(model: Any, prompt: list[int], response: list[int]) -> torch.Tensor:
    """Log-probabilities of every token along a response, `[T, V]`."""
    logps = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0].double().log_softmax(-1)
    return logps[len(prompt) - 1 : -1]


def test_probing_does_not_move_training(tmp_path: Path) -> None:
    for name, section in (("with", {"every": 1}), ("without", {"probes": 0})):
        train(recipe(tmp_path, {"training.output_dir": str(tmp_path / name)}, diagnostics=section))
    assert (tmp_path / "with" / "model.safetensors").read_bytes() == (
        tmp_path / "without" / "model.safetensors"
    ).read_bytes()
    assert not (tmp_path / "without" / "diagnostics").exists()
    assert not probed(tmp_path / "without")


@pytest.mark.parametrize("adapter", [None, {"r": 4}], ids=["full", "lora"])
def test_a_resumed_run_compares_with_the_first_start_and_repeats_no_record(
    adapter: dict[str, Any] | None, tmp_path: Path
) -> None:
    saving = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    sections = {**PROBED, "training": saving, **({"model": {"adapter": adapter}} if adapter else {})}
    for name in ("whole", "cut"):
        train(recipe(tmp_path, {"training.output_dir": str(tmp_path / name)}, **sections))
    lines = probed(tmp_path / "cut")
    again = recipe(tmp_path, {"training.output_dir": str(tmp_path / "cut")}, **sections)
    train(again, resume_from=tmp_path / "cut" / "checkpoint-3")
    whole, cut = tables(tmp_path / "whole"), tables(tmp_path / "cut")
    assert list(whole) == list(cut) == [0, 2, 4, 6]
    for step, records in whole.items():
        for one, other in zip(records, cut[step], strict=True):
            assert plain(other) == pytest.approx(plain(one), rel=1e-6, abs=1e-9)
    assert [line["step"] for line in probed(tmp_path / "cut")] == [line["step"] for line in lines]


def test_a_resumed_run_whose_start_is_gone_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sections = {**PROBED, "training": {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}}
    train(recipe(tmp_path, **sections))
    (tmp_path / "run" / "diagnostics" / "start.safetensors").unlink()
    with caplog.at_level(logging.WARNING, logger="prefopt"):
        train(recipe(tmp_path, **sections), resume_from=tmp_path / "run" / "checkpoint-2")
    assert "does not hold the start of this run for these 5 rows" in caplog.text
    assert list(tables(tmp_path / "run")) == [0, 2]


def test_single_responses_have_one_side_and_no_branch(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    rows = [{"id": str(n), "prompt": f"{n} =", "completion": f" {n}", "label": n % 2 == 0} for n in range(8)]
    (tmp_path / "single.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sections = {"data": {"train": "single.jsonl"}, "loss": {"name": "bco"}, "diagnostics": {"every": 2, "probes": 8}}
    train(recipe(tmp_path, **sections))
    for record in tables(tmp_path / "run")[4]:
        mine, other = ("chosen", "rejected") if int(record["id"]) % 2 == 0 else ("rejected", "chosen")
        assert record[f"{mine}_delta"] != 0
        assert record[f"{other}_delta"] is None
        assert record["quadrant"] is None
        assert record["branch_position"] is None
    line = probed(tmp_path / "run")[-1]
    assert {"probes/chosen_delta", "probes/rejected_delta", "displacement/greedy_track"} <= line.keys()
    assert not {"probes/both_dropped", "probes/branch_other"} & line.keys()


def test_several_rejected_responses_have_a_record_each() -> None:
    probes = ProbeSet.of(tiny_rows(6, responses=4), 3)
    assert [len(item.pairs) for item in probes.items] == [3, 3, 3]


def test_fewer_rows_than_probes_are_all_looked_at() -> None:
    assert probe_places(3, 64) == [0, 1, 2]
    assert probe_places(1000, 64) == probe_places(1000, 64)
    assert len(set(probe_places(1000, 64))) == 64


# alarms

FALLING = {
    "probes/chosen_dropped": 0.9,
    "probes/chosen_delta": -3.0,
    "probes/rejected_delta": -9.0,
    "displacement/greedy_track_change": 0.1,
}


def test_an_alarm_rings_above_its_threshold_alone() -> None:
    assert chosen_below_start(FALLING, 0.9) is None
    text = chosen_below_start(FALLING, 0.8)
    assert text is not None
    assert text.startswith(
        "the chosen response is less likely than at the start in 90% of the probe pairs (alarm above"
    )
    for remedy in ("nll", "dpop", "dpo_shift", "--keep-lowest"):
        assert remedy in text
    assert squeezing(FALLING, 0.05) is not None
    assert squeezing(FALLING, 0.1) is None
    assert squeezing({**FALLING, "probes/chosen_delta": 0.0}, 0.05) is None, "not squeezing while the chosen one rises"
    assert squeezing({**FALLING, "probes/rejected_delta": 0.0}, 0.05) is None
    assert runaway_margins({"rewards/margins": 20.0}, 20.0) is None
    assert runaway_margins({"rewards/margins": 20.1}, 20.0) is not None


def test_a_spike_is_far_from_the_last_losses_and_not_from_the_first() -> None:
    spike = LossSpike()
    for number in range(10):
        assert spike({"loss": 0.7 + 0.01 * (number % 3)}, 10.0) is None
    assert spike({"probes/chosen_delta": 1.0}, 10.0) is None
    assert spike({"loss": 0.79}, 10.0) is None
    assert spike({"loss": 1.5}, 10.0) is not None


def test_a_warning_is_given_when_an_alarm_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import TrainerControl, TrainerState

    alarms = Alarms([AlarmSection(name="chosen_below_start")], run=RunDirectory(tmp_path))
    args: Any = None
    state, control = TrainerState(global_step=7, is_world_process_zero=True), TrainerControl()
    with caplog.at_level(logging.WARNING, logger="prefopt"):
        for logs in (FALLING, {"loss": 1.0}, FALLING, {**FALLING, "probes/chosen_dropped": 0.1}, FALLING):
            alarms.on_log(args, state, control, logs=logs)
    assert [record.message.split(":")[0] for record in caplog.records] == ["step 7, alarm chosen_below_start"] * 2
    assert not control.should_training_stop
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [
        {"step": 7, "alarms/chosen_below_start": 1.0}
    ] * 2


def test_stop_ends_the_run_with_a_checkpoint_that_can_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any gain counts as a margin that runs away."""
    stop = [{"name": "runaway_margins", "above": 1e-9, "action": "stop"}]
    recipe(tmp_path, safety={"alarms": stop}, training={"learning_rate": 1e-2})
    assert main(["train", str(tmp_path / "recipe.json")]) == 1
    told = capsys.readouterr().err
    assert "alarm runaway_margins: the mean reward margin is" in told
    assert "--resume continues it" in told
    (kept,) = RunDirectory(tmp_path / "run").checkpoints()
    step = int(kept.name.rpartition("-")[2])
    assert 0 < step < 4
    assert max(line["step"] for line in RunDirectory(tmp_path / "run").metrics()) == step
    assert not (tmp_path / "run" / "model.safetensors").exists(), "an unfinished run has no final model"
    recipe(tmp_path, training={"learning_rate": 1e-2})
    assert main(["train", str(tmp_path / "recipe.json"), "--resume"]) == 0
    assert RunDirectory(tmp_path / "run").path.joinpath("model.safetensors").exists()


def test_an_alarm_on_probes_stops_as_well(tmp_path: Path) -> None:
    pairs(tmp_path / "pairs.jsonl")
    stop = [{"name": "chosen_below_start", "above": 0.01, "action": "stop"}]
    made = recipe(
        tmp_path, safety={"alarms": stop}, loss={"name": "dpo"}, **{"diagnostics": {"every": 1, "probes": 12}}
    )
    with pytest.raises(RunError, match="alarm chosen_below_start: the chosen response is less likely"):
        train(made)
    (kept,) = RunDirectory(tmp_path / "run").checkpoints()
    assert list(tables(tmp_path / "run"))[-1] == int(kept.name.rpartition("-")[2])
