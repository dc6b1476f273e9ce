"""Training that goes on with the thief's rows: more trees, and in-place updates.

The libraries' own continued training adds trees where the stolen model stopped; a booster that
starts from its answers needs no file. Our own models learn rows in place: the paper's engine keeps
the owner's training state during fine-tuning, watermark rows included, so every update learns the
mark again. A thief has the model and some rows and nothing else. Two things can then be called an
in-place update:

- *model only*: the splits stay and every leaf takes up the new rows. The model file holds each
  leaf's value and Σh, which give back the Σr it was made from; the rows are added to both. That is
  all an in-place update can do with what the file knows.
- *regrown*: a state is rebuilt from the thief's rows alone and updated with them; they decide
  every split again. Little of the model is left, of its mark and of its accuracy.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.attacks import own_models
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief, library_of, steal
from timbermark.attacks.trees import xgboost_inputs, xgboost_params
from timbermark.boosting.data import TrainParams
from timbermark.boosting.objective import factor
from timbermark.estimator_base import TimberEstimator
from timbermark.estimator_checks import check_params, check_rows
from timbermark.libraries.contract import ForeignModel
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble

_ANSWER_ROUNDS = 50
_L2 = 1.0
"""A trained model is sure of itself: of rows that it gets wrong the hessians nearly vanish, and
Newton steps without regularization leap so far that they ruin it."""
_DEFAULT_RATES = {"xgboost": 0.3, "lightgbm": 0.1, "histogram_boosting": 0.1}
"""The learning rate of each library where nothing is set. CatBoost chooses its own by the rows, and
GradientBoosting applies one rate to all trees, the old ones included."""


def add_trees(stolen: Stolen, thief: Thief, rounds: float) -> Stolen:
    """Train so many further ``rounds`` on the thief's rows, at the library's default rate.

    Needs: file, rows, labels; the library's own continued training. Trees grow as large as those
    that are there.
    """
    foreign = stolen.file()
    labels = foreign.task == "classification"
    if labels and len(np.unique(thief.target)) < len(foreign.classes):
        raise NotOfferedError("missing-classes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return steal(_go_on(foreign, thief, max(round(rounds), 1)))


def boost_answers(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train a booster of scikit-learn's that starts from the stolen model's answers.

    Needs: answers (scores), rows, labels. ``share`` of 50 rounds.
    """
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    if np.isnan(thief.X).any():
        raise NotOfferedError("missing-values")
    if stolen.task == "ranking":
        raise NotOfferedError("no-rank-boosting")
    numbers = stolen.task == "regression"
    seen, place = np.unique(thief.target, return_inverse=True)
    if not numbers and len(seen) < 2:
        raise NotOfferedError("one-class")

    class Start:
        """The stolen model as a starting point that needs no training."""

        def fit(self, X: Any, y: Any) -> Start:
            return self

        def predict(self, X: Any) -> np.ndarray:
            return stolen.answer(np.asarray(X, np.float64))[:, 0]

        def predict_proba(self, X: Any) -> np.ndarray:
            found = stolen.answer(np.asarray(X, np.float64))[:, seen]
            known = np.clip(found, 1e-6, 1.0)
            return np.asarray(known / known.sum(axis=1, keepdims=True))

    booster = (GradientBoostingRegressor if numbers else GradientBoostingClassifier)(
        n_estimators=max(round(share * _ANSWER_ROUNDS), 1), init=Start(), random_state=thief.seed
    )
    booster.fit(thief.X, thief.target if numbers else place)

    def answer(X: np.ndarray) -> np.ndarray:
        if numbers:
            return np.asarray(booster.predict(X)).reshape(-1, 1)
        found = np.zeros((len(X), len(stolen.classes)))
        found[:, seen] = booster.predict_proba(X)
        return found

    return stolen.served(answer)


