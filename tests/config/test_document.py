"""YAML as data: what values mean, where they stand, and what is not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefopt.config.document import MOST_VALUES, parse_document, read_document
from prefopt.errors import ConfigError


def value(text: str) -> Any:
    return parse_document(f"x: {text}", "f.yaml").data["x"]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("5e-7", 5e-7),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("no", "no"),
        ("off", "off"),
        ("true", True),
        ("~", None),
        ("", None),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("010", 10),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ('"5"', "5"),
        ("=", "="),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_values_mean_what_yaml_1_2_says(text: str, meaning: Any) -> None:
    found = value(text)
    assert found == meaning
    assert type(found) is type(meaning)


def test_every_key_and_item_has_its_line() -> None:
    document = parse_document("a:\n  - x\n  - y: 1\n    z: 2\nb: {c: 3}\n", "f.yaml")
    lines = {path: place.line for path, place in document.places.items() if path}
    expected = {("a",): 1, ("a", 0): 2, ("a", 1): 3, ("a", 1, "y"): 3, ("a", 1, "z"): 4, ("b",): 5, ("b", "c"): 5}
    assert lines == expected
    assert str(document.places["b", "c"]) == "f.yaml:5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: 'a' is written twice; the first is in line 1."),
        ("a: {b: 1, b: 2}", "f.yaml:1: 'b' is written twice; the first is in line 1."),
        ("1: x", "f.yaml:1: a key must be text; got '1'."),
        ("[a]: x", "f.yaml:1: a key must be text; got a list or mapping."),
        (
            "a: !!python/object/apply:os.system [ls]",
            "f.yaml:1: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not read; "
            "a recipe holds plain values only.",
        ),
        ("a: !!int x", "f.yaml:1: the tag 'tag:yaml.org,2002:int' is not read; a recipe holds plain values only."),
        ("<<: {a: 1}", "f.yaml:1: merge keys (<<) are not read; `base:` names a file to build on."),
        ("a: 1\n--- \nb: 2", "f.yaml:3: a second YAML document begins; a recipe is one."),
        ("a: &x [*x]", "f.yaml:1: nested deeper than 40 levels, or an alias inside itself."),
        ("[" * 1000, "f.yaml: nested deeper than 40 levels."),
        (
            "a: [1",
            "f.yaml:1: not valid YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'.",
        ),
        ("a: *b", "f.yaml:1: not valid YAML: found undefined alias 'b'."),
    ],
)
def test_what_is_not_read(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "f.yaml")
    assert str(caught.value) == message


def test_all_duplicates_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document("a: 1\na: 2\nb: {c: 1,\n  c: 2}", "f.yaml")
    assert [problem.place for problem in caught.value.problems] == ["f.yaml:2", "f.yaml:4"]


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match=f"more than {MOST_VALUES:,} values"):
        parse_document("\n".join(lines), "f.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: caf\xe9", "f.yaml:1: not UTF-8 text (byte 0xe9)."),
        (b"model:\n  x: \xff", "f.yaml:2: not UTF-8 text (byte 0xff)."),
        (b"\x00\x01\x02", "f.yaml is a binary file, not a recipe."),
        (b"x" * 200_001, "f.yaml has 200,001 bytes: that is no recipe, which is a page of text."),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "f.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path / "f.yaml", shown="f.yaml")
    assert str(caught.value) == message


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"there is no such file\. Did you mean 'recipe\.yaml'\?"):
        read_document(tmp_path / "recpe.yaml")
    with pytest.raises(ConfigError, match="is a folder; name the recipe file in it"):
        read_document(tmp_path)


def test_a_byte_order_mark_and_tabs_in_json_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('\ufeff{\n\t"a": {"b": "c\\td"},\n\t"e": 1e-3\n}', encoding="utf-8")
    assert read_document(tmp_path / "f.json").data == {"a": {"b": "c\td"}, "e": 1e-3}
