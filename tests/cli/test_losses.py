"""`prefopt losses`: what the registry says, for people, for programs, and in the READMEs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from prefopt.cli import main
from prefopt.config.sheets import BEGIN, END, list_text, loss_sheet, range_of, sheet_text, with_table
from prefopt.losses import _registry, loss_names, loss_spec, modifier_names, register_loss
from prefopt.params import LossParams, unit_of
from prefopt.scores import Need


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss with every kind of hyperparameter."""
    loss_names()  # discovery happens once, and must fill the real table
    monkeypatch.setattr(_registry, "_specs", dict(_registry._specs))
    monkeypatch.setattr(_registry, "_aliases", dict(_registry._aliases))

    class OddParams(LossParams):
        size: int = Field(ge=1, le=9, description="how many | steps")
        kind: str = Field("a", json_schema_extra={"enum": ["a", "b"]}, description="which")
        maybe: float | None = Field(None, description="perhaps, nats per token")

    @register_loss(
        "odd", params=OddParams, needs=lambda p: {Need.STEPS} if p.maybe else set(), source="nowhere", responses="many",
        coupled=True, window=1, aliases=["strange"],
    )  # fmt: skip
    def odd(scores: Any, params: Any, context: Any = None) -> Any:
        """Do something odd.

        loss = 1
        """


def test_json_is_a_list_of_objects_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [loss["name"] for loss in found] == [*loss_names(), *modifier_names()]
    for loss in found:
        assert loss.keys() >= {"name", "aliases", "needs", "parameters", "source"}


def test_the_sheet_of_dpo() -> None:
    sheet = loss_sheet("dpo")
    assert sheet["needs"] == ["reference"]
    assert sheet["needs_depend_on_parameters"]
    assert (sheet["responses"], sheet["aggregate"], sheet["coupled"]) == ("pair", "sum", False)
    beta = sheet["parameters"][0]
    assert (beta["name"], beta["default"], beta["unit"], range_of(beta)) == ("beta", 0.1, "1/nat", "> 0")
    assert sheet["recipe"].endswith("recipes/losses/dpo.yaml")


def test_the_sheet_of_a_weighting_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "wpo"]) == 0
    text = capsys.readouterr().out
    assert "w_b = min(1, exp(" in text
    assert "Used as    a weighting of any loss on pairs, `loss.modify: [wpo]`" in text
    assert "Needs      sum_squares" in text


@pytest.mark.parametrize("name", loss_names())
def test_every_sheet_names_the_relatives(name: str) -> None:
    relative = loss_sheet(name)["relative"]
    assert relative
    assert relative in sheet_text(name).replace("\n  ", " ")


def test_one_loss_as_json_has_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "sft", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "nll"


@pytest.mark.parametrize("name", loss_names())
def test_every_sheet_can_be_read(name: str) -> None:
    text = sheet_text(name)
    assert "Source" in text
    for parameter in loss_sheet(name)["parameters"]:
        assert f"  {parameter['name']}: {parameter['description']}; " in text
        assert parameter["description"]


@pytest.mark.parametrize("name", loss_names())
def test_every_number_has_a_unit(name: str) -> None:
    missing = [
        p["name"] for p in loss_sheet(name)["parameters"] if p["type"] in {"number", "integer"} and not p["unit"]
    ]
    assert not missing, "a description ends with a comma and the unit"


def test_an_odd_loss(odd: None) -> None:
    sheet = loss_sheet("strange")
    assert sheet["name"] == "odd"
    assert [p["required"] for p in sheet["parameters"]] == [True, False, False]
    assert [range_of(p) for p in sheet["parameters"]] == [">= 1, <= 9", "a | b", "number/null"]
    assert sheet["parameters"][2]["unit"] == "nats per token"
    text = sheet_text("odd")
    assert "size: how many | steps; >= 1, <= 9; required" in text
    assert "Batch      looks at all prompts of the batch" in text
    assert "Recipe     none" in text
    assert "odd  " in list_text()


def test_units() -> None:
    assert [unit_of(f"a, b, {unit}") for unit in ("1/nat", "token/nat", "dimensionless", "tokens", "x", "")] == [
        "1/nat",
        "token/nat",
        "dimensionless",
        "tokens",
        "",
        "",
    ]


def test_a_table_goes_between_its_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "README.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert main(["losses", "--markdown", "--into", "README.md"]) == 0
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| `dpo` |" in text
    assert "old" not in text
    assert main(["losses", "--markdown", "--into", "README.md"]) == 0
    assert file.read_text() == text
    file.write_text("no markers")
    capsys.readouterr()
    assert main(["losses", "--markdown", "--into", "README.md"]) == 2
    assert capsys.readouterr().err.startswith("README.md: there is no place for the table")


@pytest.mark.parametrize("name", ["recipes/README.md", "README.md"])
def test_tables_in_the_repository_are_current(repository: Path, name: str) -> None:
    file = repository / name
    text = file.read_text(encoding="utf-8")
    assert with_table(text, file.parent) == text, "run `make regenerate`"


@pytest.mark.parametrize("name", loss_names())
def test_a_sheet_names_only_relatives_that_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", name]) == 0
    relatives = re.findall(r"`([a-z_]+)`", capsys.readouterr().out.partition("Relatives:")[2].partition("\n\n")[0])
    options = {option for one in loss_names() for option in loss_spec(one).params.model_fields}
    assert set(relatives) <= {*loss_names(), *options}


def test_simpo_names_its_relative(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "simpo"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    text = "with responses of one token and `gamma_beta_ratio: 0` it is `dpo` with `reference_free: true`."
    assert f"Relatives: {text}" in out
