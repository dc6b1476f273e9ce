"""The guard as an estimator that draws a few answers by its key, and what that costs.

The cost is known before it serves: points, AUC, mean scores, and what a copy would show.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import FileFormatError, InputError
from timbermark.files.encrypting import save_sealed, seal, unseal, warn_if_readable
from timbermark.guard import drawing
from timbermark.guard.drawing import Drawer, Drawn, Settings
from timbermark.guard.ledger import Ledger
from timbermark.guard.ledger_file import clean_client, list_clients, read_questions
from timbermark.libraries.wrappers import asked_model
from timbermark.marking import embedding
from timbermark.marking.embedding import Plan
from timbermark.marking.models import open_model
from timbermark.ownership.encoding import check_name
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.reportable import Reportable
from timbermark.trees.ensemble import digest as digest_trees

MOST_SHARE = 0.25
LEADS = tuple(percent / 100 for percent in range(45, 4, -1))
"""The leads that are tried, strongest first."""
MOST_AUC, MOST_MEAN, USUAL_SHARE, USUAL_ROWS = 0.00045, 0.01, 0.01, 4000
"""What "auto" may cost at a share of 0.01: AUC, and two standard deviations of a class's mean score
over so many rows, relative to it. Whoever draws more answers pays in proportion.
benchmarks/guard.py holds it to 0.0005 and 1 % on unseen rows."""
_MOVE = 0.1


@dataclass(frozen=True, slots=True)
class GuardCost(Reportable):
    """What a guard changes on some rows.

    ``points``: percentage points of accuracy, or percent of the mean absolute error, that are
    lost; expected by the model's own scores where there are no labels, None for numbers without
    answers. ``auc``: how much the area under the ROC curve falls, the mean over classes;
    ``mean_score``: the largest relative change of a class's mean score, or of the mean number.
    ``bits_per_thousand``: distinct cells drawn in a thousand questions, each worth up to a bit.
    """

    rows: int
    drawn: float  # the share of rows
    points: float | None
    auc: float | None
    mean_score: float
    bits_per_thousand: float
    lead: float
    move: float

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{100 * self.drawn:.2f} % of {self.rows} answers are drawn"]
        if self.points is not None:
            parts.append(f"costs {self.points:.2f} points")
        if self.auc is not None:
            parts.append(f"{self.auc:.5f} AUC")
        parts.append(f"mean scores change by up to {100 * self.mean_score:.2f} %")
        parts.append(f"a thousand questions are worth up to {self.bits_per_thousand:.1f} bits")
        return "; ".join(parts)


def plan(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    guard: bool = False,
    share: float = 0.01,
    **choices: Any,
) -> Plan | GuardCost:
    """Return what a mark would be and cost, by marking trees that are then thrown away.

    With ``guard=True`` it is what a guard would cost that draws a ``share`` of the answers, on rows
    ``X`` such as the model is asked, best unseen ones; ``y`` are their labels or numbers. All other
    arguments are those of :func:`timbermark.embed`.

    Raises InputError where no mark or guard fits.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import TimberClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=60, random_state=0).fit(X, y)
    >>> plan(model, X, y).bits > 64
    True
    >>> plan(model, X, y, guard=True, share=0.05).drawn < 0.1
    True
    """
    if not guard:
        return embedding.plan(model, X, y, **choices)
    if choices:
        raise InputError(
            f"{next(iter(choices))} is not for a guard.",
            hint="leave it out.",
            code="guard.option",
            parameter=next(iter(choices)),
        )
    from timbermark.ownership.keys import OwnerKey

    key = OwnerKey(bytes(32))  # the cost hardly depends on it, and a plan is repeatable
    return Guard(model, X, key=key, owner="plan", share=share, ledger=None, y=y).cost(X, y)


def settle(
    answers: AnyArray,
    share: float,
    lead: float | str,
    move: float | str,
    drawer: Drawer,
    X: Any,
    y: AnyArray | None,
) -> Settings:
    """Return what a guard draws, by the model's answers to the owner's rows.

    Raises InputError if the share, the lead or the move is out of bounds.
    """
    _check("share", share, MOST_SHARE, "0.01 draws one answer in a hundred.")
    if not len(answers):
        raise InputError(
            "A guard needs rows such as the model is asked.",
            hint="give some thousands.",
            code="guard.rows",
            parameter="X",
        )
    if answers.ndim == 1:
        if move == "auto":
            spread = np.std(answers) * _MOVE if y is None else np.abs(answers - y).mean()
            move = float(spread) or 1.0
        _check("move", move, np.inf, "a part of the model's error is a good start.")
        return Settings(float(share), 0.0, 0.0, float(move))
    width = drawing.choose_width(answers, share)
    if lead != "auto":
        _check("lead", lead, 0.5, "0.2 is a good start.")
        return Settings(float(share), width, float(lead), 0.0)
    return _strongest(
        np.asarray(answers, np.float64), Settings(float(share), width, 0.0, 0.0), drawer, X
    )


def _strongest(scores: Reals, settings: Settings, drawer: Drawer, X: Any) -> Settings:
    """Return the settings with the strongest lead that costs little, else the weakest lead."""
    drawn = drawer.draw_scores(X, scores, settings)
    found = replace(settings, lead=LEADS[-1])
    if drawn is None:
        return found
    known = _shares(scores)
    before, means = mean_auc(scores, known), np.maximum(scores.mean(axis=0), 1e-12)
    each = np.arange(len(drawn.rows))[:, np.newaxis]
    both = drawn.reference[each, drawn.alphabets].sum(axis=1)
    squares = np.zeros(scores.shape[1])
    np.add.at(squares, drawn.alphabets, (both**2)[:, np.newaxis])
    other = replace(drawn, symbols=1 - drawn.symbols)
    more = settings.share / USUAL_SHARE
    # The mean of few rows swings more, whatever the guard does.
    rows = len(scores) * np.sqrt(max(1.0, USUAL_ROWS / len(scores)) * more)

    def cost(lead: float) -> float:
        # Half the cost of this draw and half that of the opposite one: the key shall not matter.
        after = [
            mean_auc(drawing.guarded_scores(scores, one, lead), known) for one in (drawn, other)
        ]
        return before - sum(after) / 2.0

    # Where exchanging labels alone costs more than that, a lead that adds little to it is free.
    most = max(MOST_AUC * more, 1.05 * cost(LEADS[-1]))
    for lead in LEADS:
        swing = 2.0 * lead * float((np.sqrt(squares) / rows / means).max())
        if swing <= MOST_MEAN and cost(lead) <= most:
            return replace(found, lead=lead)
    return found


def _check(name: str, value: Any, most: float, hint: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < value <= most:
        raise InputError(
            f"{name}={value!r:.40} is not from above 0 to {most:g}.",
            hint=hint,
            code=f"guard.{name}",
            parameter=name,
        )


def measure(
    answers: AnyArray,
    X: Any,
    y: Any,
    drawer: Drawer,
    settings: Settings,
    classes: AnyArray | None,
) -> GuardCost:
    """Return what a guard changes in a model's answers to rows; see `GuardCost`."""
    n = len(answers)
    draw = drawer.draw_numbers if classes is None else drawer.draw_scores
    drawn = draw(X, answers, settings)
    count = 0 if drawn is None else len(drawn.rows)
    cells = 0 if drawn is None else len(set(drawn.cells))
    points: float | None = None
    auc: float | None = None
    if classes is None:
        after = answers if drawn is None else drawing.guarded_numbers(answers, drawn)
        scale = float(np.abs(answers).mean()) or 1.0
        mean = abs(float(after.mean() - answers.mean())) / scale
        if y is not None:
            errors = [np.abs(np.asarray(y, np.float64) - one).mean() for one in (answers, after)]
            points = 100.0 * float(errors[1] - errors[0]) / max(float(errors[0]), 1e-300)
    else:
        before = np.asarray(answers, np.float64)
        after = before if drawn is None else drawing.guarded_scores(before, drawn, settings.lead)
        known = _shares(before) if y is None else _one_hot(y, classes)
        right = [known[np.arange(n), one.argmax(axis=1)].mean() for one in (before, after)]
        points = 100.0 * float(right[0] - right[1])
        auc = mean_auc(before, known) - mean_auc(after, known)
        means = before.mean(axis=0)
        mean = float((np.abs(after.mean(axis=0) - means) / np.maximum(means, 1e-12)).max())
    return GuardCost(
        rows=n, drawn=count / n, points=points, auc=auc, mean_score=mean,
        bits_per_thousand=1000.0 * cells / n, lead=settings.lead, move=settings.move,
    )  # fmt: skip


