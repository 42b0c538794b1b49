"""Errors put into right solutions: one at a time, of a named kind, proven wrong, and close to the original."""

from data_tools.inject.balance import Balance
from data_tools.inject.code import CODE_KINDS, CodeInjector
from data_tools.inject.explicit import PROPAGATION, inject_at
from data_tools.inject.item import ErrorInjector, Injection, Mode, SolutionItem, row_random
from data_tools.inject.kinds import KINDS, UNCHECKED
from data_tools.inject.model import ModelInjector, TextGenerator
from data_tools.inject.rows import build_pair, provenance
from data_tools.inject.rule import RuleInjector
from data_tools.inject.screen import Filters
from data_tools.inject.words import dropped_step, relation_flip

__all__ = [
    "CODE_KINDS",
    "KINDS",
    "PROPAGATION",
    "UNCHECKED",
    "Balance",
    "CodeInjector",
    "ErrorInjector",
    "Filters",
    "Injection",
    "Mode",
    "ModelInjector",
    "RuleInjector",
    "SolutionItem",
    "TextGenerator",
    "build_pair",
    "dropped_step",
    "inject_at",
    "provenance",
    "relation_flip",
    "row_random",
]
