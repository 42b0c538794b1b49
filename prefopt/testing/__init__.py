"""The contract of every loss, ours and plug-ins'.

    from prefopt.testing import check_loss
    check_loss("my_loss")

Each property is a function of its own, so a test can run them apart: `PROPERTIES` lists them by name. A loss is excused
from a property by naming it, with the reason, in `register_loss(..., excused={...})`; `every_option_acts:NAME` excuses
one hyperparameter.
"""

from prefopt.testing._contract import PROPERTIES, check_loss
from prefopt.testing._make import make_scores
from prefopt.testing._ranges import out_of_range
from prefopt.testing._ranks import simulate_ranks

__all__ = ["PROPERTIES", "check_loss", "make_scores", "out_of_range", "simulate_ranks"]
