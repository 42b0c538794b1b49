"""Shapes of single questions: Alpaca, question with responses j and k, and solutions with a label for every step."""

from collections.abc import Iterator
from typing import Any

from data_tools.reading import Record
from data_tools.shapes.shape import Message, Source, message


def alpaca(source: Source) -> Iterator[Record]:
    """`instruction`, `input`, and `output`, or `chosen` and `rejected`, or two outputs of which the first is better."""
    record = source.record
    prompt = _instruction(source)
    output = record.get("output")
    if record.get("chosen") is not None and record.get("rejected") is not None:
        yield {"prompt": prompt, "chosen": source.text("chosen"), "rejected": source.text("rejected")}
    elif isinstance(output, list) and len(output) == 2 and all(isinstance(text, str) for text in output):
        yield {"prompt": prompt, "chosen": output[0], "rejected": output[1]}
    else:
        yield {"prompt": prompt, "completion": source.text("output"), **source.label("kto_tag")}


def responses_jk(source: Source) -> Iterator[Record]:
    """`question`, `response_j` (the better one) and `response_k`."""
    yield {
        "prompt": source.text("question"),
        "chosen": source.text("response_j"),
        "rejected": source.text("response_k"),
    }


def stepwise(source: Source) -> Iterator[Record]:
    """`prompt`, `completions` (the steps) and `labels`: one text with the spans of its steps and the first wrong one.

    Steps are joined as they are if they bring their own line ends, else by the separator.
    """
    steps, labels = source.record["completions"], source.record["labels"]
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise source.refuse("no_text", "column 'completions' must be a list of texts.")
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise source.refuse("bad_label", "column 'labels' must be a list with one label for each step.")
    right = [_right(source, label) for label in labels]
    between = "" if any(step != step.rstrip() for step in steps[:-1]) else source.options.step_separator
    spans, at = [], 0
    for step in steps:
        spans.append([at, at + len(step)])
        at += len(step) + len(between)
    yield {
        "prompt": source.text("prompt"),
        "completion": between.join(steps),
        "label": all(right),
        "completion_steps": spans,
        "first_error_step": right.index(False) + 1 if False in right else None,
    }


def _right(source: Source, label: Any) -> bool:
    """Whether a step is right: true, 1 and "+" are; false, 0, -1 and "-" are not."""
    if isinstance(label, bool | int | float) and label in (0, 1, -1):
        return label == 1
    if label in ("+", "-"):
        return bool(label == "+")
    raise source.refuse("bad_label", f"a step's label must be true or false, 1, 0 or -1, + or -; got {label!r}.")


def _instruction(source: Source) -> str | list[Message]:
    """Instruction and input as one text; with a system text or earlier turns, as messages."""
    record = source.record
    given = record.get("input")
    text = source.text("instruction")
    text = f"{text}\n\n{given}" if isinstance(given, str) and given.strip() else text
    system, history = record.get("system"), record.get("history") or []
    if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
        raise source.refuse("bad_message", "column 'history' must be a list of question and answer.")
    if not history and not system:
        return text
    turns = [message(role, said) for turn in history for role, said in zip(("user", "assistant"), turn, strict=True)]
    first = [message("system", system)] if isinstance(system, str) and system else []
    return [*first, *turns, message("user", text)]


def _is_turn(turn: object) -> bool:
    return isinstance(turn, list) and len(turn) == 2 and all(isinstance(text, str) for text in turn)
