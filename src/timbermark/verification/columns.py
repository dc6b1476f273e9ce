"""Match columns: which feature of a mark each column of a suspect is, and what choosing costs.

A suspect may have many more columns than the mark. Whoever could choose among them after the
symbols are known would make an innocent model agree with the mark. So a name decides where both
sides have names, otherwise the place does; an order given by hand has a price, and foreign names
are taken only if they leave nothing to choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timbermark.files.tables import plain_name
from timbermark.ownership.evidence import Price
from timbermark.ownership.mark import Mark
from timbermark.verification.refusals import refusal
from timbermark.verification.verdict import log2_factorial

_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)
_SPELLINGS: tuple[Callable[[str], str], ...] = (str, plain_name)
"""Ways in which libraries write names: as they are, or with underscores in place of blanks."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a suspect is asked with.

    ``places``: the feature of the mark that each is; ``names``: as the suspect or, if it has none,
    the mark calls them; ``how``: "by-name", "by-place" or "by-hand".
    """

    places: Sequence[int]
    names: tuple[str, ...] | None
    how: str
    prices: tuple[Price, ...] = ()


def match_columns(
    mark: Mark,
    *,
    own: Sequence[str] | None = None,
    count: int | None = None,
    by_hand: Sequence[str] | None = None,
    server: Sequence[str] | None = None,
    sends_names: bool = True,
) -> Columns:
    """Return the columns to ask a suspect with.

    ``own`` are the names that the suspect itself has, ``count`` its number of columns. ``by_hand``
    are the mark's names in the order of the suspect's columns, for a suspect without names; an
    order other than the mark's costs log₂(d!) bits. ``server`` are the names that an endpoint is
    said to have: the mark's own in some order, or one word with numbers from 0 or 1 on, unless the
    protocol sends no names at all (``sends_names``).

    Raises InputError if the columns do not fit.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5, 1.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ...     feature_names=["age", "income"],
    ... )
    >>> match_columns(mark, own=["income", "age"]).places, match_columns(mark).how
    ([1, 0], 'by-place')
    >>> match_columns(mark, by_hand=["income", "age"]).prices[0].bits
    1.0
    >>> match_columns(mark, server=["x1", "x2"]).how
    'by-place'
    """
    if by_hand is not None and server is not None:
        raise refusal("option.unfit", name="feature_names", what="suspects that take no columns=…")
    known = mark.feature_names
    # Names with nothing in common (f0, Column_0) were made up by a library: the place counts.
    named = own is not None and known is not None and share_names(own, known)
    if by_hand is not None:
        return _match_by_hand(mark, tuple(map(str, by_hand)), named, count)
    if server is not None:
        return _match_server(mark, tuple(map(str, server)), sends_names)
    if named:
        assert own is not None
        assert known is not None
        places = match_names(own, known, some=True)
        if places is None:
            strange = [name for name in own if name not in set(known)]
            shown = ", ".join(map(repr, strange[:5])) or "one of them twice"
            raise refusal("columns.strange", shown=shown)
        return Columns(places, tuple(own), "by-name")
    wanted = count if own is None else len(own)
    if wanted not in (None, mark.n_features):
        raise refusal("columns.count", wanted=wanted, features=mark.n_features)
    return Columns(range(mark.n_features), None if own is None and known is None
                   else tuple(own or known or ()), "by-place")  # fmt: skip


def match_names(
    names: Sequence[str], known: Sequence[str], *, some: bool = False
) -> list[int] | None:
    """Return which of the mark's features each name is; None unless all of them are named once.

    ``some`` names will do, each of them once. A name with blanks is the same name with underscores,
    as some libraries write it.

    >>> match_names(["b 1", "a"], ["a", "b_1"])
    [1, 0]
    """
    for spell in _SPELLINGS:
        place = {spell(name): number for number, name in enumerate(known)}
        said = [spell(name) for name in names]
        distinct = len(place) == len(known) and len(set(said)) == len(said)
        if distinct and set(said) <= set(place) and (some or len(said) == len(known)):
            return [place[name] for name in said]
    return None


def share_names(own: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether any name is one of the mark's features, in any spelling.

    >>> share_names(["c", "b 1"], ["a", "b_1"])
    True
    """
    return any({spell(a) for a in own} & {spell(b) for b in known} for spell in _SPELLINGS)


def _match_by_hand(mark: Mark, given: tuple[str, ...], named: bool, count: int | None) -> Columns:
    known = mark.feature_names
    if named or known is None:
        raise refusal("columns.by-hand:unfit")
    places = match_names(given, known)
    if places is None or count not in (None, len(given)):
        raise refusal("columns.by-hand", parameter="feature_names", features=mark.n_features)
    return Columns(places, given, "by-hand", _price_of_order(places))


def _match_server(mark: Mark, names: tuple[str, ...], sends_names: bool) -> Columns:
    known = mark.feature_names
    if len(names) != mark.n_features:
        raise refusal("columns.count:named", named=len(names), features=mark.n_features)
    places = None if known is None else match_names(names, known)
    if places is not None:
        prices = _price_of_order(places)
        return Columns(places, names, "by-hand" if prices else "by-name", prices)
    if known is not None and share_names(names, known):
        raise refusal("columns.by-hand", parameter="columns", features=mark.n_features)
    if not sends_names:
        return Columns(range(mark.n_features), names, "by-place")
    if not are_numbered(names):
        raise refusal("columns.chosen")
    # A server may have several such families of columns; the word and the start choose one.
    word = _NUMBERED.fullmatch(names[0])
    letters = 0 if word is None else len(word[1].encode())
    return Columns(
        range(mark.n_features),
        names,
        "by-place",
        (Price("column-words", 8.0 * letters + 2.0, {"letters": letters}),),
    )


def are_numbered(names: Sequence[str]) -> bool:
    """Return whether names are one word and consecutive numbers from 0 or 1 on.

    >>> are_numbered(["x9", "x10"]), are_numbered(["x0", "x1"]), are_numbered(["x01", "x02"])
    (False, True, True)
    """
    found = [_NUMBERED.fullmatch(name) for name in names]
    first = found[0]
    if first is None or int(first[2]) not in (0, 1):
        return False
    start, width = int(first[2]), len(first[2])
    numbers = range(start, start + len(names))
    return list(names) in (
        [f"{first[1]}{number}" for number in numbers],
        [f"{first[1]}{number:0{width}d}" for number in numbers],
    )


def _price_of_order(places: Sequence[int]) -> tuple[Price, ...]:
    """Return what an order given by hand costs: nothing if it is the mark's."""
    d = len(places)
    if places == list(range(d)):
        return ()
    return (Price("columns", log2_factorial(d), {"features": d}),)