def _shares(scores: Reals) -> Reals:
    total = scores.sum(axis=1, keepdims=True)
    return np.asarray(scores / np.where(total > 0, total, 1.0))


def _one_hot(y: Any, classes: AnyArray) -> Reals:
    labels = np.asarray(y).reshape(-1)
    return np.asarray(labels[:, np.newaxis] == np.asarray(classes)[np.newaxis], np.float64)


def mean_auc(scores: Reals, known: Reals) -> float:
    """Return the area under the ROC curve, the mean over classes, each against the others.

    ``known`` [n, K] says how likely each row is of each class: 0 or 1 if that is known.

    >>> mean_auc(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    1.0
    """
    found = []
    for column in range(1, 2) if scores.shape[1] == 2 else range(scores.shape[1]):
        values, place = np.unique(scores[:, column], return_inverse=True)
        inside = np.bincount(place, known[:, column], len(values))
        outside = np.bincount(place, 1.0 - known[:, column], len(values))
        if inside.sum() > 0 and outside.sum() > 0:
            below = np.cumsum(outside) - 0.5 * outside
            found.append(float((inside * below).sum() / inside.sum() / outside.sum()))
    return float(np.mean(found)) if found else 1.0


KIND = "guard"
FORMAT_VERSION = 1
SHARE = 0.01
_LOG = logging.getLogger("timbermark.guard")
_MOST_ROWS = 20_000
_PARTS = {"statement", "secret", "by_scores"}


