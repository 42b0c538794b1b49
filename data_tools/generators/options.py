"""How a command's options say which model answers, and the generator that they mean."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from data_tools.command import Options, RunInfo
from data_tools.errors import DataToolsError
from data_tools.generators.journal import Journal, Journaled
from data_tools.generators.patience import Backoff
from data_tools.generators.recorded import Recorded
from data_tools.generators.request import Generator
from data_tools.generators.server import Server, ServerSettings


class GeneratorOptions(Options):
    """Which model answers, and where its answers are kept."""

    generator: Literal["local", "server", "recorded"] = Field(
        "local", description="a model on this machine, any OpenAI-compatible server, or a file of answers"
    )
    model: str | None = Field(None, description="local: folder, hub id or demo:NAME; server: the model's name there")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="local: weights in this type")
    batch_size: int = Field(64, ge=1, le=4096, description="local: answers written at the same time")
    url: str | None = Field(None, description="server: address up to /v1, for instance http://localhost:8000/v1")
    endpoint: Literal["chat", "completions"] = Field(
        "chat", description="server: messages, or text by --template, which every server can continue"
    )
    template: str = Field("{prompt}", description="server, endpoint completions: the text around a prompt")
    key_variable: str = Field("OPENAI_API_KEY", description="server: the environment variable that holds the key")
    concurrency: int = Field(8, ge=1, le=1024, description="server: requests at the same time")
    timeout: float = Field(120.0, gt=0, le=86400, description="server: seconds for one whole answer")
    retries: int = Field(6, ge=0, le=100, description="server: further tries of a request, with growing waits")
    max_wait: float = Field(60.0, ge=0, le=3600, description="server: longest wait before another try, in seconds")
    per_minute: float = Field(0.0, ge=0, description="server: most requests a minute; 0 for any number")
    body: str = Field("{}", description="server: further fields of every request, a JSON object; no secrets")
    recording: Path | None = Field(None, description="recorded: JSON lines, a journal or written by hand")
    journal: Path | None = Field(None, description="where answers are kept; beside OUT if not given")
    window: int = Field(64, ge=1, le=100_000, description="problems that are worked on together")


Opener = Callable[[GeneratorOptions], Generator]


_SECRET_NAMES = frozenset({"apikey", "xapikey", "authorization", "proxyauthorization"})
_SHORT_KEY = 8
"""Characters. A shorter key (EMPTY, none) is a placeholder and may stand within a text by chance."""


def _body(options: GeneratorOptions) -> dict[str, Any]:
    """The further fields of requests. Raises: `DataToolsError` for what is no JSON object, and for secrets."""
    try:
        body = json.loads(options.body)
    except (ValueError, RecursionError) as error:
        raise DataToolsError(f"--body is no JSON: {error}.") from None
    if not isinstance(body, dict):
        raise DataToolsError("--body must be a JSON object.")
    _refuse_secrets(body, "--body", options.key_variable)
    for name in ("url", "template", "model"):
        _refuse_secrets(getattr(options, name), f"--{name}", options.key_variable)
    return body


def _refuse_secrets(value: Any, option: str, variable: str) -> None:
    """Raises: `DataToolsError` if the key, or a member that is named like one, is in what manifests and journals show.

    The message says where, never what.
    """
    key = os.environ.get(variable, "").strip()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for name in item:
                if "".join(filter(str.isalnum, name)).lower() in _SECRET_NAMES:
                    raise DataToolsError(
                        f"{option} has a member '{name}', and what is given there stands in the manifest. Put the key "
                        f"into the environment variable {variable} (--key-variable); it is sent as a header."
                    )
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and len(key) >= _SHORT_KEY and key in item:
            raise DataToolsError(
                f"{option} holds the key from {variable}, and what is given there stands in the manifest. Leave it "
                "out: the key is sent as a header anyway."
            )


def _server(options: GeneratorOptions) -> Generator:
    if options.url is None or options.model is None:
        raise DataToolsError("--generator server needs --url and --model.")
    body = _body(options)
    if options.endpoint == "completions" and "{prompt}" not in options.template:
        raise DataToolsError("--template must contain {prompt}.")
    return Server(
        ServerSettings(
            url=options.url,
            model=options.model,
            endpoint=options.endpoint,
            template=options.template,
            key_variable=options.key_variable,
            concurrency=options.concurrency,
            seconds=options.timeout,
            per_minute=options.per_minute,
            backoff=Backoff(options.retries, min(1.0, options.max_wait), options.max_wait),
            body=body,
        )
    )


def _recorded(options: GeneratorOptions) -> Generator:
    if options.recording is None:
        raise DataToolsError("--generator recorded needs --recording.")
    return Recorded(options.recording)


_OPENERS: dict[str, Opener] = {"server": _server, "recorded": _recorded}


def register_generator(name: str, opener: Opener) -> None:
    """Say how the generator of that name is opened. `local` comes this way: it needs torch, and this package does not.

    The opener is called when a command needs it, so it may import what is slow.
    """
    _OPENERS[name] = opener


@contextmanager
def open_generator(options: GeneratorOptions, run: RunInfo) -> Iterator[Generator]:
    """The generator, behind its journal. In a dry run only the journal answers; recordings need none."""
    opener = _OPENERS.get(options.generator)
    if opener is None:
        raise DataToolsError(
            f"--generator {options.generator} comes with prefopt: run `prefopt data` instead of `python -m data_tools`."
        )
    _body(options)  # it goes into the manifest, whatever the generator
    generator = opener(options)
    if options.generator == "recorded":
        yield generator
        return
    journal = Journal(journal_path(options, run), read_only=run.dry_run)
    try:
        yield Journaled(journal, None if run.dry_run else generator, generator.identity, run.unanswered)
    finally:
        journal.close()


def journal_path(options: GeneratorOptions, run: RunInfo) -> Path:
    """The journal: as given, or OUT.answers.jsonl."""
    if options.journal is not None:
        return options.journal
    if run.out is None:
        raise DataToolsError("--journal must be given where there is no output file.")
    return run.out.with_name(f"{run.out.name}.answers.jsonl")


def files_read(options: GeneratorOptions) -> list[Path]:
    """Files besides the input that decide the output: a recording, the files of a model in a folder."""
    if options.generator == "recorded":
        return [options.recording] if options.recording is not None else []
    folder = Path(options.model) if options.generator == "local" and options.model else None
    if folder is None or not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".json", ".jinja"))
