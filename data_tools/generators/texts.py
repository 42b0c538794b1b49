"""A generator as the injector by model wants it: prompts that end in an opened fence in, texts out."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_tools.generators.request import Generator, GenRequest, generate, seed_of

_OPENING = "```\n"


@dataclass(frozen=True)
class Continuations:
    """Moves the prompt's last line and the fence it opens into the assistant's turn; stops at the closing fence."""

    generator: Generator
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0

    def generate(self, prompts: Sequence[str]) -> list[str]:
        """One text for each prompt; an empty one where there was no answer."""
        requests = [self._request(prompt) for prompt in prompts]
        replies = generate(self.generator, requests)
        return [
            self._closed(reply.texts[0], request) if reply.texts else ""
            for request, reply in zip(requests, replies, strict=True)
        ]

    def _request(self, prompt: str) -> GenRequest:
        begin = prompt.rfind("\n", 0, len(prompt) - len(_OPENING) - 1) + 1  # of the line before the fence
        fenced = prompt.endswith(_OPENING)
        return GenRequest(
            prompt=prompt[:begin].rstrip("\n") if fenced else prompt,
            prefill=prompt[begin:] if fenced else "",
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            stop=("\n```",) if fenced else (),
            seed=seed_of(self.seed, prompt),
        )

    @staticmethod
    def _closed(text: str, request: GenRequest) -> str:
        return f"{text}\n```" if request.stop and "```" not in text else text