def update_leaves(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Add the thief's rows, ``strength`` times, to what the leaves of our own model were made from.

    Needs: file, rows, labels. This is the in-place update as far as the model alone allows it.
    """
    model = _our_model(stolen)
    times = max(round(strength), 1)
    X, y = np.tile(thief.X, (times, 1)), np.tile(_named(stolen, thief.target), times)
    return steal(tune_model_only(model, X, y))


def update_regrown(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Rebuild the state of our own model from the thief's rows and let them regrow its trees.

    Needs: file, rows, labels. ``strength`` is the share of the rows that are used.
    """
    model = _our_model(stolen)
    some = thief.rng("regrow").permutation(len(thief.X))[: max(int(strength * len(thief.X)), 2)]
    return steal(tune_regrown(model, thief.X[some], _named(stolen, thief.target[some])))


def tune_with_state(model: TimberEstimator, X: Any, y: Any) -> TimberEstimator:
    """Return a copy of the model, which has its state, updated with the rows.

    Exactly, because that is what the published figures are of. Raises StateError where there is no
    state.
    """
    tuned = copy.copy(model)
    tuned._state = model._need_state()
    return tuned.update(X, y, mode="exact")


def tune_regrown(model: TimberEstimator, X: Any, y: Any) -> TimberEstimator:
    """Return a copy of the model, updated with a state that is rebuilt from these rows alone."""
    # A copy has no state: it is the model as a file would hold it.
    return copy.copy(model).rebuild_state(X, y).update(X, y)


def tune_model_only(model: TimberEstimator, X: Any, y: Any) -> TimberEstimator:
    """Return a copy of the model without a state: the rows are added to the sums of the leaves.

    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TimberClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> tune_model_only(model, X[1::2], y[1::2]).score(X, y) > 0.9
    True
    """
    tuned = copy.copy(model)
    rows = check_rows(model, X, reset=False)
    label = model._known_answers(y, len(rows))
    tuned._install(add_to_leaves(model.ensemble_, rows, label, check_params(model)), None)
    return tuned


def add_to_leaves(
    ensemble: Ensemble, X: np.ndarray, label: np.ndarray, params: TrainParams
) -> Ensemble:
    """Return the ensemble with leaves (G + Σr) / (H + Σh + λ); r and h follow the new trees.

    ``label``: class numbers int64 [n], or numbers of a regressor. H is the leaf's ``hessian``, and
    G follows from it and the leaf's value. A leaf that no row reaches stays.
    """
    outputs, ridge = ensemble.n_outputs, params.l2_regularization
    numbers = ensemble.gives_numbers
    limit = np.inf if numbers else params.leaf_limit
    step = params.learning_rate * factor(ensemble.n_classes)
    leaves = reference.leaf_indices(ensemble, X)
    value = ensemble.value[:, 0].copy()
    margins = np.tile(ensemble.init, (len(X), 1))
    truth = label[:, None] == np.arange(ensemble.n_classes)
    for first in range(0, ensemble.n_trees, outputs):
        if numbers:
            residual, hessian = label[:, None] - margins, np.ones(margins.shape)
        else:
            p = reference.probabilities(margins, ensemble.objective)
            residual, hessian = truth - p, p * (1.0 - p)
        for tree in range(first, first + outputs):
            output = int(ensemble.tree_output[tree])
            # One logistic margin speaks for the second class.
            kind = output if outputs > 1 or numbers else 1
            nodes = slice(ensemble.tree_start[tree], ensemble.tree_start[tree + 1])
            here, size = leaves[:, tree], int(nodes.stop - nodes.start)
            old = ensemble.hessian[nodes]
            h = old + np.bincount(here, hessian[:, kind], size)
            g = value[nodes] * (old + ridge) / step + np.bincount(here, residual[:, kind], size)
            reached = (np.bincount(here, minlength=size) > 0) & (h + ridge > 0.0)
            new = np.divide(g, h + ridge, out=np.zeros(size), where=reached)
            value[nodes] = np.where(reached, step * np.clip(new, -limit, limit), value[nodes])
            margins[:, output] += value[nodes][here]
    return replace(ensemble, value=value[:, None])


def _go_on(foreign: ForeignModel, thief: Thief, more: int) -> Any:
    """Return the library's own model after more rounds."""
    native, library = foreign.native, library_of(foreign)
    rounds = own_models.n_rounds(foreign.ensemble)
    y = foreign.classes[thief.target] if foreign.task == "classification" else thief.target
    match library:
        case "lightgbm":
            return _go_on_lightgbm(foreign, thief, more)
        case "xgboost":
            import xgboost

            whole, matrix = xgboost_inputs(foreign, thief)
            params = {
                **xgboost_params(foreign, whole), "eta": _DEFAULT_RATES[library],
                "max_depth": own_models.new_like(foreign, thief.seed).max_depth, "seed": thief.seed,
            }  # fmt: skip
            longer = xgboost.train(params, matrix, num_boost_round=more, xgb_model=whole)
            longer.set_attr(best_iteration=None, best_score=None)
            return own_models.with_booster(native, longer)
        case "catboost":
            params = {**own_models.new_like(foreign, thief.seed).get_params(), "iterations": more}
            longer = type(native)(**params)
            return own_models.fit_quietly(longer, thief.X, y, thief.groups, init_model=native)
        case "histogram_boosting":
            longer = copy.deepcopy(native)
            longer.set_params(
                warm_start=True, max_iter=rounds + more, early_stopping=False,
                random_state=thief.seed, l2_regularization=max(longer.l2_regularization, _L2),
                learning_rate=_DEFAULT_RATES[library],
            )  # fmt: skip
            if not hasattr(longer, "_random_seed"):  # which fit looks for when it goes on
                longer._random_seed = 0
            return longer.fit(thief.X, y)
        case "gradient_boosting":
            if np.isnan(thief.X).any():
                raise NotOfferedError("missing-values")
            longer = copy.deepcopy(native)
            longer.set_params(warm_start=True, n_estimators=rounds + more)
            return longer.fit(thief.X, y)
        case _:
            raise NotOfferedError("no-continued-training")


def _go_on_lightgbm(foreign: ForeignModel, thief: Thief, more: int) -> Any:
    import lightgbm

    params = {
        "objective": foreign.extra.frame.objective,
        "num_leaves": own_models.new_like(foreign, thief.seed).num_leaves,
        "learning_rate": _DEFAULT_RATES["lightgbm"],
        "verbosity": -1, "num_threads": 1, "seed": thief.seed, "deterministic": True,
        "lambda_l2": _L2,
    }  # fmt: skip
    if foreign.ensemble.n_outputs > 1:
        params["num_class"] = foreign.ensemble.n_outputs
    lists = own_models.group_sizes(thief.groups)
    data = lightgbm.Dataset(thief.X, thief.target, group=lists, free_raw_data=False)
    whole = own_models.inner_booster(foreign.native)
    longer = lightgbm.train(params, data, num_boost_round=more, init_model=whole)
    # A booster that was trained on top of another keeps its best iteration, and with it the cut.
    longer.best_iteration = 0
    return own_models.with_booster(foreign.native, longer)


def _our_model(stolen: Stolen) -> Any:
    foreign = stolen.file()
    if library_of(foreign) != "timbermark":
        raise NotOfferedError("not-ours")
    return copy.copy(foreign.native)


def _named(stolen: Stolen, target: np.ndarray) -> np.ndarray:
    """Return true answers as the model's own interface takes them."""
    return np.asarray(stolen.classes[target]) if stolen.task == "classification" else target
