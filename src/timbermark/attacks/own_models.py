"""Models that a thief trains: on rows of their own, or as students of the stolen model.

How large a model was can be read off its file: rounds, leaves, depth. The rest are the library's
defaults, and the learning rate where the model still knows it. Answers of the stolen model can be
mixed with those of the thief's own models.

A student learns of the mark only from questions whose answer the mark changed. There are few of
these, which is why no mark in a file survives a student that saw labels alone; see
docs/robustness.md. Students of a guarded model are trained through `Service`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from timbermark.attacks.stolen import Answer, NotOfferedError, Stolen, Thief, library_of
from timbermark.libraries.contract import ForeignModel, Task
from timbermark.marking.leaves import fill_missing
from timbermark.marking.mixing import mix_rows
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import inner_levels

_OTHER_TREES = 200
_ESTIMATORS: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "xgboost": ("xgboost.XGB", "n_estimators", "max_depth", "random_state", {"n_jobs": 1}),
    "lightgbm": (
        *("lightgbm.LGBM", "n_estimators", "num_leaves", "random_state"),
        {"n_jobs": 1, "verbose": -1, "deterministic": True},
    ),
    "catboost": (
        *("catboost.CatBoost", "iterations", "depth", "random_seed"),
        {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
    ),
    "histogram_boosting": (
        *("sklearn.ensemble.HistGradientBoosting", "max_iter", "max_leaf_nodes", "random_state"),
        {"early_stopping": False},
    ),
    "gradient_boosting": (
        *("sklearn.ensemble.GradientBoosting", "n_estimators", "max_depth", "random_state"),
        {},
    ),
    "timbermark": (
        *("timbermark.estimator.Timber", "max_iter", "max_leaf_nodes", "random_state"),
        {"keep_state": False},
    ),
}
"""Where the estimators of each library are, what it calls rounds, the size of trees and the seed,
and what else they are told."""
_DEEPEST = {"catboost": 16}
_LEAST_SHARE = 0.02
"""Classes below this probability are left out of a question's soft label."""


