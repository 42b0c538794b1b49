"""Calculator annotations as GSM8K has them, `48/2 = <<48/2=24>>24`: a tool's working, and no part of a solution."""

import re

_MARKED = re.compile(r"<<([^<>\n]*)>>")


def without_annotations(text: str) -> tuple[str, int]:
    """The text without its annotations, and how many there were."""
    if "<<" not in text:
        return text, 0
    count = 0

    def removed(found: re.Match[str]) -> str:
        nonlocal count
        gone = _is_annotation(found)
        count += gone
        return "" if gone else found[0]

    return _MARKED.sub(removed, text), count


def blanked_annotations(text: str) -> str:
    """The text with spaces in place of its annotations: everything else stands where it stood."""
    return _MARKED.sub(lambda found: " " * len(found[0]) if _is_annotation(found) else found[0], text)


def _is_annotation(found: re.Match[str]) -> bool:
    """Calculations have a digit or an equals sign; `<<SYS>>` has neither."""
    return any(character.isdigit() or character == "=" for character in found[1])
