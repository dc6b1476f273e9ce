"""From a ledger to a mark: drawn questions become triggers, and are judged like all others."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.guard.ledger_file import Question
from timbermark.ownership.claim import Claim
from timbermark.ownership.columns import MAX_TRIGGERS, Column, freeze_columns, join_columns
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.seals import NO_ALTERNATIVES, DrawnSeal
from timbermark.verification.chain import commit_guard

_MOST_ROWS = 10_000


def make_mark(
    questions: Sequence[Question],
    statement: Mapping[str, Any],
    key: OwnerKey,
    *,
    clients: Sequence[str] | None = None,
    train_on: tuple[Any, Callable[[Any], AnyArray]] | None = None,
) -> Mark:
    """Return the mark of drawn questions, each of which is a trigger with its drawn symbol.

    ``train_on``, rows and the model's own answers to rows, trains models on answers that nothing
    was drawn in: what a student would say without the guard. Evidence by scores then counts what
    differs from that, which shows more of a student that learnt little by heart.

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
    seal = DrawnSeal(
        columns=columns,
        alphabets=alphabets,
        reference=np.clip(_matrix(kept), 0.0, 1.0) if classes is not None else _matrix(kept),
        alternatives=NO_ALTERNATIVES
        if train_on is None or classes is None
        else _alternatives(columns, alphabets, *train_on),
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


def _matrix(questions: Sequence[Question]) -> Reals:
    return np.array([q.reference for q in questions], np.float64)


def _alternatives(
    columns: tuple[Column, ...],
    alphabets: AnyArray,
    rows: Any,
    answer: Callable[[Any], AnyArray],
) -> Reals:
    """Return what models that learnt the model's own labels answer, float64 [k, R, 2].

    Nothing is returned where the rows cannot train scikit-learn's models as they are.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    try:
        X = np.asarray(rows, np.float64)[:_MOST_ROWS]
        asked = np.asarray(join_columns(columns), np.float64)
    except (TypeError, ValueError):
        return NO_ALTERNATIVES
    labels = np.asarray(answer(rows))[: len(X)].argmax(axis=1)
    present = np.unique(labels)
    if len(present) < 2:
        return NO_ALTERNATIVES
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in (
            HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0),
            RandomForestClassifier(min_samples_leaf=3, random_state=0),
        ):
            model.fit(X, labels)
            scores = np.zeros((len(asked), max(int(alphabets.max()), int(present.max())) + 1))
            scores[:, present] = model.predict_proba(asked)
            found.append(np.take_along_axis(scores, alphabets, axis=1))
    return np.clip(np.stack(found, axis=1), 0.0, 1.0)


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
