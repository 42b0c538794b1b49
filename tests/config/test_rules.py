"""Rules across sections: what does not fit together, and what has no effect."""

# ruff: noqa: E501 - a message stands on one line, as its reader sees it

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefopt.config import load_recipe, report_rules
from prefopt.errors import ConfigError
from prefopt.losses import loss_names, loss_spec
from prefopt.scores import Need
from tests.config.conftest import GOOD, PAIRS, Load, Refused, Write

UNPAIRED = ", ".join(name for name in loss_names() if loss_spec(name).responses == "single")


def with_loss(loss: str, rest: str = "") -> str:
    return GOOD.replace("loss:\n  name: dpo\n", f"loss: {loss}\n") + rest


# reference


def test_a_loss_that_compares_with_a_reference_gets_one(refused: Refused, load: Load) -> None:
    assert refused(GOOD + "reference: {source: none}\n") == [
        "recipe.yaml:9: loss 'dpo' compares with a reference, and reference.source is none. "
        "Leave the section out to compare with the model as it starts."
    ]
    load(with_loss("{name: dpo, reference_free: true}", "reference: {source: none}\n"))
    load(with_loss("{name: simpo}", "reference: {source: none}\n"))


def test_a_reference_that_nobody_reads_is_refused(refused: Refused, load: Load) -> None:
    for loss in ("simpo", "nll"):
        assert refused(with_loss(f"{{name: {loss}}}", "reference:\n  source: model\n  name_or_path: some/model\n")) == [
            f"recipe.yaml:8: reference: loss '{loss}' reads no reference, so this section has no effect. Leave it out, or write `source: none`."
        ]
    load(with_loss("[{name: nll}, {name: dpo, weight: 0.5}]", "reference: {source: model, name_or_path: some/model}\n"))


def test_another_reference_has_a_name_and_a_named_one_is_read(refused: Refused) -> None:
    assert refused(GOOD + "reference:\n  source: model\n") == [
        "recipe.yaml:10: reference.source is model, and reference.name_or_path does not say which."
    ]
    assert refused(GOOD + "reference:\n  name_or_path: some/model\n  revision: v2\n") == [
        "recipe.yaml:10: reference.name_or_path is read only with `source: model`; the source is initial.",
        "recipe.yaml:11: reference.revision is read only with `source: model`; the source is initial.",
    ]


# model


