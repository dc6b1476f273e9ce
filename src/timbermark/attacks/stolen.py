"""A stolen model, and the thief who has it: what every attack takes and gives back."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.errors import TimbermarkError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel, Task
from timbermark.marking.models import close_model, open_model
from timbermark.marking.preparing import columns
from timbermark.marking.tallies import group_ndcg, grouped
from timbermark.trees.ensemble import Ensemble

Answer = Callable[[np.ndarray], np.ndarray]
MEASURES: dict[Task, str] = {"classification": "accuracy", "regression": "rmse", "ranking": "ndcg"}
"""What the worth of a model is measured by; of these, a lower RMSE is better."""
REASONS = {
    "no-file": "it needs one model file, and what is attacked is not one",
    "no-thresholds": "all splits are of categories, which have no threshold",
    "no-grid": "no column of the thief's rows lies on a grid",
    "labels-only": "it is an attack on labels, and the model answers with numbers",
    "no-sureness": "numbers do not say how sure a model is of them",
    "no-rank-boosting": "scores of a ranker are no start for training a regressor",
    "no-refit": "only LightGBM and XGBoost refit leaves themselves",
    "refit-refused": "the library does not refit this model",
    "not-ours": "only timbermark's own models are updated in place",
    "no-continued-training": "timbermark's own models do not train on; update-leaves and "
    "boost-answers do the same",
    "missing-classes": "libraries train on only with rows of every class",
    "one-class": "the thief's rows are all of one class",
    "missing-values": "scikit-learn's GradientBoosting takes no missing values",
    "no-mark-fits": "no mark of the thief's own fits within a limit three times the owner's",
    "too-few-rows": "marking needs more rows than the thief has",
}
"""Why an attack was not run, by code."""
_ROWS_AT_ONCE = 20_000
_HELD = 2
"""The number of tables whose routes are remembered."""


class NotOfferedError(TimbermarkError):
    """An attack that cannot be made on this model; ``code`` is one of `REASONS`.

    >>> NotOfferedError("one-class").message
    "the thief's rows are all of one class"
    """

    def __init__(self, code: str) -> None:
        super().__init__(REASONS[code])
        self.code = code


@dataclass(frozen=True, slots=True, eq=False)
class Stolen:
    """A model in a thief's hands.

    ``answer``: rows float64 [n, d], as the model takes them, → probabilities float64 [n, K] in the
    order of ``classes``, or numbers [n, 1] for the other tasks, which have no classes. ``foreign``:
    its file, None where what answers is no longer one model, such as the average of two.
    ``edited``: trees with other leaf values or thresholds that were put into it; the library is
    given them only when an attack needs its own interface.
    """

    classes: np.ndarray
    answer: Answer
    foreign: ForeignModel | None = None
    edited: Ensemble | None = None
    task: Task = "classification"

    def trees(self) -> ForeignModel:
        """Return the model with its trees as they are now; all else is as it was stolen.

        Raises NotOfferedError where there is no file.
        """
        if self.foreign is None:
            raise NotOfferedError("no-file")
        if self.edited is None:
            return self.foreign
        return replace(self.foreign, ensemble=self.edited)

    def file(self) -> ForeignModel:
        """Return the model as its library has it, statistics of splits included.

        Raises NotOfferedError where there is no file.
        """
        now = self.trees()
        if self.edited is None or self.foreign is None:
            return now
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_model(close_model(self.foreign, now.ensemble))

    def served(self, answer: Answer) -> Stolen:
        """Return a service that answers in this model's place: no file is left to edit."""
        return Stolen(self.classes, answer, task=self.task)

    def put(self, value: np.ndarray) -> Stolen:
        """Return the model with other leaf values, [N, 1 or K] as in its ensemble."""
        now = self.trees()
        e = now.ensemble
        changed = (e.left[:, None] < 0) & (value != e.value)
        rounded = value.astype(now.leaf_dtype).astype(np.float64)
        new = replace(e, value=np.where(changed, rounded, e.value))
        assert isinstance(self.answer, _TreeAnswers)  # what has a file answers with its trees
        answer = _TreeAnswers(now, self.answer.router.around(new), self.answer.known)
        return replace(self, answer=answer, edited=new)

    def put_thresholds(self, threshold: np.ndarray) -> Stolen:
        """Return the model with other thresholds, float64 [N] as in its ensemble.

        Those that the library cannot move stay.
        """
        now = self.trees()
        new = replace(
            now.ensemble, threshold=np.where(now.movable, threshold, now.ensemble.threshold)
        )
        return replace(self, answer=_TreeAnswers(now, Router(new), _Known()), edited=new)


def steal(model: Any) -> Stolen:
    """Return a fitted model, a model file's path or an opened model as stolen.

    Raises InputError or FileFormatError for what is not a supported model.

    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> stolen = steal(TimberClassifier(max_iter=5, random_state=0).fit(X, y))
    >>> stolen.answer(X[:2]).shape
    (2, 3)
    """
    foreign = open_model(model)
    answer = _TreeAnswers(foreign, Router(foreign.ensemble), _Known())
    return Stolen(foreign.classes, answer, foreign, task=foreign.task)


