"""Named errors at named places of a text: what the random injector does, without the chance."""

from collections.abc import Iterable

from data_tools.equations import number_value, read_equations
from data_tools.inject.background import Background
from data_tools.inject.changes import Params, Scene
from data_tools.inject.edits import Edited, edit
from data_tools.inject.kinds import KINDS
from data_tools.inject.propagate import chain
from data_tools.records import DataToolsError

PROPAGATION = ("equation", "chain", "chain+prose")


def inject_at(
    text: str, kind: str, site: int, params: Params, *, propagate: str = "equation", protected: Iterable[str] = ()
) -> Edited | None:
    """The text with one error of a kind in true equation number `site` (from 0), or None where it is refused.

    `propagate` says how far the new value is carried: the equation itself, later equations and the final answer
    (`chain`), or also numbers between them (`chain+prose`). `protected` are the problem's own numbers.

    Raises: `DataToolsError` for a kind, a site or a propagation that does not exist.
    """
    if kind not in KINDS:
        raise DataToolsError(f"there is no kind '{kind}' of errors in equations. Kinds: {', '.join(KINDS)}.")
    if propagate not in PROPAGATION:
        raise DataToolsError(f"there is no propagation '{propagate}'. Choose from: {', '.join(PROPAGATION)}.")
    reading = read_equations(text)
    sites = reading.sites
    if not 0 <= site < len(sites):
        raise DataToolsError(f"there is no site {site}: the text has {len(sites)} equations that can be edited.")
    background = Background("", text)
    change = KINDS[kind].apply(Scene(sites[site], background), params)
    if change is None:
        return None
    if propagate == "equation":
        return edit(text, change.replacements)
    carried = chain(
        text,
        reading,
        sites[site],
        change,
        protected={number_value(number) for number in protected},
        style=background.style,
        answer=background.answer,
        prose=propagate == "chain+prose",
    )
    return None if carried is None else edit(text, carried.replacements)
