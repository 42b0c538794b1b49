"""Solutions as steps: split, aligned, and the first wrong one found."""

from data_tools.steps.align import align, first_difference
from data_tools.steps.split import SPLITTERS, Step, StepError, Steps, split_steps
from data_tools.steps.wrong import FirstWrong, first_wrong_step

__all__ = [
    "SPLITTERS",
    "FirstWrong",
    "Step",
    "StepError",
    "Steps",
    "align",
    "first_difference",
    "first_wrong_step",
    "split_steps",
]
