"""Tables whose categories are texts, as libraries want them: frames with the model's categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from timbermark.errors import InputError, MissingLibraryError


def with_categories(
    X: Any, categories: Mapping[int, Sequence[Any]], names: Sequence[str] | None, strict: bool
) -> Any:
    """Return a table in which columns of categories are what the library takes.

    ``categories``: for each column of categories, by place, those that the model knows, in its
    order. A frame without category types or a matrix of objects gets them; everything else is given
    back as it is: a matrix of numbers holds the model's codes. ``strict``: refuse a category that
    the model does not know, else it is missing; frames with other ``names`` are given back.

    Raises InputError for such a category, MissingLibraryError without pandas.

    >>> frame = with_categories(np.array([[0.5, "b"]], object), {1: ["a", "b"]}, ["x", "y"], True)
    >>> frame["y"].cat.codes.tolist(), frame["x"].dtype
    ([1], dtype('float64'))
    """
    if not categories or not _needs_categories(X, categories):
        return X
    if strict and names is not None and [*map(str, getattr(X, "columns", names))] != list(names):
        return X  # the library says what is wrong
    try:
        import pandas as pd
    except ImportError:
        raise MissingLibraryError(
            "pandas is needed to give the model its categories.", hint="pip install pandas"
        ) from None
    n_columns = X.shape[1]
    columns = {}
    for place in range(n_columns):
        given = X.iloc[:, place] if hasattr(X, "iloc") else pd.Series(X[:, place])
        if place not in categories:
            numeric = given.dtype == object and not hasattr(X, "iloc")
            columns[place] = given.astype(np.float64) if numeric else given
            continue
        known = list(categories[place])
        values = given.astype(object)
        found = values.isin(known)
        strange = values[~values.isna() & ~found]
        if strict and len(strange):
            shown = names[place] if names is not None else place
            raise InputError(
                f"Column '{shown}' holds the category {strange.iloc[0]!r:.60}, which the model has "
                "never seen.",
                hint="leave such rows out, or make the value missing.",
            )
        columns[place] = pd.Series(
            pd.Categorical(values.where(found, None), categories=known), index=given.index
        )
    frame = pd.DataFrame(columns)
    frame.columns = X.columns if hasattr(X, "iloc") else pd.Index(names or range(n_columns))
    return frame


def find_texts(categories: Mapping[int, Sequence[Any]]) -> dict[int, frozenset[str] | None]:
    """Return the categories of each column that has texts for them; missing values are none.

    >>> find_texts({0: [1, 2], 3: ["a", np.nan]})
    {3: frozenset({'a'})}
    """
    found: dict[int, frozenset[str] | None] = {}
    for place, known in categories.items():
        present = [value for value in known if value is not None and value == value]
        if present and all(isinstance(value, str) for value in present):
            found[place] = frozenset(present)
    return found


def _needs_categories(X: Any, categories: Mapping[int, Sequence[Any]]) -> bool:
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        kinds = [str(kind) for kind in X.dtypes]
        return any(place < len(kinds) and kinds[place] != "category" for place in categories)
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype == object and _has_texts(X)


def _has_texts(X: np.ndarray) -> bool:
    return any(isinstance(value, str) for value in X.flat)
