"""What a guard costs, before it serves: points, AUC, mean scores, and what a copy would show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.guard.drawing import (
    Drawer,
    Settings,
    choose_width,
    guarded_numbers,
    guarded_scores,
)
from timbermark.marking import embedding
from timbermark.marking.embedding import Plan

MOST_SHARE = 0.25
LEADS = (0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
"""The leads that are tried, strongest first."""
MOST_AUC, MOST_MEAN, USUAL_SHARE, USUAL_ROWS = 0.0004, 0.01, 0.01, 4000
"""What "auto" may cost at a share of 0.01: AUC, and two standard deviations of a class's mean score
over so many rows, relative to it. Whoever draws more answers pays in proportion.
benchmarks/guard.py holds it to 0.0005 and 1 % on unseen rows."""
_MOVE = 0.1


@dataclass(frozen=True, slots=True)
class GuardCost:
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
    model: Any, X: Any, y: Any = None, *, guard: bool = False, share: float = 0.01, **choices: Any
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
    from timbermark.guard.guarding import Guard
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
    width = choose_width(answers, share)
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
    for lead in LEADS:
        # Half the cost of this draw and half that of the opposite one: the key shall not matter.
        after = [mean_auc(guarded_scores(scores, one, lead), known) for one in (drawn, other)]
        swing = 2.0 * lead * float((np.sqrt(squares) / rows / means).max())
        if before - sum(after) / 2.0 <= MOST_AUC * more and swing <= MOST_MEAN:
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
        after = answers if drawn is None else guarded_numbers(answers, drawn)
        scale = float(np.abs(answers).mean()) or 1.0
        mean = abs(float(after.mean() - answers.mean())) / scale
        if y is not None:
            errors = [np.abs(np.asarray(y, np.float64) - one).mean() for one in (answers, after)]
            points = 100.0 * float(errors[1] - errors[0]) / max(float(errors[0]), 1e-300)
    else:
        before = np.asarray(answers, np.float64)
        after = before if drawn is None else guarded_scores(before, drawn, settings.lead)
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
