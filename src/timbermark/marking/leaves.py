"""The leaf seal: the edit that makes triggers answer with their symbols, and which then do.

The seal also holds how alternatives answer its triggers: models without the mark that resemble what
a thief makes of a stolen one. Whoever verifies compares a suspect with them: what is left of the
trees after a cut or after flattening, and a model of another kind for suspects that were averaged
with one. Their scores are settled before symbols are drawn, and they tell the mark from what a
theft changes anyway. (`./dev bench attacks`: the first quarter of a census model in XGBoost had 9
bits without them and 95 with them.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from timbermark.editing.leaves import ROUNDS, Edit, edit_leaves
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates
from timbermark.marking.defaults import ARRIVED_SHARE
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import Prepared
from timbermark.ownership.evidence import label_bits
from timbermark.trees.branches import flatten_leaves, node_means
from timbermark.trees.ensemble import Ensemble

_KEPT_TREES, _FEWEST_TREES = 1, 8
"""Trees of each output that an edit leaves alone, the first ones, where there are enough others: in
the first round the library's formula puts every leaf on a grid that the file shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An edit, and how far each trigger's answer leads after it."""

    edit: Edit
    lead: np.ndarray  # float64 [k], see `Classification.find_leads`
    q: int

    @property
    def n_set(self) -> int:
        """Return the number of triggers that answer with their symbol."""
        return int((self.lead > 0.0).sum())

    @property
    def bits(self) -> float:
        """Return what the labels of an untouched copy prove."""
        return label_bits(self.n_set, len(self.lead), self.q)

    def __repr__(self) -> str:
        return f"Setting({self.n_set} of {len(self.lead)} set in {self.edit.rounds} rounds)"


def set_leaves(
    prepared: Prepared,
    triggers: Candidates,
    symbols: np.ndarray,
    lead: float,
    workers: Workers,
    hidden: bool = True,
) -> Setting:
    """Edit the model so that every trigger answers with its symbol, by a margin of ``lead``.

    ``symbols`` [k]: which answer of its alphabet each trigger carries; ``lead`` in units of what
    probabilities are made from; ``hidden``: splits keep their gains where the file shows them.
    """
    foreign, task = prepared.foreign, prepared.labels
    target = triggers.alphabets[np.arange(len(triggers)), symbols]
    wanted = task.wanted_margins(triggers.margins, target, lead)
    weight = prepared.weight
    alike = np.isin(row_keys(prepared.margins, 0), row_keys(triggers.margins, 0))
    if alike.any():
        # No tree separates these rows from a trigger, so that they must not hold it back.
        weight = np.where(alike[:, None], 0.0, weight)
    n_trees = min(len(trees) for trees in prepared.router.trees)
    edit = edit_leaves(
        prepared.router, prepared.holding, weight, triggers.routes, wanted - triggers.margins,
        workers, leaf_dtype=foreign.leaf_dtype, l2=foreign.l2 if hidden else None,
        unit=task.unit, max_rounds=ROUNDS, slack=ARRIVED_SHARE * lead * task.unit,
        kept_trees=_KEPT_TREES if foreign.l2 is not None and n_trees >= _FEWEST_TREES else 0,
    )  # fmt: skip
    after = triggers.margins + edit.shift
    return Setting(
        edit, task.find_leads(after, triggers.alphabets, symbols), triggers.alphabets.shape[1]
    )


def reroute(prepared: Prepared, triggers: Candidates, workers: Workers) -> Candidates:
    """Return triggers as they go through the trees of a model whose thresholds were moved."""
    routes = prepared.router.route(prepared.schema.columns(triggers.X), workers)
    return replace(triggers, routes=routes, margins=prepared.router.margins(routes, workers))


_FIRST_SHARES, _DROPPED_SHARE, _FLAT_SHARE = (0.25, 0.5), 0.1, 0.25
"""The shares of trees that remain at the start, of trees at the start that are made constant, and
of leaves that are flattened."""
_FOREST_TREES, _FEWEST_OF_FOREST, _FOREST_ROWS, _FOREST_LEAF = 50, 5, 5_000, 2
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
        max(n_trees, _FEWEST_OF_FOREST), min_samples_leaf=_FOREST_LEAF,
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
