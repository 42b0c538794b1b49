"""The words of the arithmetic problems: names, things, and every surface form with its wordings.

A story is an opening, events, perhaps a distractor, and a question. Each event kind comes in three *surface forms*,
ways of telling that differ in who acts and what is said openly; each form has at least three wordings.
Placeholders: {name} owner, {friend} another person, {things} what is counted, {others} something else,
{n} a number, {word} a number as a word, {box} a container (plural: {boxes}), {k} groups of {m}.
"""

from types import MappingProxyType

NAMES = ("Tom", "Anna", "Ben", "Mia", "Leo", "Sara", "Max", "Nora", "Omar", "Ella", "Ivan", "Ruth")
THINGS = ("pencils", "books", "stickers", "marbles", "apples", "cards", "coins", "shells", "stamps", "beads")
BOXES = MappingProxyType({"box": "boxes", "bag": "bags", "basket": "baskets", "jar": "jars"})

GROWTH_WORDS = MappingProxyType({2: "doubles", 3: "triples", 4: "quadruples"})
FRACTION_WORDS = MappingProxyType(
    {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 7: "a seventh", 8: "an eighth", 9: "a ninth"}
)

OPENING = (
    "{name} has {n} {things}.",
    "{name} starts with {n} {things}.",
    "At first {name} owns {n} {things}.",
)

EVENTS: MappingProxyType[str, dict[str, tuple[str, ...]]] = MappingProxyType(
    {
        "stock": {  # an opening that has to be multiplied out
            "packed": (
                "{name} has {k} {boxes} with {m} {things} in each {box}.",
                "{name} starts with {k} {boxes} of {m} {things} each.",
                "At first {name} owns {k} {boxes}, and each {box} holds {m} {things}.",
            ),
            "rows": (
                "{name} lays out {k} rows of {m} {things}.",
                "{name} has {k} rows of {things} with {m} in each row.",
                "At first {name} puts {things} in {k} rows of {m}.",
            ),
            "pages": (
                "{name} keeps {m} {things} on each of {k} shelves.",
                "There are {k} shelves with {m} {things} each, all of them owned by {name}.",
                "At first {name} fills {k} shelves with {m} {things} each.",
            ),
        },
        "gain": {
            "active": (
                "{name} buys {n} more {things}.",
                "{name} finds {n} {things}.",
                "Then {name} picks up {n} more {things}.",
            ),
            "from_friend": (
                "{friend} gives {name} {n} {things}.",
                "{friend} sends {n} {things} to {name}.",
                "Then {name} gets {n} {things} from {friend}.",
            ),
            "arrival": (
                "A parcel brings {n} {things}.",
                "Then {n} {things} come in the mail.",
                "The next day {n} {things} turn up under the bed.",
            ),
        },
        "loss": {
            "active": (
                "{name} sells {n} {things}.",
                "{name} loses {n} of the {things}.",
                "Then {name} uses up {n} {things}.",
            ),
            "to_friend": (
                "{name} gives {n} {things} to {friend}.",
                "{name} sends {friend} {n} of the {things}.",
                "Then {friend} gets {n} {things} from {name}.",
            ),
            "mishap": (
                "By mistake {n} {things} are thrown away.",
                "Then {n} of the {things} go missing.",
                "The next day {n} of the {things} turn out to be broken.",
            ),
        },
        "packs": {
            "bought": (
                "{name} buys {k} {boxes} with {m} {things} in each {box}.",
                "{name} finds {k} {boxes} of {m} {things} each.",
                "Then {name} picks up {k} {boxes}, and each {box} holds {m} {things}.",
            ),
            "friends": (
                "Each of {k} friends gives {name} {m} {things}.",
                "{name} gets {m} {things} from each of {k} friends.",
                "Then {k} friends come, and each of them brings {m} {things}.",
            ),
            "days": (
                "For {k} days {name} makes {m} {things} a day.",
                "{name} earns {m} {things} a day for {k} days.",
                "Then {m} {things} come in the mail every day for {k} days.",
            ),
        },
        "grow": {
            "word": (
                "{name} {word} the number of {things}.",
                "After a lucky day the number of {things} {word}.",
                "Then the pile of {things} {word}.",
            ),
            "times": (
                "{name} ends up with {n} times as many {things}.",
                "After a lucky day there are {n} times as many {things}.",
                "Then {name} makes the pile of {things} {n} times as large.",
            ),
            "swap": (
                "{friend} takes all the {things} and gives {n} new ones back for every one.",
                "{name} trades in every one of the {things} for {n} new ones.",
                "Then each of the {things} is replaced by {n} new ones.",
            ),
        },
        "split": {
            "shares": (
                "{name} shares the {things} equally among {n} people and keeps one share.",
                "The {things} are shared out equally to {n} people, and {name} is one of them.",
                "Then {n} people, {name} among them, split the {things} equally.",
            ),
            "piles": (
                "{name} sorts the {things} into {n} equal piles and keeps only one pile.",
                "The {things} are put in {n} equal piles, and {name} keeps just one.",
                "Then {name} makes {n} equal piles of the {things} and gives away all piles but one.",
            ),
            "fraction": (
                "{name} keeps only {word} of the {things}.",
                "Only {word} of the {things} can be saved.",
                "Then {name} gives away all but {word} of the {things}.",
            ),
        },
    }
)

PLANTED_FORMS = MappingProxyType({"gain": "arrival", "loss": "mishap", "packs": "days", "grow": "swap"})
"""The one form of each kind that a flawed corpus mostly gets wrong. Stock and division are never touched."""

DISTRACTORS = (
    "{friend} has {n} {others}.",
    "There are also {n} {others} in the room.",
    "{friend} lives {n} miles away.",
    "The whole story takes {n} days.",
)

QUESTIONS = (
    "How many {things} does {name} have now?",
    "How many {things} does {name} have in the end?",
    "With how many {things} does {name} end up?",
)

STEPS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "+": (
            "Adding {n} gives {equation}.",
            "{name} then has {equation} {things}.",
            "With {n} more it is {equation}.",
        ),
        "-": (
            "Taking away {n} gives {equation}.",
            "{name} then has {equation} {things}.",
            "With {n} fewer it is {equation}.",
        ),
        "*": (
            "Multiplying by {n} gives {equation}.",
            "{name} then has {equation} {things}.",
            "Taking it {n} times makes {equation}.",
        ),
        "/": (
            "Dividing by {n} gives {equation}.",
            "{name} then has {equation} {things}.",
            "One part of {n} is {equation}.",
        ),
        "group": (
            "That is {equation} {things}.",
            "The {things} in question are {equation}.",
            "Together these make {equation} {things}.",
        ),
    }
)
"""Wordings of a solution's steps by operation; "group" is for the size of k groups, before it joins the total."""
