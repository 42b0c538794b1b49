"""Texts of data sets as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefopt.report.texts import clipped, compared, visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x00b", "a[U+0000]b"),
        ("\u202eevil\u202c", "[U+202E]evil[U+202C]"),
        ("\ud800", "[U+D800]"),
        ("line\u2028end", "line[U+2028]end"),
        ("one\r\ntwo\tthree\n", "one\ntwo\tthree\n"),
        ("שלום, e\u0301", "שלום, e\u0301"),
        ("Z" + "\u0351" * 100 + "!", "Z" + "\u0351" * 4 + "[96 more accents]!"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text: str, seen: str) -> None:
    assert visible(text) == seen


@given(st.text(alphabet=st.characters(), max_size=200))
def test_whatever_is_visible_can_be_written(text: str) -> None:
    visible(text).encode("utf-8")
    assert visible(visible(text)) == visible(text)


def test_cut_texts_say_how_much_is_missing() -> None:
    assert clipped("abc", 3) == "abc"
    assert clipped("a" * 2_503, 3) == "aaa [… 2,500 more characters]"


@given(st.text(max_size=80), st.text(max_size=80))
def test_pieces_make_up_their_texts(first: str, second: str) -> None:
    for text, pieces in zip((first, second), compared(first, second), strict=True):
        assert "".join(piece.text for piece in pieces) == text


def test_words_that_differ_are_marked_without_the_space_before_them() -> None:
    chosen, rejected = compared("It has 3 red shells.", "It has 14 shells.")
    assert [piece.text for piece in chosen if piece.differs] == ["3 red"]
    assert [piece.text for piece in rejected if piece.differs] == ["14"]


def test_equal_texts_have_no_marks() -> None:
    assert not any(piece.differs for pieces in compared("same words", "same words") for piece in pieces)
