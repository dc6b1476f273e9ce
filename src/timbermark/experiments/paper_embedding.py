"""Embedding exactly as in the paper, for the reproduction of its tables.

Fixed weights, one update, every bit 1. Nothing is keyed, repaired or replaced, so such a mark
proves nothing; :func:`timbermark.embed` makes marks that do. The update is the exact one: with no
repair after it, the lazy one leaves up to half of the flips undone on noisy data.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from timbermark.boosting.updating import update_ensemble
from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.estimator_checks import check_rows
from timbermark.experiments.selections import SELECTIONS, Selection, select_triggers
from timbermark.experiments.strategies import (
    STRATEGIES,
    Candidates,
    Pool,
    Strategy,
    find_candidates,
)
from timbermark.kernels.workers import Workers, count_threads

_TRAINING_COPIES = 5  # the paper's d: a training row has its own unmarked copy against it
_CENTER_COPIES = 2  # against each neighbour that keeps its label


class TooFewWrongError(InputError):
    """Wrong Prediction Flip found ``available`` wrong predictions where ``wanted`` are needed."""

    def __init__(self, available: int, wanted: int) -> None:
        super().__init__(
            f"Wrong Prediction Flip needs {wanted} wrong predictions but finds only {available}.",
            hint="use a lower ratio, or another strategy.",
        )
        self.available = available
        self.wanted = wanted

    def __reduce__(self) -> tuple[Any, ...]:
        return TooFewWrongError, (self.available, self.wanted)


@dataclass(frozen=True, slots=True)
class PaperMark:
    """A model marked as in the paper.

    Rows are numbered within the pool: the separate candidates, or else the training rows.
    ``candidates`` int64[n] is C, ``triggers`` int64[k] is W, ``neighbours`` int64[m] the anchored
    rows, ``target`` int64[k] the class numbers that the triggers were given (Eq. 2).
    """

    model: TimberClassifier
    strategy: str
    selection: str
    candidates: np.ndarray
    triggers: np.ndarray
    neighbours: np.ndarray
    target: np.ndarray


def in_both(X: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return bool[n]: which rows of ``X`` are rows of ``others``, value for value.

    >>> in_both(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])).tolist()
    [False, True]
    """
    # Adding 0.0 turns -0.0 into 0.0: the two are one value, but not the same bytes.
    known = {row.tobytes() for row in np.ascontiguousarray(others + 0.0)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(X + 0.0)], np.bool_)


def flip_labels(confidence: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return int64[n]: the likeliest class that is neither the truth nor the prediction (Eq. 2).

    ``confidence`` float64[n, K], probabilities; ``label`` int64[n], the truth. Raises InputError
    where a row has no such class.

    >>> flip_labels(np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), np.array([0, 1])).tolist()
    [1, 2]
    """
    predicted = confidence.argmax(axis=1)
    if confidence.shape[1] == 2 and (predicted != label).any():
        raise InputError(
            "With 2 classes, a row that is predicted wrongly has no label to flip to.",
            hint="use strategy='confidence', which takes correct predictions only.",
        )
    rest = confidence.copy()
    each = np.arange(len(rest))
    rest[each, predicted] = -np.inf
    rest[each, label] = -np.inf
    return np.asarray(rest.argmax(axis=1))


def find_paper_candidates(
    model: TimberClassifier,
    X: Any,
    y: Any,
    *,
    strategy: Strategy,
    ratio: float,
    candidates: tuple[Any, Any] | None = None,
    random_state: int = 0,
) -> Candidates:
    """Return the n = ceil(ratio · rows) candidates C.

    Separate candidates that are training rows as well are left out: the two sets are disjoint in
    the paper, and no tree can tell such a row from the training row, which keeps its label.

    Raises TooFewWrongError where Wrong Prediction Flip finds fewer, InputError where another
    strategy does, or where an argument is out of range.
    """
    if not isinstance(model, TimberClassifier):
        raise InputError(
            f"The paper's embedding takes a TimberClassifier, not {type(model).__name__}.",
            hint="use timbermark.embed for models of other libraries.",
        )
    if strategy not in STRATEGIES:
        raise InputError(
            f"strategy={strategy!r} is none of the paper's.", hint=f"use {', '.join(STRATEGIES)}."
        )
    if not 0.0 < ratio <= 1.0:
        raise InputError(f"ratio={ratio} must be above 0 and at most 1.", hint="try 0.01.")
    table, labels = (X, y) if candidates is None else candidates
    confidence = model.predict_proba(table)
    rows = check_rows(model, table, reset=False)
    allowed = np.ones(len(rows), np.bool_)
    if candidates is not None:
        allowed = ~in_both(rows, check_rows(model, X, reset=False))
    pool = Pool(rows, model._known_answers(labels, len(rows)), confidence, allowed)
    n = ceil(ratio * len(X))
    n_wrong = int(((pool.predicted != pool.label) & allowed).sum())
    if strategy == "wrong" and n_wrong < n and confidence.shape[1] > 2:
        raise TooFewWrongError(n_wrong, n)
    return find_candidates(strategy, pool, n, random_state)


def embed_as_in_paper(
    model: TimberClassifier,
    X: Any,
    y: Any,
    *,
    strategy: Strategy,
    selection: Selection = "confidence",
    ratio: float = 0.01,
    candidates: tuple[Any, Any] | None = None,
    random_state: int = 0,
    found: Candidates | None = None,
) -> PaperMark:
    """Flip k = ceil(n / 2) of n = ceil(ratio · rows) candidates in one update.

    ``X`` and ``y``: the training rows; ``candidates``: the separate rows of the other scenario.
    ``found``: the result of :func:`find_paper_candidates`, where it is known already. The model
    given is left as it was. Raises what :func:`find_paper_candidates` raises.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import TimberClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(preset="paper", random_state=0).fit(X[:800], y[:800])
    >>> made = embed_as_in_paper(
    ...     model, X[:800], y[:800], strategy="outlier", candidates=(X[800:1000], y[800:1000])
    ... )
    >>> len(made.candidates), len(made.triggers)
    (8, 4)
    """
    if selection not in SELECTIONS:
        raise InputError(
            f"selection={selection!r} is none of the paper's.", hint=f"use {', '.join(SELECTIONS)}."
        )
    if found is None:
        found = find_paper_candidates(
            model, X, y, strategy=strategy, ratio=ratio, candidates=candidates,
            random_state=random_state,
        )  # fmt: skip
    pool, order = found.pool, found.order
    places = select_triggers(selection, found, ceil(len(order) / 2), random_state)
    triggers = order[places]
    beside = np.unique(found.neighbours[places])
    neighbours = np.setdiff1d(beside[beside >= 0], triggers).astype(np.int64)
    target = flip_labels(pool.confidence[triggers], pool.label[triggers])
    copies = _TRAINING_COPIES if candidates is None else 1
    heavy = copies * (_CENTER_COPIES if strategy == "cluster" else 1)
    marked = copy.copy(model)  # without its state
    marked._state = model._state
    if marked._state is None:
        marked.rebuild_state(X, y)
    with Workers(count_threads(model.n_jobs)) as workers:
        ensemble, state = update_ensemble(
            model.ensemble_,
            marked._need_state(),
            np.concatenate([pool.X[triggers], pool.X[neighbours]]),
            np.concatenate([target, pool.label[neighbours]]),
            np.concatenate([np.full(len(triggers), heavy), np.full(len(neighbours), copies)]),
            workers,
            mode="exact",
        )
    marked._install(ensemble, state)
    return PaperMark(marked, strategy, selection, order, triggers, neighbours, target)
