"""Slips and other trainers' names: each line of the error says where, what, what was meant."""

# ruff: noqa: E501 - a message stands on one line, as its reader sees it

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from prefopt.config.foreign import FOREIGN, LOSS_NAMES, NOT_HERE, advice, known_loss, unknown_loss
from prefopt.config.sections import SECTIONS
from prefopt.config.training import NAMES
from prefopt.losses import loss_names
from tests.config.conftest import GOOD, Refused, Write

SLIPS = """\
model:
  name_or_path: some/model
  torch_dtype: bfloat16
data:
  train: pairs.jsonl
  max_prompt_length: 512
loss:
  loss_type: sigmod
  name: sigmod
  bta: 0.3
reference:
  sync: {every: 10}
  cache: columns
training:
  output_dir: run
  learning_rate: "5e-7"
  sync_ref_model: true
  precompute_ref_log_probs: true
beta: 0.1
"""


def test_everything_that_is_wrong_is_told_at_once_in_order(refused: Refused) -> None:
    assert refused(SLIPS) == [
        "recipe.yaml:3: model: 'torch_dtype' is a name of TRL. Here: write model.dtype for stored weights, training.bf16 "
        "for compute.",
        "recipe.yaml:6: data: 'max_prompt_length' is a name of TRL. Here: data.max_length bounds prompt and response "
        "together, and data.truncate says which end is cut.",
        "recipe.yaml:8: loss: 'loss_type' is a name of TRL. Here: write `loss: {name: ...}`; `prefopt losses` lists them.",
        "recipe.yaml:9: unknown loss 'sigmod'. TRL's 'sigmoid' is 'dpo' here.",
        "recipe.yaml:13: reference.cache: reference.sync moves the reference, and a cache holds what it said before. "
        "Leave out one of the two.",
        "recipe.yaml:16: training.learning_rate must be a number; got '5e-7'. Leave the quotes out.",
        "recipe.yaml:17: training: 'sync_ref_model' is a name of TRL. Here: write reference.sync: {every: ..., mix: ...}.",
        "recipe.yaml:18: training: 'precompute_ref_log_probs' is a name of TRL. Here: write reference.cache.",
        "recipe.yaml:19: 'beta' stands in the wrong place: write loss.beta.",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: dpo", "name: dpo\n  bta: 0.3", "7: loss 'dpo': unknown option 'bta'. Did you mean 'beta'? "
         "Options: beta, label_smoothing, reference_free."),
        ("name: dpo", "name: dpo\n  beta: 0.1\n  beta: 0.2", "8: 'beta' is written twice; the first is in line 7."),
        ("name: dpo", "name: dpo\n  beta: '0.1'", "7: loss 'dpo': beta must be a number; got '0.1'."),
        ("name: dpo", "name: dpo\n  beta: true", "7: loss 'dpo': beta must be a number; got true."),
        ("name: dpo", "name: dpo\n  beta: .nan", "7: loss 'dpo': beta must be a finite number; got nan."),
        ("name: dpo", "name: dpo\n  beta: null", "7: loss 'dpo': beta must be a number; got null."),
        ("name: dpo", "name: dpo\n  weight: 0", "7: weight must be a number greater than 0; got 0."),
        ("name: dpo", "name: dpo\n  modify: [wpoo]", "7: unknown modifier 'wpoo'. Did you mean 'wpo'? Modifiers: wpo."),
        ("name: dpo", "name: dpo\n  modify: wpo", "7: modify must be a list of names; got 'wpo'."),
        ("name: dpo", "name: dpo\n  modify: [wpo, wpo]", "7: modify names a weighting twice: wpo, wpo."),
        ("name: dpo", "name: dpo\n  modify: [{name: wpo, cap: 1}]",
         "7: modifier 'wpo': unknown option 'cap'. Did you mean 'clamp'? Options: clamp."),
        ("name: dpo", "name: nll\n  modify: [wpo]", "7: modify: 'wpo' does not go with loss 'nll': it does not compare a pair."),
        ("name: dpo", "name: 5", "6: loss.name must be text; got 5."),
        ("name: dpo", "beta: 0.1", "5: loss.name is required and not given; `prefopt losses` lists the names."),
        ("name: dpo", "name: apo_zero_unpaired", "6: TRL's 'apo_zero_unpaired' is not available: on pairs it is "
         "'apo_zero'; on single responses 'kto' is the nearest, with a reference point."),
        ("name: dpo", "name: sigmoid", "6: TRL's 'sigmoid' is 'dpo' here."),
        ("loss:\n  name: dpo", "loss: dpo", "5: loss must be a mapping with a name, or a list of them; got 'dpo'; "
         "write `loss: {name: dpo}`."),
        ("loss:\n  name: dpo", "loss: [dpo]", "5: a loss must be a mapping with a name; got 'dpo'. Write {name: dpo}."),
        ("loss:\n  name: dpo", "loss: [{name: dpo}, {name: dpo}]", "5: loss 'dpo' stands twice in one objective; "
         "give it once with the sum of the weights."),
        ("loss:\n  name: dpo\n", "", ": loss.name is required and not given; `prefopt losses` lists the names."),
        ("model:\n  name_or_path: some/model", "model: some/model", "1: model must be a mapping; got 'some/model'. "
         "Write `model: {name_or_path: some/model}`."),
        ("model:\n  name_or_path: some/model\n", "", ": model.name_or_path is required and not given."),
        ("  output_dir: run\n", "  seed: 1\n", "7: training.output_dir is required and not given."),
        ("name_or_path: some/model", "name_or_path: some/model\n  dtype: bf16", "3: model.dtype must be one of 'float32', "
         "'bfloat16' or 'float16'; got 'bf16'. Did you mean 'bfloat16'?"),
        ("name_or_path: some/model", "name_or_path: some/model\n  adapter: {r: 0}", "3: model.adapter.r must be at least 1; "
         "got 0."),
        ("name_or_path: some/model", "name_or_path: some/model\n  adapter: lora", "3: model.adapter must be a mapping; "
         "got 'lora'."),
        ("name_or_path: some/model", "name_or_path: some/model\n  adapter: {target_modules: 3}", "3: model.adapter."
         "target_modules must be all-linear, a pattern, or a list of layer names; got 3."),
        ("train: pairs.jsonl", "train: {path: pairs.jsonl, weigth: 2}", "4: data.train: unknown option 'weigth'. "
         "Did you mean 'weight'? Options: columns, name, path, revision, split, weight."),
        ("train: pairs.jsonl", "train:\n    - pairs.jsonl\n    - {path: pairs.jsonl, weight: -1}",
         "6: data.train.1.weight must be greater than 0; got -1."),
        ("train: pairs.jsonl", "train: []", "4: data.train must not be empty."),
        ("train: pairs.jsonl", "train: pairs.jsonl\n  eval: {path: pairs.jsonl, split: test}",
         "5: data.eval holds sets by name; write `eval: {heldout: {path: ...}}`.\n"
         "recipe.yaml:5: data.eval.split: 'test' is no file here; if it is a hub data set, say which `split`."),
        ("train: pairs.jsonl", "train: pairs.jsonl\n  eval: {'a b': pairs.jsonl}", "5: data.eval.a b may hold only letters, "
         "digits, - and _: the metrics of a set are named after it."),
        ("output_dir: run", "output_dir: run\n  max_steps: 1.5", "9: training.max_steps must be a whole number; got 1.5."),
        ("output_dir: run", "output_dir: run\n  bf16: yes", "9: training.bf16 must be true or false; got 'yes'."),
        ("output_dir: run", "output_dir: run\n  optim: adamw_troch", "9: training.optim: unknown choice 'adamw_troch'. "
         "Did you mean 'adamw_torch'?"),
        ("output_dir: run", "output_dir: run\n  adam_beta2: 1", "9: training.adam_beta2 must be less than 1; got 1."),
        ("output_dir: run", "output_dir: run\n  learning_rate: -1e-6", "9: training.learning_rate must be greater "
         "than 0; got -1e-06. Nothing would be learned."),
        ("output_dir: run", "output_dir: run\n  learning_rate: 0", "9: training.learning_rate must be greater than 0; got 0. "
         "Nothing would be learned."),
        ("output_dir: run", "output_dir: run\n  weight_decay: -1", "9: training.weight_decay must be at least 0; got -1."),
        ("output_dir: run", "output_dir: run\n  max_steps: 0", "9: training.max_steps must be at least 1, or -1 to go by "
         "epochs; got 0."),
        ("output_dir: run", "output_dir: run\n  label_names: [x]", "9: training.label_names cannot be set: prefopt's collator "
         "names the columns of a batch."),
        ("output_dir: run", "output_dir: run\n  group_by_length: true", "9: training: 'group_by_length' is a name of earlier "
         "releases of transformers. Here: rows are drawn at random; drawing rows of similar length together is not "
         "available yet."),
        ("output_dir: run", "output_dir: run\n  train_sampling_strategy: group_by_length", "9: training."
         "train_sampling_strategy: unknown choice 'group_by_length'. Choices: random, sequential."),
        ("output_dir: run", "output_dir: run\n  max_length: 64", "9: training: 'max_length' stands in the wrong place: "
         "write data.max_length."),
        ("output_dir: run", "output_dir: run\n  revision: main", "9: training: 'revision' stands in the wrong place: "
         "write model.revision or reference.revision."),
        ("output_dir: run", "output_dir: run\nrl: dpo", "9: 'rl' is a name of axolotl. Here: write `loss: {name: ...}`; "
         "`prefopt losses` lists them."),
        ("output_dir: run", "output_dir: run\npref_beta: 0.1", "9: 'pref_beta' is a name of LLaMA-Factory. Here: write "
         "loss.beta."),
        ("output_dir: run", "output_dir: run\nadapter: lora", "9: 'adapter' stands in the wrong place: write model.adapter."),
        ("output_dir: run", "output_dir: run\ndiagnostics: {every: 5, probes: 0}", "9: diagnostics.every has no effect "
         "without probes. Leave it out."),
        ("output_dir: run", "output_dir: run\ndiagnostics: {every: 0}", "9: diagnostics.every must be at least 1 steps; got 0."),
        ("output_dir: run", "output_dir: run\nscoring: {coupling: step}", "9: scoring.coupling: step has no effect: loss 'dpo' "
         "treats every prompt alone. Leave it out."),
        ("output_dir: run", "output_dir: run\nsafety: {alarms: [squeezin]}", "9: safety.alarms.0 must be one of "
         "'chosen_below_start', 'squeezing', 'loss_spike' or 'runaway_margins'; got 'squeezin'. Did you mean 'squeezing'?"),
        ("output_dir: run", "output_dir: run\nsafety: {alarms: [{name: squeezing, abov: 1}]}", "9: safety.alarms.0: unknown "
         "option 'abov'. Did you mean 'above'? Options: above, action, name."),
        ("output_dir: run", "output_dir: run\nsafety: {alarms: [{name: loss_spike, above: -1}]}", "9: safety.alarms.0.above "
         "must be greater than 0; got -1."),
        ("output_dir: run", "output_dir: run\nsafety: {alarms: [{name: chosen_below_start, above: 80}]}",
         "9: safety.alarms.0 above is a share of pairs here, below 1; got 80."),
        ("output_dir: run", "output_dir: run\nsafety: {alarms: [squeezing]}\ndiagnostics: {probes: 0}",
         "9: alarm 'squeezing' reads the probe set, and diagnostics.probes is 0."),
        ("name: dpo", "name: nll\nsafety: {alarms: [runaway_margins]}", "7: alarm 'runaway_margins' "
         "reads margins of pairs; loss 'nll' has none."),
        ("name_or_path: some/model", "name_or_path: some/model\n  quantization: 4bit", "3: model.quantization: quantized "
         "weights cannot be trained. Add model.adapter, or leave quantization out."),
    ],
)  # fmt: skip
def test_one_slip(refused: Refused, old: str, new: str, line: str) -> None:
    assert old in GOOD
    expected = f"recipe.yaml{line}" if line.startswith(":") else f"recipe.yaml:{line}"
    assert refused(GOOD.replace(old, new)) == expected.split("\n")


