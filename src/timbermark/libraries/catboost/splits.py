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
from timbermark.libraries.catboost.flatbuffer import Record

# The value of "NanValueTreatment" where a missing value passes every split; else it fails them.
_PASSES = 2
# Passing a split of a category is 1, failing it is 0.
_BETWEEN = 0.5


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
        threshold=np.concatenate([numeric, np.full(n_others, _BETWEEN)]),
        missing_left=np.concatenate(
            [_missing_left(trees, column, numeric), np.zeros(n_others, dtype=np.bool_)]
        ),
        n_numeric=len(numeric),
    )


def fixed_borders(trees: Record, n_columns: int) -> dict[int, frozenset[float] | None]:
    """Return the thresholds that cannot move: those of categories, and borders in statistics.

    A statistic of categories (CTR) may be of the rows on one side of a border only. With another
    border it would be another statistic.
    """
    flat = {feature["Index"]: feature["FlatIndex"] for feature in trees["FloatFeatures"]}
    found: dict[int, set[float]] = {}
    for feature in trees["CtrFeatures"]:
        for split in feature["Ctr"]["Base"]["FeatureCombination"]["FloatSplits"]:
            found.setdefault(flat[int(split["index"])], set()).add(float(split["border"]))
    derived = range(n_columns, n_columns + len(derived_names(trees)))
    return {
        **dict.fromkeys(derived),
        **{column: frozenset(borders) for column, borders in found.items()},
    }


def move_borders(trees: Record, split: AnyArray, threshold: Reals) -> Record:
    """Return the fields of ``trees`` that change when splits get other borders.

    ``split``: numbers of splits of numbers, the same one as often as nodes ask it, always with the
    same ``threshold``. The borders of a feature rise, so that splits are numbered anew where one
    passes another; two that meet become one.
    """
    features = trees["FloatFeatures"]
    sizes = [len(feature["Borders"]) for feature in features]
    border = np.concatenate([feature["Borders"] for feature in features])
    border[split] = threshold.astype(border.dtype)
    number = np.arange(sum(sizes))
    made, first, count = [], 0, 0
    for feature, size in zip(features, sizes, strict=True):
        borders, place = np.unique(border[first : first + size], return_inverse=True)
        number[first : first + size] = count + place
        made.append({**feature, "Borders": borders})
        first, count = first + size, count + len(borders)
    splits = trees["TreeSplits"]
    later = np.arange(first, max(int(splits.max(initial=0)) + 1, first)) + count - first
    renumbered = np.concatenate([number, later])[splits].astype(splits.dtype)
    return {"FloatFeatures": made, "TreeSplits": renumbered}


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


def _name(feature: Record) -> str:
    text: str = feature["FeatureId"].decode(errors="replace")
    return text or f"column {feature['FlatIndex']}"


def _missing_left(trees: Record, column: AnyArray, border: Reals) -> Flags:
    """Return whether missing values go left: they count as −∞ or +∞, by their treatment."""
    passing = {
        each["FlatIndex"] for each in trees["FloatFeatures"] if each["NanValueTreatment"] == _PASSES
    }
    passes: Flags = np.isin(column, np.array(sorted(passing), dtype=np.int64))
    return ~(passes & (border < np.inf))
