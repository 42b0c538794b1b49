"""Records to rows to batches. Importing this stays cheap; `datasets` and `transformers` come with first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prefopt.data.options import DataOptions
from prefopt.data.rejection import Rejection

if TYPE_CHECKING:
    from prefopt.data.audit import Audit as Audit
    from prefopt.data.audit import write_report as write_report
    from prefopt.data.collate import Collator as Collator
    from prefopt.data.encode import Encoder as Encoder
    from prefopt.data.encode import encode_prompt as encode_prompt
    from prefopt.data.encode import encode_row as encode_row
    from prefopt.data.encoded import EncodedRow as EncodedRow
    from prefopt.data.load import Source as Source
    from prefopt.data.load import first_records as first_records
    from prefopt.data.tokenize import Prepared as Prepared
    from prefopt.data.tokenize import prepare_rows as prepare_rows

_ON_FIRST_USE = {
    "Audit": "audit",
    "Collator": "collate",
    "EncodedRow": "encoded",
    "Encoder": "encode",
    "Prepared": "tokenize",
    "Source": "load",
    "encode_prompt": "encode",
    "encode_row": "encode",
    "first_records": "load",
    "prepare_rows": "tokenize",
    "write_report": "audit",
}

__all__ = [
    "Audit",
    "Collator",
    "DataOptions",
    "EncodedRow",
    "Encoder",
    "Prepared",
    "Rejection",
    "Source",
    "encode_prompt",
    "encode_row",
    "first_records",
    "prepare_rows",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return getattr(import_module(f"prefopt.data.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module 'prefopt.data' has no attribute '{name}'")
