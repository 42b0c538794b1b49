"""Pairs out of labelled samples: IRPO, DPO-ST, plausible negatives."""

from data_tools.pairing.dpo_st import Ranked, rank_pairs, without_similar
from data_tools.pairing.irpo import different_pairs, irpo_pairs
from data_tools.pairing.negatives import best_right, plausible
from data_tools.pairing.pools import COLUMNS, Pool, Sample, pools

__all__ = [
    "COLUMNS",
    "Pool",
    "Ranked",
    "Sample",
    "best_right",
    "different_pairs",
    "irpo_pairs",
    "plausible",
    "pools",
    "rank_pairs",
    "without_similar",
]
