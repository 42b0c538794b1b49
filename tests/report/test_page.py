"""The page: one file, nothing fetched, nothing in the data can run."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prefopt.report import build_report, write_report
from prefopt.report.guide import REMEDIES
from prefopt.report.page import embedded
from tests.report import made

ROOT = Path(__file__).parents[2]


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style"):
            self.raw.append((self._within, data))


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    folders = made.diagnosed_run(tmp_path, made.hostile_pairs())
    (page,) = write_report(folders, tmp_path / "out.html")
    return page.read_text(encoding="utf-8")


def data_of(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found)


def test_it_has_no_elements_and_attributes_but_its_own(hostile: str) -> None:
    elements = Elements(hostile).found
    kinds = [tag for tag, _ in elements]
    assert (kinds.count("script"), kinds.count("style")) == (2, 1)
    assert not {"img", "iframe", "object", "embed", "base", "form", "link"} & set(kinds)
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not {"src", "srcset", "style", "action", "formaction", "autofocus"} & set(attributes), tag
        assert tag != "a" or str(attributes["href"]).startswith("#")


def test_nothing_is_fetched(hostile: str) -> None:
    style = next(text for kind, text in Elements(hostile).raw if kind == "style")
    assert "url(" not in style
    assert "@import" not in style
    script = Elements(hostile).raw[-1][1]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import)\b", script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_only_its_own_style_and_script_are_allowed(hostile: str) -> None:
    elements = Elements(hostile)
    policy = next(a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; ")
    assert "unsafe" not in str(policy)
    style, _, script = (text for _, text in elements.raw)
    for kind, text in (("style", style), ("script", script)):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in str(policy)


@pytest.mark.parametrize("text", made.HOSTILE.values(), ids=made.HOSTILE)
def test_embedded_data_come_back_and_cannot_end_their_element(text: str) -> None:
    found = embedded({"text": text, text[:50]: [1.5, None]})
    assert json.loads(found) == {"text": text, text[:50]: [1.5, None]}
    assert not set("<>&\u2028\u2029") & set(found)


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded(float("nan"))


def test_hostile_settings_and_metrics_stay_text(tmp_path: Path) -> None:
    recipe = f"model:\n  name_or_path: {json.dumps(made.HOSTILE['closing'])}\nloss: {{name: dpo}}\n"
    lines = [{"step": step, "loss": 1.0, "eval_<b>_loss": 2.0, "x": "\ud800"} for step in range(4)]
    run = made.run(tmp_path / "<i>run", lines, recipe=recipe)
    (page,) = write_report([run], tmp_path / "out.html")
    kinds = {tag for tag, _ in Elements(page.read_text(encoding="utf-8")).found}
    assert not kinds & {"b", "i"}


def test_data_hold_the_claims_and_the_points(tmp_path: Path) -> None:
    folder = made.diagnosis(tmp_path / "some", made.pairs(60))
    (page,) = write_report([folder], tmp_path / "out.html")
    data, report = data_of(page.read_text()), build_report([folder])
    (column,) = data["columns"]
    assert {claim["key"]: claim["value"] for claim in column["claims"]} == {
        claim.key: claim.value for claim in report.columns[0].findings.claims
    }
    rows = [json.loads(json.dumps(row)) for row in made.pairs(60)]
    points = column["points"]
    assert points["ids"] == [row["id"] for row in rows]
    for name in ("ln_ches", "chosen_delta", "length_gap"):
        assert points["values"][name] == pytest.approx([row[name] for row in rows], rel=1e-4)
    for row, numbers in zip(rows, points["texts"], strict=True):
        assert [data["texts"][number] for number in numbers] == [row["prompt"], row["chosen"], row["rejected"]]


def test_ten_thousand_long_pairs_fit_and_the_page_says_what_it_left_out(tmp_path: Path) -> None:
    lines = made.pairs(10_000)
    for line in lines:
        for name in ("prompt", "chosen", "rejected"):
            line[name] = f"{line[name]} <&> 多言語 " * 30
    folder = made.diagnosis(tmp_path / "some", lines)
    (page,) = write_report([folder], tmp_path / "out.html")
    assert page.stat().st_size < 6_000_000
    text = page.read_text()
    assert "3,000 of 10,000 pairs: the most extreme ones and a random sample of the others." in text
    assert "Counts of all pairs: 10,000." in text
    data = data_of(text)
    assert sum(data["histograms"]["ln_ches"][0]["counts"]) == 10_000
    assert any("more characters]" in shown for shown in data["texts"])


def test_headings_are_in_order_and_landmarks_are_there(tmp_path: Path) -> None:
    folders = [
        *made.diagnosed_run(tmp_path, made.pairs(30)),
        made.diagnosis(tmp_path / "b", made.pairs(9, moved=False)),
    ]
    (page,) = write_report(folders, tmp_path / "out.html")
    kinds = [tag for tag, _ in Elements(page.read_text()).found]
    levels = [int(kind[1]) for kind in kinds if re.fullmatch(r"h\d", kind)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"main", "header", "nav", "footer"} <= set(kinds)


def test_every_recipe_it_names_exists() -> None:
    named = [remedy.recipe for remedy in REMEDIES if remedy.recipe]
    assert named
    for recipe in named:
        assert (ROOT / recipe).is_file(), recipe
