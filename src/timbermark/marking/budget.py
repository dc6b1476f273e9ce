"""What a mark may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real

from timbermark.errors import InputError

LIMITS = {
    "classification": ("changed", "drift", "accuracy", "auc"),
    "regression": ("move", "largest", "rmse", "mae", "r2"),
    "ranking": ("move", "largest", "order", "ndcg"),
}
"""The limits that go with each task."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what marking may change, each None where it is no limit.

    For classifiers: ``changed``: the share of rows whose label changes; ``drift``: the mean over
    rows of the largest change of a probability; ``accuracy``: the share of accuracy lost (0.005 is
    half a point); ``auc``: the area under the ROC curve lost, for two classes. A model that errs
    less often than the limits on labels allow is held to its own rate of errors.

    For regressors and rankers: ``move``: the mean change of a number, and ``largest``: the largest
    one, in units of the model's error. For regressors: ``rmse`` and ``mae``: the share by which the
    root mean squared and the mean absolute error grow; ``r2``: R² lost. For rankers: ``order``: how
    far the rank correlation with the unmarked model is below 1; ``ndcg``: NDCG lost.

    All are judged by upper confidence bounds (the AUC by what chance does not explain), on rows
    that take no part in the edit and do not report its cost.

    Raises InputError unless each is None or a number from 0 to 1; ``largest`` may be above.

    >>> Budget(changed=0.02).drift
    0.01
    """

    changed: float | None = 0.01
    drift: float | None = 0.01
    accuracy: float | None = 0.005
    auc: float | None = 0.002
    move: float | None = 0.02
    largest: float | None = None
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
            most = float("inf") if field.name == "largest" else 1.0
            if not number or not 0.0 <= float(value) <= most:
                wanted = "above 0" if field.name == "largest" else "from 0 to 1"
                raise InputError(
                    f"The budget's {field.name}={value!r} must be None or a number {wanted}.",
                    hint="it is a share: 0.01 is one percent.",
                )
            object.__setattr__(self, field.name, float(value))


def check_budget(budget: Budget, task: str) -> None:
    """Raise InputError for a limit that was set but says nothing about the task.

    >>> check_budget(Budget(changed=0.02), "classification")
    >>> check_budget(Budget(changed=0.02), "regression")
    Traceback (most recent call last):
    timbermark.errors.InputError: The budget's changed is a limit for classification, and the \
model is one of regression. Hint: its limits are move, largest, rmse, mae, r2.
    """
    for field in fields(budget):
        value = getattr(budget, field.name)
        if field.name in LIMITS[task] or value in (field.default, None):
            continue
        owners = " and ".join(name for name, limits in LIMITS.items() if field.name in limits)
        raise InputError(
            f"The budget's {field.name} is a limit for {owners}, and the model is one of {task}.",
            hint=f"its limits are {', '.join(LIMITS[task])}.",
        )
