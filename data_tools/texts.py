"""The texts of a row of preference data, in whichever of the usual forms they come. What is missing is said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COLUMNS = (
    *("prompt", "initial_reason_steps", "prefix", "chosen", "rejected", "completion", "solution", "responses"),
    *("answer", "complete", "error_kind", "diff_spans_rejected"),
)
"""What is read of a row, by the rules too."""


@dataclass(frozen=True)
class RowTexts:
    """Prompt and responses as text. `faults` names what a row lacks or has in a form that nobody can read.

    `prefix` is a beginning of the answer that all responses continue; it belongs to neither side.
    """

    prompt: str
    chosen: str | None = None
    rejected: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    prefix: str = ""
    faults: tuple[str, ...] = field(default=())

    @property
    def pair(self) -> tuple[str, str] | None:
        """Chosen and first rejected response, where there are both."""
        return (self.chosen, self.rejected[0]) if self.chosen is not None and self.rejected else None

    @property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """Every response with the name of its side."""
        chosen = () if self.chosen is None else (("chosen", self.chosen),)
        rejected = (("rejected", text) for text in self.rejected)
        return (*chosen, *rejected, *(("response", text) for text in self.others))

    @property
    def all(self) -> tuple[tuple[str, str], ...]:
        """Prompt and responses, each with its name."""
        return (("prompt", self.prompt), *self.sides)


def row_texts(record: Mapping[str, Any]) -> RowTexts:
    """Read a row; never raises.

    Pairs have `chosen` and `rejected` (one or several), others `completion`, `solution` or `responses`. Where both
    sides are messages and there is no `prompt`, the messages that they share are the prompt.
    """
    faults: list[str] = []
    prefix = plain(record.get("initial_reason_steps") or record.get("prefix")) or ""
    if "chosen" in record or "rejected" in record:
        return _pair(record, prefix, faults)
    prompt = _required(record, "prompt", faults)
    for name in ("completion", "solution"):
        if name in record:
            text = _required(record, name, faults)
            return RowTexts(prompt or "", others=() if text is None else (text,), prefix=prefix, faults=tuple(faults))
    if isinstance(record.get("responses"), list):
        found = _many(record["responses"], "responses", faults)
        return RowTexts(prompt or "", others=found, prefix=prefix, faults=tuple(faults))
    return RowTexts(prompt or "", prefix=prefix, faults=(*faults, "no response"))


def plain(value: Any) -> str | None:
    """Text as it is, messages (or parts of one) as their contents, one after the other; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        content = value.get("content", value.get("text"))
        called = value.get("tool_calls") and content is None
        return "" if called else plain(content)
    if not isinstance(value, list) or not value:
        return None
    texts = [plain(item) for item in value if not isinstance(item, list)]
    found = [text for text in texts if text is not None]
    return "\n".join(found) if len(found) == len(value) else None


def is_messages(value: Any) -> bool:
    """Whether a value is a conversation: a list of objects that say who speaks."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and "role" in item for item in value)
    )


def shared_messages(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many messages two conversations begin with in common; each keeps at least one of its own."""
    most = min(len(a), len(b)) - 1
    return next((at for at in range(most) if a[at] != b[at]), max(most, 0))


def _pair(record: Mapping[str, Any], prefix: str, faults: list[str]) -> RowTexts:
    chosen, rejected = record.get("chosen"), record.get("rejected")
    prompt = record.get("prompt")
    if prompt is None and is_messages(chosen) and is_messages(rejected):
        cut = shared_messages(chosen, rejected)  # type: ignore[arg-type]
        prompt, chosen, rejected = chosen[:cut] or None, chosen[cut:], rejected[cut:]  # type: ignore[index]
        if prompt is None:
            faults.append("'chosen' and 'rejected' share no message")
    elif "prompt" not in record:
        faults.append("'prompt' is missing")
    text = _read(prompt, "prompt", faults) if prompt is not None or "prompt" in record else None
    right = _required({**record, "chosen": chosen} if "chosen" in record else record, "chosen", faults)
    if isinstance(rejected, list) and rejected and not is_messages(rejected):
        wrong = _many(rejected, "rejected", faults)
    else:
        single = _required({**record, "rejected": rejected} if "rejected" in record else record, "rejected", faults)
        wrong = () if single is None else (single,)
    return RowTexts(text or "", right, wrong, prefix=prefix, faults=tuple(faults))


def _many(values: Sequence[Any], name: str, faults: list[str]) -> tuple[str, ...]:
    texts = [_read(value, name, faults) for value in values]
    return tuple(text for text in texts if text is not None)


def _required(record: Mapping[str, Any], name: str, faults: list[str]) -> str | None:
    if name not in record:
        faults.append(f"'{name}' is missing")
        return None
    return _read(record[name], name, faults)


def _read(value: Any, name: str, faults: list[str]) -> str | None:
    text = plain(value)
    if text is None:
        faults.append(f"'{name}' is null" if value is None else f"'{name}' is neither text nor messages")
    return text
