"""Plain against chunked log-probabilities: time and peak memory of one training step, side by side.

    python benchmarks/backends.py [--vocabulary 49152] [--repeats 3]

Each measurement is a fresh process that builds the same random model and batch, warms up once, and takes the median of
a few steps. The processes alternate, so that a noisy machine disturbs both sides alike; what counts are the ratios.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

PROMPTS, PROMPT_TOKENS, RESPONSE_TOKENS = 4, 64, 64


def measure(backend: str, vocabulary: int) -> dict[str, float]:
    """Median seconds of a step (forward and backward) and peak resident memory in MiB beyond the model's own."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from prefopt import get_loss
    from prefopt.data.collate import Collator
    from prefopt.scoring import Scorer

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=True, **sizes))
    generator = torch.Generator().manual_seed(0)

    def ids(count: int) -> list[int]:
        return torch.randint(3, vocabulary, (count,), generator=generator).tolist()

    rows = []
    for _ in range(PROMPTS):
        responses = [ids(RESPONSE_TOKENS), ids(RESPONSE_TOKENS)]
        masks = [[True] * RESPONSE_TOKENS] * 2
        length = PROMPT_TOKENS + RESPONSE_TOKENS
        rows.append({"prompt_ids": ids(PROMPT_TOKENS), "responses": responses, "masks": masks, "length": length})
    batch, loss = Collator(0)(rows), get_loss("simpo")
    scorer = Scorer(backend)  # type: ignore[arg-type]

    def step() -> float:
        model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        loss(scorer(model, batch).against(None, mask=batch["mask"])).losses.mean().backward()
        return time.perf_counter() - start

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    seconds = statistics.median(step() for _ in range(5))
    scale = 1024 if sys.platform != "darwin" else 1024**2
    return {"seconds": seconds, "mebibytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / scale}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=["plain", "chunked"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.vocabulary)))
        return
    ratios: dict[str, list[float]] = {"seconds": [], "mebibytes": []}
    for _ in range(options.repeats):
        found = {}
        for backend in ("plain", "chunked"):
            command = [sys.executable, __file__, "--one", backend, "--vocabulary", str(options.vocabulary)]
            found[backend] = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
        for name, values in ratios.items():
            values.append(found["chunked"][name] / found["plain"][name])
    for name, values in ratios.items():
        values.sort()
        middle = statistics.median(values)
        print(
            f"{name:10} chunked / plain: median {middle:.2f}, from {values[0]:.2f} to {values[-1]:.2f} "
            f"({len(values)} runs)"
        )


if __name__ == "__main__":
    main()
