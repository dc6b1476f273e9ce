"""More trees: training goes on with the thief's rows, where the stolen model stopped."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np

from timbermark.attacks.own_models import n_rounds, new_like
from timbermark.attacks.refitting import xgboost_params
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief, library_of, steal
from timbermark.libraries.contract import ForeignModel

_MOST_ANSWER_ROUNDS = 50
_L2 = 1.0
"""A trained model is sure of itself: of rows that it gets wrong the hessians nearly vanish, and
Newton steps without regularization leap so far that they ruin it."""


def add_trees(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train further rounds, a ``share`` of those that there are, on the thief's rows.

    Needs: file, rows, labels; the library's own continued training.
    """
    foreign = stolen.file()
    rounds = n_rounds(foreign.ensemble)
    more = max(round(share * rounds), 1)
    if len(np.unique(thief.label)) < len(foreign.classes):
        raise NotOfferedError("the libraries go on only with rows of every class.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return steal(_go_on(foreign, thief, rounds, more))


def boost_answers(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train a booster of scikit-learn's that starts from the stolen model's answers.

    Needs: answers (scores), rows, labels. ``share`` of 50 rounds.
    """
    from sklearn.ensemble import GradientBoostingClassifier

    seen, place = np.unique(thief.label, return_inverse=True)
    if len(seen) < 2:
        raise NotOfferedError("the thief's rows are all of one class.")

    class Start:
        """The stolen model as a starting point that needs no training."""

        def fit(self, X: Any, y: Any) -> Start:
            return self

        def predict_proba(self, X: Any) -> np.ndarray:
            found = stolen.answer(np.asarray(X, np.float64))[:, seen]
            known = np.clip(found, 1e-6, 1.0)
            return np.asarray(known / known.sum(axis=1, keepdims=True))

    booster = GradientBoostingClassifier(
        n_estimators=max(round(share * _MOST_ANSWER_ROUNDS), 1), init=Start(),
        random_state=thief.seed,
    )  # fmt: skip
    if np.isnan(thief.X).any():
        raise NotOfferedError("scikit-learn's GradientBoosting takes no missing values.")
    booster.fit(thief.X, place)

    def answer(X: np.ndarray) -> np.ndarray:
        found = np.zeros((len(X), len(stolen.classes)))
        found[:, seen] = booster.predict_proba(X)
        return found

    return stolen.served(answer)


def _go_on(foreign: ForeignModel, thief: Thief, rounds: int, more: int) -> Any:
    """Return the library's own model after more rounds."""
    native, X = foreign.native, thief.X
    y = foreign.classes[thief.label]
    match library_of(foreign):
        case "lightgbm":
            return _go_on_lightgbm(foreign, thief, more)
        case "xgboost":
            import xgboost

            whole = native if isinstance(native, xgboost.Booster) else native.get_booster()
            matrix = xgboost.DMatrix(X, thief.label.astype(float), missing=foreign.extra.missing)
            matrix.feature_names, matrix.feature_types = whole.feature_names, whole.feature_types
            depth = new_like(foreign, thief.seed).max_depth
            params = {**xgboost_params(foreign, whole), "max_depth": depth, "seed": thief.seed}
            longer = xgboost.train(params, matrix, num_boost_round=more, xgb_model=whole)
            longer.set_attr(best_iteration=None, best_score=None)
            return longer if whole is native else copy.deepcopy(native, {id(whole): longer})
        case "catboost":
            params = {**new_like(foreign, thief.seed).get_params(), "iterations": more}
            longer = type(native)(**params)
            return longer.fit(X, y, init_model=native)
        case "histogram_boosting":
            longer = copy.deepcopy(native)
            longer.set_params(
                warm_start=True, max_iter=rounds + more, early_stopping=False,
                random_state=thief.seed, l2_regularization=max(longer.l2_regularization, _L2),
            )  # fmt: skip
            _reset_for_warm_start(longer)
            return longer.fit(X, y)
        case "gradient_boosting":
            longer = copy.deepcopy(native)
            longer.set_params(warm_start=True, n_estimators=rounds + more)
            return longer.fit(X, y)
        case _:
            raise NotOfferedError("TimberClassifier has no continued training; see update-leaves.")


def _go_on_lightgbm(foreign: ForeignModel, thief: Thief, more: int) -> Any:
    import lightgbm

    native = foreign.native
    whole = native if isinstance(native, lightgbm.Booster) else native.booster_
    params = {
        "objective": "binary" if foreign.ensemble.n_outputs == 1 else "multiclass",
        "num_leaves": new_like(foreign, thief.seed).num_leaves,
        "verbosity": -1, "num_threads": 1, "seed": thief.seed, "deterministic": True,
        "lambda_l2": _L2,
    }  # fmt: skip
    if foreign.ensemble.n_outputs > 1:
        params["num_class"] = foreign.ensemble.n_outputs
    data = lightgbm.Dataset(thief.X, thief.label, free_raw_data=False)
    longer = lightgbm.train(params, data, num_boost_round=more, init_model=whole)
    # A booster that was trained on top of another keeps its best iteration, and with it the cut.
    longer.best_iteration = 0
    return longer if whole is native else copy.deepcopy(native, {id(whole): longer})


def _reset_for_warm_start(model: Any) -> None:
    """Give a model of HistGradientBoosting what ``fit`` looks for when it goes on."""
    if not hasattr(model, "_random_seed"):
        model._random_seed = 0
