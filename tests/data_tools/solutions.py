"""Solutions in the notations that errors have to be put into: written for these tests, every equation is true."""

from __future__ import annotations

from typing import NamedTuple

from data_tools.inject import SolutionItem
from data_tools.steps import split_steps

PENS = (
    "Step 1: Tom buys 12 boxes of 8 pens, so 12 * 8 = 96 pens.\n"
    "Step 2: He gives away 30, so 96 - 30 = 66 pens remain.\n"
    "Step 3: Sold at $2 each he earns 66 * 2 = 132 dollars.\n"
    "The answer is 132"
)


class Problem(NamedTuple):
    """One problem of the sample."""

    name: str
    prompt: str
    solution: str
    answer: str

    @property
    def item(self) -> SolutionItem:
        return SolutionItem(self.name, self.prompt, split_steps(self.solution), self.answer)


PROBLEMS = (
    Problem(
        "pens", "Tom buys 12 boxes of 8 pens, gives away 30 and sells the rest at $2. What does he earn?", PENS, "132"
    ),
    Problem(
        "brackets",
        "A hall has 14 rows of 26 chairs; 3 rows are closed. A ticket costs 9 dollars. What do full rows bring?",
        "There are (14 - 3) * 26 = 286 chairs that can be sold.\n"
        "They bring 286 * 9 = $2,574 in the evening.\n"
        "#### 2574",
        "2574",
    ),
    Problem(
        "percent",
        "Of 240 pupils 35% walk, and a third of the walkers carry a flag. How many flags are there?",
        "The number of walkers is 35% of 240 = 84 pupils.\nThen 1/3 * 84 = 28 pupils carry a flag.\n#### 28",
        "28",
    ),
    Problem(
        "units",
        "A pump moves 45 litres a minute. How much does it move in 6 hours of work?",
        "Six hours are 6 hours * 60 minutes/hour = 360 minutes.\n"
        "The pump moves 360 minutes * 45 litres/minute = 16,200 litres.\n"
        "#### 16200",
        "16200",
    ),
    Problem(
        "decimals",
        "A cable costs $1.25 a metre. What do 36 metres cost after a voucher of $7.50?",
        "The cable costs 36 * $1.25 = $45.00 before the voucher.\n"
        "With it, the price is 45.00 - 7.50 = $37.50 in all.\n"
        "#### 37.50",
        "37.50",
    ),
    Problem(
        "negative",
        "It is -14 degrees at night. By noon it is 23 degrees warmer, and by evening 5 degrees colder again.",
        "At noon the thermometer shows -14 + 23 = 9 degrees.\nIn the evening it shows 9 - 5 = 4 degrees.\n#### 4",
        "4",
    ),
    Problem(
        "latex",
        "A tank of 350 litres is filled to two fifths, then 45 litres are added. How much is in it?",
        "The tank holds \\frac{2}{5} \\times 350 = 140 litres at first.\n"
        "Afterwards it holds 140 + 45 = 185 litres.\n"
        "The answer is \\boxed{185}.",
        "185",
    ),
    Problem(
        "words",
        "A shelf has 24 jars and 18 more are put on it, then half are sold. How many are left?",
        "The shelf has 42 jars because 24 plus 18 equals 42.\n"
        "Half of them are left because 42 divided by 2 equals 21.\n"
        "#### 21",
        "21",
    ),
    Problem(
        "cross",
        "A gardener plants 17 rows of 23 bulbs and 19 bulbs in pots. How many bulbs is that?",
        "In rows there are 17 x 23 = 391 bulbs to be planted.\n"
        "In all there are 391 + 19 = 410 bulbs to be planted.\n"
        "#### 410",
        "410",
    ),
    Problem(
        "mixed",
        "A box has 5 trays of 12 eggs and 4 loose eggs; 7 eggs are broken. How many are whole?",
        "All in all the box holds 4 + 5 * 12 = 64 eggs before the accident.\n"
        "After it there are 64 - 7 = 57 whole eggs in the box.\n"
        "#### 57",
        "57",
    ),
    Problem(
        "long",
        "Three classes have 27, 31 and 26 pupils, and 13 are ill today. How many are there?",
        "Together the three classes have 27 + 31 + 26 = 84 pupils on the list.\n"
        "Today there are 84 - 13 = 71 pupils at school.\n"
        "#### 71",
        "71",
    ),
)
