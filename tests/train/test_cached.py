"""A recipe with a cache of its reference: the same trajectory, no second model, and a refusal where it does not fit."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from prefopt import ConfigError, DataError, RunError, load_recipe, train
from prefopt.cli import main
from prefopt.config.check import WITH_SUMS
from prefopt.losses import get_loss, loss_names
from prefopt.scores import Need
from prefopt.testing import make_scores
from prefopt.train.build import assemble
from prefopt.train.cached import ColumnReference, _deciding
from tests.train.folder import pairs, recipe
from tests.train.test_run import assert_same_metrics, training, weights

LOSSES: dict[str, dict[str, Any]] = {
    "sums": {"name": "dpo", "beta": 0.5},
    "tokens": {"name": "ld_dpo"},
    "sampled": {"name": "sampo"},
    "another prompt's responses": {"name": "kto"},
}


def written(folder: Path, name: str = "recipe.yaml", **sections: Any) -> str:
    """A recipe file that names its cache, and the folder it names."""
    found = recipe(folder, **sections)
    path = folder / name
    path.write_text(found.resolved())
    return str(path)


def single_responses(path: Path) -> None:
    rows = [{"prompt": f"{n} + {n} =", "completion": f" {2 * n + n % 2}", "label": n % 2 == 0} for n in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("kind", LOSSES)
def test_cached_and_live_references_give_one_trajectory(tmp_path: Path, kind: str) -> None:
    if kind == "another prompt's responses":
        single_responses(tmp_path / "pairs.jsonl")
    runs = {}
    for cache in ("off", str(tmp_path / "cache")):
        name = "live" if cache == "off" else "cached"
        run = {"output_dir": str(tmp_path / name), "max_steps": 8, "learning_rate": 1e-3}
        path = written(tmp_path, f"{name}.yaml", loss=LOSSES[kind], reference={"cache": cache}, training=run)
        if name == "cached":
            assert main(["reference", path]) == 0
        train(load_recipe(path))
        runs[name] = tmp_path / name
    assert_same_metrics(runs["cached"], runs["live"])
    lines = training(runs["cached"])
    assert lines[0]["loss"] != lines[-1]["loss"], "something was trained"
    cached, live = weights(runs["cached"]), weights(runs["live"])
    assert all((cached[name] - live[name]).abs().max() < 1e-5 for name in live)
    record = json.loads((runs["cached"] / "run.json").read_text())
    assert record["reference"]["cache"] == str(tmp_path / "cache")
    assert record["reference"]["kind"] == "frozen model"


def test_auto_finds_what_prefopt_reference_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFOPT_CACHE", str(tmp_path / "home"))
    path = written(tmp_path)
    assert "cache" not in assemble(load_recipe(path)).trainer.reference.describe()
    assert main(["reference", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["added"] == found["responses"] == 24
    trainer = assemble(load_recipe(path)).trainer
    assert trainer.reference.describe()["cache"] == found["folder"]
    assert not hasattr(trainer.reference, "model"), "no second model is kept"
    for change in ("model.adapter={r: 4, target_modules: [q_proj]}", "loss={name: sampo}"):  # one cache for all of them
        assert "cache" in assemble(load_recipe(path, [change])).trainer.reference.describe()
    assert "cache" not in assemble(load_recipe(path, ["training.bf16=true"])).trainer.reference.describe()
    assert main(["reference", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 0


def test_a_cache_that_lacks_responses_is_said_and_a_named_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PREFOPT_CACHE", str(tmp_path / "home"))
    auto, named = written(tmp_path), written(tmp_path, "named.yaml", reference={"cache": str(tmp_path / "cache")})
    assert main(["reference", auto]) == main(["reference", named]) == 0
    pairs(tmp_path / "pairs.jsonl", 14)
    with caplog.at_level(logging.WARNING, logger="prefopt"):
        assert "cache" not in assemble(load_recipe(auto)).trainer.reference.describe()
    assert "lacks 4 of the 28 responses of this run, so the reference is computed live" in caplog.text
    with pytest.raises(ConfigError, match=r"cache lacks 4 of the 28 responses of this run; `prefopt reference RECIPE`"):
        train(load_recipe(named))
    with pytest.raises(ConfigError, match=r"products is float32 there and bfloat16 here"):
        train(load_recipe(named, ["training.bf16=true"]))


def test_values_that_are_not_the_live_ones_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, reference={"cache": str(tmp_path / "cache")})
    real = "prefopt.scoring.cache._each"
    from prefopt.scoring import cache

    each = cache._each
    monkeypatch.setattr(real, lambda logps, mask: [values + 0.01 for values in each(logps, mask)])
    assert main(["reference", path]) == 0
    with pytest.raises(RunError, match=r"and the live reference differ by 0\.01 nats on a token of the first rows"):
        train(load_recipe(path))


def test_what_has_no_cache_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", written(tmp_path, loss={"name": "simpo"})]) == 2
    assert "loss 'simpo' reads no reference; there is nothing to compute" in capsys.readouterr().err
    assert main(["reference", written(tmp_path), "reference.cache=off"]) == 2
    assert "reference.cache is off" in capsys.readouterr().err
    assert main(["reference", written(tmp_path, reference={"sync": {"every": 2}})]) == 2
    assert "a cache cannot serve such a run" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="compares whole distributions with the reference"):
        recipe(tmp_path, loss={"name": "tdpo1"}, reference={"cache": "here"})


# ------------------------------------------------------------------------------------------------------------ columns


def with_sums(folder: Path, names: dict[int, str], *, change: float = 0.0) -> None:
    """The reference's sums written into the folder's rows, under the names of their responses' columns."""
    built = assemble(recipe(folder, loss={"name": "dpo"} if len(names) > 1 else {"name": "bco"})).trainer
    rows = built.train_dataset
    batch = built.collator([{**rows[number], "index": number} for number in range(len(rows))])
    sums = built.reference(batch).logps.masked_fill(~batch["mask"], 0).sum(-1)
    lines = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    for line, values in zip(lines, sums.tolist(), strict=True):
        line |= {f"ref_{name}_logps": values[r] + change for r, name in names.items()}
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


