"""Embedding exactly as in the paper: what the reproduction of its tables uses.

Fixed weights, one update, every bit 1. Nothing is keyed, repaired or replaced, so this is no proof
of anything; :func:`timbermark.embed` makes those. The update is the exact one: with no repair after
it, the lazy one leaves up to half of the flips undone on noisy data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.marking.candidates import STRATEGIES, Pool, Strategy, find_candidates
from timbermark.marking.engine import Marked
from timbermark.marking.labels import flip_labels
from timbermark.marking.rows import shared_codes
from timbermark.marking.selection import Selection, select

_TRAINING_COPIES = 5  # the paper's d: a training row has its own unmarked copy against it
_CENTRE_COPIES = 2  # against each neighbour that keeps its label


def in_both(X: np.ndarray, others: np.ndarray) -> np.ndarray:
    """bool[n]: the rows of ``X`` that are rows of ``others``, value for value.

    >>> in_both(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])).tolist()
    [False, True]
    """
    return shared_codes(X + 0.0, others + 0.0)  # 0.0 and -0.0 are one value


class TooFewWrong(InputError):  # noqa: N818 - named for what was found, as its siblings are
    """Wrong Prediction Flip found ``available`` wrong predictions where ``wanted`` are needed."""

    def __init__(self, available: int, wanted: int) -> None:
        super().__init__(
            f"Wrong Prediction Flip needs {wanted} wrong predictions but finds only {available}.",
            hint="use a lower ratio, or another strategy.",
        )
        self.available = available
        self.wanted = wanted

    def __reduce__(self) -> tuple[Any, ...]:
        return TooFewWrong, (self.available, self.wanted)


@dataclass(frozen=True, slots=True)
class PaperCandidates:
    """The candidates C of one strategy and ratio; both selections choose from them.

    ``order`` int64[n]: rows of the pool. ``neighbours`` int64[n, l]: the rows beside each that keep
    their labels, -1 where there is none (Cluster Center Flip only, else l = 0).
    """

    strategy: Strategy
    pool: Pool
    order: np.ndarray
    neighbours: np.ndarray


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


def find_paper_candidates(
    model: TimberClassifier,
    X: Any,
    y: Any,
    *,
    strategy: Strategy,
    ratio: float,
    candidates: tuple[Any, Any] | None = None,
    random_state: int = 0,
) -> PaperCandidates:
    """The n = ceil(ratio · rows) candidates C, by distances on raw values.

    Separate candidates that are training rows as well are left out: the two sets are disjoint in
    the paper, and no tree can tell such a row from the training row, which keeps its label.

    Raises TooFewWrong where Wrong Prediction Flip has fewer, InputError where another strategy
    has, or where the ratio is none.
    """
    if not isinstance(model, TimberClassifier):
        raise InputError(
            f"The paper's embedding is for models of timbermark, not {type(model).__name__}.",
            hint="leave out preset='paper'.",
        )
    if strategy not in STRATEGIES:
        raise InputError(
            f"strategy={strategy!r} is none of the paper's.", hint=f"use {', '.join(STRATEGIES)}."
        )
    if not 0.0 < ratio <= 1.0:
        raise InputError(f"ratio={ratio} must be above 0 and at most 1.", hint="try 0.01.")
    given_rows, given_labels = (X, y) if candidates is None else candidates
    marked = Marked(model, X, y, None)
    rows = marked.rows(given_rows)
    label = marked.labels(given_labels, len(rows))
    separate = candidates is not None
    allowed = ~in_both(rows, marked.rows(X)) if separate else np.ones(len(rows), np.bool_)
    pool = Pool(rows, label, marked.confidence(rows), allowed)
    n = ceil(ratio * len(X))
    n_wrong = int(((pool.predicted != pool.label) & allowed).sum())
    if strategy == "wrong" and n_wrong < n and pool.confidence.shape[1] > 2:
        raise TooFewWrong(n_wrong, n)
    found = find_candidates(strategy, pool, n, random_state, raw=True)
    return PaperCandidates(strategy, pool, found.order[:n], found.neighbours[:n])


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
    found: PaperCandidates | None = None,
) -> PaperMark:
    """Flip k = ceil(n / 2) of n = ceil(ratio · rows) candidates in one update.

    ``X`` and ``y``: the training rows; ``candidates``: the separate rows of the other scenario.
    ``found``: the candidates, where they are known already. The model given is never touched.

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
    if found is None:
        found = find_paper_candidates(
            model, X, y, strategy=strategy, ratio=ratio, candidates=candidates,
            random_state=random_state,
        )  # fmt: skip
    pool, order = found.pool, found.order
    places = select(selection, pool, order, ceil(len(order) / 2), random_state, raw=True)
    triggers = order[places]
    beside = np.unique(found.neighbours[places])
    neighbours = np.setdiff1d(beside[beside >= 0], triggers).astype(np.int64)
    target = flip_labels(pool.confidence[triggers], pool.label[triggers])
    copies = _TRAINING_COPIES if candidates is None else 1
    heavy = copies * (_CENTRE_COPIES if strategy == "cluster" else 1)
    marked = Marked(model, X, y, None)
    ensemble, state = marked.learn(
        np.concatenate([pool.X[triggers], pool.X[neighbours]]),
        np.concatenate([target, pool.label[neighbours]]),
        np.concatenate([np.full(len(triggers), heavy), np.full(len(neighbours), copies)]),
        mode="exact",
    )
    return PaperMark(
        marked.wrap(ensemble, state), strategy, selection, order, triggers, neighbours, target
    )
