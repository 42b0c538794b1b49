"""What is asked of a language model and what comes back, the same for a recording, a local model and a server."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

Prompt = str | list[Any]
"""Text, which a chat model sees as a user's message, or messages."""


@dataclass(frozen=True)
class GenRequest:
    """One prompt and how to continue it.

    `prefill` is what the assistant's turn already begins with; the answer goes on from there, and the turn is not
    closed in between. `n` answers are drawn at `temperature`, 0 for the most likely one, among the tokens that make up
    `top_p` of the probability. An answer ends before the first of `stop`. `seed` fixes what is drawn.
    """

    prompt: Prompt
    prefill: str = ""
    n: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int = 0

    def content(self) -> dict[str, Any]:
        """The request as JSON."""
        return {**asdict(self), "stop": list(self.stop)}

    def singly(self) -> list["GenRequest"]:
        """As many requests for one answer each, with seeds of their own."""
        if self.n == 1:
            return [self]
        return [replace(self, n=1, seed=seed_of(self.seed, number)) for number in range(self.n)]


@dataclass(frozen=True)
class GenResult:
    """One answer, without the prefill. `finish_reason` is "length" where it was cut off, else usually "stop"."""

    text: str
    finish_reason: str = "stop"


@dataclass(frozen=True)
class GenFailure:
    """Why there is no answer: a word to count it under, and a sentence. `passes` if the same may have one later."""

    reason: str
    detail: str = ""
    passes: bool = False


@dataclass(frozen=True)
class GenReply:
    """The answers to one request, in the order of their seeds, and what came of those that failed."""

    results: tuple[GenResult, ...] = ()
    failures: tuple[GenFailure, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The answers' texts."""
        return [result.text for result in self.results]


Answer = GenResult | GenFailure


class Generator(Protocol):
    """Whatever answers requests.

    `identity` says which model it is: answers are kept under it, so it must change when the answers would. `together`
    is the number of requests that are computed together, if answers depend on that in their last bits, else 1.
    """

    @property
    def identity(self) -> Mapping[str, Any]:
        """Which model answers."""
        ...

    @property
    def together(self) -> int:
        """Requests that are computed together."""
        ...

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        """The answers to requests with n = 1, each with the request's place, in whatever order they are ready."""
        ...


def generate(generator: Generator, requests: Sequence[GenRequest]) -> list[GenReply]:
    """The reply to each request, in order. What n > 1 asks for is drawn one by one."""
    single = [(place, one) for place, request in enumerate(requests) for one in request.singly()]
    found: list[Answer | None] = [None] * len(single)
    for number, answer in generator.answers([one for _, one in single]):
        found[number] = answer
    results: list[list[GenResult]] = [[] for _ in requests]
    failures: list[list[GenFailure]] = [[] for _ in requests]
    for (place, _), given in zip(single, found, strict=True):
        if isinstance(given, GenResult):
            results[place].append(given)
        else:
            failures[place].append(given or GenFailure("no_answer", "the generator left the request out"))
    return [GenReply(tuple(r), tuple(f)) for r, f in zip(results, failures, strict=True)]


def seed_of(*parts: object) -> int:
    """A seed made of whatever names the place it is for; 31 bits, which every server takes."""
    text = "|".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=4).digest()) & 0x7FFFFFFF


def request_key(identity: Mapping[str, Any], request: GenRequest) -> str:
    """Names a request to a model by its content."""
    text = json.dumps([dict(identity), request.content()], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()
