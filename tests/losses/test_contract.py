"""Every registered loss keeps the contract, property by property."""

from __future__ import annotations

import pytest

from prefopt import get_loss, loss_names
from prefopt.testing import PROPERTIES


@pytest.mark.parametrize("name", loss_names())
@pytest.mark.parametrize("title", PROPERTIES)
def test_contract(name: str, title: str) -> None:
    loss = get_loss(name)
    if title in loss.spec.excused:
        pytest.skip(loss.spec.excused[title])
    PROPERTIES[title](loss)