def test_models_that_cannot_be_found(refused: Refused, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    for name, text in {
        "./nowhere": "there is no folder nowhere.",
        "empty": "empty holds no config.json.",
        "adapter": "adapter holds an adapter, not a model: name its base, and write model.adapter: {mode: continue, start: ...}.",
    }.items():
        assert refused(GOOD.replace("some/model", name)) == [f"recipe.yaml:2: model.name_or_path: {text}"]
    (line,) = refused(GOOD.replace("some/model", "demo:tiny-meth"))
    assert line.startswith(
        "recipe.yaml:2: model.name_or_path: unknown demonstration model 'demo:tiny-meth'. Did you mean"
    )


def test_adapters_have_what_their_mode_reads_and_nothing_else(refused: Refused, load: Load, folder: Path) -> None:
    def adapter(settings: str) -> str:
        return GOOD.replace("some/model", f"some/model\n  adapter: {settings}")

    load(adapter("{r: 8, alpha: 16, kind: dora, target_modules: [q_proj], modules_to_save: [lm_head]}"))
    load(adapter("{mode: merge, start: some/adapter, r: 8}"))
    load(adapter("{mode: continue, start: some/adapter}"))
    for settings, text in {
        "{start: some/adapter}": "model.adapter.start is read with `mode: continue` or `mode: merge`; the mode is new.",
        "{mode: merge}": "model.adapter.mode is merge, and model.adapter.start does not say which adapter.",
        "{mode: continue, start: some/adapter, r: 8}": "model.adapter.r has no effect with `mode: continue`: the adapter keeps the shape it has.",
        "{mode: continue, start: ./here}": "model.adapter.start: here holds no adapter_config.json.",
    }.items():
        assert refused(adapter(settings)) == [f"recipe.yaml:3: {text}"]


def test_half_precision_storage_warns_unless_frozen(load: Load) -> None:
    text = GOOD.replace("some/model", "some/model\n  dtype: bfloat16")
    assert load(text).warnings == (
        "recipe.yaml:3: model.dtype is bfloat16 and all weights are trained: at the learning rates of preference tuning it "
        "swallows most updates. Use float32, and training.bf16 for speed.",
    )
    assert load(text, ["model.adapter.r=8"]).warnings == ()


def test_precisions_that_exclude_each_other(refused: Refused) -> None:
    text = GOOD + "  fp16: true\n"
    assert refused(text + "  bf16: true\n") == ["recipe.yaml:9: training.fp16 and training.bf16 exclude each other."]
    assert refused(text, ["model.dtype=float16"]) == [
        "recipe.yaml:9: training.fp16 scales gradients and needs weights stored in float32; model.dtype is float16."
    ]


# data


def test_files_that_cannot_be_used(refused: Refused, write: Write, folder: Path) -> None:
    write("", "empty.jsonl")
    write('{"prompt": "a"}\n{"prompt": \n', "broken.jsonl")
    write("[1, 2]\n", "list.jsonl")
    write("x", "data.xlsx")
    (folder / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}\n')
    expected = {
        "pairs.json": "data.train: there is no file pairs.json. Did you mean 'pairs.jsonl'?",
        "nowhere/pairs.jsonl": "data.train: there is no file nowhere/pairs.jsonl.",
        "empty.jsonl": "data.train: empty.jsonl has no records.",
        "broken.jsonl": "data.train: broken.jsonl:2: not valid JSON: Expecting value at column 1.",
        "list.jsonl": "data.train: list.jsonl:1: expected a JSON object; got list.",
        "data.xlsx": "data.train: data.xlsx cannot be read; a file must end in .jsonl, .ndjson, .json, .csv, .tsv or .parquet.",
        "some/dataset": "data.train: 'some/dataset' is no file here; if it is a hub data set, say which `split`.",
    }
    for path, text in expected.items():
        assert refused(GOOD.replace("pairs.jsonl", path)) == [f"recipe.yaml:4: {text}"]
    (line,) = refused(GOOD.replace("pairs.jsonl", "latin.jsonl"))
    assert line.startswith("recipe.yaml:4: data.train: latin.jsonl:1: not UTF-8 text (byte 0xe9).")


def test_a_hub_data_set_with_a_split_is_left_to_training(load: Load) -> None:
    source = load(GOOD.replace("pairs.jsonl", "{path: some/dataset, split: train, name: en, revision: v1}")).data.train[
        0
    ]
    assert (source.path, source.split) == ("some/dataset", "train")


def test_settings_of_data_sets_are_refused_for_files(refused: Refused) -> None:
    assert refused(GOOD.replace("pairs.jsonl", "{path: pairs.jsonl, split: train}")) == [
        "recipe.yaml:4: data.train: split is read for data sets only; pairs.jsonl is a file."
    ]


def test_column_maps(refused: Refused, load: Load, write: Write) -> None:
    write([{"question": "a", "good": "b", "bad": "c"}], "other.jsonl")
    source = "{path: other.jsonl, columns: {prompt: question, chosen: good, rejected: %s}}"
    load(GOOD.replace("pairs.jsonl", source % "bad"))
    assert refused(GOOD.replace("pairs.jsonl", source % "bed")) == [
        "recipe.yaml:4: data.train: columns: other.jsonl has no column 'bed'. Did you mean 'bad'? Columns: bad, good, question.",
        "recipe.yaml:4: loss 'dpo' compares responses, but other.jsonl lacks rejected; its columns are bad, chosen, prompt. "
        "`columns: {ours: theirs}` renames.",
    ]
    (line,) = refused(GOOD.replace("pairs.jsonl", "{path: pairs.jsonl, columns: {promt: prompt}}"))
    assert line.startswith(
        "recipe.yaml:4: data.train: columns: 'promt' is not a column of a record. Did you mean 'prompt'?"
    )


@pytest.mark.parametrize(
    ("records", "loss", "line"),
    [
        ([{"prompt": "a", "completion": "b", "label": True}], "dpo",
         f"loss 'dpo' compares responses, but rows.jsonl holds single completions. Losses for those: {UNPAIRED}."),
        ([{"prompt": "a", "text": "b"}], "dpo", "loss 'dpo' compares responses, but rows.jsonl lacks chosen and rejected; "
         "its columns are prompt, text. `columns: {ours: theirs}` renames."),
        ([{"prompt": "a", "text": "b"}], "nll", "loss 'nll' reads one response, but rows.jsonl has neither completion nor "
         "chosen; its columns are prompt, text. `columns: {ours: theirs}` renames."),
        ([{"prompt": "a", "chosen": "b", "rejected": None}], "dpo", "loss 'dpo' compares responses, but rows.jsonl lacks "
         "rejected; its columns are chosen, prompt. `columns: {ours: theirs}` renames."),
        ([{"prompt": "a", "chosen": "b", "rejected": ["c", "d", "e"]}], "dpo", "loss 'dpo' compares pairs, but rows.jsonl has "
         "3 rejected responses in a row. `data.negatives: expand` makes a pair of each."),
        ([{"prompt": "a", "responses": ["b", "c", "d"], "rewards": [1, 0, 0.5]}], "dpo", "loss 'dpo' compares pairs, but "
         "rows.jsonl has 2 rejected responses in a row. `data.negatives: expand` makes a pair of each."),
    ],
)  # fmt: skip
def test_records_that_the_loss_cannot_read(refused: Refused, write: Write, records: Any, loss: str, line: str) -> None:
    write(records, "rows.jsonl")
    text = GOOD.replace("pairs.jsonl", "rows.jsonl").replace("dpo", loss)
    assert refused(text) == [f"recipe.yaml:4: {line}"]


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "a", "chosen": "b", "rejected": ["c"]},
        {"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "a"}, {"role": "x"}]},
        {"prompt": "a", "responses": ["b", "c"], "rewards": [1, 0]},
    ],
)
def test_records_that_are_pairs(load: Load, write: Write, record: Any) -> None:
    write([record], "rows.jsonl")
    assert load(GOOD.replace("pairs.jsonl", "rows.jsonl")).objective().responses == "pair"


