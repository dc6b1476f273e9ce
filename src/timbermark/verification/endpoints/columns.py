"""The columns that an endpoint is asked with, and what choosing them by hand costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from timbermark.errors import InputError
from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Price, price_of_columns


@dataclass(frozen=True, slots=True)
class WireColumns:
    """Which feature of the mark each column is, and how the columns are called."""

    places: Sequence[int]
    names: tuple[str, ...] | None
    how: str  # "by name", "by place" or "by hand"
    prices: tuple[Price, ...] = ()


def choose_columns(
    mark: Mark, columns: Sequence[str] | None, feature_names: Sequence[str] | None
) -> WireColumns:
    """Return the columns for an endpoint, which cannot be asked for its own.

    ``columns`` are the server's names. If they are those of the mark, they are matched by name;
    otherwise they stand for the mark's features by place. ``feature_names`` are the mark's names in
    the server's order. An order that differs from the mark's costs log₂(d!) bits, and so do foreign
    names, except in their natural order (x1, x2, …, x10), which leaves nothing to choose.

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
    price = (price_of_columns(mark.n_features),)
    if known is not None and set(names) == set(known):
        place = {name: number for number, name in enumerate(known)}
        places = [place[name] for name in names]
        if names == known:
            return WireColumns(places, names, "by name")
        return WireColumns(places, names, "by hand", price)
    if feature_names is not None or (known is not None and set(names) & set(known)):
        raise InputError(
            "The columns are neither the names of the mark nor all of them others.",
            hint="name each feature of the mark once, or leave them out.",
        )
    natural = list(names) == sorted(names, key=_natural)
    places_in_order = range(mark.n_features)
    if natural:
        return WireColumns(places_in_order, names, "by place")
    return WireColumns(places_in_order, names, "by hand", price)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts x2 before x10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
