"""The columns that an endpoint is asked with, and what choosing them by hand costs.

A server that takes rows by name may have many more columns than the mark. Whoever could choose
among them after the symbols are known would make an innocent model agree with the mark: names
leave no choice only if they are the mark's own, or numbered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from timbermark.errors import InputError
from timbermark.ownership.columns import match_names
from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Price, price_of_columns

_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WireColumns:
    """Which feature of the mark each column is, and how the columns are called."""

    places: Sequence[int]
    names: tuple[str, ...] | None
    how: str  # "by name", "by place" or "by hand"
    prices: tuple[Price, ...] = ()


def choose_columns(
    mark: Mark,
    columns: Sequence[str] | None,
    feature_names: Sequence[str] | None,
    *,
    sends_names: bool = True,
) -> WireColumns:
    """Return the columns for an endpoint, which cannot be asked for its own.

    ``columns`` are the server's names. If they are those of the mark, they are matched by name;
    otherwise they stand for the mark's features by place. ``feature_names`` are the mark's names in
    the server's order. An order that differs from the mark's costs log₂(d!) bits. Foreign names
    must be one prefix with the numbers from 0 or 1 on, which leaves nothing to choose, unless the
    protocol sends no names at all (``sends_names``). A name with blanks is the same name with
    underscores, as LightGBM writes it.

    Raises InputError if the names do not fit.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5, 1.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ...     feature_names=["age", "income"],
    ... )
    >>> choose_columns(mark, ["income", "age"], None).prices[0].bits
    1.0
    >>> choose_columns(mark, ["x1", "x2"], None).how
    'by place'
    """
    known = mark.feature_names
    if columns is not None and feature_names is not None:
        raise InputError(
            "Both columns and feature_names are given.", hint="an endpoint takes its columns."
        )
    given = columns if columns is not None else feature_names
    if given is None:
        return WireColumns(
            range(mark.n_features), known, "by place" if known is None else "by name"
        )
    names = tuple(map(str, given))
    if len(names) != mark.n_features:
        raise InputError(
            f"{len(names)} columns are named, and the mark has {mark.n_features} features.",
            hint="name one column for each feature of the mark.",
        )
    places = None if known is None else match_names(names, known)
    if places is not None:
        if places == list(range(len(names))):
            return WireColumns(places, names, "by name")
        return WireColumns(places, names, "by hand", (price_of_columns(mark.n_features),))
    if feature_names is not None or (known is not None and set(names) & set(known)):
        raise InputError(
            "The columns are neither the names of the mark nor all of them others.",
            hint="name each feature of the mark once, or leave them out.",
        )
    if sends_names and not are_numbered(names):
        raise InputError(
            "The columns are called neither as in the mark nor with one word and the numbers from "
            "0 or 1 on: whoever may choose among a server's columns can make any model agree with "
            "the mark.",
            hint="give names like x1, x2, …, x10, or ask in Python through a function that "
            "renames the columns; the verdict then says that code was asked.",
        )
    return WireColumns(range(mark.n_features), names, "by place")


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
