"""Sums of losses: what may stand together."""

from __future__ import annotations

import pytest

from prefopt import ConfigError, get_loss
from prefopt.losses import Objective


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("dpo", "mc_po"), "'mc_po' reads any number of responses per prompt and 'dpo' exactly two"),
        (("d2o", "dpop"), "'d2o' reads any number of responses per prompt and 'dpop' exactly two"),
        (("dpo", "kto"), "'kto' reads single responses with a label, desirable or not, and 'dpo' does not"),
        (("bco", "nll"), "'bco' reads single responses with a label, desirable or not, and 'nll' does not"),
    ],
)
def test_losses_that_no_row_serves_are_refused_together(names: tuple[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Objective.of(*map(get_loss, names))


@pytest.mark.parametrize("names", [("dpo", "nll"), ("mc_po", "nll"), ("kto", "bco"), ("dr_dpo", "bco_pair", "nll")])
def test_losses_that_one_row_serves_may_be_summed(names: tuple[str, ...]) -> None:
    assert Objective.of(*map(get_loss, names)).name == " + ".join(names)