def test_several_rejected_may_be_expanded(load: Load, write: Write) -> None:
    write([{"prompt": "a", "chosen": "b", "rejected": ["c", "d"]}], "rows.jsonl")
    assert load(GOOD.replace("pairs.jsonl", "rows.jsonl\n  negatives: expand")).data.negatives == "expand"


def test_pairs_do_for_a_loss_on_single_responses(load: Load) -> None:
    assert load(GOOD.replace("dpo", "nll")).objective().responses == "single"


def test_csv_and_json_are_looked_at_too(refused: Refused, write: Write, load: Load) -> None:
    write("prompt,chosen,rejected\na,b,c\n", "rows.csv")
    write(json.dumps(PAIRS), "rows.json")
    load(GOOD.replace("pairs.jsonl", "[rows.csv, rows.json]"))
    write("prompt,chosen\na,b\n", "rows.csv")
    assert len(refused(GOOD.replace("pairs.jsonl", "rows.csv"))) == 1


def test_generation_needs_answers_to_compare_with(refused: Refused, load: Load, write: Write) -> None:
    write([{"prompt": "a", "chosen": "b", "rejected": "c"}], "plain.jsonl")
    text = GOOD + "evaluation: {generate: {}}\n"
    assert refused(text) == ["recipe.yaml:9: evaluation.generate needs a set under data.eval, and there is none."]
    assert refused(text, ["data.eval.held=plain.jsonl"]) == [
        "recipe.yaml:9: evaluation.generate compares with the column answer, and no set under data.eval has one."
    ]
    load(text, ["data.eval.held=pairs.jsonl", "data.eval.other=plain.jsonl"])


