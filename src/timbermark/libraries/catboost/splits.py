"""The splits that a model's features offer, and the columns that the ensemble sees them in.

CatBoost numbers splits through all features: the borders of numbers first, then the categories
that are asked for one by one (one-hot), then the borders of category statistics (CTR). The
ensemble's columns are those of the table that the model predicts on, and after them one for each
split of the last two kinds, 1 where a row passes it. A column of categories itself is all zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.dtypes import AnyArray, Flags, NodeIndices, Reals
from timbermark.errors import InputError
from timbermark.libraries.catboost.flatbuffer import Record
from timbermark.trees.ensemble import MISSING_NONE, MISSING_ZERO, Ensemble

# The values of "NanValueTreatment": a missing value fails every split, or passes every split.
AS_IS, AS_FALSE, AS_TRUE = 0, 1, 2
# Passing a split of a category is 1, failing it is 0.
BETWEEN = 0.5

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """What each split asks, by its number: ``column`` x <= ``threshold`` fails it, goes left."""

    column: NodeIndices
    threshold: Reals
    missing_left: Flags
    n_numeric: int  # the splits before this one are of numbers


def list_splits(trees: Record, n_columns: int) -> Splits:
    """Return the splits of a model whose table has ``n_columns``."""
    floats = trees["FloatFeatures"]
    borders = [feature["Borders"].astype(np.float64) for feature in floats]
    numeric = np.concatenate([*borders, np.empty(0)])
    column = np.repeat(
        np.array([feature["FlatIndex"] for feature in floats], dtype=np.int32),
        np.array([len(each) for each in borders], dtype=np.int64),
    )
    n_others = len(derived_names(trees))
    return Splits(
        column=np.concatenate([column, np.arange(n_columns, n_columns + n_others, dtype=np.int32)]),
        threshold=np.concatenate([numeric, np.full(n_others, BETWEEN)]),
        missing_left=np.concatenate(
            [_missing_left(trees, column, numeric), np.zeros(n_others, dtype=np.bool_)]
        ),
        n_numeric=len(numeric),
    )


def derived_names(trees: Record) -> list[str]:
    """Return what each split of a category asks, for a reader; the order is that of numbers."""
    names = {each["Index"]: _name(each) for each in trees["CatFeatures"]}
    found = []
    for feature in trees["OneHotFeatures"]:
        texts = [text.decode(errors="replace") for text in feature["StringValues"]]
        texts = texts or [f"hash {value}" for value in feature["Values"]]
        found += [f"{names[feature['Index']]} is {text}" for text in texts]
    for feature in trees["CtrFeatures"]:
        combined = feature["Ctr"]["Base"]["FeatureCombination"]["CatFeatures"]
        of = ", ".join(names[int(index)] for index in combined)
        found += [f"statistic of {of} > {border:.6g}" for border in feature["Borders"]]
    return found


def place_splits(ensemble: Ensemble, trees: Record, n_columns: int) -> tuple[Record, NodeIndices]:
    """Return the trees' record with borders that suit an ensemble, and each node's split.

    Numbers of leaves are -1, int32 [N]. Borders that no node and no category statistic asks for
    are left out; everything about categories stays.

    Raises InputError if a node asks what CatBoost cannot: by another column, or with missing
    values on the side where their feature does not send them.
    """
    inner = ensemble.left >= 0
    numeric = inner & (ensemble.feature < n_columns)
    border = round_down(ensemble.threshold).astype(np.float64)
    _check_columns(ensemble, trees, numeric)
    kept: dict[int, list[float]] = {}
    for feature in trees["CtrFeatures"]:
        for split in feature["Ctr"]["Base"]["FeatureCombination"]["FloatSplits"]:
            kept.setdefault(int(split["index"]), []).append(float(split["border"]))
    number = np.full(ensemble.n_nodes, -1, dtype=np.int64)
    floats, total = [], 0
    by_column = np.argsort(np.where(numeric, ensemble.feature, n_columns), kind="stable")
    cut = np.searchsorted(
        ensemble.feature[by_column[: int(numeric.sum())]], np.arange(n_columns + 1)
    )
    for feature in trees["FloatFeatures"]:
        column = feature["FlatIndex"]
        nodes = by_column[cut[column] : cut[column + 1]]
        asked = np.unique(np.concatenate([border[nodes], kept.get(feature["Index"], [])]))
        floats.append({**feature, "Borders": asked.astype(np.float32)})
        number[nodes] = total + np.searchsorted(asked, border[nodes])
        total += len(asked)
    placed = {**trees, "FloatFeatures": floats}
    _check_missing(ensemble, placed, numeric, border)
    others = inner & ~numeric
    number[others] = total + ensemble.feature[others] - n_columns
    return placed, number.astype(np.int32)


def conform_splits(ensemble: Ensemble, trees: Record, n_columns: int) -> tuple[AnyArray, AnyArray]:
    """Return thresholds [N] and missing_left [N] that CatBoost can hold, nearest to an ensemble's.

    Thresholds become single precision, which moves no row. Missing values go where their feature
    sends them. Where they count as infinitely large, a split that parts them from all numbers is
    at the largest number, so that infinity itself goes with them.
    """
    numeric = (ensemble.left >= 0) & (ensemble.feature < n_columns)
    threshold = np.where(numeric, round_down(ensemble.threshold), ensemble.threshold)
    parts = numeric & (threshold == np.inf) & ~ensemble.missing_left
    at_largest = _missing_left(trees, ensemble.feature, np.full(ensemble.n_nodes, _LARGEST))
    threshold[parts & ~at_largest] = _LARGEST
    goes_left = ensemble.missing_left.copy()
    goes_left[numeric] = _missing_left(trees, ensemble.feature[numeric], threshold[numeric])
    return threshold, goes_left


def round_down(threshold: Reals) -> AnyArray:
    """Return the largest float32 not above each threshold: the same split of float32 values.

    >>> float(round_down(np.array([0.1]))[0]) <= 0.1 < float(np.float32(0.1))
    True
    """
    with np.errstate(over="ignore"):
        single: AnyArray = threshold.astype(np.float32)
        return np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)


def _name(feature: Record) -> str:
    text: str = feature["FeatureId"].decode(errors="replace")
    return text or f"column {feature['FlatIndex']}"


def _missing_left(trees: Record, column: AnyArray, border: Reals) -> Flags:
    """Return where missing values go: they count as infinite, of the sign of the treatment."""
    passing = {
        each["FlatIndex"] for each in trees["FloatFeatures"] if each["NanValueTreatment"] == AS_TRUE
    }
    passes: Flags = np.isin(column, np.array(sorted(passing), dtype=np.int64))
    return ~(passes & (border < np.inf))


def _check_columns(ensemble: Ensemble, trees: Record, numeric: Flags) -> None:
    known = np.array([each["FlatIndex"] for each in trees["FloatFeatures"]], dtype=np.int64)
    foreign = numeric & ~np.isin(ensemble.feature, known)
    if foreign.any():
        column = int(ensemble.feature[foreign][0])
        raise InputError(
            f"A tree splits column {column} at a number, but to the model it is not a number.",
            hint="split the columns of its categories instead, which follow those of the table.",
        )
    others = (ensemble.left >= 0) & ~numeric
    outside = others & ~((ensemble.threshold >= 0.0) & (ensemble.threshold < 1.0))
    if outside.any() or (ensemble.category_set >= 0).any():
        raise InputError(
            "A tree splits a column of 0 and 1 elsewhere than between them.",
            hint="a split of a category is either passed or not.",
        )


def _check_missing(ensemble: Ensemble, trees: Record, numeric: Flags, border: Reals) -> None:
    kind = ensemble.missing_kind[numeric]
    goes_left = np.where(
        kind == MISSING_NONE, ensemble.threshold[numeric] >= 0.0, ensemble.missing_left[numeric]
    )
    column = ensemble.feature[numeric]
    possible = _missing_left(trees, column, border[numeric])
    wrong = (goes_left != possible) | (kind == MISSING_ZERO)
    if wrong.any():
        side = "left" if possible[wrong][0] else "right"
        raise InputError(
            f"A split of column {int(column[wrong][0])} sends missing values elsewhere than "
            f"CatBoost does, which is {side} at every split of that column.",
            hint="send them there too; timbermark.libraries.catboost.conform does.",
        )
