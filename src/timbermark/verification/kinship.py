"""Kinship of models: which trees of one model are trees of another, whatever was done to hide it.

Trees are compared by what they do, not by their bytes. Pairs of rows are drawn between the
thresholds of a claimed model, the two rows of a pair differ in a few features, and each tree either
separates a pair (the rows end in different leaves) or does not. Two trees that separate the same
pairs split at the same places. Leaf values, thresholds moved within their neighbourhood, the order
of nodes, children and trees, and splits that no row meets do not matter.

Whoever hides an origin also chooses the thresholds of his own model. So two models are compared on
rows of each of them separately, and rows of one of them are enough to find their common trees. Rows
on which a tree shows only a few of its leaves count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timbermark.dtypes import Flags, Reals
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.reference import leaf_indices

SAME_TREE = 0.9
"""From this share of commonly separated pairs on, two trees are the same tree."""
N_PAIRS = 768
_SEED = 0  # the same files always give the same table
_RELATIVE, _OF_SPREAD = 1e-3, 2e-3
_BLOCK = 512
_ENOUGH_LEAVES = 8


@dataclass(frozen=True, slots=True)
class Kinship:
    """How many trees two models have in common, each tree weighed by how much it contributes.

    >>> Kinship(of_first=0.5, of_second=1.0).largest
    1.0
    """

    of_first: float  # the share of the first model that is made of trees of the second
    of_second: float  # the share of the second model that is made of trees of the first

    @property
    def largest(self) -> float:
        """Return the larger share: trees can be dropped from a model, or added to it."""
        return max(self.of_first, self.of_second)


def compare_models(
    models: Mapping[str, Ensemble],
    pairs: Sequence[tuple[str, str]],
    sources: Mapping[str, str],
) -> dict[tuple[str, str], Kinship]:
    """Return the kinship of each pair of models of which both are there.

    ``sources`` has, for the name of a model, that of the model between whose thresholds rows are
    drawn when it is compared; of each pair at least one model needs a source. Models with different
    numbers of features have no trees in common.

    >>> from timbermark.trees.construction import make_ensemble
    >>> stump = make_ensemble(
    ...     n_features=1, n_outputs=1, tree_start=[0, 3], feature=[0, -1, -1],
    ...     threshold=[0.5, 0, 0], left=[1, -1, -1], right=[2, -1, -1], value=[[0], [1], [2]],
    ... )
    >>> compare_models({"a": stump, "b": stump}, [("a", "b")], {"a": "a"})
    {('a', 'b'): Kinship(of_first=1.0, of_second=1.0)}
    """
    rows: dict[str, tuple[Reals, Reals]] = {}
    seen: dict[tuple[str, str], _Behaviour] = {}

    def observe(name: str, source: str) -> _Behaviour:
        if source not in rows:
            rows[source] = _draw_pairs(models[source])
        if (name, source) not in seen:
            seen[name, source] = _observe(models[name], *rows[source])
        return seen[name, source]

    found = {}
    for one, other in pairs:
        if one not in models or other not in models:
            continue
        found[one, other] = Kinship(0.0, 0.0)
        if models[one].n_features == models[other].n_features:
            used = dict.fromkeys(sources[name] for name in (one, other) if name in sources)
            found[one, other] = _compare(
                [(observe(one, source), observe(other, source)) for source in used]
            )
    return found


@dataclass(frozen=True, slots=True)
class _Behaviour:
    """What the trees of a model do with pairs of rows."""

    separated: Reals  # float32 [T, pairs], 1.0 where a tree separates a pair
    weight: Reals  # float64 [T], how much each tree's output varies
    shown: Flags  # bool [T], whether a tree does anything, and shows enough leaves


def _observe(trees: Ensemble, one: Reals, other: Reals) -> _Behaviour:
    leaves = leaf_indices(trees, np.concatenate([one, other]))
    separated = (leaves[: len(one)] != leaves[len(one) :]).T
    values = trees.value[leaves + trees.tree_start[:-1]]
    # Sums of squares beyond the type's range become infinite, and such a tree counts for nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(values.var(axis=0).sum(axis=1))
    weight = np.abs(trees.tree_weight) * np.where(np.isfinite(spread), spread, 0.0)
    met = (np.diff(np.sort(leaves, axis=0), axis=0) != 0).sum(axis=0) + 1
    n_leaves = np.add.reduceat(trees.left < 0, trees.tree_start[:-1])
    shown = (weight > 0) & (met >= np.minimum(_ENOUGH_LEAVES, np.maximum(2, n_leaves / 2)))
    return _Behaviour(separated.astype(np.float32), weight, shown)


def _compare(observed: Sequence[tuple[_Behaviour, _Behaviour]]) -> Kinship:
    """Return the kinship of two models by what both do with the rows of each source."""
    (one, other), *_ = observed
    of_one = np.zeros(len(one.weight), dtype=bool)
    of_other = np.zeros(len(other.weight), dtype=bool)
    for one, other in observed:
        sizes = other.separated.sum(axis=1)
        for start in range(0, len(one.weight), _BLOCK):
            part = slice(start, start + _BLOCK)
            block = one.separated[part]
            common = block @ other.separated.T
            either = block.sum(axis=1)[:, np.newaxis] + sizes - common
            same = (common >= SAME_TREE * either) & one.shown[part, np.newaxis] & other.shown
            of_one[part] |= same.any(axis=1)
            of_other |= same.any(axis=0)
    # A tree weighs what it weighs where it varies most, so that none hides behind its rows.
    weights = [np.max([pair[i].weight for pair in observed], axis=0) for i in range(2)]
    return Kinship(_weigh(of_one, weights[0]), _weigh(of_other, weights[1]))


def _weigh(known: Flags, weight: Reals) -> float:
    total = float(weight.sum())
    return float(weight[known].sum()) / total if total > 0 else 0.0


def _draw_pairs(trees: Ensemble) -> tuple[Reals, Reals]:
    """Return pairs of rows, float64 [pairs, d] each, that differ in about one feature of eight."""
    rng = np.random.default_rng(_SEED)
    pools = _list_values(trees)
    used = np.array([place for place, pool in enumerate(pools) if len(pool) > 1], dtype=int)
    row, moved = (
        np.column_stack([rng.choice(pool, size=N_PAIRS) for pool in pools]) for _ in range(2)
    )
    change = np.zeros(row.shape, dtype=bool)
    if len(used):
        change[:, used] = rng.random((N_PAIRS, len(used))) < 1 / 8
        change[np.arange(N_PAIRS), rng.choice(used, size=N_PAIRS)] = True
    return row, np.where(change, moved, row)


def _list_values(trees: Ensemble) -> list[Reals]:
    """Return for each feature one value between all neighbouring thresholds of a model."""
    splits = trees.left >= 0
    numeric = splits & (trees.category_set < 0)
    pools = []
    for feature in range(trees.n_features):
        here = trees.threshold[numeric & (trees.feature == feature)]
        values = _values_between(np.unique(here[np.isfinite(here)]))
        sets = np.unique(trees.category_set[splits & ~numeric & (trees.feature == feature)])
        known = [
            trees.category_values[trees.category_offsets[s] : trees.category_offsets[s + 1]]
            for s in sets
        ]
        if known:
            categories = np.unique(np.concatenate(known)).astype(np.float64)
            last = categories[-1] if len(categories) else 0.0
            values = np.concatenate([values, categories, [last + 1.0]])
        pools.append(values)
    return pools


def _values_between(thresholds: Reals) -> Reals:
    """Return values below, between and above sorted thresholds; close ones count as one."""
    if not len(thresholds):
        return np.zeros(1)
    low, high = np.quantile(thresholds, [0.1, 0.9])
    size = np.maximum(_RELATIVE * np.abs(thresholds[1:]), _OF_SPREAD * (high - low))
    apart = np.diff(thresholds) > size
    starts = thresholds[np.concatenate([[True], apart])]
    ends = thresholds[np.concatenate([apart, [True]])]
    margin = np.maximum(high - low, np.maximum(np.abs(thresholds[-1]), 1.0)) / 10
    between = ends[:-1] + (starts[1:] - ends[:-1]) / 2
    return np.concatenate([[starts[0] - margin], between, [ends[-1] + margin]])