def test_a_dropped_last_batch_is_not_the_only_one(refused: Refused, load: Load) -> None:
    text = GOOD + "  dataloader_drop_last: true\n  per_device_train_batch_size: 5\n"
    assert refused(text) == [
        "recipe.yaml:9: training.dataloader_drop_last leaves nothing to train on: data.train has 4 rows, "
        "and per_device_train_batch_size is 5."
    ]
    load(text, ["training.per_device_train_batch_size=4"])
    load(text, ["training.dataloader_drop_last=false"])
    load(text, ["data.train.weight=1.1"])
    load(text, ["data.negatives=expand"])
    load(text.replace("pairs.jsonl", "[pairs.jsonl, pairs.jsonl]"))
    load(text.replace("pairs.jsonl", "[pairs.jsonl, {path: some/data, split: train}]"))


def test_data_settings_without_effect(refused: Refused) -> None:
    for settings, text in {
        "eos_on_cut: true": "data.eos_on_cut has no effect: data.truncate is drop, so no response is cut.",
        "max_length: null\n  truncate: error": "data.truncate has no effect: data.max_length is null.",
    }.items():
        last = 4 + len(settings.split("\n"))
        assert refused(GOOD.replace("pairs.jsonl", f"pairs.jsonl\n  {settings}")) == [f"recipe.yaml:{last}: {text}"]


def test_chat_templates(refused: Refused, load: Load, write: Write, folder: Path) -> None:
    def template(text: str) -> str:
        return GOOD.replace("pairs.jsonl", f"pairs.jsonl\n  chat_template: {text}")

    write("{{ messages }}", "chat.jinja")
    assert load(template("chat.jinja")).data.chat_template == str(folder / "chat.jinja")
    assert load(template("'{{ messages }}'")).data.chat_template == "{{ messages }}"
    assert refused(template("chats.jinja")) == ["recipe.yaml:5: data.chat_template: there is no file chats.jinja."]
    assert refused(template("chatml")) == [
        "recipe.yaml:5: data.chat_template is neither the path of a file nor a template with {{ ... }}."
    ]
    assert refused(template("chat.jinja\n  template: never")) == [
        "recipe.yaml:5: data.chat_template has no effect: data.template is never."
    ]


# training


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("eval_strategy: steps", "training.eval_strategy is steps, and data.eval names no set."),
        ("max_steps: 5\n  num_train_epochs: 1", "training.num_train_epochs has no effect: training.max_steps is 5."),
        ("save_strategy: epoch\n  save_steps: 5", "training.save_steps has no effect: training.save_strategy is epoch."),
        ("eval_steps: 5", "training.eval_steps has no effect: training.eval_strategy is no."),
        ("save_strategy: no\n  save_total_limit: 5", "training.save_total_limit has no effect: training.save_strategy is no."),
        ("metric_for_best_model: loss", "training.metric_for_best_model has no effect: no best model is kept."),
        ("load_best_model_at_end: true", "training.load_best_model_at_end needs evaluations, and training.eval_strategy is no."),
    ],
)  # fmt: skip
def test_training_arguments_without_effect(refused: Refused, settings: str, line: str) -> None:
    last = 8 + len(settings.split("\n"))
    assert refused(GOOD + f"  {settings}\n") == [f"recipe.yaml:{last}: {line}"]