def test_a_key_that_stands_twice_hides_nothing_else(refused: Refused, write: Write) -> None:
    text = GOOD.replace("name: dpo", "name: dpo\n  beta: 0.1\n  beta: 0.2\n  bta: 0.3").replace("some", "./some")
    twice = "'beta' is written twice; the first is in line"
    unknown = "loss 'dpo': unknown option 'bta'. Did you mean 'beta'? Options: beta, label_smoothing, reference_free."
    assert refused(text) == [
        "recipe.yaml:2: model.name_or_path: there is no folder some/model.",
        f"recipe.yaml:8: {twice} 7.",
        f"recipe.yaml:9: {unknown}",
    ]
    write(text.replace("./some", "some"), "base.yaml")
    assert refused("base: base.yaml\nmodel: {dtype: half}\n")[1:] == [
        f"base.yaml:8: {twice} 7.",
        f"base.yaml:9: {unknown}",
    ]
    assert refused(text, ["loss.name.x=1"]) == [
        f"recipe.yaml:8: {twice} 7.",
        "command line: loss.name.x=1: loss.name is 'dpo' and has no parts.",
    ]


def test_a_section_that_stands_twice_is_told_alone(refused: Refused) -> None:
    """What is missing in its first half may stand in the second."""
    assert refused(GOOD.replace("  output_dir", "  seed: 1\ntraining:\n  output_dir")) == [
        "recipe.yaml:9: 'training' is written twice; the first is in line 7."
    ]


