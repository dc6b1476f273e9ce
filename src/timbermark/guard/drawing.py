"""Which answers of a model a guard draws, and what it answers instead.

Rows that end in the same leaves of all trees are one *cell*: the model cannot tell them apart. A
keyed hash of the cell decides, so that every replica answers alike, asking twice teaches nothing,
and nothing needs to be remembered. For classes only *narrow* questions are drawn, whose two best
scores are closer than `Settings.width`; for numbers a share of all cells, which are moved up or
down by `Settings.move`.

With a ledger, drawn questions become the triggers of a mark, and are judged like all others;
`claim_guard` commits to the guard before it serves.
"""

from __future__ import annotations

import hashlib
import hmac
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.editing.routing import Router
from timbermark.errors import InputError
from timbermark.guard.ledger_file import Question
from timbermark.kernels.workers import Workers
from timbermark.libraries.contract import ForeignModel
from timbermark.ownership.claim import Claim
from timbermark.ownership.columns import MAX_TRIGGERS, Column, freeze_columns, join_columns
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.seals import NO_ALTERNATIVES, DrawnSeal
from timbermark.verification.chain import commit_guard

CELL_BYTES = 8
STEADY = 0.75
"""A drawn label leads by this much of `Settings.lead` at least; the cell decides the rest, so that
drawn answers are not told by one common score."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a guard draws; committed to before serving, and nothing in it is secret."""

    share: float  # of the owner's rows that are drawn
    width: float  # classes: the largest difference of the two best scores that is drawn
    lead: float  # classes: how far the drawn label's part of both scores is above one half
    move: float  # numbers: how far an answer is moved

    def facts(self) -> dict[str, float]:
        """Return all fields by name."""
        return {name: float(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The drawn rows of one request and what was drawn for them."""

    rows: AnyArray  # int64 [m], places in the request
    alphabets: AnyArray  # int64 [m, 2], the two best labels in ascending order; 0, 1 for numbers
    symbols: AnyArray  # uint8 [m], which of them is answered
    spread: Reals  # [m], from STEADY to 1
    cells: tuple[bytes, ...]
    reference: Reals  # [m, K] the model's own scores; for numbers [m, 2], both answers

    def take(self, kept: AnyArray) -> Drawn:
        """Return some of the drawn rows."""
        chosen = np.flatnonzero(kept) if np.asarray(kept).dtype == bool else np.asarray(kept)
        return Drawn(
            self.rows[chosen], self.alphabets[chosen], self.symbols[chosen], self.spread[chosen],
            tuple(self.cells[i] for i in chosen.tolist()), self.reference[chosen],
        )  # fmt: skip


class Drawer:
    """A model's cells and the key that draws their answers; safe to share between threads."""

    def __init__(self, foreign: ForeignModel, secret: bytes) -> None:
        self._foreign = foreign
        self._key = hmac.digest(secret, b"timbermark/guard-answers/1", "sha256")
        self._router = Router(foreign.ensemble)
        mixer = hashlib.blake2b(b"numbers", key=self._key, digest_size=16).digest()
        self._mixers = np.frombuffer(mixer, "<u8") | np.uint64(1)

    def draw_scores(self, X: Any, scores: AnyArray, settings: Settings) -> Drawn | None:
        """Return the narrow rows of a request with scores [n, K]; None if there are none."""
        narrow = find_narrow(scores, settings.width)
        if not len(narrow):
            return None
        found = np.clip(np.asarray(scores[narrow], np.float64), 0.0, 1.0)
        best = np.sort(np.argpartition(-found, 1, axis=1)[:, :2], axis=1)
        return self._draw(X, narrow, best, found)

    def draw_numbers(self, X: Any, numbers: AnyArray, settings: Settings) -> Drawn | None:
        """Return the drawn rows of a request with numbers [n]; None if there are none.

        The model's own answer, which all rows of a cell share, decides whether the cell is drawn:
        that takes no walk down the trees.
        """
        exact = np.asarray(numbers, np.float64).reshape(-1)
        mixed = exact.view(np.uint64) * self._mixers[0]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * self._mixers[1]
        limit = np.uint64(min(int(settings.share * 2.0**64), 2**64 - 1))
        rows = np.flatnonzero((mixed < limit) & np.isfinite(exact))
        if not len(rows):
            return None
        both = exact[rows, np.newaxis] + settings.move * np.array([-1.0, 1.0])
        return self._draw(X, rows, np.tile([0, 1], (len(rows), 1)), both)

    def _draw(self, X: Any, rows: AnyArray, alphabets: AnyArray, reference: Reals) -> Drawn:
        taken = self._foreign.rows(take_rows(X, rows))
        with Workers(1) as workers:
            routes = self._router.route(taken, workers)
        # Outputs may share one array of leaves.
        leaves = np.vstack(list({id(leaf): leaf for leaf in routes.leaf}.values())).T
        hashes = [
            hashlib.blake2b(np.ascontiguousarray(one).tobytes(), key=self._key, digest_size=32)
            for one in leaves
        ]
        drawn = np.frombuffer(b"".join(one.digest() for one in hashes), np.uint8).reshape(-1, 32)
        lengths = np.ascontiguousarray(drawn[:, 1:5]).view("<u4")[:, 0] / 2.0**32
        return Drawn(
            rows=rows,
            alphabets=alphabets,
            symbols=drawn[:, 0] & 1,
            spread=STEADY + (1.0 - STEADY) * lengths,
            cells=tuple(one[8 : 8 + CELL_BYTES].tobytes() for one in drawn),
            reference=reference,
        )


def find_narrow(scores: AnyArray, width: float) -> AnyArray:
    """Return the places of rows whose two best scores differ by ``width`` or less, int64.

    >>> find_narrow(np.array([[0.5, 0.45, 0.05], [0.9, 0.1, 0.0]]), 0.1).tolist()
    [0]
    """
    return np.flatnonzero(score_gaps(scores) <= width)


def score_gaps(scores: AnyArray) -> AnyArray:
    """Return by how much the best score leads the second, [n]; NaN where a score is missing.

    >>> score_gaps(np.array([[0.75, 0.25], [0.5, 0.5]])).tolist()
    [0.5, 0.0]
    """
    if scores.shape[1] == 2:
        return np.asarray(np.abs(scores[:, 0] - scores[:, 1]))
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])