def average_with_own(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Average answers with the thief's model of the same kind, which weighs ``share``.

    Needs: answers (scores), rows, labels; the file only to train a model of its kind.
    """
    return _average(stolen, own_model(stolen, thief), share)


def average_with_other(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Average answers with the thief's extremely randomized trees, which weigh ``share``.

    Needs: answers (scores), rows, labels.
    """
    return _average(stolen, other_model(stolen, thief), share)


def majority(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Take the majority of three labels: the stolen model's and those of two models of the thief.

    Needs: answers (labels), rows, labels. Where all three differ, the stolen model decides; its
    vote counts ``strength`` times that of the others. Of numbers it is the median of three.
    """
    others = [own_model(stolen, thief), other_model(stolen, thief)]

    def answer(X: np.ndarray) -> np.ndarray:
        if stolen.task != "classification":
            found = [model.answer(X) for model in (stolen, *others)]
            return np.asarray(np.median(found, axis=0))
        votes = strength * 1.01 * _votes(stolen.answer(X))
        for other in others:
            votes = votes + _votes(other.answer(X))
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    return stolen.served(answer)


def distil_labels(stolen: Stolen, thief: Thief, questions: float) -> Stolen:
    """Train a model of the same kind on the stolen one's labels of the thief's rows.

    Needs: answers (labels), rows. ``questions`` per row of the thief's: those above 1 are mixtures
    of rows.
    """
    if stolen.task != "classification":
        raise NotOfferedError("labels-only")
    X = _questions(thief, questions)
    label = stolen.answer(X).argmax(axis=1)
    return train_like(_kind(stolen, thief), X, label, thief.seed)


def distil_scores(stolen: Stolen, thief: Thief, questions: float) -> Stolen:
    """Train a model of the same kind on the stolen one's probabilities, or on its numbers.

    Needs: answers (scores), rows. Each question is learnt with every likely label, weighted by its
    probability.
    """
    X = _questions(thief, questions)
    return _train_on_answers(stolen, thief, X, stolen.answer(X))


def distil_with_labels(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train on answers in which the true ones weigh a ``share``.

    Needs: answers (scores), rows, labels.
    """
    truth = thief.target[:, None].astype(np.float64)
    found = stolen.answer(thief.X)
    if stolen.task == "classification":
        truth = np.eye(len(stolen.classes))[thief.target]
    elif stolen.task == "ranking":
        truth = _rescale(truth, truth, found)
    return _train_on_answers(stolen, thief, thief.X, (1.0 - share) * found + share * truth)


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """A guarded model as thieves ask it; it remembers the names under which it was asked."""

    ask: Callable[[np.ndarray, str], np.ndarray]
    client: str
    clients: list[str] = field(default_factory=list)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return answers to rows, as `Stolen.answer` does."""
        self.clients.append(self.client)
        return self.ask(X, self.client)


def learn(kind: str) -> Callable[[Stolen, Thief, float], Stolen]:
    """Return the attack that trains a student on labels of the thief's rows, or on numbers.

    Needs: answers (labels), rows. ``kind``: "forest", whose strength is the rows a leaf; "small",
    rounds of trees with eight leaves; "early", the share that is held out to stop by.
    """
    return lambda stolen, thief, how: _learn(
        stolen, thief, thief.X, stolen.answer(thief.X), kind, how
    )


def learn_scores(stolen: Stolen, thief: Thief, leaf: float) -> Stolen:
    """Train a forest on scores of the thief's rows, with ``leaf`` rows a leaf at least.

    Needs: answers (scores), rows.
    """
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(min_samples_leaf=int(leaf), random_state=thief.seed)
    found = stolen.answer(thief.X)
    forest.fit(fill_missing(thief.X), found if found.shape[1] > 1 else found[:, 0])
    return stolen.served(
        lambda X: forest.predict(fill_missing(X)).reshape(len(X), -1).astype(np.float64)
    )


def drop_unsure(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train on labels without the ``share`` of answers whose two best scores are nearest.

    Needs: answers (scores), rows.
    """
    found = stolen.answer(thief.X)
    return _learn_sure(stolen, thief, found, found, share)


def ask_sure(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Ask for labels without the ``share`` of rows of which the thief's own model is least sure.

    Needs: answers (labels), rows, labels.
    """
    sureness = own_model(stolen, thief).answer(thief.X)
    return _learn_sure(stolen, thief, None, sureness, share)


def average_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Ask each row nine times with noise of ``size`` deviations and train on the mean answer.

    Needs: answers (scores), rows.
    """
    rng, scale = thief.rng("noise"), size * np.nanstd(thief.X, axis=0)
    asked = [stolen.answer(thief.X + scale * rng.normal(size=thief.X.shape)) for _ in range(9)]
    return _learn(stolen, thief, thief.X, np.mean(asked, axis=0), "like", 0)


def pool_clients(stolen: Stolen, thief: Thief, count: float) -> Stolen:
    """Ask under ``count`` names, each a part of the rows, and train on all labels, or numbers."""
    service = stolen.answer
    assert isinstance(service, Service)
    parts = np.array_split(np.arange(len(thief.X)), int(count))
    asked = [
        replace(service, client=f"{service.client} ({number})")(thief.X[part])
        for number, part in enumerate(parts)
    ]
    return _learn(stolen, thief, thief.X, np.concatenate(asked), "like", 0)


def _learn_sure(
    stolen: Stolen, thief: Thief, found: np.ndarray | None, sureness: np.ndarray, share: float
) -> Stolen:
    """Train on the labels of the rows that are surest; asks for answers that are not ``found``."""
    if stolen.task != "classification":
        raise NotOfferedError("no-sureness")
    best = np.sort(sureness, axis=1)
    gap = best[:, -1] - best[:, -2]
    sure = gap >= np.quantile(gap, share)
    answers = stolen.answer(thief.X[sure]) if found is None else found[sure]
    return _learn(stolen, thief, thief.X[sure], answers, "like", 0)


def _learn(
    stolen: Stolen, thief: Thief, X: np.ndarray, answers: np.ndarray, kind: str, how: float
) -> Stolen:
    """Return a student of labels, or of numbers, of a ``kind``.

    "like": that of the stolen model; others are those of `learn`.
    """
    from sklearn import ensemble

    classes = stolen.task == "classification"
    target = answers.argmax(axis=1) if classes else answers[:, 0]
    if kind == "like":
        return train_like(_kind(stolen, thief), X, target, thief.seed)
    name = "RandomForest" if kind == "forest" else "HistGradientBoosting"
    known: dict[str, dict[str, Any]] = {
        "forest": {"min_samples_leaf": int(how)},
        "small": {"max_iter": int(how), "max_leaf_nodes": 8, "early_stopping": False},
        "early": {"early_stopping": True, "validation_fraction": how},
    }
    model = getattr(ensemble, f"{name}{'Classifier' if classes else 'Regressor'}")(
        random_state=thief.seed, **known[kind]
    )
    return _fit(model, X, target, stolen, prepare=fill_missing)


def own_model(stolen: Stolen, thief: Thief) -> Stolen:
    """Return the thief's own model of the stolen one's kind; it is trained once.

    Needs: rows, labels.
    """

    def train() -> Stolen:
        made = train_like(
            _kind(stolen, thief), thief.X, thief.target, thief.seed, groups=thief.groups
        )
        return _on_scale(made, stolen, thief)

    own: Stolen = thief.once("own", train)
    return own


def other_model(stolen: Stolen, thief: Thief) -> Stolen:
    """Return the thief's own model of another kind, extremely randomized trees.

    Needs: rows, labels.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    def train() -> Stolen:
        numbers = stolen.task != "classification"
        forest = (ExtraTreesRegressor if numbers else ExtraTreesClassifier)(
            _OTHER_TREES, min_samples_leaf=2, random_state=thief.seed, n_jobs=1
        )
        made = _fit(forest, thief.X, thief.target, stolen, prepare=fill_missing)
        return _on_scale(made, stolen, thief)

    other: Stolen = thief.once("other", train)
    return other


def train_like(
    foreign: ForeignModel,
    X: np.ndarray,
    target: np.ndarray,
    seed: int,
    weight: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> Stolen:
    """Return a model of the same library, as large as a stolen one, trained on other rows.

    ``target``: class numbers of the stolen model, int64 [n], or numbers; classes without a row have
    the probability 0. ``weight`` float64 [n]: how much each row counts. ``groups``: the lists of a
    ranker; without them it is a regressor that is trained.
    """
    numbers = foreign.task != "classification" and groups is None
    learns: Task = "regression" if numbers else foreign.task
    return _fit(new_like(foreign, seed, learns), X, target, foreign, weight, groups)


def new_like(foreign: ForeignModel, seed: int, task: Task | None = None) -> Any:
    """Return an untrained estimator of a model's library that grows as large as the model is.

    ``task``: what it learns, if not what the model did.

    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> from timbermark.marking.models import open_model
    >>> model = TimberClassifier(max_iter=7, random_state=0).fit(*load_iris(return_X_y=True))
    >>> new_like(open_model(model), seed=0).max_iter
    7
    """
    e, library = foreign.ensemble, library_of(foreign)
    place, rounds, size, random, options = _ESTIMATORS[library]
    module, _, name = place.rpartition(".")
    task = task or foreign.task
    name += {"classification": "Classifier", "regression": "Regressor", "ranking": "Ranker"}[task]
    depth = min(max(len(inner_levels(e)), 1), _DEEPEST.get(library, 1 << 30))
    grown = depth if "depth" in size else max(_most_leaves(e), 2)
    known = {rounds: n_rounds(e), size: grown, random: seed, **options}
    rate = getattr(foreign.native, "learning_rate", None)
    if isinstance(rate, int | float):
        known["learning_rate"] = float(rate)
    # Numbers are learnt with the model's own loss, unless they are a ranker's scores.
    if task == foreign.task != "classification":
        known |= _own_loss(foreign, library)
    return getattr(import_module(module), name)(**known)


def _own_loss(foreign: ForeignModel, library: str) -> dict[str, Any]:
    native = foreign.native
    match library:
        case "xgboost":
            return {"objective": foreign.extra.outline.objective}
        case "lightgbm":
            return {"objective": foreign.extra.frame.objective}
        case "catboost":
            return {"loss_function": native.get_all_params()["loss_function"]}
        case "timbermark":
            return {}
        case _:
            names = ("loss", "quantile", "alpha")
            return {name: getattr(native, name) for name in names if hasattr(native, name)}


def n_rounds(ensemble: Ensemble) -> int:
    """Return how many rounds of boosting an ensemble has."""
    per_round = 1 if (ensemble.tree_output < 0).any() else ensemble.n_outputs
    return max(ensemble.n_trees // per_round, 1)


def fit_quietly(model: Any, X: Any, y: Any, groups: np.ndarray | None, **options: Any) -> Any:
    """Fit an estimator of any library, with ``groups`` (ascending) as that library names them."""
    library = type(model).__module__.partition(".")[0]
    if groups is not None:
        named = {"xgboost": ("qid", groups), "lightgbm": ("group", group_sizes(groups))}
        name, given = named.get(library, ("group_id", groups))
        options[name] = given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, **options)


def group_sizes(groups: np.ndarray | None) -> np.ndarray | None:
    """Return how many rows each group has, as LightGBM wants groups (ascending); None for none."""
    return None if groups is None else np.unique(groups, return_counts=True)[1]


def inner_booster(native: Any) -> Any:
    """Return the booster that a model of XGBoost or LightGBM is, or that is inside it."""
    if type(native).__name__ == "Booster":
        return native
    return native.booster_ if hasattr(native, "booster_") else native.get_booster()


def with_booster(native: Any, made: Any) -> Any:
    """Return a model of XGBoost or LightGBM around another booster."""
    whole = inner_booster(native)
    return made if whole is native else copy.deepcopy(native, {id(whole): made})


def _kind(stolen: Stolen, thief: Thief) -> ForeignModel:
    """Return the file that was stolen first, which tells how large the thief's models are."""
    kind: ForeignModel = thief.once("kind", stolen.trees)
    return kind


def _most_leaves(e: Ensemble) -> int:
    return int(np.add.reduceat((e.left < 0).astype(np.int64), e.tree_start[:-1]).max())


def _fit(
    model: Any,
    X: np.ndarray,
    target: np.ndarray,
    like: Stolen | ForeignModel,
    weight: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    prepare: Answer = lambda rows: rows,
) -> Stolen:
    """Return a model that was fitted to class numbers or numbers, which answers as ``like`` does.

    ``prepare``: of the rows that it is fitted to and asked.
    """
    labels, classes = like.task == "classification", like.classes
    seen = np.unique(target) if labels else np.empty(0, np.int64)
    if labels and len(seen) < 2:
        share = np.isin(np.arange(len(classes)), seen).astype(np.float64)
        return Stolen(classes, lambda rows: np.tile(share, (len(rows), 1)))
    if labels:
        fit_quietly(model, prepare(X), np.searchsorted(seen, target), None, sample_weight=weight)
    else:
        fit_quietly(model, prepare(X), target, groups)

    def answer(rows: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not labels:
                return np.asarray(model.predict(prepare(rows)), np.float64).reshape(-1, 1)
            found = np.zeros((len(rows), len(classes)))
            found[:, seen] = model.predict_proba(prepare(rows))
            return found

    return Stolen(classes, answer, task=like.task)


def _on_scale(own: Stolen, stolen: Stolen, thief: Thief) -> Stolen:
    """Return the thief's ranker with scores that can be mixed with the stolen model's."""
    if stolen.task != "ranking":
        return own
    mine, theirs = own.answer(thief.X), stolen.answer(thief.X)
    return own.served(lambda X: _rescale(own.answer(X), mine, theirs))


def _rescale(found: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return numbers moved and stretched as it takes ``mine`` to the mean and spread of others."""
    stretch = float(theirs.std()) / (float(mine.std()) or 1.0)
    return np.asarray(theirs.mean() + stretch * (found - mine.mean()))


def _votes(scores: np.ndarray) -> np.ndarray:
    votes = np.zeros(scores.shape)
    votes[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
    return votes


def _average(stolen: Stolen, own: Stolen, share: float) -> Stolen:
    def answer(X: np.ndarray) -> np.ndarray:
        return (1.0 - share) * stolen.answer(X) + share * own.answer(X)

    return stolen.served(answer)


def _questions(thief: Thief, per_row: float) -> np.ndarray:
    more = int((per_row - 1.0) * len(thief.X))
    if more <= 0:
        return thief.X
    return np.concatenate([thief.X, mix_rows(thief.X, more, thief.rng("questions")).X])


def _train_on_answers(stolen: Stolen, thief: Thief, X: np.ndarray, found: np.ndarray) -> Stolen:
    kind = _kind(stolen, thief)
    if stolen.task != "classification":
        return train_like(kind, X, found[:, 0], thief.seed)
    row, label = np.nonzero(found >= _LEAST_SHARE)
    return train_like(kind, X[row], label, thief.seed, found[row, label])