def test_data_is_looked_at_although_something_else_is_wrong(refused: Refused) -> None:
    text = GOOD.replace("train: pairs.jsonl", "train: {path: paris.jsonl, weigth: 2}\n  max_length: 0")
    assert refused(text) == [
        "recipe.yaml:4: data.train: there is no file paris.jsonl. Did you mean 'pairs.jsonl'?",
        "recipe.yaml:4: data.train: unknown option 'weigth'. Did you mean 'weight'? "
        "Options: columns, name, path, revision, split, weight.",
        "recipe.yaml:5: data.max_length must be at least 2 tokens; got 0.",
    ]


def trl_fields(file: str, name: str) -> set[str]:
    """Annotated fields of a class in TRL's sources, read without importing it."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    return {
        n.target.id for c in classes for n in c.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


@pytest.mark.parametrize(
    ("file", "name"),
    [("trainer/dpo_config.py", "DPOConfig"), ("trainer/model_config.py", "ModelConfig"), ("scripts/utils.py", "ScriptArguments")],
)  # fmt: skip
def test_every_argument_of_trl_has_an_answer(file: str, name: str) -> None:
    fields = {field for field in trl_fields(file, name) if not field.startswith("_")}
    assert len(fields) > 4
    silent = [field for field in fields if field not in NAMES and advice(("training", field)) is None]
    assert not silent


def test_no_name_is_foreign_and_ours_at_the_same_place() -> None:
    """A setting of ours is never reached by the table, so a line for it would be dead."""
    tops = {*SECTIONS, "loss", "training", "base"}
    assert not tops & FOREIGN.keys()


def trl_loss_types() -> set[str]:
    """Every `loss_type` that TRL's preference trainers compare with, read from their sources."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    files = ["trainer/dpo_trainer.py", "trainer/kto_trainer.py", "experimental/cpo/cpo_trainer.py"]
    text = "".join((root / file).read_text(encoding="utf-8") for file in files)
    return set(re.findall(r'loss_type == "(\w+)"', text))


