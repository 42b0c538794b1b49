from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("ipo", average=False), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("ipo_sum", tau=case["params"]["beta"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("ipo_sum", tau=0.1), REGISTRY["registry/ipo_sum"])


def test_equals_ipo_on_one_token_responses() -> None:
    scores = make_scores(get_loss("ipo_sum"), tokens=1)
    torch.testing.assert_close(get_loss("ipo_sum")(scores).losses, get_loss("ipo")(scores).losses)


def test_differs_from_ipo_on_unequal_lengths() -> None:
    scores = make_scores(get_loss("ipo_sum"))
    assert not torch.allclose(get_loss("ipo_sum")(scores).losses, get_loss("ipo")(scores).losses)