def test_an_override_may_leave_a_setting_of_the_recipe_without_effect(load: Load) -> None:
    recipe = load(
        GOOD + "  num_train_epochs: 3\n  save_steps: 10\n", ["training.max_steps=5", "training.save_strategy=no"]
    )
    assert "num_train_epochs" not in recipe.resolved()


def test_an_override_has_an_effect_itself(refused: Refused, load: Load, write: Write) -> None:
    text = "training.num_train_epochs has no effect: training.max_steps is 12."
    override = "training.num_train_epochs=3"
    assert refused(GOOD + "  max_steps: 12\n", [override]) == [f"command line: {override}: {text}"]
    load(GOOD + "  max_steps: 12\n", [override, "training.max_steps=-1"])
    write(GOOD + "  max_steps: 12\n", "base.yaml")
    assert refused("base: base.yaml\ntraining: {num_train_epochs: 3}\n") == [f"recipe.yaml:2: {text}"]
    write(GOOD + "  num_train_epochs: 3\n", "base.yaml")
    load("base: base.yaml\ntraining: {max_steps: 12}\n")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("eval_strategy: epoch", "needs equal strategies; training.save_strategy is steps, training.eval_strategy epoch."),
        ("eval_strategy: steps\n  eval_steps: 3\n  save_steps: 10", "needs an evaluation wherever it saves: save_steps 10 is no multiple of eval_steps 3."),
    ],
)  # fmt: skip
def test_the_best_model_is_one_that_was_evaluated(refused: Refused, load: Load, settings: str, line: str) -> None:
    text = GOOD.replace("pairs.jsonl", "pairs.jsonl\n  eval: {held: pairs.jsonl}") + "  load_best_model_at_end: true\n"
    text += "  metric_for_best_model: held_loss\n"
    assert refused(text + f"  {settings}\n") == [f"recipe.yaml:10: training.load_best_model_at_end {line}"]
    load(text + "  eval_strategy: steps\n  eval_steps: 5\n  save_steps: 10\n")


BEST = GOOD.replace("pairs.jsonl", "pairs.jsonl\n  eval: {held: pairs.jsonl, a_b: pairs.jsonl}") + (
    "  eval_strategy: epoch\n  save_strategy: epoch\n  load_best_model_at_end: true\n"
)


def best_by(metric: str) -> str:
    return f"{BEST}  metric_for_best_model: {metric}\n"


METRICS = (
    "loss, rewards/chosen, rewards/rejected, rewards/margins, rewards/accuracies, rewards/ties, logps/chosen, "
    "logps/rejected, displacement/chosen_delta, displacement/rejected_delta, displacement/chosen_delta_per_token, "
    "displacement/rejected_delta_per_token, displacement/chosen_delta_mean_per_token, "
    "displacement/rejected_delta_mean_per_token, displacement/chosen_dropped, displacement/both_dropped"
)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("foo", ""),
        ("loss", " Did you mean 'eval_held_loss'?"),
        ("eval_rewards/margins", " Did you mean 'eval_held_rewards/margins'?"),
        ("eval_heldout_loss", " Did you mean 'eval_held_loss'?"),
        ("held_rewards/accuracy", " Did you mean 'eval_held_rewards/accuracies'?"),
        ("held_ipo/x", " Did you mean 'eval_held_loss'?"),
    ],
)
def test_the_metric_of_the_best_model_is_reported(refused: Refused, name: str, guess: str) -> None:
    (line,) = refused(best_by(name))
    assert line == (
        f"recipe.yaml:13: training.metric_for_best_model: no evaluation reports '{name}'.{guess} "
        f"Names are eval_SET_METRIC; sets: held, a_b; metrics: {METRICS}."
    )