PAIR = {0: "chosen", 1: "rejected"}


@pytest.mark.parametrize("loss", ["dpo", "bco"])
def test_sums_in_columns_and_a_live_reference_give_one_trajectory(tmp_path: Path, loss: str) -> None:
    names = PAIR
    if loss == "bco":
        single_responses(tmp_path / "pairs.jsonl")
        names = {0: "completion"}
    with_sums(tmp_path, names)
    data = {"train": "pairs.jsonl", "eval": {"same": "pairs.jsonl"}}
    for cache in ("off", "columns"):
        run = {"output_dir": str(tmp_path / cache), "max_steps": 8, "learning_rate": 1e-3, "eval_strategy": "no"}
        train(recipe(tmp_path, loss={"name": loss}, data=data, reference={"cache": cache}, training=run))
    counts = (
        "_dropped",
        "accuracies",
        "ties",
        "_per_second",
    )  # at the start they count on which side of 0 the rounding of sums fell
    for ours, theirs in zip(training(tmp_path / "columns"), training(tmp_path / "off"), strict=True):
        names = [name for name in theirs if not name.endswith(counts)]
        assert {n: ours[n] for n in names} == pytest.approx({n: theirs[n] for n in names}, rel=1e-3, abs=1e-4)
    assert training(tmp_path / "off")[0]["loss"] != training(tmp_path / "off")[-1]["loss"], "something was trained"
    columns, live = weights(tmp_path / "columns"), weights(tmp_path / "off")
    assert all((columns[name] - live[name]).abs().max() < 1e-5 for name in live)
    assert json.loads((tmp_path / "columns/run.json").read_text())["reference"]["cache"] == "columns"


def test_sums_are_read_only_when_they_are_asked_for(tmp_path: Path) -> None:
    with_sums(tmp_path, PAIR, change=-1.0)
    trainer = assemble(recipe(tmp_path)).trainer
    assert "reference_sums" not in trainer.train_dataset.column_names
    assert "ref_chosen_logps" in trainer.train_dataset[0]["extra"]


def test_sums_that_are_not_the_references_stop_the_run(tmp_path: Path) -> None:
    with_sums(tmp_path, PAIR, change=-0.25)
    with pytest.raises(RunError, match=r"^row 'sum-0': the data say that the reference gives response 0 .* and"):
        train(recipe(tmp_path, reference={"cache": "columns"}))


def test_sums_of_another_model_in_the_last_part_of_the_data_stop_the_run(tmp_path: Path) -> None:
    with_sums(tmp_path, PAIR)
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    for line in lines[-4:]:
        line["ref_chosen_logps"] -= 0.25
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunError, match=r"^row 'sum-\d+': the data say that the reference gives response 0 .* and"):
        train(recipe(tmp_path, reference={"cache": "columns"}))