class Guard(BaseEstimator):
    """A model behind a guard: whoever trains on its answers carries proof home.

    ``model`` is any model that timbermark opens, or its file; ``X`` rows such as it will be asked,
    best not those it was trained on; ``key`` your owner key, ``owner`` your name; ``share`` the
    part of answers that are drawn; ``ledger`` the file that keeps drawn questions, None keeps
    none. ``lead`` says how far a drawn label is ahead (0 to 0.5), ``move`` how far a drawn number
    is moved; "auto" takes as much as hardly changes rankings and means. ``y`` are the numbers of
    the rows, for the scale of ``move``.

    ``predict`` and ``predict_proba`` take the name of the client who asks. All answers but the
    drawn ones are those of the model, bit for bit; whatever happens to the guard, the model's own
    answer is given. A guard is fitted already, and its clone is itself.

    Raises InputError for a model with one class, a share out of bounds, or a ledger that belongs
    to another guard.

    >>> import tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    >>> from timbermark import verify
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X[:200], y[:200])
    >>> folder = tempfile.TemporaryDirectory()
    >>> guard = Guard(
    ...     model, X[200:], key=OwnerKey.generate(), owner="Ann Ltd", share=0.2,
    ...     ledger=folder.name + "/guard.db",
    ... )
    >>> answers = guard.predict(X[200:], client="acme")
    >>> student = RandomForestClassifier(random_state=0).fit(X[200:], answers)
    >>> mark = guard.mark(client="acme")
    >>> verify(student, mark).bits > verify(model, mark).bits + 20
    True
    >>> guard.close()
    >>> folder.cleanup()
    """

    _rows: Any  # that other models learn from
    _by_scores: bool

    def __init__(
        self,
        model: Any,
        X: Any,
        *,
        key: OwnerKey,
        owner: str,
        share: float = SHARE,
        ledger: str | os.PathLike[str] | None = "guard.db",
        lead: float | str = "auto",
        move: float | str = "auto",
        y: Any = None,
    ) -> None:
        if not isinstance(key, OwnerKey):
            raise InputError(
                "A guard needs your owner key.",
                hint="key=timbermark.OwnerKey.load(path).",
                code="guard.key",
                parameter="key",
            )
        check_name(owner, "owner")
        self.model, self.X, self.owner = model, X, owner
        self.key: OwnerKey | None = key
        self.share, self.ledger, self.lead, self.move, self.y = share, ledger, lead, move, y
        self._open(model)
        guard_id = _guard_id(self._foreign, owner)
        secret = key.mark_secret(guard_id)
        self._drawer = Drawer(self._foreign, secret)
        rows = drawing.take_rows(X, np.arange(min(_count(X), _MOST_ROWS)))
        numbers = None if y is None else np.asarray(y)[: _count(rows)]
        settings = settle(self._answer(rows), share, lead, move, self._drawer, rows, numbers)
        self._start(
            {
                "owner": owner,
                "claim_key": key.claim_key.hex(),
                "guard": guard_id.hex(),
                "secret": hashlib.sha256(secret).hexdigest(),
                "model": digest_trees(self._foreign.ensemble),
                "classes": None if self._classes is None else self._classes.tolist(),
                "names": None if self._names is None else list(self._names),
                "settings": settings.facts(),
            },
            secret,
            ledger,
        )
        self._by_scores = self._check_labels(rows)
        self._rows = rows

    def _open(self, model: Any) -> None:
        self._foreign = open_model(model)
        self._asked = asked_model(self._foreign.native)
        self._classes = self._foreign.classes if self._foreign.task == "classification" else None
        self._rows = None
        self._names = self._foreign.feature_names

    def _start(
        self, statement: Mapping[str, Any], secret: bytes, ledger: str | os.PathLike[str] | None
    ) -> None:
        self._statement, self._secret = dict(statement), secret
        self._settings = Settings(**statement["settings"])
        self._ledger = None if ledger is None else Ledger(ledger, self._statement, secret)

    def _check_labels(self, rows: Any) -> bool:
        """Return whether labels are those of the best score, which saves asking twice."""
        if self._classes is None or not hasattr(self._asked, "predict_proba"):
            return False
        scores = np.asarray(self._asked.predict_proba(rows))
        said = np.asarray(self._asked.predict(rows)).reshape(-1)
        return bool(
            said.dtype == self._classes.dtype
            and (said == self._classes[scores.argmax(axis=1)]).all()
        )

    @property
    def statement(self) -> dict[str, Any]:
        """Return what the guard says publicly about itself; its ledger commits to it."""
        return dict(self._statement)

    @property
    def settings(self) -> Settings:
        """Return what the guard draws."""
        return self._settings

    @property
    def classes_(self) -> AnyArray:
        """Return the labels of the model."""
        if self._classes is None:
            raise AttributeError("a guard of numbers has no classes_")
        return self._classes

    @property
    def n_features_in_(self) -> int:
        """Return the number of columns that the model takes."""
        found = getattr(self._asked, "n_features_in_", None)
        return self._foreign.ensemble.n_features if found is None else int(found)

    @property
    def feature_names_in_(self) -> AnyArray:
        """Return the names of the columns that the model takes."""
        if self._names is None:
            raise AttributeError("the model has no feature_names_in_")
        return np.array(self._names, dtype=object)

    def fit(self, X: Any, y: Any = None) -> NoReturn:
        """Raise InputError: the model is fitted already."""
        raise InputError(
            "A guard is around a fitted model and cannot be fitted.",
            hint="fit the model and make a guard of that.",
            code="guard.fit",
        )

    def predict(self, X: Any, client: str = "") -> AnyArray:
        """Return labels or numbers for rows, as the model gives them but for drawn ones."""
        if self._classes is None:
            numbers = self._answer(X)
            drawn = self._draw(X, numbers, client)
            return numbers if drawn is None else drawing.guarded_numbers(numbers, drawn)
        scores = self._answer(X)
        if self._by_scores or not hasattr(self._asked, "predict"):
            labels = self._classes[scores.argmax(axis=1)]
        else:
            labels = np.array(self._asked.predict(X))
        drawn = self._draw(X, scores, client)
        if drawn is not None:
            each = np.arange(len(drawn.rows))
            said = self._classes[drawn.alphabets[each, drawn.symbols]]
            labels.reshape(-1)[drawn.rows] = said
        return np.asarray(labels)

    def predict_proba(self, X: Any, client: str = "") -> AnyArray:
        """Return scores for rows, as the model gives them but for drawn ones."""
        if self._classes is None:
            raise AttributeError("a guard of numbers has no predict_proba")
        scores = self._answer(X)
        drawn = self._draw(X, scores, client)
        return (
            scores if drawn is None else drawing.guarded_scores(scores, drawn, self._settings.lead)
        )

    def _answer(self, X: Any) -> AnyArray:
        """Return what the model itself says: scores [n, K], or numbers [n]."""
        if self._classes is None:
            if hasattr(self._asked, "get_params") and hasattr(self._asked, "predict"):
                return np.asarray(self._asked.predict(X))
            return self._foreign.answers(self._foreign.margins(X))[:, 0]
        if hasattr(self._asked, "predict_proba"):
            return np.asarray(self._asked.predict_proba(X))
        return self._foreign.confidence(self._foreign.margins(X))

    def _draw(self, X: Any, answers: AnyArray, client: Any) -> Drawn | None:
        """Return the drawn rows of a request and keep them; None, at the worst, and a gap."""
        n = len(answers)
        try:
            name = clean_client(client)
            if self._ledger is not None:
                self._ledger.count(name, n)
            ask = self._drawer.draw_numbers if self._classes is None else self._drawer.draw_scores
            drawn = ask(X, answers, self._settings)
            if drawn is not None and self._ledger is not None:
                self._ledger.add(name, drawn, drawing.take_rows(X, drawn.rows))
            return drawn
        except Exception as error:  # an answer must never fail because of the guard
            _LOG.warning("the guard drew nothing: %s: %s", type(error).__name__, error)
            if self._ledger is not None:
                self._ledger.add_gap("drawing", n)
            return None

    def mark(
        self,
        client: str | Sequence[str] | None = None,
        *,
        stamped: bool = False,
        rows: Any = None,
    ) -> Mark:
        """Return the mark that a copy trained on a client's answers carries; None: all clients'.

        Several clients who pooled their answers may be given together. ``rows`` are all questions
        of the client, if your server logs them: models that learn the unguarded answers to the same
        rows tell best what a student would say without the guard. Otherwise they learn your rows.
        ``stamped`` takes only questions before the last stamp of the ledger, which a judge counts
        fully. `timbermark.verify` asks a suspect, as with any mark.

        Raises InputError if there is no ledger or it holds no drawn question of the client.
        """
        if self.key is None:
            raise InputError(
                "A guard from a file has no owner key.",
                hint="use `timbermark ledger guard.db --key owner.key --out …`.",
                code="guard.key",
                parameter="key",
            )
        if self._ledger is None:
            raise InputError(
                "The guard keeps no ledger, and nobody knows which questions were drawn.",
                hint="give ledger=….",
                code="ledger.none",
                parameter="ledger",
            )
        self._ledger.flush()
        names = list_clients(client)
        found = read_questions(self._ledger.path, self._secret, clients=names, stamped=stamped)
        others = drawing.learn_answers(self._rows if rows is None else rows, self._answer)
        return drawing.make_mark(found, self._statement, self.key, clients=names, others=others)

    def cost(self, X: Any, y: Any = None) -> GuardCost:
        """Return what the guard costs on rows, best unseen ones; see `timbermark.plan`."""
        return measure(self._answer(X), X, y, self._drawer, self._settings, self._classes)

    def flush(self) -> None:
        """Write drawn questions that wait to the ledger."""
        if self._ledger is not None:
            self._ledger.flush()

    def close(self) -> None:
        """Write what waits and end the ledger's session."""
        if self._ledger is not None:
            self._ledger.close()

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write what a server needs beside the model's file; it holds the guard's secret.

        It does not hold the owner key: whoever steals it can tell drawn answers of this model, and
        can neither sign claims nor make other marks. Only its owner may read the file.
        """
        meta = {
            "statement": self._statement,
            "secret": self._secret.hex(),
            "by_scores": self._by_scores,
        }
        save_sealed(path, seal(KIND, FORMAT_VERSION, meta, {}), "guard", force=force)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: Any, ledger: str | os.PathLike[str] | None
    ) -> Guard:
        """Return the guard in a file of `save`, around its model or the model's file.

        It answers and keeps a ledger; marks are made with the owner key by `timbermark ledger`.

        Raises FileFormatError if the file is damaged, InputError if the model is another one.
        """
        _, meta, _ = unseal(path, KIND, FORMAT_VERSION, None)
        warn_if_readable(path, "guard")
        guard = cls.__new__(cls)
        guard._open(model)
        try:
            if meta.keys() != _PARTS:
                raise ValueError("other parts")
            statement, secret = meta["statement"], bytes.fromhex(meta["secret"])
            digest = statement["model"]
            guard.model, guard.X, guard.key, guard.y = model, None, None, None
            guard.owner, guard.ledger = statement["owner"], ledger
            settings, guard._by_scores = Settings(**statement["settings"]), bool(meta["by_scores"])
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(
                f"{os.fspath(path)} does not hold a guard.",
                "it was not written by timbermark, do not trust it.",
                "file.parts",
            ) from None
        if digest != digest_trees(guard._foreign.ensemble):
            raise InputError(
                f"The guard in {os.fspath(path)} is of another model.",
                hint="give the model that it was made for.",
                code="guard.other-model",
                parameter="model",
            )
        guard.share, guard.lead, guard.move = settings.share, settings.lead, settings.move
        if guard._classes is not None and len(guard._classes) == len(statement["classes"]):
            # Files of some libraries hold no labels, and their models answer with numbers.
            guard._by_scores |= guard._classes.tolist() != statement["classes"]
            guard._classes = np.array(statement["classes"])
        guard._drawer = Drawer(guard._foreign, secret)
        guard._start(statement, secret, ledger)
        return guard

    def __sklearn_clone__(self) -> Guard:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kind = "regressor" if self._classes is None else "classifier"
        tags.estimator_type = kind
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return (
            f"Guard({self._foreign.kind}, owner={self.owner!r}, share={self._settings.share:g}, "
            f"ledger={None if self._ledger is None else Path(self._ledger.path).name!r})"
        )

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "A guard cannot be pickled: its secret would lie in the open.",
            hint="guard.save(path) writes what a server needs.",
            code="guard.pickled",
        )


def _guard_id(foreign: Any, owner: str) -> bytes:
    """Return 16 bytes that replicas agree on: by the model and the owner's name."""
    text = f"timbermark/guard-id/1\n{digest_trees(foreign.ensemble)}\n{owner}"
    return hashlib.sha256(text.encode()).digest()[:16]


def _count(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
