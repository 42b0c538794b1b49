"""`prefopt preview` shows what training will see."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from prefopt.cli.preview import pieces, show_rows
from prefopt.data import DataOptions, Source

from .tokenizers import plain, with_bos

MESSAGES = [{"role": "user", "content": "hello"}]
RECORDS = [
    {"prompt": "the sky i", "chosen": "s blue.\n", "rejected": "s 天空.", "id": "first"},
    {
        "prompt": MESSAGES,
        "chosen": [
            {"role": "assistant", "content": "the sky"},
            {"role": "user", "content": "go on"},
            {"role": "assistant", "content": "is blue."},
        ],
        "rejected": [{"role": "assistant", "content": "red"}],
    },
    {"prompt": "a", "chosen": None, "rejected": "b"},
]


def shown(tmp_path: Path, *, color: bool, count: int = 3) -> str:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in RECORDS), encoding="utf-8")
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=color, color_system="truecolor" if color else None, width=200, highlight=False
    )
    show_rows([Source(str(path))], plain(), DataOptions(), count=count, console=console)
    return out.getvalue()


def test_a_preview_names_sizes_reasons_and_the_last_ids(tmp_path: Path) -> None:
    text = shown(tmp_path, color=False)
    end = plain().eos_token_id
    assert "x.jsonl: first: context 2 tokens" in text
    assert "boundary_moved" in text
    assert f"{end} '<|end|>'" in text
    assert "left out, null_field: column 'chosen' holds nothing" in text
    assert "record 2" in text
    assert "record 2" not in shown(tmp_path, color=False, count=1)


def test_what_is_not_scored_can_be_seen_without_colours(tmp_path: Path) -> None:
    text = shown(tmp_path, color=False)
    assert "⟨the sky<|end|>↵" in text
    assert "⟩is blue.<|end|>" in text
    assert "\x1b[" in shown(tmp_path, color=True)


def test_the_pieces_of_tokens_make_up_the_text() -> None:
    for tokenizer in (plain(), with_bos()):
        ids = tokenizer("the 天空 is\n blue 👍🏽.", add_special_tokens=False)["input_ids"]
        assert "".join(pieces(tokenizer, ids)) == "the 天空 is\n blue 👍🏽."
        assert len(pieces(tokenizer, ids)) == len(ids)
