"""No worked value is left out: a test of the loss it belongs to reads every method and entry of the vector files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prefopt import StepContext, get_loss
from tests.losses.test_sampo import Picking
from tests.losses.vectors import PRECISIONS, REGISTRY, SEQUENCE, shared_batch, tensor

HERE = Path(__file__).parent
SEVERAL = {"ipo": ("ipo", "ipo_sum"), "aot": ("aot", "aot_unpaired"), "tdpo": ("tdpo1", "tdpo2")}
"""Methods whose parameter chooses between what are two losses here."""


@pytest.mark.parametrize("method", sorted({case["method"] for case in SEQUENCE}))
def test_every_method_of_the_sequence_file_is_read_by_its_loss(method: str) -> None:
    for name in SEVERAL.get(method, (method,)):
        assert f'cases("{method}"' in (HERE / f"test_{name}.py").read_text(encoding="utf-8"), name


OF_THE_TRAINER = {"batch/ragged_mean"}  # how micro-batches add up to a step, not a loss


@pytest.mark.parametrize("entry", sorted(REGISTRY.keys() - OF_THE_TRAINER))
def test_every_entry_of_the_registry_file_is_read(entry: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("*.py")]
    name = entry.removeprefix("registry/f_dpo_")  # that test puts the entry's name together
    assert any(f'"{entry}"' in text or (name != entry and f'("{name}", ' in text) for text in texts)


def test_shared_batch_at_the_positions_that_were_drawn_for_sampo() -> None:
    case = REGISTRY["registry/sampo"]
    for dtype, rtol, atol in PRECISIONS:
        scores = shared_batch(dtype)
        context = StepContext(draw=Picking(case["inputs"], scores.policy.shape[-1]))
        out = get_loss("sampo", beta=case["inputs"]["beta"], mode="sample")(scores, context)
        margin = out.metrics["sampo/chosen"] - out.metrics["sampo/rejected"]
        torch.testing.assert_close(margin, tensor(case["expected"]["margin"], dtype), rtol=rtol, atol=atol)
        torch.testing.assert_close(out.losses, tensor(case["expected"]["loss"], dtype), rtol=rtol, atol=atol)