def library_of(foreign: ForeignModel) -> str:
    """Return which library's interface a model has: its name in `timbermark.libraries`, or ours.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> library_of(open_model(GradientBoostingClassifier().fit([[0.0], [1.0]], [0, 1])))
    'gradient_boosting'
    """
    module = str(getattr(foreign.adapter, "__name__", "timbermark"))
    return module.removeprefix("timbermark.libraries.").partition(".")[0]


class _Known:
    """Where rows that are asked again and again end; edits of leaves do not change that."""

    def __init__(self) -> None:
        self._held: list[tuple[np.ndarray, Routes]] = []

    def route(self, foreign: ForeignModel, router: Router, X: np.ndarray) -> Routes:
        for rows, routes in self._held:
            if rows is X:
                return routes
        with Workers(count_threads(None)) as workers:
            routes = router.route(columns(foreign, X), workers)
        if len(X) <= _ROWS_AT_ONCE:
            self._held = [*self._held, (X, routes)][-_HELD:]
        return routes


@dataclass(frozen=True, slots=True, eq=False)
class _TreeAnswers:
    """The answers of trees, by their own margins in float64."""

    foreign: ForeignModel
    router: Router
    known: _Known

    def __call__(self, X: np.ndarray) -> np.ndarray:
        parts = []
        for first in range(0, len(X), _ROWS_AT_ONCE):
            rows = X if len(X) <= _ROWS_AT_ONCE else X[first : first + _ROWS_AT_ONCE]
            routes = self.known.route(self.foreign, self.router, rows)
            with Workers(count_threads(None)) as workers:
                parts.append(self.foreign.answers(self.router.margins(routes, workers)))
        width = max(len(self.foreign.classes), 1)
        return np.concatenate(parts) if parts else np.empty((0, width))


class Labelled(NamedTuple):
    """Rows and their true answers.

    ``X`` float64 [n, d] as the model takes them; ``target``: class numbers int64 [n], or numbers
    float64 [n]; ``groups`` int64 [n], ascending: the lists that a ranker's rows belong to.
    """

    X: np.ndarray
    target: np.ndarray
    groups: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Thief:
    """What a thief has beside the model: rows, true answers, and a seed for what is random.

    ``X``, ``target`` and ``groups`` are those of `Labelled`. ``keep``: what several attacks use and
    only one has to make, by name.
    """

    X: np.ndarray
    target: np.ndarray
    seed: int = 0
    keep: dict[str, Any] = field(default_factory=dict)
    groups: np.ndarray | None = None

    def rng(self, purpose: str) -> np.random.Generator:
        """Return random numbers that depend on the seed and the purpose alone.

        >>> thief = Thief(np.zeros((1, 1)), np.zeros(1, np.int64), seed=7)
        >>> thief.rng("noise").random() == thief.rng("noise").random()
        True
        """
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make`` gives, made when first asked for under this name."""
        if name not in self.keep:
            self.keep[name] = make()
        return self.keep[name]


def measure_worth(model: Stolen, tested: Labelled) -> float:
    """Return the accuracy of a classifier, the RMSE of a regressor, the NDCG of a ranker."""
    found = model.answer(tested.X)
    if model.task == "classification":
        return float((found.argmax(axis=1) == tested.target).mean())
    if model.task == "regression":
        return float(np.sqrt(np.mean((found[:, 0] - tested.target) ** 2)))
    groups = np.zeros(len(found)) if tested.groups is None else tested.groups
    lists = grouped(np.column_stack([tested.target, groups]))
    return float(np.mean(group_ndcg(found[:, 0], lists)))


@dataclass(frozen=True, slots=True, eq=False)
class LeafValues:
    """The leaves of a stolen model, and where the thief's rows end.

    ``value`` [K] of float64 [leaves]: what each leaf adds to an output's margin, as in
    `timbermark.editing.routing.Router`.
    """

    stolen: Stolen
    foreign: ForeignModel
    router: Router
    routes: Routes
    value: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, stolen: Stolen, X: np.ndarray) -> LeafValues:
        """Return the leaves of a stolen file. Raises NotOfferedError where there is none."""
        foreign = stolen.trees()
        assert isinstance(stolen.answer, _TreeAnswers)  # what has a file answers with its trees
        router = stolen.answer.router
        routes = stolen.answer.known.route(foreign, router, X)
        value = tuple(router.values(c) for c in range(foreign.ensemble.n_outputs))
        return cls(stolen, foreign, router, routes, value)

    def put(self, value: tuple[np.ndarray, ...] | list[np.ndarray]) -> Stolen:
        """Return the model, of the same library, with other leaf values."""
        e, router = self.foreign.ensemble, self.router
        new = e.value.copy()
        for c, wanted in enumerate(value):
            column = c if new.shape[1] > 1 else 0
            change = np.divide(
                wanted - self.value[c], router.factor[c], out=np.zeros(len(wanted)),
                where=router.factor[c] != 0.0,
            )  # fmt: skip
            new[router.nodes[c], column] += change
        return self.stolen.put(new)

    def given(self, c: int, t: int) -> np.ndarray:
        """Return what tree ``t`` of output ``c`` adds to the margins of the thief's rows, [n]."""
        first = int(self.router.first[c][t])
        return np.asarray(self.value[c][first + self.routes.leaf[c][t].astype(np.int64)])
