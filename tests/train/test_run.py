"""A recipe becomes a run directory: what is written, refused, resumed and repeated."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from prefopt import ConfigError, RunError, load_recipe, train
from prefopt.train.build import assemble
from tests.train.folder import model_folder, pairs, recipe, tokenizer
from tests.train.tiny import flat

PROMPT = torch.tensor([[10, 20, 30, 40, 50]])


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def training(run: Path) -> list[dict[str, Any]]:
    """The lines of training, without those of probes and evaluations."""
    return [line for line in metrics(run) if "loss" in line]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def assert_same_weights(found: Path, expected: Path) -> None:
    ours, theirs = weights(found), weights(expected)
    assert ours
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def assert_same_metrics(found: Path, expected: Path) -> None:
    """Training and evaluation metrics to 1e-5, apart from times and from what depends on how batches are cut."""

    def lines(run: Path) -> list[dict[str, Any]]:
        timed = ("second", "time", "epoch", "flos", "padding")
        return [{k: v for k, v in m.items() if not k.endswith(timed)} for m in metrics(run) if "train_loss" not in m]

    ours, theirs = lines(found), lines(expected)
    assert [line.keys() for line in ours] == [line.keys() for line in theirs]
    for line, other in zip(ours, theirs, strict=True):
        assert line == pytest.approx(other, rel=1e-5, abs=1e-5)


# what a run leaves behind


def test_a_run_directory_holds_what_it_promises_and_loads_without_prefopt(tmp_path: Path) -> None:
    pairs(tmp_path / "held.jsonl", 5)
    result = train(recipe(tmp_path, data={"train": "pairs.jsonl", "eval": {"held": "held.jsonl"}}))
    run = tmp_path / "run"
    assert result.run == run
    for name in (
        "recipe.yaml",
        "run.json",
        "data_report.json",
        "metrics.jsonl",
        "README.md",
        "config.json",
        "tokenizer.json",
    ):
        assert (run / name).is_file(), name
    record = json.loads((run / "run.json").read_text())
    assert {"versions", "commit", "device", "model", "reference", "data", "plan"} <= record.keys()
    assert record["reference"]["kind"] == "frozen model"
    assert not list(run.glob(".*")), "nothing half-written is left"
    model = AutoModelForCausalLM.from_pretrained(run)
    assert AutoTokenizer.from_pretrained(run).eos_token == "<|end|>"
    moved = flat(model) - flat(AutoModelForCausalLM.from_pretrained(tmp_path / "model"))
    assert moved.norm() > 1e-2
    assert {"eval_held_loss", "eval_held_rewards/accuracies"} <= result.after.keys()
    assert not list(run.rglob("*.bin"))
    assert not list(run.rglob("*.pkl"))


def test_the_resolved_recipe_repeats_the_run(tmp_path: Path) -> None:
    train(recipe(tmp_path))
    again = load_recipe(tmp_path / "run" / "recipe.yaml", {"training.output_dir": str(tmp_path / "again")})
    train(again)
    assert_same_weights(tmp_path / "again", tmp_path / "run")
    assert [m.get("loss") for m in metrics(tmp_path / "again")] == [m.get("loss") for m in metrics(tmp_path / "run")]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    result = train(recipe(tmp_path), dry_run=True)
    assert result.dry_run
    assert result.plan["steps"] == 4
    assert not (tmp_path / "run").exists()
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "deep" / "er")}), dry_run=True)
    assert not (tmp_path / "deep").exists()


def test_answers_are_generated_before_and_after(tmp_path: Path) -> None:
    pairs(tmp_path / "held.jsonl", 5)
    evaluation = {"generate": {"max_new_tokens": 4}}
    result = train(
        recipe(tmp_path, data={"train": "pairs.jsonl", "eval": {"held": "held.jsonl"}}, evaluation=evaluation)
    )
    for side in (result.before, result.after):
        assert 0 <= side["eval_held_answer_accuracy"] <= 1
        assert 0 <= side["eval_held_answer_missing"] <= 1
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert {line["step"] for line in samples} == {0, 4}
    assert {line["id"] for line in samples} == {f"sum-{n}" for n in range(5)}


# output folders


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    train(recipe(tmp_path))
    with pytest.raises(
        ConfigError, match=r"exists and is not empty. Use --resume to continue it, --overwrite to start afresh"
    ):
        train(recipe(tmp_path))
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    train(recipe(tmp_path, {"loss.beta": 0.3}), overwrite=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() != before


def test_overwrite_leaves_a_folder_alone_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="holds files and is no run of prefopt, so it is left alone"):
        train(recipe(tmp_path), overwrite=True)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "years of work"


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "b"}\n')
    with pytest.raises(ValueError, match="identical"):
        train(recipe(tmp_path))
    assert not (tmp_path / "run").exists()


def test_overwriting_removes_what_a_run_left_and_nothing_else(tmp_path: Path) -> None:
    train(recipe(tmp_path, training=SAVING))
    (tmp_path / "run" / "notes.txt").write_text("mine")
    train(recipe(tmp_path), overwrite=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_resume_does_not_write_into_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("theirs")
    with pytest.raises(ConfigError, match="is no run of prefopt"):
        train(recipe(tmp_path), resume=True)
    assert (tmp_path / "run" / "config.json").read_text() == "theirs"


# resuming

SAVING = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}


def test_six_steps_equal_four_and_two_more_bit_for_bit(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        model_folder(folder / "model")
        train(recipe(folder, training=SAVING))
    run = cut / "run"
    # as a run that was stopped after step 4 leaves it: no final model, no later checkpoint, no later lines
    shutil.rmtree(run / "checkpoint-6")
    for name in ("model.safetensors", "README.md", "trainer_state.json"):
        (run / name).unlink()
    train(recipe(cut, training=SAVING), resume=True)
    assert_same_weights(run, whole / "run")
    plain = [{k: v for k, v in m.items() if not k.endswith(("second", "runtime"))} for m in metrics(run) if "loss" in m]
    expected = [
        {k: v for k, v in m.items() if not k.endswith(("second", "runtime"))}
        for m in metrics(whole / "run")
        if "loss" in m
    ]
    assert plain == expected


def test_resume_crosses_an_epoch_with_accumulation_and_a_ragged_end(tmp_path: Path) -> None:
    changed = {
        **SAVING,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 8,
        "save_steps": 3,
    }
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        model_folder(folder / "model")
        pairs(folder / "pairs.jsonl", 11)
        train(recipe(folder, training=changed))
    for step in (6, 8):
        shutil.rmtree(cut / "run" / f"checkpoint-{step}", ignore_errors=True)
    train(recipe(cut, training=changed), resume=True)
    assert_same_weights(cut / "run", whole / "run")


def test_resume_starts_from_the_beginning_when_there_is_no_checkpoint(tmp_path: Path) -> None:
    train(recipe(tmp_path), resume=True)
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(recipe(tmp_path, training=SAVING))
    (tmp_path / "run" / "checkpoint-6" / "prefopt_state.json").unlink()
    (tmp_path / "run" / "checkpoint-4" / "prefopt_state.json").unlink()
    train(recipe(tmp_path, training=SAVING), resume=True)
    steps = [m["step"] for m in metrics(tmp_path / "run") if "loss" in m]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_resume_refuses_another_objective_and_another_reference(tmp_path: Path) -> None:
    train(recipe(tmp_path, training=SAVING))
    with pytest.raises(ConfigError, match="checkpoint-6 was written with another objective"):
        train(recipe(tmp_path, {"loss.beta": 5.0}, training=SAVING), resume=True)
    shutil.rmtree(tmp_path / "model")
    model_folder(tmp_path / "model", seed=1)
    with pytest.raises(ConfigError, match="checkpoint-6 was written with another reference"):
        train(recipe(tmp_path, training=SAVING), resume=True)


def test_a_refused_resume_changes_nothing(tmp_path: Path) -> None:
    train(recipe(tmp_path, training=SAVING))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    for changes in ({"loss.beta": 5.0}, {"training.learning_rate": 0.5}, {"training.seed": 7}):
        with pytest.raises(ConfigError, match="checkpoint-6 was written with another"):
            train(recipe(tmp_path, changes, training=SAVING), resume=True)
    with pytest.raises(ConfigError, match="checkpoint-99 is not a whole checkpoint"):
        train(recipe(tmp_path, training=SAVING), resume_from=tmp_path / "run" / "checkpoint-99")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


def test_resumed_metrics_are_those_of_an_undisturbed_run_also_between_logging_steps(tmp_path: Path) -> None:
    changed = {**SAVING, "max_steps": 8, "save_steps": 3, "logging_steps": 4}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        model_folder(folder / "model")
        train(recipe(folder, training=changed))
    for step in (6, 8):
        shutil.rmtree(cut / "run" / f"checkpoint-{step}", ignore_errors=True)
    train(recipe(cut, training=changed), resume=True)
    names = ("step", "loss", "rewards/margins", "logps/chosen", "num_tokens")
    ours, theirs = ([{k: m[k] for k in names} for m in metrics(f / "run") if "loss" in m] for f in (cut, whole))
    assert [line["step"] for line in theirs] == [4, 8]
    for line, other in zip(ours, theirs, strict=True):
        assert line == other


def test_more_steps_on_a_falling_rate_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(recipe(tmp_path, training=SAVING))
    with caplog.at_level(logging.WARNING):
        train(recipe(tmp_path, training={**SAVING, "max_steps": 8}), resume=True)
    assert "checkpoint-6 was on its way to 6 steps, now 8: from here on the learning rate follows" in caplog.text


def test_the_last_step_is_logged_whatever_logging_steps_says(tmp_path: Path) -> None:
    result = train(recipe(tmp_path, training={"logging_steps": 100}))
    assert [m["step"] for m in metrics(result.run) if "loss" in m] == [4]
    assert "loss" in result.training


def test_resume_refuses_other_data(tmp_path: Path) -> None:
    train(recipe(tmp_path, training=SAVING))
    pairs(tmp_path / "pairs.jsonl", 10)
    with pytest.raises(ConfigError, match="checkpoint-6 was written with another data"):
        train(recipe(tmp_path, training=SAVING), resume=True)


def test_resume_refuses_weights_that_are_not_those_that_were_saved(tmp_path: Path) -> None:
    train(recipe(tmp_path, training={**SAVING, "max_steps": 4}))
    file = tmp_path / "run" / "checkpoint-4" / "model.safetensors"
    save_file({k: v * 1.5 if "mlp" in k else v for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    with pytest.raises(RunError, match="the policy restored from the checkpoint gives other log-probabilities"):
        train(recipe(tmp_path, training=SAVING), resume=True)


# adapters

LORA = {"mode": "new", "r": 4, "alpha": 8.0}


def start_adapter(tmp_path: Path) -> Path:
    """An adapter that has been trained, as the starting point of another run."""
    train(
        recipe(
            tmp_path,
            {"training.output_dir": str(tmp_path / "first")},
            model={"name_or_path": str(tmp_path / "model"), "adapter": LORA},
        )
    )
    return tmp_path / "first"


def test_lora_saves_only_the_adapter_and_compares_with_the_base(tmp_path: Path) -> None:
    run = start_adapter(tmp_path)
    assert (run / "adapter_model.safetensors").is_file()
    assert not (run / "model.safetensors").exists()
    assert json.loads((run / "run.json").read_text())["reference"]["kind"] == "adapter off"
    assert all("lora_" in name for name in weights(run))
    assert training(run)[0]["loss"] == pytest.approx(0.693147, abs=1e-5)
    loaded = AutoPeftModelForCausalLM.from_pretrained(run)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert not torch.allclose(loaded(PROMPT).logits, base(PROMPT).logits, atol=1e-4)


def test_continuing_an_adapter_compares_with_base_plus_its_start(tmp_path: Path) -> None:
    start = start_adapter(tmp_path)
    adapter = {"mode": "continue", "start": str(start)}
    result = train(recipe(tmp_path, model={"name_or_path": str(tmp_path / "model"), "adapter": adapter}))
    assert json.loads((result.run / "run.json").read_text())["reference"]["kind"] == "base plus frozen starting adapter"
    assert training(result.run)[0]["loss"] == pytest.approx(0.693147, abs=1e-5)
    assert training(result.run)[0]["rewards/ties"] == 1
    assert all("lora_" in name for name in weights(result.run))


def test_merging_first_then_a_new_adapter(tmp_path: Path) -> None:
    start = start_adapter(tmp_path)
    adapter = {**LORA, "mode": "merge", "start": str(start)}
    parts = assemble(
        recipe(tmp_path, model={"name_or_path": str(tmp_path / "model"), "adapter": adapter}), dry_run=True
    )
    expected = AutoPeftModelForCausalLM.from_pretrained(start)(PROMPT).logits
    torch.testing.assert_close(parts.trainer.model.eval()(PROMPT).logits, expected, rtol=1e-4, atol=1e-5)
    assert isinstance(parts.trainer.model, PeftModel)
    assert parts.trainer.reference.describe()["merged"] == str(start)


@pytest.mark.parametrize("kind", ["dora", "rslora"])
def test_other_adapters_train(kind: str, tmp_path: Path) -> None:
    result = train(recipe(tmp_path, model={"name_or_path": str(tmp_path / "model"), "adapter": {**LORA, "kind": kind}}))
    config = json.loads((result.run / "adapter_config.json").read_text())
    assert config[f"use_{kind}"] is True


def test_adapter_runs_resume_bit_for_bit(tmp_path: Path) -> None:
    model = {"name_or_path": str(tmp_path / "model"), "adapter": LORA}
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "whole")}, model=model, training=SAVING))
    train(recipe(tmp_path, model=model, training=SAVING))
    shutil.rmtree(tmp_path / "run" / "checkpoint-6")
    train(recipe(tmp_path, model=model, training=SAVING), resume=True)
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


# references


def test_another_model_as_reference(tmp_path: Path) -> None:
    model_folder(tmp_path / "other", seed=3)
    result = train(recipe(tmp_path, reference={"source": "model", "name_or_path": str(tmp_path / "other")}))
    assert abs(training(result.run)[0]["rewards/margins"]) > 1e-6, "policy and reference differ from the start"


def test_a_reference_with_another_vocabulary_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "other", seed=3, vocab_size=200)
    with pytest.raises(ConfigError, match="the policy has 272 token ids and the reference 200"):
        train(recipe(tmp_path, reference={"source": "model", "name_or_path": str(tmp_path / "other")}))


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", vocab_size=200)
    with pytest.raises(ConfigError, match=r"the tokenizer has ids up to \d+, the model's embedding 200 rows"):
        train(recipe(tmp_path))


def test_dropout_is_off_and_a_dropout_that_stays_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_folder(tmp_path / "model", attention_dropout=0.5)
    first = training(train(recipe(tmp_path)).run)[0]
    assert first["loss"] == pytest.approx(0.693147, abs=1e-5)
    monkeypatch.setattr("prefopt.train.model.switch_off_dropout", lambda config: [])
    with pytest.raises(
        RunError, match="policy and reference should be equal before the first step, but differ by up to"
    ):
        train(recipe(tmp_path), overwrite=True)


def test_a_model_that_is_certain_of_everything_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that maps every word to one id gives log-probabilities of exactly 0."""
    monkeypatch.setattr("prefopt.scoring.tokens.token_logps", lambda logits, labels: logits[..., 0] * 0)
    with pytest.raises(RunError, match="every log-probability of the first rows is exactly 0"):
        train(recipe(tmp_path, scoring={"backend": "plain"}))


