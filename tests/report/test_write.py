"""Where reports are written, the Markdown, and the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prefopt.cli import main
from prefopt.errors import ConfigError
from prefopt.report import build_report, write_report
from prefopt.report.markdown import escaped, fenced
from tests.report import made

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made.run(tmp_path / "run")


def test_a_folder_gets_both_forms_and_a_file_its_own(tmp_path: Path, run: Path) -> None:
    assert [file.name for file in write_report([run], tmp_path / "new")] == ["report.html", "report.md"]
    assert write_report([run], tmp_path / "deep" / "some.md") == [tmp_path / "deep" / "some.md"]
    assert (tmp_path / "deep" / "some.md").read_text().startswith("<!-- prefopt report -->\n\n# Preference report: run")


def test_reports_are_replaced_and_other_files_left_alone(tmp_path: Path, run: Path) -> None:
    for _ in range(2):
        write_report([run], tmp_path / "out")
    (tmp_path / "out" / "report.md").write_text("my notes")
    with pytest.raises(ConfigError, match=r"report\.md exists and is no report of prefopt"):
        write_report([run], tmp_path / "out")
    assert (tmp_path / "out" / "report.md").read_text() == "my notes"
    with pytest.raises(ConfigError, match=r"ends in '\.pdf'"):
        write_report([run], tmp_path / "out.pdf")


def test_markdown_has_nothing_of_the_data_outside_of_fences(tmp_path: Path) -> None:
    folders = made.diagnosed_run(tmp_path, made.hostile_pairs())
    (file,) = write_report(folders, tmp_path / "out.md")
    text = file.read_text(encoding="utf-8")
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(outside) < len(text)
    bare = re.sub(r"\\.", "", outside).replace("<!-- prefopt report -->", "")
    assert "<" not in bare
    assert not re.search(r"\]\(", bare)
    assert [line for line in outside.splitlines() if line.startswith("# ")] == ["# Preference report: trained"]


def test_tables_of_markdown_keep_their_columns(tmp_path: Path, run: Path) -> None:
    other = made.run(tmp_path / "a|b", recipe=made.RECIPE.replace("0.1", "'x | y'"))
    (file,) = write_report([run, other], tmp_path / "out.md")
    for table in re.findall(r"(?:^\|.*\n)+", file.read_text(), flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table


def test_settings_that_differ_come_first(tmp_path: Path, run: Path) -> None:
    """One that only some columns have does not differ."""
    other = made.run(tmp_path / "other", recipe=made.RECIPE.replace("0.1", "0.5"))
    before = made.diagnosis(tmp_path / "before", made.pairs(9, moved=False))
    (file,) = write_report([run, other, before], tmp_path / "out.md")
    assert [row.name for row in build_report([run, other, before]).settings if row.differs] == ["loss.beta"]
    first = re.findall(r"^\| setting .*\n\|.*\n\| (.*?) \|", file.read_text(), flags=re.MULTILINE)
    assert first == ["loss.beta"]


@pytest.mark.parametrize(
    ("text", "seen"), [("a|b\n*c*", r"a\|b \*c\*"), ("<b>[x](y)", r"\<b\>\[x\](y)"), ("`$\\", r"\`\$\\")]
)
def test_escaping(text: str, seen: str) -> None:
    assert escaped(text) == seen


def test_fences_outlast_what_is_in_them() -> None:
    assert fenced("a ```` b").splitlines()[::2] == ["`````text", "`````"]


def test_the_command_writes_beside_one_run(run: Path, capsys: Captured) -> None:
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()
    assert (run / "report.md").is_file()
    shown = capsys.readouterr().out
    assert shown.startswith("run: A run of 12 steps.")
    assert "report.html and" in shown


def test_a_run_and_its_diagnosis_are_reported_with_the_run(tmp_path: Path) -> None:
    trained, moved = made.diagnosed_run(tmp_path, made.pairs(20))
    assert main(["report", str(moved), str(trained)]) == 0
    assert (trained / "report.html").is_file()
    assert not (moved / "report.html").exists()


def test_the_command_writes_several_here(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    diagnosis = made.diagnosis(tmp_path / "before", made.pairs(20, moved=False))
    assert main(["report", str(run), str(diagnosis), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in found["columns"]] == ["run", "before"]
    assert found["files"] == ["report.html", "report.md"]
    assert Path("report.html").is_file()


def test_a_report_needs_no_torch(run: Path) -> None:
    asked = "import sys, prefopt.cli; prefopt.cli.main(['report', sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked, str(run)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_command_refuses_in_one_paragraph(tmp_path: Path, run: Path, capsys: Captured) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (run / "metrics.jsonl").unlink()
    assert main(["report", str(run)]) == 1
    assert "metrics.jsonl cannot be read" in capsys.readouterr().err
