"""Models that a thief trains on rows of their own, of the same kind as the stolen one or another.

How large a model was can be read off its file: rounds, leaves, depth. The rest are the library's
defaults, and the learning rate where the model still knows it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from timbermark.attacks.stolen import Stolen, Thief, library_of
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.alternatives import fill_missing
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import inner_levels

_OTHER_TREES = 200


def own_model(stolen: Stolen, thief: Thief) -> Stolen:
    """Return the thief's own model of the stolen one's kind; it is trained once.

    Needs: rows, labels.
    """
    kind: Stolen = thief.once(
        "own", lambda: train_like(stolen.trees(), thief.X, thief.label, thief.seed)
    )
    return kind


def other_model(stolen: Stolen, thief: Thief) -> Stolen:
    """Return the thief's own model of another kind, extremely randomized trees.

    Needs: rows, labels.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    def train() -> Stolen:
        forest = ExtraTreesClassifier(
            _OTHER_TREES, min_samples_leaf=2, random_state=thief.seed, n_jobs=1
        )
        return _fit(forest, fill_missing(thief.X), thief.label, None, stolen.classes, fill_missing)

    other: Stolen = thief.once("other", train)
    return other


def train_like(
    foreign: ForeignModel,
    X: np.ndarray,
    label: np.ndarray,
    seed: int,
    weight: np.ndarray | None = None,
) -> Stolen:
    """Return a model of the same library, as large as a stolen one, trained on other rows.

    ``label`` int64 [n]: class numbers of the stolen model; classes without a row have the
    probability 0. ``weight`` float64 [n]: how much each row counts.
    """
    return _fit(new_like(foreign, seed), X, label, weight, foreign.classes)


def new_like(foreign: ForeignModel, seed: int) -> Any:
    """Return an untrained classifier of a model's library that grows as large as the model is.

    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> from timbermark.marking.models import open_model
    >>> model = TimberClassifier(max_iter=7, random_state=0).fit(*load_iris(return_X_y=True))
    >>> new_like(open_model(model), seed=0).max_iter
    7
    """
    e = foreign.ensemble
    rounds, leaves, depth = n_rounds(e), max(_most_leaves(e), 2), max(len(inner_levels(e)), 1)
    rate = getattr(foreign.native, "learning_rate", None)
    known: dict[str, Any] = {"learning_rate": float(rate)} if isinstance(rate, int | float) else {}
    # The libraries differ in what they call the same thing, and only here does it matter.
    match library_of(foreign):
        case "xgboost":
            from xgboost import XGBClassifier

            return XGBClassifier(
                n_estimators=rounds, max_depth=depth, random_state=seed, n_jobs=1, **known
            )
        case "lightgbm":
            from lightgbm import LGBMClassifier

            return LGBMClassifier(
                n_estimators=rounds, num_leaves=leaves, random_state=seed, n_jobs=1, verbose=-1,
                deterministic=True, **known,
            )  # fmt: skip
        case "catboost":
            from catboost import CatBoostClassifier

            return CatBoostClassifier(
                iterations=rounds, depth=min(depth, 16), random_seed=seed, thread_count=1,
                verbose=0, allow_writing_files=False,
            )  # fmt: skip
        case "histogram_boosting":
            from sklearn.ensemble import HistGradientBoostingClassifier

            return HistGradientBoostingClassifier(
                max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=seed,
                **known,
            )  # fmt: skip
        case "gradient_boosting":
            from sklearn.ensemble import GradientBoostingClassifier

            return GradientBoostingClassifier(
                n_estimators=rounds, max_depth=depth, random_state=seed, **known
            )
        case _:
            from timbermark.estimator import TimberClassifier

            return TimberClassifier(
                max_iter=rounds, max_leaf_nodes=leaves, random_state=seed, keep_state=False,
                **known,
            )  # fmt: skip


def n_rounds(ensemble: Ensemble) -> int:
    """Return how many rounds of boosting an ensemble has."""
    per_round = 1 if (ensemble.tree_output < 0).any() else ensemble.n_outputs
    return max(ensemble.n_trees // per_round, 1)


def _most_leaves(e: Ensemble) -> int:
    return int(np.add.reduceat((e.left < 0).astype(np.int64), e.tree_start[:-1]).max())


def _fit(
    model: Any,
    X: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    classes: np.ndarray,
    prepare: Any = None,
) -> Stolen:
    seen, place = np.unique(label, return_inverse=True)
    if len(seen) < 2:
        share = np.zeros(len(classes))
        share[seen] = 1.0
        return Stolen(classes, lambda rows: np.tile(share, (len(rows), 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, place, sample_weight=weight)

    def answer(rows: np.ndarray) -> np.ndarray:
        given = rows if prepare is None else prepare(rows)
        found = np.zeros((len(rows), len(classes)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[:, seen] = model.predict_proba(given)
        return found

    return Stolen(classes, answer)
