"""A model on this machine as a generator of `data_tools`: what pipelines sample from it is what training will see."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from data_tools.errors import DataToolsError
from data_tools.generators import Answer, GeneratorOptions, GenFailure, GenRequest, GenResult
from prefopt.data import DataOptions, Encoder, Rejection
from prefopt.errors import PrefoptError
from prefopt.scoring.reference import evaluating
from prefopt.train.generate import left_padded, stop_tokens
from prefopt.train.model import load_model, load_tokenizer, model_path

TOGETHER = 512
"""Requests that are sorted by length and cut into batches together."""


class LocalGenerator:
    """Answers in batches. What a request draws depends on its own seed, not on its neighbours.

    Neighbours can still change an answer in rare cases: sums over a padded batch differ in their last bits. `together`
    tells a journal to ask for fixed groups, so that a run that goes on after a kill gives what it would have given.
    """

    together = TOGETHER

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        identity: Mapping[str, Any],
        *,
        batch_size: int = 64,
    ) -> None:
        self.model, self.tokenizer, self.identity = model, tokenizer, {**identity, "batch_size": batch_size}
        self.batch_size = batch_size
        has_template = tokenizer.chat_template is not None
        self._encoder = Encoder(tokenizer, DataOptions(template="always" if has_template else "auto"))

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        """Answers batch by batch; prompts of similar length stand together."""
        for start in range(0, len(requests), TOGETHER):
            yield from self._group(start, requests[start : start + TOGETHER])

    def _group(self, start: int, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        encoded = [self._encode(request) for request in requests]
        usable = [place for place, ids in enumerate(encoded) if isinstance(ids, list)]
        yield from ((start + place, found) for place, found in enumerate(encoded) if isinstance(found, GenFailure))
        kinds: dict[tuple[tuple[str, ...], int], list[int]] = {}
        for place in sorted(usable, key=lambda place: len(encoded[place])):  # type: ignore[arg-type]
            kinds.setdefault((requests[place].stop, requests[place].max_tokens), []).append(place)
        for places in kinds.values():
            for at in range(0, len(places), self.batch_size):
                batch = places[at : at + self.batch_size]
                ids = [encoded[place] for place in batch]
                results = self._batch([requests[place] for place in batch], ids)  # type: ignore[arg-type]
                yield from zip((start + place for place in batch), results, strict=True)

    def _encode(self, request: GenRequest) -> list[int] | GenFailure:
        """The ids that a model continues: those that training would put in front of the same answer."""
        record = {"prompt": request.prompt} | ({"initial_reason_steps": request.prefill} if request.prefill else {})
        found = self._encoder.encode_prompt(record)
        return GenFailure(found.reason, found.detail) if isinstance(found, Rejection) else found

    @torch.no_grad()
    def _batch(self, requests: Sequence[GenRequest], prompts: list[list[int]]) -> list[GenResult]:
        device = next(self.model.parameters()).device
        stops = stop_tokens(self.model, self.tokenizer)
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else stops[0] if stops else 0
        ids, mask = left_padded(prompts, pad, device)
        texts = {"stop_strings": list(requests[0].stop), "tokenizer": self.tokenizer} if requests[0].stop else {}
        with evaluating(self.model):
            out = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=requests[0].max_tokens,
                do_sample=False,  # the choice is made below, with random numbers of each row's own
                logits_processor=LogitsProcessorList([RowSampler(requests)]),
                eos_token_id=stops or None,
                pad_token_id=pad,
                use_cache=True,
                **texts,
            )
        rows = out[:, ids.shape[1] :].tolist()
        return [self._result(*row, stops) for row in zip(requests, prompts, rows, strict=True)]

    def _result(self, request: GenRequest, prompt: list[int], new: list[int], stops: list[int]) -> GenResult:
        end = next((place for place, token in enumerate(new) if token in stops), None)
        # decoded behind the prompt: some tokenizers write the first word of a text without its space
        head = self._decode(prompt)
        whole = self._decode(prompt + new[:end])
        text = whole[len(head) :] if whole.startswith(head) else self._decode(new[:end])
        cuts = [at for stop in request.stop if (at := text.find(stop)) >= 0]
        closed = end is not None or bool(cuts)
        return GenResult(text[: min(cuts)] if cuts else text, "stop" if closed else "length")

    def _decode(self, ids: list[int]) -> str:
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text


class RowSampler(LogitsProcessor):
    """Chooses each row's next token with its own temperature, top-p and random numbers, and leaves only that one."""

    def __init__(self, requests: Sequence[GenRequest]) -> None:
        self._draws = [random.Random(request.seed) if request.temperature > 0 else None for request in requests]
        self._temperature = torch.tensor([r.temperature if r.temperature > 0 else 1.0 for r in requests])
        self._top_p = torch.tensor([request.top_p for request in requests], dtype=torch.float64)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits [B, V] in, 0 for the chosen token and -inf for all others out."""
        best = scores.argmax(-1)
        if any(self._draws):
            uniform = torch.tensor([draw.random() if draw else 0.0 for draw in self._draws], dtype=torch.float64)
            drawn = chosen_tokens(
                scores.float() / self._temperature.to(scores.device)[:, None],
                self._top_p.to(scores.device),
                uniform.to(scores.device),
            )
            sampled = torch.tensor([draw is not None for draw in self._draws], device=scores.device)
            best = torch.where(sampled, drawn, best)
        return torch.full_like(scores, -torch.inf).scatter_(1, best[:, None], 0.0)


def chosen_tokens(logits: Tensor, top_p: Tensor, uniform: Tensor) -> Tensor:
    """The token at which the cumulative probability passes `uniform`.

    Of a row with `top_p` below 1 only the most probable tokens that together reach it take part, at least one of them.

    Shapes: logits [B, V], top_p [B], uniform [B] in [0, 1) -> [B].
    """
    probabilities = logits.double().softmax(-1)
    cut = (top_p < 1).nonzero()[:, 0]
    if len(cut):  # the other rows are not sorted, so that they draw the same in any company
        ordered, tokens = probabilities[cut].sort(dim=-1, descending=True, stable=True)
        below = ordered.cumsum(-1) - ordered  # of all tokens before it
        ordered[:, 1:].masked_fill_(below[:, 1:] >= top_p[cut, None], 0.0)
        probabilities[cut] = torch.zeros_like(ordered).scatter_(1, tokens, ordered)
    cumulative = probabilities.cumsum(-1)
    passed = cumulative > uniform[:, None] * cumulative[:, -1:]
    return passed.int().argmax(-1)  # the first of them


def open_local(options: GeneratorOptions) -> LocalGenerator:
    """What `--generator local --model ...` means. Raises: `DataToolsError` when there is no such model."""
    if options.model is None:
        raise DataToolsError("--generator local needs --model: a folder, a hub id, or demo:tiny-math.")
    try:
        tokenizer = load_tokenizer(options.model)
        model = load_model(options.model, dtype=options.dtype)
    except PrefoptError as error:
        raise DataToolsError(str(error).replace("model.name_or_path", "--model")) from error
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    identity = {"generator": "local", "dtype": options.dtype, "weights": _weights(options.model, model)}
    return LocalGenerator(model, tokenizer, identity, batch_size=options.batch_size)


def _weights(name: str, model: PreTrainedModel) -> str:
    """What names the weights: the commit of a hub model, a hash of the files of a folder."""
    folder = Path(model_path(name))
    if not folder.is_dir():
        return f"{name}@{getattr(model.config, '_commit_hash', None)}"
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".jinja")):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:32]
