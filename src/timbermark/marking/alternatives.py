"""Alternatives: models without the mark that resemble what a thief makes of a stolen one.

Whoever verifies compares a suspect with them: what is left of the trees after a cut or after
flattening, and a model of another kind for suspects that were averaged with one. Their scores on
the triggers are part of the mark, settled before its symbols are drawn, and they tell the mark from
what a theft changes anyway. (`./dev bench attacks`: the first quarter of a census model in XGBoost
had 9 bits without them and 95 with them.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates
from timbermark.marking.preparing import Prepared
from timbermark.trees.branches import flatten_leaves, node_means
from timbermark.trees.ensemble import Ensemble

_FIRST_SHARES, _DROPPED_SHARE, _FLAT_SHARE = (0.25, 0.5), 0.1, 0.25
"""The shares of trees that remain at the start, of trees at the start that are made constant, and
of leaves that are flattened."""
_FOREST_TREES, _FEWEST_TREES, _FOREST_ROWS, _FOREST_LEAF = 50, 5, 5_000, 2
_FOREST_CLASSES = 20
"""With more classes than these the forest has fewer trees, each of which holds more numbers."""
_MISSING = -999.0


def score_alternatives(prepared: Prepared, triggers: Candidates, workers: Workers) -> np.ndarray:
    """Return the alternatives' scores of the labels of each trigger's alphabet, [k, R, q]."""
    foreign = prepared.foreign
    found = []
    for trees in _list_trees(foreign.ensemble):
        margins = prepared.router.around(trees).margins(triggers.routes, workers)
        found.append(foreign.answers(margins))
    forest = _ask_forest(prepared, triggers, workers)
    if forest is not None:
        found.append(forest)
    alphabets = triggers.alphabets.astype(np.intp)
    taken = [np.take_along_axis(scores, alphabets, axis=1) for scores in found]
    return np.clip(np.stack(taken, axis=1), 0.0, 1.0)


def _list_trees(e: Ensemble) -> Iterator[Ensemble]:
    """Yield the ensemble after cuts, and flattened."""
    sizes = np.diff(e.tree_start)
    rank, count = np.empty(e.n_trees), np.empty(e.n_trees)
    for output in np.unique(e.tree_output):
        mine = np.flatnonzero(e.tree_output == output)
        rank[mine], count[mine] = np.arange(len(mine)), len(mine)

    def among_first(share: float) -> np.ndarray:
        """Return bool [N, 1]: whether each node's tree is among the first ones of its output."""
        return np.repeat(rank < np.maximum(np.round(share * count), 1.0), sizes)[:, None]

    for share in _FIRST_SHARES:
        yield replace(e, value=np.where(among_first(share), e.value, 0.0))
    means = np.repeat(node_means(e)[1][e.tree_start[:-1]], sizes, axis=0)
    yield replace(e, value=np.where(among_first(_DROPPED_SHARE), means, e.value))
    yield replace(e, value=flatten_leaves(e, _FLAT_SHARE))


def _ask_forest(prepared: Prepared, triggers: Candidates, workers: Workers) -> np.ndarray | None:
    """Return the scores [k, K] of a forest that learnt the model's labels; None for one label."""
    from sklearn.ensemble import ExtraTreesClassifier

    some = np.random.default_rng(prepared.seed + 6).permutation(len(prepared.source))
    taken, takes = prepared.schema.try_columns(prepared.source[some[:_FOREST_ROWS]])
    rows, foreign = taken[takes], prepared.foreign
    margins = prepared.router.margins(prepared.router.route(rows, workers), workers)
    label = foreign.answers(margins).argmax(axis=1)
    if len(np.unique(label)) < 2:
        return None
    n_trees = _FOREST_TREES * _FOREST_CLASSES // max(len(foreign.classes), _FOREST_CLASSES)
    forest = ExtraTreesClassifier(
        max(n_trees, _FEWEST_TREES), min_samples_leaf=_FOREST_LEAF,
        random_state=prepared.seed % 2**32, n_jobs=1,
    )  # fmt: skip
    forest.fit(fill_missing(rows), label)
    asked = fill_missing(prepared.schema.columns(triggers.X))
    scores = np.zeros((len(triggers), len(foreign.classes)))
    scores[:, forest.classes_] = forest.predict_proba(asked)
    return scores


def fill_missing(X: np.ndarray) -> np.ndarray:
    """Return rows [n, d] for models that take float32 without missing values.

    >>> fill_missing(np.array([[np.nan, 1.5, np.inf]])).tolist()
    [[-999.0, 1.5, 3.4028234663852886e+38]]
    """
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(np.nan_to_num(X, nan=_MISSING), -largest, largest))
