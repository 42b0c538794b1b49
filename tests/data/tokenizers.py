"""Tokenizers for tests: two built here in a moment, three real ones where at hand, and trl's chat templates."""

from __future__ import annotations

import importlib.resources
import re
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

ASSETS = Path(__file__).parents[2].parent / "shared" / "assets"
REAL = {"stories260k": "models/stories260k", "smollm2": "tokenizers/smollm2", "qwen3": "tokenizers/qwen3"}

CORPUS = [
    "the sky is blue. the sky is green. the cat sat on the mat, the car is red.",
    "Solve 2+3*4. Step 1: 3*4=12. Step 2: 2+12=14. The answer is 14.",
    "hello, how are you? I am fine, thank you. What is the capital of France? Paris. London.",
    "user assistant system tool thinking def f(x):\n\treturn x\n",
] * 3

CHAT = (
    "{{ bos_token or '' }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build(
    *,
    special: tuple[str, ...] = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"),
    bos: str | None = None,
    eos: str | None = "<|end|>",
    pad: str | None = "<|end|>",
    adds_bos: bool = False,
    template: str | None = CHAT,
) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer trained on a few sentences."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokens = [*dict.fromkeys([t for t in (bos, eos, pad) if t] + list(special))]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos, pad_token=pad)
    tokenizer.chat_template = template
    return tokenizer


@cache
def plain() -> PreTrainedTokenizerBase:
    """No BOS; pad is the end token."""
    return build()


@cache
def with_bos() -> PreTrainedTokenizerBase:
    """Puts `<s>` in front of text, as Llama's does."""
    return build(bos="<s>", adds_bos=True)


@cache
def real(name: str) -> PreTrainedTokenizerBase:
    """A tokenizer of a released model; the test is skipped where it is missing."""
    folder = ASSETS / REAL[name]
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    return AutoTokenizer.from_pretrained(folder)


def real_data(name: str) -> Path:
    """A file of real records; the test is skipped where it is missing."""
    file = ASSETS / "data" / name
    if not file.is_file():
        pytest.skip(f"{file} is missing")
    return file


ENDS = {
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "cohere2": "<|END_OF_TURN_TOKEN|>",
    "deepseek_r1_distill": "<｜end▁of▁sentence｜>",
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "gemma": "<eos>",
    "gemma3": "<eos>",
    "glm4moe": "<|endoftext|>",
    "gptoss": "<|return|>",
    "lfm2": "<|im_end|>",
    "lfm2_2_5": "<|im_end|>",
    "lfm2_2_5_v2": "<|im_end|>",
    "lfm2_v2": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "llama3_2": "<|eot_id|>",
    "nemotron_3_nano": "<|im_end|>",
    "phi3": "<|endoftext|>",
    "phi3_5": "<|endoftext|>",
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_5_nothink": "<|im_end|>",
    "qwen3_5_think": "<|im_end|>",
    "qwen3_6": "<|im_end|>",
    "qwen3_8": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
}
"""trl's templates for text, with the end token of the models they belong to."""

_MARKS = re.compile(r"<[|｜][^<>{}' ]*?[|｜]>|<(?:start|end)_of_turn>|<bos>|<eos>")
_NOT_SPECIAL = ("think", "tool")


@cache
def templated(name: str) -> PreTrainedTokenizerBase:
    """A tokenizer built here that knows the marks of one of trl's templates as special tokens."""
    text = (importlib.resources.files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    marks = [m for m in dict.fromkeys(_MARKS.findall(text)) if not any(word in m for word in _NOT_SPECIAL)]
    bos = "<bos>" if "gemma" in name else "<|begin|>" if "bos_token" in text else None
    return build(
        special=(*marks, ENDS[name]), bos=bos, eos=ENDS[name], pad=None, adds_bos=bos is not None, template=text
    )
