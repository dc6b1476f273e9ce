"""What a mark may cost: the limits, their defaults, and the one judge of figures by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING

from timbermark.errors import InputError
from timbermark.marking.defaults import CONFIDENCE

if TYPE_CHECKING:
    from timbermark.marking.cost import Cost, Figure

LIMITS = {
    "classification": (
        "changed", "drift", "accuracy", "auc", "score", "recall", "churn", "precision", "top",
    ),
    "regression": ("move", "largest", "mean", "tail", "rmse", "mae", "r2"),
    "ranking": ("move", "largest", "order", "top", "ndcg"),
}  # fmt: skip
"""The limits that go with each task."""
NEED_TARGETS = {
    "classification": (),
    "regression": ("rmse", "mae", "r2"),
    "ranking": ("ndcg",),
}
"""The limits that are judged only where true answers are known. Of classifiers without labels, the
model's own scores stand for them."""
_UNBOUNDED = ("largest", "churn")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what marking may change, each None where it is no limit.

    For classifiers: ``changed``: the share of rows whose label changes; ``drift``: the mean over
    rows of the largest change of a probability; ``accuracy``: the share of accuracy lost (0.005 is
    half a point). A model that errs less often than these two limits on labels allow is held to its
    own rate of errors. ``score``: the relative change of the mean score of any class; ``recall``:
    the recall that any class loses; ``churn``: the labels that change from or to a class, relative
    to the rows of that class. For two classes: ``auc``: the area under the ROC curve lost;
    ``precision``: the share of the average precision of the smaller class that is lost; ``top``:
    the share of the 2 % of rows with the highest scores of the smaller class that are no longer
    among them, where that class has at most a tenth of the rows.

    For regressors and rankers: ``move``: the mean change of a number, and ``largest``: the largest
    one, in units of the model's error. For regressors: ``mean``: the change of the mean answer,
    relative to the mean size of answers; ``tail``: the mean relative change of the 2 % of answers
    farthest from the mean; ``rmse`` and ``mae``: the share by which the root mean squared and the
    mean absolute error grow; ``r2``: R² lost. For rankers: ``order``: how far the rank correlation
    with the unmarked model is below 1; ``top``: the share of the first ten of each list that are
    no longer among them; ``ndcg``: NDCG lost.

    All are judged by upper confidence bounds, on rows that take no part in the edit and do not
    report its cost.

    Raises InputError unless each is None or a number above 0 and at most 1; ``largest`` and
    ``churn`` may be above. No mark can promise a limit of 0.

    >>> Budget(changed=0.02).drift
    0.01
    """

    changed: float | None = 0.01
    drift: float | None = 0.01
    accuracy: float | None = 0.005
    auc: float | None = 0.002
    score: float | None = 0.02
    recall: float | None = 0.02
    churn: float | None = 0.1
    precision: float | None = 0.02
    top: float | None = 0.03
    move: float | None = 0.02
    largest: float | None = None
    mean: float | None = 0.005
    tail: float | None = 0.02
    rmse: float | None = 0.003
    mae: float | None = None
    r2: float | None = None
    order: float | None = 0.002
    ndcg: float | None = 0.002

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            number = isinstance(value, Real) and not isinstance(value, bool)
            unbounded = field.name in _UNBOUNDED
            if number and value == 0:
                little = (getattr(type(self)(), field.name) or 0.01) / 10
                raise InputError(
                    f"{field.name}={value!r} allows no change at all, which no mark can promise.",
                    hint=f"allow a little, such as {field.name}={little:g}, "
                    "or switch the limit off: None, on the command line off.",
                    code="budget.zero",
                    parameter=field.name,
                )
            if not number or not 0.0 < float(value) <= (float("inf") if unbounded else 1.0):
                wanted = "above 0" if unbounded else "above 0 and at most 1"
                raise InputError(
                    f"{field.name}={value!r} must be off or a number {wanted}.",
                    hint="it is a share: 0.01 is one percent.",
                    code="budget.limit",
                    parameter=field.name,
                )
            object.__setattr__(self, field.name, float(value))

    @classmethod
    def only(cls, **limits: float | None) -> Budget:
        """Return a budget with these limits and no others.

        >>> Budget.only(drift=0.02).changed is None
        True
        """
        return cls(**{field.name: limits.get(field.name) for field in fields(cls)})


def check_budget(budget: Budget, task: str) -> None:
    """Raise InputError for a limit that was set but says nothing about the task.

    >>> check_budget(Budget(changed=0.02), "classification")
    >>> check_budget(Budget(changed=0.02), "regression")
    Traceback (most recent call last):
    timbermark.errors.InputError: changed is a limit for classification, and the \
model is one of regression. Hint: its limits are move, largest, mean, tail, rmse, mae, r2.
    """
    for field in fields(budget):
        value = getattr(budget, field.name)
        if field.name in LIMITS[task] or value in (field.default, None):
            continue
        owners = " and ".join(name for name, limits in LIMITS.items() if field.name in limits)
        raise InputError(
            f"{field.name} is a limit for {owners}, and the model is one of {task}.",
            hint=f"its limits are {', '.join(LIMITS[task])}.",
            code="budget.other-task",
            parameter=field.name,
        )


def judge_figures(
    task: str, budget: Budget, figures: Iterable[Figure], confidence: float = CONFIDENCE
) -> dict[str, float]:
    """Return how much of each limit is used up, by an upper confidence bound: above 1 is too much.

    Where a limit is about every class, the worst class counts. Of two figures for one limit, on
    different rows, the first counts.
    """
    limits = {name: getattr(budget, name) for name in LIMITS[task]}
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        same = found.setdefault(figure.code, [])
        if limits.get(figure.code) is not None and (not same or same[0].rows == figure.rows):
            same.append(figure)
    changed = max((f.at_most(confidence) for f in found.get("changed", [])), default=1.0)
    errors = next(iter(found.get("accuracy", [])), None)
    used: dict[str, float] = {}
    for name, limit in limits.items():
        for figure in found.get(name, []):
            bound = figure.at_most(confidence)
            if name == "accuracy":
                bound = min(bound, changed)  # it cannot fall by more than labels change
            allowed = _own_errors(name, limit, errors)
            used[name] = max(used.get(name, 0.0), bound / allowed)
    return used


def _own_errors(name: str, limit: float, accuracy: Figure | None) -> float:
    """Return a limit on labels, or less for a model that errs less often than it allows."""
    if name not in ("changed", "accuracy") or accuracy is None or accuracy.before is None:
        return limit
    from timbermark.marking.cost import share_at_most

    rows = accuracy.rows
    if rows is None or rows.estimated or "training" in rows.code:
        return limit
    errors = round((1.0 - accuracy.before) * rows.n)
    error = share_at_most(errors, rows.n)
    return min(limit, error if name == "changed" else max(error / 2, share_at_most(0, rows.n)))


def beyond_limits(cost: Cost, budget: Budget) -> Mapping[str, tuple[Figure, float]]:
    """Return the worst of the reported figures that are beyond a limit, by code, and the limit.

    A figure of rows that the model was trained on counts as well: it is in the table.
    """
    found: dict[str, tuple[Figure, float]] = {}
    for figure in cost.figures:
        limit = getattr(budget, figure.code, None) if figure.code in LIMITS[cost.task] else None
        # Three rows of 150 are 2 %, whatever the last digit says.
        if limit is None or figure.change <= limit * (1.0 + 1e-9):
            continue
        if figure.code not in found or figure.change > found[figure.code][0].change:
            found[figure.code] = (figure, limit)
    return found