def test_metrics_that_are_reported(load: Load, refused: Refused) -> None:
    for name in (
        "eval_held_loss",
        "held_loss",
        "a_b_rewards/margins",
        "eval_a_b_displacement/chosen_delta",
        "held_dpo/x",
    ):
        load(best_by(name))
    for name, change in {
        "held_answer_accuracy": "evaluation.generate={samples: 1}",
        "held_loss/nll": "loss=[{name: dpo}, {name: nll}]",
        "held_dpop/shortfall": "loss={name: dpop}",
    }.items():
        load(best_by(name), [change])
        assert len(refused(best_by(name))) == 1
    assert len(refused(best_by("held_displacement/chosen_delta"), ["loss={name: simpo}"])) == 1
    assert refused(BEST) == [
        "recipe.yaml:12: training.load_best_model_at_end: write metric_for_best_model, for instance eval_held_loss."
    ]


def test_reporters_are_installed(refused: Refused, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tensorboardX"}
    monkeypatch.setattr(report_rules, "find_spec", lambda name: name if name in installed else None)
    load(GOOD + "  report_to: [tensorboard, none]\n")
    load(GOOD + "  report_to: all\n")
    for name, text in {
        "wandb": "wandb needs the package wandb, which is not installed. Install it, or write none.",
        "[tensorboard, comet_ml]": "comet_ml needs the package comet-ml, which is not installed. Install it, or write none.",
        "wandbb": f"unknown choice 'wandbb'. Did you mean 'wandb'? Choices: {', '.join(report_rules.REPORTERS)}, none.",
    }.items():
        assert refused(GOOD + f"  report_to: {name}\n") == [f"recipe.yaml:9: training.report_to: {text}"]
    installed.clear()
    assert refused(GOOD + "  report_to: tensorboard\n") == [
        "recipe.yaml:9: training.report_to: tensorboard needs the package tensorboard or tensorboardX, which is not "
        "installed. Install it, or write none."
    ]


def test_every_reporter_of_transformers_is_known() -> None:
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    assert set(report_rules.REPORTERS) == set(INTEGRATION_TO_CALLBACK)


def test_files_of_other_libraries_exist(refused: Refused, load: Load, write: Write, folder: Path) -> None:
    assert refused(GOOD + "  deepspeed: zero.json\n") == [
        "recipe.yaml:9: training.deepspeed: there is no file zero.json."
    ]
    write("{}", "zero.json")
    assert load(GOOD + "  deepspeed: zero.json\n").training["deepspeed"] == str(folder / "zero.json")


def test_the_output_is_a_folder(refused: Refused) -> None:
    assert refused(GOOD.replace("run", "pairs.jsonl")) == ["recipe.yaml:8: training.output_dir: pairs.jsonl is a file."]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("output_dir: run", "output_dir: .", ". holds the recipe (recipe.yaml)"),
        ("output_dir: run", "output_dir: link", "link holds the recipe (recipe.yaml)"),
        ("pairs.jsonl", "run/in/pairs.jsonl", "run holds the data (run/in/pairs.jsonl)"),
        ("pairs.jsonl", "pairs.jsonl\n  eval: {held: run/in/pairs.jsonl}", "run holds the data (run/in/pairs.jsonl)"),
        ("some/model", "./run", "run is the model"),
        ("some/model", "./run/sub", "run holds the model (run/sub)"),
        ("some/model", "some/model\n  adapter: {mode: merge, start: ./run/sub}", "run holds the adapter (run/sub)"),
        ("loss:", "reference: {source: model, name_or_path: ./run/sub}\nloss:", "run holds the reference (run/sub)"),
    ],
)  # fmt: skip
def test_the_output_holds_nothing_that_the_run_reads(
    refused: Refused, write: Write, folder: Path, old: str, new: str, line: str
) -> None:
    write(PAIRS, "run/in/pairs.jsonl")
    for name in ("run", "run/sub"):
        write("{}", f"{name}/config.json")
        write("{}", f"{name}/adapter_config.json")
    (folder / "link").symlink_to(folder)
    lines = [text for text in refused(GOOD.replace(old, new)) if "the data" in line or "the data" not in text]
    number = 8 + new.count("\n") - old.count("\n")
    assert lines == [
        f"recipe.yaml:{number}: training.output_dir: {line}; --overwrite may delete it. Name another folder."
    ]


