"""What a mark may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real

from timbermark.errors import InputError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what marking may change, each None where it is no limit.

    ``changed``: the share of rows whose label changes; ``drift``: the mean over rows of the largest
    change of a probability; ``accuracy``: the share of accuracy lost (0.005 is half a point);
    ``auc``: the area under the ROC curve lost, for two classes. They are judged by upper confidence
    bounds (the AUC by what chance does not explain), on rows that take no part in the edit and do
    not report its cost. A model
    that errs less often than the limits on labels allow is held to its own rate of errors.

    Raises InputError unless each is None or a number from 0 to 1.

    >>> Budget(changed=0.02).drift
    0.01
    """

    changed: float | None = 0.01
    drift: float | None = 0.01
    accuracy: float | None = 0.005
    auc: float | None = 0.002

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not 0.0 <= float(value) <= 1.0:
                raise InputError(
                    f"The budget's {field.name}={value!r} must be None or a number from 0 to 1.",
                    hint="it is a share: 0.01 is one percent.",
                )
            object.__setattr__(self, field.name, float(value))
