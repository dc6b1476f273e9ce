"""Which columns fitted encoders take as texts, and the texts that they know.

A table in a file does not always tell: digits may be texts, and "NA" may be a category.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.libraries.categories import find_texts


def encoder_texts(steps: Sequence[Any], n_columns: int) -> dict[int, frozenset[str] | None]:
    """Return the categories of each column that an encoder takes as texts, by place.

    ``steps``: the fitted transformers that rows of ``n_columns`` columns pass, in their order.
    Columns are followed through pipelines, column transformers and imputers, no further.

    >>> from sklearn.preprocessing import OrdinalEncoder
    >>> encoder = OrdinalEncoder().fit([[1.0, "0123"], [2.0, "0456"]])
    >>> {place: sorted(texts) for place, texts in encoder_texts([encoder], 2).items()}
    {1: ['0123', '0456']}
    """
    found: dict[int, frozenset[str] | None] = {}
    _follow(list(steps), list(range(n_columns)), found)
    return found


def _follow(steps: list[Any], places: list[int], found: dict[int, frozenset[str] | None]) -> None:
    """Add what encoders know of columns; ``places``: of the columns that the first step takes."""
    while steps:
        step = steps.pop(0)
        if step is None or isinstance(step, str):
            if step == "drop":
                return
        elif hasattr(step, "steps"):
            steps = [inner for _, inner in step.steps] + steps
        elif hasattr(step, "transformers_"):
            for _, inner, columns in step.transformers_:
                chosen = _choose(step, columns, len(places))
                _follow([inner], [places[place] for place in chosen], found)
            return
        elif _fits(getattr(step, "categories_", None), places):
            for place, texts in find_texts(
                dict(zip(places, step.categories_, strict=True))
            ).items():
                found[place] = (found.get(place) or frozenset()) | (texts or frozenset())
            return
        elif not _fits(getattr(step, "statistics_", None), places) or step.add_indicator:
            return


def _fits(values: Any, places: list[int]) -> bool:
    return isinstance(values, list | np.ndarray) and len(values) == len(places)


def _choose(transformer: Any, columns: Any, width: int) -> list[int]:
    """Return which columns of a table a part of a column transformer takes, none if unclear."""
    names = list(getattr(transformer, "feature_names_in_", ()))
    if isinstance(columns, str):
        columns = [columns]
    elif isinstance(columns, int | np.integer):
        columns = [int(columns)]
    elif isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            return []
        columns = list(range(width))[columns]
    chosen = np.asarray(list(columns), dtype=object)
    if all(isinstance(column, bool | np.bool_) for column in chosen):
        return np.flatnonzero(chosen.astype(bool)).tolist() if len(chosen) == width else []
    found = [
        names.index(column) if isinstance(column, str) and column in names else column
        for column in chosen.tolist()
    ]
    return found if all(isinstance(c, int) and -width <= c < width for c in found) else []