def test_a_tokenizer_that_has_one_id_for_all_words_is_refused(tmp_path: Path) -> None:
    backend = Tokenizer(WordLevel({"word": 0, "<end>": 1}, unk_token="word"))
    backend.pre_tokenizer = Whitespace()
    model_folder(tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(tmp_path / "model")
    pairs(tmp_path / "pairs.jsonl", 30, chosen="it is five", rejected="six")
    with pytest.raises(RunError, match=r"responses of the first 30 rows have no token but 0: the tokenizer maps all"):
        train(recipe(tmp_path, {"data.max_lost": 1.0}))


def test_rows_that_are_longer_than_learned_positions_are_refused_before_training(tmp_path: Path) -> None:
    words = tokenizer()
    words.save_pretrained(tmp_path / "model")
    config = GPT2Config(vocab_size=272, n_embd=32, n_layer=2, n_head=4, n_positions=8, eos_token_id=words.eos_token_id)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"longest row has \d+ tokens, and GPT2LMHeadModel has learned positions for 8: set"
    ):
        train(recipe(tmp_path))


def test_a_missing_model_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        train(recipe(tmp_path, {"model.name_or_path": str(tmp_path / "nowhere")}))


def test_bfloat16_products_over_float32_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = train(recipe(tmp_path, {"training.bf16": True}))
    assert "products bfloat16" in result.plan["precision"]
    assert all(tensor.dtype == torch.float32 for tensor in weights(result.run).values())
    assert "half precision" not in caplog.text