def guarded_scores(scores: AnyArray, drawn: Drawn, lead: float) -> AnyArray:
    """Return a copy of scores [n, K] in which each drawn row has its drawn label ahead.

    The two best scores keep their sum; all other scores and rows keep their bits.

    >>> drawn = Drawn(
    ...     np.array([0]), np.array([[0, 2]]), np.array([1]), np.array([1.0]), (b"",),
    ...     np.array([[0.4, 0.2, 0.4]]),
    ... )
    >>> guarded_scores(np.array([[0.4, 0.2, 0.4]]), drawn, 0.25).round(3).tolist()
    [[0.2, 0.2, 0.6]]
    """
    answers = np.array(scores)
    each = np.arange(len(drawn.rows))
    chosen = drawn.alphabets[each, drawn.symbols]
    other = drawn.alphabets[each, 1 - drawn.symbols]
    both = drawn.reference[each, chosen] + drawn.reference[each, other]
    ahead = both * (0.5 + lead * drawn.spread)
    answers[drawn.rows, chosen] = ahead
    answers[drawn.rows, other] = both - ahead
    return answers


def guarded_numbers(numbers: AnyArray, drawn: Drawn) -> AnyArray:
    """Return a copy of numbers [n] in which each drawn one is moved; others keep their bits."""
    answers = np.array(numbers)
    moved = drawn.reference[np.arange(len(drawn.rows)), drawn.symbols]
    answers.reshape(-1)[drawn.rows] = moved
    return answers


