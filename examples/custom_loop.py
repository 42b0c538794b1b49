"""Three losses in a plain PyTorch loop: no trainer, no recipe.

    python examples/custom_loop.py                                                                 # one process
    accelerate launch --config_file recipes/accelerate/ddp-cpu.yaml examples/custom_loop.py        # two

Needs the demonstration model and its pairs, both part of the package. Any causal model and any file of pairs will do.
"""

from __future__ import annotations

import copy
import gc
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from prefopt import Draw, StepContext, get_loss
from prefopt.data import DataOptions, Source, prepare_rows
from prefopt.data.collate import Collator
from prefopt.demo import demo_model_path
from prefopt.scoring import score
from prefopt.train.ranks import RankGather

PAIRS = Path(__file__).parent.parent / "recipes" / "data" / "tiny-math" / "pairs.jsonl"
LOSSES = {
    "dpo": get_loss("dpo", beta=0.1),
    "simpo": get_loss("simpo", beta=2.0, gamma_beta_ratio=0.5),
    "dr_dpo": get_loss("dr_dpo", beta=0.1, beta_prime=1.0),  # compares the pairs of a batch, on all processes
}


def train(name: str, *, steps: int = 12, batch_size: int = 8) -> list[float]:
    """The mean margin, in nats, that the policy gains over its start, step by step."""
    set_seed(0)
    accelerator, loss, seed = Accelerator(cpu=not torch.cuda.is_available()), LOSSES[name], 0
    folder = demo_model_path("demo:tiny-math")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    policy = AutoModelForCausalLM.from_pretrained(folder)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)

    options = DataOptions(max_length=256, template="always")
    rows = prepare_rows([Source(str(PAIRS))], tokenizer, options, seed=seed, name="train").rows
    loader = DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=Collator(tokenizer.pad_token_id))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-5)
    policy, optimizer, loader = accelerator.prepare(policy, optimizer, loader)
    reference.to(accelerator.device)

    margins = []
    for step, batch in zip(range(steps), loader, strict=False):
        with torch.no_grad():
            known = score(reference, batch)
        scores = score(policy, batch).against(known, mask=batch["mask"], ids=batch["ids"])
        context = StepContext(RankGather(batch["weight"]), Draw(seed, step), step=step, total_steps=steps)
        out = loss(scores, context)  # losses [B], one per pair; the plain losses leave the context aside
        accelerator.backward(out.losses.mean())
        accelerator.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        gap = scores.logratios.detach()
        margins.append(accelerator.gather(gap[:, 0] - gap[:, 1]).mean().item())
    return margins


if __name__ == "__main__":
    for loss_name in LOSSES:
        first, *_, last = train(loss_name)
        if PartialState().is_main_process:
            processes = PartialState().num_processes
            print(
                f"{loss_name:8} {processes} process(es), margin: {first:+.3f} nats at the start, {last:+.3f} at the end"
            )
    gc.collect()  # what still holds the group of processes goes first: its threads would outlive the interpreter
    PartialState().destroy_process_group()
