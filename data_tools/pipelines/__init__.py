"""From problems with answers to preference pairs, with a model's own samples: Step-DPO, SCDPO, RISE."""