def test_data_may_lie_above_the_output(load: Load, write: Write, folder: Path) -> None:
    load(GOOD.replace("output_dir: run", "output_dir: a/b"))
    write(PAIRS, "running/pairs.jsonl")
    load(GOOD.replace("pairs.jsonl", "running/pairs.jsonl"))  # beside `run`, although the name begins with it


def test_a_recipe_in_its_output_is_refused_unless_a_run_wrote_it(refused: Refused, write: Write, folder: Path) -> None:
    text = GOOD.replace("output_dir: run", f"output_dir: {folder}/run").replace("pairs.jsonl", f"{folder}/pairs.jsonl")
    file = write(text, "run/recipe.yaml")
    line = (
        "training.output_dir: run holds the recipe (run/recipe.yaml); --overwrite may delete it. Name another folder."
    )
    with pytest.raises(ConfigError) as caught:
        load_recipe(file)
    assert str(caught.value) == f"run/recipe.yaml:8: {line}"
    load_recipe(file, ["training.output_dir=again"])
    write("{}", "run/run.json")
    load_recipe(file)
    with pytest.raises(ConfigError):
        load_recipe(write(text, "run/other.yaml"))


def test_the_output_holds_no_base(refused: Refused, write: Write) -> None:
    write(GOOD.replace("pairs.jsonl", "../pairs.jsonl"), "run/base.yaml")
    assert refused("base: run/base.yaml\ntraining: {output_dir: run}\n") == [
        "recipe.yaml:2: training.output_dir: run holds the recipe (run/base.yaml); --overwrite may delete it. "
        "Name another folder."
    ]


def test_a_loss_over_the_batch_warns_when_the_batch_is_one_prompt(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    import dataclasses

    from prefopt.losses import _registry

    spec = loss_spec("dpo")
    monkeypatch.setitem(_registry._specs, "dpo", dataclasses.replace(spec, window=2))
    (warning,) = load(GOOD + "  per_device_train_batch_size: 1\n").warnings
    assert warning == (
        "recipe.yaml:9: loss 'dpo' compares prompts with one another; with one prompt per device and one device it has none "
        "to compare, and training refuses to start."
    )


# the tables


def test_every_need_that_comes_from_data_names_its_columns() -> None:
    from prefopt.data.rows import NEEDED, READ_COLUMNS, REFERENCE_SUMS

    computed = {Need.REFERENCE, Need.TOKENS, Need.LENGTHS, Need.KL, Need.SUM_SQUARES, Need.MISMATCHED}
    assert set(NEEDED) - {REFERENCE_SUMS} == set(Need) - computed, "the sums are asked for by a setting"
    assert {name for needed in NEEDED.values() for names in needed.columns for name in names} <= set(READ_COLUMNS)


def test_defaults_are_available(load: Load) -> None:
    load(GOOD + "scoring: {}\nsafety: {}\ndiagnostics: {}\nreference: {}\nevaluation: {}\n")
    load(GOOD + "scoring:\nsafety:\ndiagnostics:\nreference:\nevaluation:\n")
    load(
        GOOD
        + "scoring: {layout: separate, backend: plain, coupling: micro}\nsafety: {alarms: []}\nreference: {cache: off}\n"
    )


def test_a_compiled_model_needs_the_plain_backend(refused: Refused, load: Load) -> None:
    compiled = ["training.torch_compile=true"]
    assert refused(GOOD, compiled) == [
        "command line: training.torch_compile=true: training.torch_compile: a compiled model cannot hand its head to the other backends. Write `scoring: {backend: plain}`, or leave this out."
    ]
    load(GOOD, [*compiled, "scoring.backend=plain"])