def test_every_loss_type_of_trl_is_a_loss_here_or_has_an_answer() -> None:
    theirs = trl_loss_types()
    assert theirs >= {"sigmoid", "sigmoid_norm", "bco_pair", "aot_unpaired", "simpo", "kto", "apo_zero_unpaired"}
    assert [name for name in theirs if not known_loss(name) and unknown_loss(name) is None] == []


def test_trl_names_of_losses_lead_to_losses_that_exist() -> None:
    assert all(known_loss(ours) for ours in LOSS_NAMES.values())
    assert not (LOSS_NAMES.keys() | NOT_HERE.keys()) & set(loss_names())
    assert not any(known_loss(name) for name in NOT_HERE)


@pytest.mark.parametrize("name", ["ld_alpha", "f_divergence_type", "rpo_alpha", "discopop_tau"])
def test_trl_settings_of_a_loss_name_the_loss(name: str) -> None:
    told = advice(("loss", name))
    assert told is not None
    (loss,) = re.findall(r"name: (\w+)", told)
    assert known_loss(loss)


def test_a_misspelt_word_for_the_cache_is_no_folder(refused: Refused) -> None:
    lines = refused(GOOD + "reference: {cache: colums}\n")
    assert lines == ["recipe.yaml:9: reference.cache: there is no folder colums. Did you mean 'columns'?"]
