"""A stolen model, and the thief who has it: what every attack takes and gives back."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.errors import InputError, TimbermarkError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.models import close_model, open_model
from timbermark.marking.preparing import columns
from timbermark.trees.ensemble import Ensemble

Answer = Callable[[np.ndarray], np.ndarray]
_ROWS_AT_ONCE = 20_000
_HELD = 2
"""Of how many tables it is remembered where their rows end."""


class NotOfferedError(TimbermarkError):
    """An attack that a library does not offer for this model; the message is the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Stolen:
    """A model in a thief's hands.

    ``answer``: rows float64 [n, d], as the model takes them, → probabilities float64 [n, K] in the
    order of ``classes``. ``foreign``: its file, None where what answers is no longer one model,
    such as the average of two. ``leaves``: leaf values that were put into it, [N, 1 or K]; the
    library is given them only when an attack needs its own interface.
    """

    classes: np.ndarray
    answer: Answer
    foreign: ForeignModel | None = None
    leaves: np.ndarray | None = None

    def trees(self) -> ForeignModel:
        """Return the model with its trees as they are now; all else is as it was stolen.

        Raises NotOfferedError where there is no file.
        """
        if self.foreign is None:
            raise NotOfferedError("needs one model file, and what is attacked is not one.")
        if self.leaves is None:
            return self.foreign
        return replace(self.foreign, ensemble=replace(self.foreign.ensemble, value=self.leaves))

    def file(self) -> ForeignModel:
        """Return the model as its library has it, statistics of splits included.

        Raises NotOfferedError where there is no file.
        """
        now = self.trees()
        if self.leaves is None or self.foreign is None:
            return now
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return open_model(close_model(self.foreign, now.ensemble))

    def served(self, answer: Answer) -> Stolen:
        """Return a service that answers in this model's place: no file is left to edit."""
        return Stolen(self.classes, answer)

    def put(self, value: np.ndarray) -> Stolen:
        """Return the model with other leaf values, [N, 1 or K] as in its ensemble."""
        now = self.trees()
        e = now.ensemble
        changed = (e.left[:, None] < 0) & (value != e.value)
        rounded = value.astype(now.leaf_dtype).astype(np.float64)
        new = np.where(changed, rounded, e.value)
        assert isinstance(self.answer, _TreeAnswers)  # what has a file answers with its trees
        router = self.answer.router.around(replace(e, value=new))
        answer = _TreeAnswers(now, router, self.answer.known)
        return Stolen(self.classes, answer, self.foreign, new)


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
    refuse_numbers(foreign)
    answer = _TreeAnswers(foreign, Router(foreign.ensemble), _Known())
    return Stolen(foreign.classes, answer, foreign)


def refuse_numbers(foreign: ForeignModel) -> None:
    """Raise InputError for a model that answers with numbers: the attacks here are on labels.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> refuse_numbers(open_model(GradientBoostingClassifier().fit([[0.0], [1.0]], [0, 1])))
    """
    if foreign.task != "classification":
        raise InputError(
            f"{foreign.kind} is a model of {foreign.task}; attacks are simulated on classifiers.",
            hint="docs/marking.md has what marks of regressors survive.",
        )


def library_of(foreign: ForeignModel) -> str:
    """Return which library's interface a model has: a module of `timbermark.libraries`, or ours.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> library_of(open_model(GradientBoostingClassifier().fit([[0.0], [1.0]], [0, 1])))
    'gradient_boosting'
    """
    return str(getattr(foreign.adapter, "__name__", "timbermark")).rpartition(".")[2]


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
                parts.append(self.foreign.confidence(self.router.margins(routes, workers)))
        return np.concatenate(parts) if parts else np.empty((0, len(self.foreign.classes)))


def serve_trees(stolen: Stolen, ensemble: Ensemble) -> Stolen:
    """Return a service of other trees than the library could be given back."""
    foreign = stolen.trees()
    return stolen.served(_TreeAnswers(foreign, Router(ensemble), _Known()))


@dataclass(frozen=True, slots=True, eq=False)
class Thief:
    """What a thief has beside the model: rows, their labels, and a seed for what is random.

    ``X`` float64 [n, d] as the model takes them; ``label`` int64 [n]: class numbers. ``keep``: what
    several attacks use and only one has to make, by name.
    """

    X: np.ndarray
    label: np.ndarray
    seed: int = 0
    keep: dict[str, Any] = field(default_factory=dict)

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
