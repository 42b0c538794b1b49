"""One call on a CUDA machine: do layouts agree on its kernels, and how do speed and memory compare with TRL?

    make gpu-check        or: PYTHONPATH=. python benchmarks/gpu_check.py [--skip-speed]

First every architecture of the layout tests, made tiny, with SDPA (prompts packed behind one another) and with flex
attention (one row per prompt, a block mask), in float32 and with autocast to bfloat16: the log-probabilities of shared
prefixes against those of one row per response. Then the four workloads of `vs_trl.py` in bfloat16 on this device. Needs
nothing but the checkout and installed dependencies, takes under ten minutes, and without a GPU says so and ends.
Exit code 0: everything agrees, or there is no GPU; 1: something differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# mean and largest difference of a token's log-probability, nats; bfloat16 has eight bits, and an expert may switch
ALLOWED = {"float32": (1e-4, 5e-3), "bfloat16": (3e-2, 1.0)}
ATTENTION = {"sdpa": ("packed", "padded"), "flex_attention": ("padded",)}


def gap(kind: str, attention: str, way: str, precision: str) -> tuple[float, float] | str:
    """Mean and largest difference between layouts on the GPU, or why this model has no such layout."""
    import torch

    from prefopt.scoring.attention import let_pack, windows_of
    from prefopt.scoring.policy import Scorer
    from tests.scoring.test_layouts import MODELS, batch

    torch.manual_seed(0)
    model: Any = MODELS[kind]().to("cuda").eval()
    data = {name: value.to("cuda") for name, value in batch(responses=3).items()}
    scorer = Scorer(autocast=torch.bfloat16 if precision == "bfloat16" else None)
    try:
        model.set_attn_implementation(attention)
        windows_of(model)
        with torch.no_grad():
            scorer.settle(model, scorer.head(model), "separate")
            expected = scorer(model, data).logps[data["mask"]]
            if way == "packed":
                let_pack(model)
            scorer.settle(model, scorer.head(model), way)  # type: ignore[arg-type]
            found = scorer(model, data).logps[data["mask"]]
    except Exception as error:  # a kernel that does not take a tiny model is no difference; it is printed
        return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
    difference = (expected - found).abs()
    return float(difference.mean()), float(difference.max())


def layouts() -> bool:
    """Print a line per architecture, attention and precision; False when one differs."""
    from tests.scoring.test_layouts import MODELS

    good = True
    print(f"{'model':20} {'attention':15} {'layout':7} {'precision':9} {'mean gap':>9} {'largest':>9}")
    for kind in MODELS:
        if "eager" in kind:
            continue
        for attention, ways in ATTENTION.items():
            for way in ways:
                for precision, (mean, largest) in ALLOWED.items():
                    found = gap(kind, attention, way, precision)
                    line = f"{kind:20} {attention:15} {way:7} {precision:9}"
                    if isinstance(found, str):
                        print(f"{line} not run: {found}", flush=True)
                        continue
                    fine = found[0] <= mean and found[1] <= largest
                    good &= fine
                    print(f"{line} {found[0]:9.1e} {found[1]:9.1e}{'' if fine else '   DIFFERS'}", flush=True)
    return good


def main() -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip-speed", action="store_true", help="only compare layouts")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    import torch

    if not torch.cuda.is_available():
        print("There is no CUDA device here: nothing was checked.")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    good = layouts()
    if not options.skip_speed:
        command = [sys.executable, str(ROOT / "benchmarks" / "vs_trl.py"), "--device", "cuda"]
        speed = subprocess.run([*command, "--precision", "bfloat16", "--repeats", "1", "--steps", "8"], check=False)
        good &= speed.returncode == 0
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
