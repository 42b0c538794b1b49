"""`prefopt losses`: the registry, for people, for programs, and for a README."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from prefopt.config.sheets import list_text, markdown_table, sheet_text, sheets, with_table
from prefopt.errors import ConfigError
from prefopt.losses import broken_plugins


def losses(name: str | None, *, as_json: bool = False, markdown: bool = False, into: Path | None = None) -> None:
    """Print the list of losses, or the sheet of one.

    Raises: `ConfigError` for an unknown name, for options that exclude each other, for a file without markers.
    """
    if (markdown and (as_json or name)) or (into and not markdown):
        raise ConfigError("--markdown is for the whole list, without a name and without --json; --into goes with it.")
    if as_json:
        print(json.dumps(sheets([name] if name else None), indent=2, ensure_ascii=False))
    elif into:
        _write(into)
    elif markdown:
        print(markdown_table(Path.cwd()))
    else:
        print(sheet_text(name) if name else list_text())
    for text in broken_plugins().values():
        print(f"warning: {text}", file=sys.stderr)


def _write(file: Path) -> None:
    try:
        old = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    try:
        new = with_table(old, file.parent.resolve())
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if new != old:
        file.write_text(new, encoding="utf-8")
    print(f"{file}: {'brought up to date' if new != old else 'already up to date'}")
