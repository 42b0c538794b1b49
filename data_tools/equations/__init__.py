"""Equations in running text: found, evaluated exactly, judged. What cannot be read with certainty is left alone."""

from data_tools.equations.check import Verdict, is_denied, judge, judged
from data_tools.equations.equation import Equation, Side, Site
from data_tools.equations.expression import Value, evaluate, left_to_right, magnitude
from data_tools.equations.parse import Reading, find_equations, read_equations
from data_tools.equations.style import NumberStyle, format_like
from data_tools.equations.tokens import Token, number_value, tokenize

__all__ = [
    "Equation",
    "NumberStyle",
    "Reading",
    "Side",
    "Site",
    "Token",
    "Value",
    "Verdict",
    "evaluate",
    "find_equations",
    "format_like",
    "is_denied",
    "judge",
    "judged",
    "left_to_right",
    "magnitude",
    "number_value",
    "read_equations",
    "tokenize",
]
