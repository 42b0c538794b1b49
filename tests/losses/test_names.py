"""Abbreviations that several methods share get an answer, not a guess."""

from __future__ import annotations

import re

import pytest

from prefopt import ConfigError, get_loss, loss_names
from prefopt.losses._registry import AMBIGUOUS


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_abbreviation_is_refused_with_losses_that_exist(name: str) -> None:
    name = name.upper() if name in loss_names() else name  # what only the literature's spelling leaves open
    with pytest.raises(ConfigError, match=rf"loss '{name}' may mean .* Use the full name\.") as refusal:
        get_loss(name)
    meant = set(re.findall(r"\b[a-z_0-9]+(?= \()", str(refusal.value)))
    assert len(meant) > 1
    assert meant <= set(loss_names())


def test_three_methods_share_rdpo() -> None:
    for name in ("rdpo", "RDPO", "r-dpo"):
        with pytest.raises(ConfigError) as refusal:
            get_loss(name)
        for meant in ("robust_dpo", "refined_dpo", "r_dpo"):
            assert meant in str(refusal.value)


def test_smoothing_the_critical_token_loss_points_to_conservative_dpo() -> None:
    with pytest.raises(ConfigError, match="write `name: dpo` with label_smoothing"):
        get_loss("cdpo", label_smoothing=0.1)
