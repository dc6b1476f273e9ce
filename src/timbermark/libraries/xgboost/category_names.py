"""The names of categories in an XGBoost document, checked.

From 3.1 on, models that were trained on data frames keep the names of their categories.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from timbermark.libraries.xgboost.parts import numbers, part, require


def most_categories(cats: Any, n_features: int) -> int:
    """Return how many categories any feature has at most, of those with names.

    Raises FileFormatError if the names are damaged.
    """
    if cats is None:
        return 0
    require(isinstance(cats, dict), "cats")
    columns = part(cats, "enc", list)
    start = numbers(part(cats, "feature_segments", object), "feature_segments", whole=True)
    order = numbers(part(cats, "sorted_idx", object), "sorted_idx", whole=True)
    sizes = [_category_count(column) for column in columns]
    require(len(columns) in (0, n_features), "number of category lists", len(columns))
    bounds = np.cumsum([0, *sizes])
    require(np.array_equal(start, bounds) or (not columns and not len(start)), "feature_segments")
    require(len(order) in (0, bounds[-1]), "sorted_idx")
    if len(order):
        # Each feature's part must be a permutation: XGBoost looks names up through it.
        feature = np.repeat(np.arange(len(sizes)), sizes)
        straight = np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes)
        require(np.array_equal(order[np.lexsort((order, feature))], straight), "sorted_idx")
    return max(sizes, default=0)


def category_texts(cats: Any) -> dict[int, list[str]]:
    """Return the names of the categories of each feature that has texts for them."""
    found = {}
    for place, column in enumerate([] if cats is None else cats["enc"]):
        if "offsets" not in column or len(column["offsets"]) < 2:
            continue
        octets = bytes(int(value) & 0xFF for value in column["values"])
        ends = [int(offset) for offset in column["offsets"]]
        try:
            found[place] = [octets[a:b].decode() for a, b in pairwise(ends)]
        except UnicodeDecodeError:
            require(False, "category names")
    return found


def _category_count(column: Any) -> int:
    require(isinstance(column, dict), "cats")
    values = numbers(part(column, "values", object), "category values", whole=True)
    if "offsets" not in column:
        require(isinstance(part(column, "type", int), int), "category type")
        return len(values)
    offsets = numbers(column["offsets"], "category offsets", whole=True)
    if not len(offsets):
        require(not len(values), "category offsets")
        return 0
    require(offsets[0] == 0 and (np.diff(offsets) >= 0).all(), "category offsets")
    require(offsets[-1] <= len(values), "category offsets")
    return len(offsets) - 1
