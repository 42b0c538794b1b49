"""The untrained beginning of the demonstration models: a tokenizer and a small Llama with random weights.

    python recipes/demo/start_model.py OUT_FOLDER

The tokenizer is a byte-level BPE trained on seeded problems: the full byte alphabet, so that any text goes in and comes
out unchanged, digits one by one, and nearly every word of the problems as one token.
"""

import argparse
import logging
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from data_tools.problems import Flaw, make_problems

log = logging.getLogger("start_model")

PAD, END, SYSTEM, USER, ASSISTANT = SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
VOCABULARY = 700
CORPUS = 4000
CONTEXT = 512
SEED = 0

CHAT_TEMPLATE = """\
{%- for message in messages -%}
    {%- if message['role'] not in ['system', 'user', 'assistant'] -%}
        {{- raise_exception("Unknown role '" + message['role'] + "': use system, user or assistant.") -}}
    {%- endif -%}
    {{- '<|' + message['role'] + '|>' -}}
    {%- if message['role'] == 'assistant' -%}
        {%- generation -%}{{- message['content'] + eos_token -}}{%- endgeneration -%}
    {%- else -%}
        {{- message['content'] -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def make_tokenizer(seed: int = SEED) -> PreTrainedTokenizerFast:
    """The tokenizer, trained on the texts of seeded problems, right and flawed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    problems = make_problems(CORPUS, seed=seed, flaw=Flaw(0.5))
    tokenizer.train_from_iterator((text for p in problems for text in (p.prompt, p.solution)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = SEED) -> LlamaForCausalLM:
    """A Llama of width 128 with 4 layers, about 0.9 million weights drawn from `seed`."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).to(torch.float32)


def save_start(out: Path, *, seed: int = SEED) -> None:
    """Write model and tokenizer as a Hugging Face folder."""
    tokenizer = make_tokenizer(seed)
    model = make_model(tokenizer, seed)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    log.info("%s: %d tokens, %d weights", out, len(tokenizer), model.num_parameters())


def main() -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    save_start(arguments.out, seed=arguments.seed)


if __name__ == "__main__":
    main()
