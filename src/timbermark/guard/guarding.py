"""The guard as an estimator: it answers for a model and draws a few of the answers by its key."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError, InputError
from timbermark.files.sealing import save_sealed, seal, unseal, warn_if_readable
from timbermark.guard.drawing import (
    Drawer,
    Drawn,
    Settings,
    guarded_numbers,
    guarded_scores,
    take_rows,
)
from timbermark.guard.evidence import make_mark
from timbermark.guard.ledger import Ledger
from timbermark.guard.ledger_file import clean_client, list_clients, read_questions
from timbermark.guard.planning import GuardCost, measure, settle
from timbermark.libraries.wrappers import asked_model
from timbermark.marking.models import open_model
from timbermark.ownership.encoding import check_name
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.trees.ensemble import digest as digest_trees

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

    _rows: Any
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
        rows = take_rows(X, np.arange(min(_count(X), _MOST_ROWS)))
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
        if self._classes is not None and len(self._classes) < 2:
            raise InputError(
                "A model with one class has no second label that a guard could draw.",
                hint="guard a model of two classes or more.",
                code="guard.one-class",
                parameter="model",
            )
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
            return numbers if drawn is None else guarded_numbers(numbers, drawn)
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
        return scores if drawn is None else guarded_scores(scores, drawn, self._settings.lead)

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
                self._ledger.add(name, drawn, take_rows(X, drawn.rows))
            return drawn
        except Exception as error:  # an answer must never fail because of the guard
            _LOG.warning("the guard drew nothing: %s: %s", type(error).__name__, error)
            if self._ledger is not None:
                self._ledger.add_gap("drawing", n)
            return None

    def mark(self, client: str | Sequence[str] | None = None, *, stamped: bool = False) -> Mark:
        """Return the mark that a copy trained on a client's answers carries; None: all clients'.

        Several clients who pooled their answers may be given together.
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
        return make_mark(
            found, self._statement, self.key, clients=names,
            train_on=None if self._rows is None else (self._rows, self._answer),
        )  # fmt: skip

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
