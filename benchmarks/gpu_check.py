"""One call on a CUDA machine: do layouts agree on its kernels, and how do speed and memory compare with TRL?

    make gpu-check        or: PYTHONPATH=. python benchmarks/gpu_check.py [--skip-speed]

First every architecture of the layout tests, made small, with SDPA (prompts packed behind one another) and with flex
attention (one row per prompt, a block mask): log-probabilities and gradients of shared prefixes against those of one
row per response in float32, and with autocast to bfloat16 the error of both layouts against float32. Then the four
workloads of `vs_trl.py` in bfloat16 on this device. Needs nothing but the checkout and what the tests need, takes under
ten minutes, and without a GPU says so and ends.
Exit code 0: everything agrees, or there is no GPU; 1: something differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ATTENTION = {"sdpa": ("packed", "padded"), "flex_attention": ("padded",)}
ALLOWED = 1e-4  # mean difference in float32, nats a token; largest relative difference of a gradient 1e-2
WORSE = 2.0  # in bfloat16: times the error that one row per response has against float32


def wide(kind: str) -> Any:
    """The tiny model of the layout tests with heads of 16, which flex attention's kernel wants at least."""
    import torch

    from tests.scoring.test_layouts import MODELS

    config = MODELS[kind]().config
    for name, value in (("hidden_size", 64), ("n_embd", 64)):
        if hasattr(config, name):
            setattr(config, name, value)
    if getattr(config, "head_dim", None):
        config.head_dim = 16
    torch.manual_seed(0)
    return type(MODELS[kind]())(config).to("cuda").eval()


def scored(model: Any, data: Any, way: str, precision: str) -> tuple[Any, Any]:
    """Log-probabilities of the scored tokens in this arrangement, and the gradient of a few weights."""
    import torch

    from prefopt.scoring.policy import Scorer

    scorer = Scorer(autocast=torch.bfloat16 if precision == "bfloat16" else None)
    scorer.settle(model, scorer.head(model), way)  # type: ignore[arg-type]
    found = scorer(model, data).logps[data["mask"]]
    weights = [p for p in model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(found.cos().sum(), [weights[0], weights[-1]])
    return found.detach().double(), torch.cat([slope.flatten().double() for slope in slopes])


def differences(kind: str, attention: str, way: str) -> dict[str, float]:
    """Mean gap in nats and relative gap of gradients in float32; the errors of both layouts in bfloat16.

    Raises: `ConfigError` for a layout that this model cannot have.
    """
    from prefopt.scoring.attention import let_pack, windows_of
    from tests.scoring.test_layouts import batch

    model = wide(kind)
    data = {name: value.to("cuda") for name, value in batch(responses=3).items()}
    exact, slope = scored(model, data, "separate", "float32")
    rough, _ = scored(model, data, "separate", "bfloat16")
    model.set_attn_implementation(attention)
    windows_of(model)
    if way == "packed":
        let_pack(model)
    ours, our_slope = scored(model, data, way, "float32")
    our_rough, _ = scored(model, data, way, "bfloat16")
    return {
        "float32": float((exact - ours).abs().mean()),
        "gradient": float((slope - our_slope).norm() / slope.norm()),
        "bfloat16": float((exact - our_rough).abs().mean()),
        "separate": float((exact - rough).abs().mean()),
    }


def layouts(deadline: float) -> bool:
    """Print a line per architecture, attention and layout; False when one differs or fails, or a kind was never run."""
    import torch

    from prefopt.errors import ConfigError
    from tests.scoring.test_layouts import MODELS

    good, ran = True, dict.fromkeys(ATTENTION, 0)
    print(f"{'model':20} {'attention':15} {'layout':7} {'float32':>9} {'gradient':>9} {'bfloat16':>9} {'separate':>9}")
    for attention, ways in ATTENTION.items():
        for kind, way in ((kind, way) for kind in MODELS if "eager" not in kind for way in ways):
            line = f"{kind:20} {attention:15} {way:7}"
            if time.monotonic() > deadline:
                print(f"{line} not run: the time is over", flush=True)
                continue
            torch._dynamo.reset()
            try:
                found = differences(kind, attention, way)
            except ConfigError as error:
                print(f"{line} not run: {error}", flush=True)
                continue
            except Exception as error:  # every model is tried, and one that fails is told
                good = False
                print(f"{line} FAILED: {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
                continue
            ran[attention] += 1
            fine = found["float32"] <= ALLOWED and found["gradient"] <= 1e-2
            fine &= found["bfloat16"] <= WORSE * found["separate"] + 1e-3
            good &= fine
            figures = " ".join(f"{value:9.1e}" for value in found.values())
            print(f"{line} {figures}{'' if fine else '   DIFFERS'}", flush=True)
    for attention, count in ran.items():
        if not count:
            good = False
            print(f"{attention}: no model was compared", flush=True)
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
    good = layouts(time.monotonic() + 240)
    if not options.skip_speed:
        command = [sys.executable, str(ROOT / "benchmarks" / "vs_trl.py"), "--device", "cuda"]
        speed = subprocess.run(
            [*command, "--precision", "bfloat16", "--repeats", "1", "--steps", "8"], check=False, timeout=330
        )
        good &= speed.returncode == 0  # that it ran; its figures are to be read
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