def take_rows(X: Any, rows: AnyArray) -> Any:
    """Return some rows of a data frame, a matrix or a list of rows.

    >>> take_rows([[1], [2]], np.array([1]))
    [[2]]
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return [X[i] for i in rows.tolist()]
    return X[rows]


def choose_width(scores: AnyArray, share: float) -> float:
    """Return the difference of the two best scores below which a share of rows lies.

    Raises InputError if the scores are of fewer than two classes or no row has scores.
    """
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise InputError(
            "A model with one class has no second label that a guard could draw.",
            hint="guard a model of two classes or more.",
            code="guard.one-class",
            parameter="model",
        )
    gaps = np.asarray(score_gaps(scores), np.float64)
    known: Flags = np.isfinite(gaps)
    if not known.any():
        raise InputError(
            "No row has scores to learn from what is narrow.",
            hint="give rows such as the model is asked.",
            code="guard.rows",
            parameter="X",
        )
    # Never everything, however sure the model is of its rows.
    return float(min(np.quantile(gaps[known], share), np.nextafter(1.0, 0.0)))


_MOST_ROWS = 20_000
_REDRAWN = 4
Others: TypeAlias = Callable[[Reals, AnyArray, Reals, float], Reals]
"""Drawn rows [k, d], their alphabets and reference, the lead → scores of R models, [R, k, K]."""


def make_mark(
    questions: Sequence[Question],
    statement: Mapping[str, Any],
    key: OwnerKey,
    *,
    clients: Sequence[str] | None = None,
    others: Others | None = None,
) -> Mark:
    """Return the mark of drawn questions, each of which is a trigger with its drawn symbol.

    ``others``, as `learn_answers` gives them, say what students of other draws would say. Evidence
    by scores then counts what differs from that, which shows more of a student that learnt little
    by heart.

    Raises InputError if there is no question, or the key is not the guard's.
    """
    if statement["claim_key"] != key.claim_key.hex():
        raise _other_key()
    kept = _first_of_rows(questions)[:MAX_TRIGGERS]
    if not kept:
        whose = "" if clients is None else f" of {', '.join(map(repr, clients))}"
        raise InputError(
            f"The ledger holds no drawn question{whose}.",
            hint="`timbermark ledger guard.db` lists the clients.",
            code="ledger.no-question",
            parameter="client",
        )
    classes, names = statement["classes"], statement["names"]
    columns = _columns(kept)
    alphabets = np.array([q.alphabet for q in kept])
    reference = np.array([q.reference for q in kept], np.float64)
    alternatives = NO_ALTERNATIVES
    # Rows that hold texts train none of the models.
    if (
        others is not None
        and classes is not None
        and all(isinstance(c, np.ndarray) for c in columns)
    ):
        asked = np.asarray(join_columns(columns), np.float64)
        said = others(asked, alphabets, reference, statement["settings"]["lead"])
        found = np.take_along_axis(said, alphabets[np.newaxis], axis=2).transpose(1, 0, 2)
        alternatives = np.ascontiguousarray(np.clip(found, 0.0, 1.0))
    seal = DrawnSeal(
        columns=columns,
        alphabets=alphabets,
        reference=reference,
        alternatives=alternatives,
        drawn=np.array([q.symbol for q in kept], np.uint8),
        links=np.array([list(q.link) for q in kept], np.uint8),
    )
    return Mark.make(
        key,
        owner=statement["owner"],
        model_digest=statement["model"],
        classes=classes or (),
        answers="numbers" if classes is None else "classes",
        guarded=seal,
        feature_names=names,
        about={"guard": commit_guard(statement).hex(), "clients": list(clients or ())},
    )


def _first_of_rows(questions: Sequence[Question]) -> list[Question]:
    """Return questions with distinct rows: cells differ, but a model may round what it is asked."""
    found: dict[tuple[Any, ...], Question] = {}
    for question in questions:
        found.setdefault(tuple(map(repr, question.row)), question)
    return list(found.values())


def _columns(questions: Sequence[Question]) -> tuple[Column, ...]:
    # A text column without a text in one request looks like numbers there.
    texts = {at for q in questions for at, kind in enumerate(q.kinds) if kind == "t"}
    columns: list[Any] = []
    for at in range(len(questions[0].row)):
        values = [q.row[at] for q in questions]
        if at in texts:
            columns.append([v if isinstance(v, str) else None for v in values])
        else:
            columns.append(np.array([np.nan if v is None else v for v in values], np.float64))
    return freeze_columns(columns)


def learn_answers(rows: Any, answer: Callable[[Any], AnyArray]) -> Others | None:
    """Return seven models that learn rows and drawn questions as students do, as one function.

    They learn the model's own answers to the rows and, for the drawn questions, answers of other
    draws, the mean over some of which says nothing of the guard's: a student is best predicted by a
    model of its kind that learnt the same rows. None where the rows cannot train scikit-learn's
    models as they are, or the answers are not of two classes at least.
    """
    try:
        X = np.ascontiguousarray(np.asarray(rows, np.float64)[:_MOST_ROWS])
    except (TypeError, ValueError):
        return None
    own = np.asarray(answer(take_rows(rows, np.arange(len(X)))), np.float64)
    if own.ndim != 2 or len(np.unique(own.argmax(axis=1))) < 2:
        return None

    def others(asked: Reals, alphabets: AnyArray, reference: Reals, lead: float) -> Reals:
        drawn_rows = {row.tobytes() for row in asked}
        kept = np.array([row.tobytes() not in drawn_rows for row in X])
        learnt, scores = np.vstack([X[kept], asked]), np.vstack([own[kept], reference])
        places = np.arange(len(learnt) - len(asked), len(learnt))
        spread = np.full(len(asked), (1.0 + STEADY) / 2.0)
        some = np.random.default_rng(0).integers(2, size=(_REDRAWN // 2, len(asked)))
        total = np.zeros((7, *reference.shape))
        for seed, symbols in enumerate([*some, *(1 - some)]):  # each with its opposite
            drawn = Drawn(places, alphabets, symbols, spread, (), reference)
            total += _students(learnt, guarded_scores(scores, drawn, lead), asked, seed)
        return total / _REDRAWN

    return others


def _students(X: Reals, scores: Reals, asked: Reals, seed: int) -> Reals:
    """Return what four models that learn scores and three that learn labels answer, [7, k, K]."""
    from sklearn import ensemble
    from sklearn.multioutput import MultiOutputRegressor

    little: dict[str, Any] = {"max_iter": 60, "max_leaf_nodes": 8, "random_state": seed}
    boosted = [ensemble.HistGradientBoostingRegressor(**options)
               for options in ({"random_state": seed}, little)]  # fmt: skip
    forests = [ensemble.RandomForestRegressor(min_samples_leaf=leaf, random_state=seed)
               for leaf in (3, 10)]  # fmt: skip
    of_labels = [ensemble.HistGradientBoostingClassifier(**little)]
    of_labels += [ensemble.RandomForestClassifier(min_samples_leaf=leaf, random_state=seed)
                  for leaf in (3, 10)]  # fmt: skip
    # Of two classes the second is one less the first.
    columns = scores[:, :-1] if scores.shape[1] == 2 else scores
    found = np.zeros((7, len(asked), scores.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place, model in enumerate([*map(MultiOutputRegressor, boosted), *forests]):
            said = model.fit(X, columns).predict(asked).reshape(len(asked), -1)
            found[place] = said if said.shape[1] > 1 else np.column_stack([said, 1.0 - said])
        for place, model in enumerate(of_labels, 4):
            model.fit(X, scores.argmax(axis=1))
            found[place][:, model.classes_] = model.predict_proba(asked)
    return found


def guard_secret(statement: Mapping[str, Any], key: OwnerKey) -> bytes:
    """Return the secret of the guard that a ledger belongs to.

    Raises InputError if the key is not the guard's.
    """
    secret = key.mark_secret(bytes.fromhex(statement["guard"]))
    if hashlib.sha256(secret).hexdigest() != statement["secret"]:
        raise _other_key()
    return secret


def claim_guard(mark: Mark, key: OwnerKey) -> Claim:
    """Return the signed claim of a guard's mark: it names the guard in place of a marked model.

    Raises InputError if the mark is not a guard's, or was made with another key.
    """
    commitment = mark.about.get("guard")
    if not mark.is_guard or not isinstance(commitment, str):
        raise InputError(
            "The mark is not a guard's.", hint="use timbermark.claim.", code="claim.type"
        )
    return Claim.make(mark, key, marked_digest=commitment)


def _other_key() -> InputError:
    return InputError(
        "The guard was not made with this owner key.",
        hint="give the key that the guard was made with.",
        code="ledger.key",
        parameter="key",
    )
