"""The columns that the trees of a HistGradientBoosting model see, and their categories.

With category features scikit-learn puts these first, as codes 0, 1, …, and the others after them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Flags
from timbermark.libraries.scikit_learn import refuse_form


def columns_of(model: Any) -> AnyArray:
    """Return which feature of ``predict`` each column of the trees is, int64 [d]."""
    if model._preprocessor is None:
        return np.arange(model.n_features_in_)
    return np.argsort(~np.asarray(model.is_categorical_, dtype=bool), kind="stable")


def categories_of(model: Any) -> list[AnyArray]:
    """Return the categories of each category column, by code; a missing one has no code."""
    if model._preprocessor is None:
        return []
    found = []
    for categories in model._preprocessor.named_transformers_["encoder"].categories_:
        missing = len(categories) and categories[-1] != categories[-1]
        found.append(categories[:-1] if missing else categories)
    return found


def category_sets_of(model: Any, by_category: Flags) -> tuple[AnyArray, list[tuple[int, ...]]]:
    """Return each node's set, int64 [N], -1 for none, and the members of each set."""
    trees = [tree for iteration in model._predictors for tree in iteration]
    sizes = [len(categories) for categories in categories_of(model)]
    category_set = np.full(len(by_category), -1)
    numbers: dict[tuple[int, ...], int] = {}
    offset = 0
    for tree in trees:
        octets = tree.raw_left_cat_bitsets.astype("<u4").view(np.uint8)
        for node in np.flatnonzero(by_category[offset : offset + len(tree.nodes)]):
            feature, number = int(tree.nodes["feature_idx"][node]), tree.nodes["bitset_idx"][node]
            if not 0 <= feature < len(sizes):
                refuse_form(type(model).__name__, f"it splits column {feature} by categories")
            # A split of the only category against missing ones names set 0, even if that belongs
            # to another split of another column: scikit-learn predicts so, hence it is read so.
            bits = np.unpackbits(octets[number], bitorder="little")[: sizes[feature]]
            members = tuple(np.flatnonzero(bits).tolist())
            category_set[offset + node] = numbers.setdefault(members, len(numbers))
        offset += len(tree.nodes)
    return category_set, list(numbers)


def check_columns(model: Any) -> None:
    """Raise InputError unless the columns that the trees see are those that `columns_of` says."""
    n_features, mapper, kind = model.n_features_in_, model._bin_mapper, type(model).__name__
    flags = np.zeros(n_features, dtype=bool)
    if model._preprocessor is not None:
        flags[: np.count_nonzero(model.is_categorical_)] = True
        (_, encoder, first), (_, numbers, second) = model._preprocessor.transformers_[:2]
        known = (
            np.shape(model.is_categorical_) == (n_features,)
            and np.array_equal(first, model.is_categorical_)
            and np.array_equal(second, np.logical_not(model.is_categorical_))
            and [t[1] for t in model._preprocessor.transformers_[2:]] in ([], ["drop"])
            and type(model._preprocessor).__name__ == "ColumnTransformer"
            and type(encoder).__name__ == "OrdinalEncoder"
            and bool(np.isnan(encoder.unknown_value))
            and type(numbers).__name__ == "FunctionTransformer"
            and isinstance(numbers.func, functools.partial)
            and numbers.func.func.__name__ == "check_array"
        )
        if not known:
            refuse_form(kind, "its columns are prepared in another way")
    if not np.array_equal(mapper.is_categorical_, flags):
        refuse_form(kind, "its trees see other category features than its columns are")
    for feature, categories in enumerate(categories_of(model)):
        if not np.array_equal(mapper.bin_thresholds_[feature], np.arange(len(categories))):
            refuse_form(kind, f"its trees know other categories of column {feature}")