def test_a_row_without_its_sums_is_named(tmp_path: Path) -> None:
    with_sums(tmp_path, PAIR)
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    del lines[4]["ref_rejected_logps"]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(
        DataError, match=r"sum-4 \(record 5\): the row has no sums of reference log-probabilities for each of its"
    ):
        assemble(recipe(tmp_path, reference={"cache": "columns"}))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"loss": {"name": "ld_dpo"}},
            "one sum per response, and loss 'ld_dpo' needs more of a reference .it reads tokens",
        ),
        ({"loss": {"name": "sampo"}}, "loss 'sampo' needs more of a reference .it reads tokens"),
        ({"loss": {"name": "kto"}}, "loss 'kto' needs more of a reference .it reads mismatched"),
        ({"loss": {"name": "tdpo1"}}, "loss 'tdpo1' needs more of a reference .it reads .*kl.*Write `cache: off`"),
        ({"loss": {"name": "simpo"}}, "loss 'simpo' reads no reference, so `columns` has no effect"),
        ({"data": {"train": "pairs.jsonl", "truncate": "response"}}, "data.truncate: reference.cache is columns"),
    ],
)
def test_what_sums_cannot_serve_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe(tmp_path, reference={"cache": "columns"}, **sections)


@pytest.mark.parametrize("name", loss_names())
def test_a_loss_that_columns_serve_sees_no_more_than_sums(name: str) -> None:
    loss = get_loss(name)
    if Need.REFERENCE not in loss.needs or loss.needs - WITH_SUMS:
        pytest.skip("not served")
    scores = make_scores(loss)
    assert scores.reference is not None
    batch = {"mask": scores.mask, "reference_sums": scores.reference_sums}
    spread = replace(scores, reference=ColumnReference()(batch).logps)
    torch.testing.assert_close(loss(spread).losses, loss(scores).losses)


def _changed_config(folder: Path, **values: Any) -> None:
    path = folder / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_cache_of_the_same_weights_under_another_config_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, reference={"cache": str(tmp_path / "cache")})
    assert main(["reference", path]) == 0
    _changed_config(tmp_path, rms_norm_eps=0.01)
    with pytest.raises(ConfigError, match=r"belongs to another reference: config is .* there and .* here"):
        train(load_recipe(path))


def test_a_cache_of_a_model_that_differs_in_one_value_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, reference={"cache": str(tmp_path / "cache")})
    assert main(["reference", path]) == 0
    changed = weights(tmp_path / "model")
    changed["model.embed_tokens.weight"][5, 3] *= 1.01
    save_file(changed, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"belongs to another reference: weights is .* there and .* here"):
        train(load_recipe(path))


def test_a_cache_of_the_same_adapter_at_another_scale_is_refused(tmp_path: Path) -> None:
    cache = {"cache": str(tmp_path / "cache")}
    started = {"r": 4, "alpha": 8, "target_modules": ["q_proj"]}
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "start"), "model.adapter": started}))
    model = {"adapter": {"mode": "continue", "start": str(tmp_path / "start")}}
    path = written(tmp_path, model={"name_or_path": str(tmp_path / "model"), **model}, reference=cache)
    assert main(["reference", path]) == 0
    file = tmp_path / "start" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"lora_alpha": 16}))
    with pytest.raises(ConfigError, match=r"belongs to another reference: weights is .* there and .* here"):
        train(load_recipe(path))


@pytest.mark.parametrize(
    ("kind", "name", "values", "decides"),
    [
        ("xLSTMConfig", "output_logit_soft_cap", (3.0, 30.0), True),
        ("RobertaConfig", "pad_token_id", (1, 3), True),
        ("LlamaConfig", "rms_norm_eps", (1e-5, 1e-6), True),
        ("LlamaConfig", "eos_token_id", (1, 2), False),
        ("MixtralConfig", "output_router_logits", (True, False), False),
    ],
)
def test_a_cache_is_keyed_by_what_decides_values(kind: str, name: str, values: tuple[Any, Any], decides: bool) -> None:
    one, other = (_deciding(getattr(transformers, kind)(**{name: value}).to_dict()) for value in values)
    assert (one != other) == decides


def test_no_cache_holds_what_depends_on_the_rows_beside_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, reference={"cache": str(tmp_path / "cache")})
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    _changed_config(tmp_path, max_position_embeddings=4, rope_parameters=rope)
    with pytest.raises(
        ConfigError, match=r"\(dynamic\) follows the longest row of a batch beyond 4 tokens, and the .* so that no"
    ):
        train(load_recipe(path))
    assert main(["reference", path]) == 2
    live = written(tmp_path, "live.yaml", reference={"cache": "auto"}, training={"output_dir": str(tmp_path / "live")})
    with caplog.at_level(logging.WARNING):
        train(load_recipe(live))
    assert "log-probabilities depend on which rows stand in a batch" in caplog.text


def test_a_cache_that_cannot_be_a_folder_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(ConfigError, match="file is a file, and a cache is a folder"):
            load_recipe(written(tmp_path, reference={"cache": str(tmp_path / place)}))
