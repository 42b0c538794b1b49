"""The page in a real browser: it draws, answers to pointer and keys, runs nothing of the data, and keeps its layout.

Needs the extra `browser` and a Chromium, by default Debian's; CHROMIUM names another one. Screenshots lie in the folder
that REPORT_SCREENSHOTS names, or are thrown away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prefopt.report import write_report
from tests.report import made

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'prefopt-train[browser]'")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium, or CHROMIUM=/path/to/it"),
]

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 812}
KINDS = ("after", "before", "several", "hostile")


@dataclass
class Opened:
    """A page, with what it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def quiet(self) -> bool:
        """No message, no error, no request but the page itself, and no script of the data has run."""
        return self.said == [] and len(self.asked) == 1 and self.page.evaluate("window.pwned === undefined")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # the sandbox cannot start as root, where containers often run tests
        yield started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    after = made.diagnosed_run(folder / "after", made.pairs(200))
    before = made.diagnosis(folder / "before", made.pairs(120, moved=False))
    hostile = made.diagnosed_run(folder / "hostile", made.hostile_pairs())
    kinds = {"after": after, "before": [before], "several": [*after, before], "hostile": hostile}
    return {kind: write_report(folders, folder / f"{kind}.html")[0] for kind, folders in kinds.items()}


@pytest.fixture
def opened(browser: Any, reports: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def open_(kind: str, *, viewport: Any = LAPTOP, **options: Any) -> Opened:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("dialog", lambda dialog: found.said.append(dialog.message))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(reports[kind].as_uri())
        found.page.wait_for_function("document.querySelectorAll('[data-figure] svg').length > 0")
        return found

    yield open_
    for context in contexts:
        context.close()


def screenshot(page: Any, name: str) -> None:
    if folder := os.environ.get("REPORT_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def overflow(page: Any) -> int:
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("device", "viewport"), [("laptop", LAPTOP), ("phone", PHONE)])
def test_it_opens_silently_and_fits(opened: Any, kind: str, scheme: str, device: str, viewport: Any) -> None:
    found = opened(kind, viewport=viewport, color_scheme=scheme)
    found.page.evaluate("document.querySelectorAll('details').forEach((element) => (element.open = true))")
    screenshot(found.page, f"{kind}-{scheme}-{device}")
    assert overflow(found.page) == 0
    assert found.quiet(), (found.said, found.asked)


@pytest.mark.parametrize("kind", ["after", "several", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_passes_an_accessibility_check(opened: Any, kind: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = opened(kind, color_scheme=scheme, bypass_csp=True).page
    page.evaluate("document.querySelectorAll('details').forEach((element) => (element.open = true))")
    point_at_a_pair(page)
    found = axe.Axe().run(page).response
    wrong = [
        (problem["id"], node["html"][:200], node.get("failureSummary", "")[:300])
        for problem in found["violations"]
        for node in problem["nodes"]
    ]
    assert wrong == []
    assert len(found["passes"]) > 20


def point_at_a_pair(page: Any) -> Any:
    """Moves the mouse onto a point of the first scatter; gives back what is shown of its pair."""
    point = page.locator("[role=application] .point").nth(3)
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    return page.locator("#pair .id")


def test_a_pair_is_read_by_pointing_at_it(opened: Any) -> None:
    found = opened("after")
    shown = point_at_a_pair(found.page)
    assert shown.inner_text().startswith("pair-")
    number = int(shown.inner_text().removeprefix("pair-"))
    text = found.page.locator("#pair").inner_text()
    assert f"Question {number // 2}?" in text
    assert f"The answer is {number}." in text
    assert f"The answer is {number + 1}." in text
    assert found.quiet()


def test_a_click_keeps_the_pair_until_the_next(opened: Any) -> None:
    page = opened("after").page
    name = point_at_a_pair(page).inner_text()
    page.locator("[role=application] .point").nth(3).click(force=True)
    page.locator("[role=application] .point").nth(50).hover(force=True)
    assert page.locator("#pair .id").inner_text() == name


def test_pairs_are_read_by_keys(opened: Any) -> None:
    page = opened("after").page
    page.locator("[role=application]").focus()
    names = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "End"):
        page.keyboard.press(key)
        names.append(page.locator("#pair .id").inner_text())
    assert names[1] == names[3] != names[2]
    assert len(set(names)) >= 4


def test_a_pair_is_read_by_touch(opened: Any) -> None:
    page = opened("after", viewport=PHONE, has_touch=True).page
    point = page.locator("[role=application] .point").first
    point.scroll_into_view_if_needed()
    point.tap(force=True)
    assert page.locator("#pair .id").inner_text().startswith("pair-")


def test_the_same_pair_is_marked_in_every_column(opened: Any) -> None:
    page = opened("several").page
    assert "made before training" in page.locator("[data-figure=scatter]").inner_text()
    page.select_option("#scatter-y", "length_gap")
    point_at_a_pair(page)
    assert page.locator(".ring[visibility=visible]").count() == 2


def test_colours_are_switched(opened: Any) -> None:
    found = opened("after", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = found.page.evaluate(ground)
    for button, other in (("Dark", "Light"), ("Light", "Dark")):
        found.page.get_by_text(button, exact=True).click()
        assert found.page.locator("#theme").inner_text() == other
    assert found.page.evaluate(ground) == light
    found.page.locator("#theme").click()
    assert found.page.evaluate(ground) != light
    assert found.quiet()


def test_figures_follow_the_choices(opened: Any) -> None:
    found = opened("after")
    before = found.page.locator("[data-figure=histogram]").inner_html()
    found.page.select_option("#histogram-measure", "chosen_delta")
    assert found.page.locator("[data-figure=histogram]").inner_html() != before
    points = found.page.locator("[data-figure=scatter]").inner_html()
    found.page.select_option("#scatter-x", "length_gap")
    assert found.page.locator("[data-figure=scatter]").inner_html() != points
    assert found.quiet()


def test_the_histogram_and_the_curves_answer_to_the_pointer(opened: Any) -> None:
    page = opened("after").page
    bars = page.locator("[data-figure=histogram] svg").first
    bars.hover()
    assert "pairs" in page.locator(".readout").first.inner_text()
    page.locator("[data-figure=curves] svg[role=img]").first.hover()
    assert "step " in page.locator("[data-figure=curves] .legend").first.inner_text()


def test_hostile_texts_are_shown_as_they_are(opened: Any) -> None:
    found = opened("hostile", viewport=PHONE)
    page = found.page
    page.locator("[role=application]").focus()
    page.keyboard.press("Home")
    for _ in range(60):  # past every pair
        page.keyboard.press("ArrowRight")
        assert overflow(page) == 0
    page.evaluate("document.querySelectorAll('details').forEach((element) => (element.open = true))")
    shown = page.locator("#read-first").inner_text()
    assert "| a | b |" in shown
    assert "[U+0000]" in shown
    assert "[U+202E]evil[U+202C]" in shown
    assert "more characters]" in shown
    assert found.quiet(), (found.said, found.asked)


def test_it_prints_with_everything_open_and_in_light_colours(opened: Any, tmp_path: Path) -> None:
    found = opened("after", color_scheme="dark")
    found.page.emulate_media(media="print", color_scheme="dark")
    assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not found.page.locator(".top").is_visible()
    found.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_without_scripts_the_tables_are_there(browser: Any, reports: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(reports["after"].as_uri())
    assert "switched off here" in page.locator("main").inner_text()
    assert page.locator("table").count() >= 4
    context.close()
