"""What marking must know of the answers that a model gives: labels, or numbers.

Rows are chosen, compared and counted alike for every task. `Classification` and `Numbers` are the
two that there are; which one a model has is decided once, by `task_of`. Labels can be marked in
leaves and in splits, numbers in splits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import take_groups, take_numbers
from timbermark.marking.mixing import row_keys
from timbermark.marking.tallies import Counting

_UNKNOWN_ERROR = 0.2
"""Without targets, the error is taken as this share of the answers' standard deviation."""
_LEAST_ERROR = 0.01
"""The smallest error, as a share of the same deviation, for models that overfit their rows."""


class Task(Protocol):
    """The answers of one model. Margins are [n, K], answers [n, classes] or, of numbers, [n, 1]."""

    @property
    def counting(self) -> Counting:
        """Return how answers before and after an edit are compared."""

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return the true answers of n rows, as `Counting.tally` takes them.

        Raises InputError if they do not fit the model or the rows.
        """

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order of rows that depends on them alone; what belongs together stays so."""

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return two halves of rows in order; what belongs together stays so."""

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, holding: np.ndarray
    ) -> Task:
        """Return the task with its units.

        ``margins`` and ``target``: of rows that judge; ``holding`` [n, K]: margins of given rows.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The `Task` of regressors and rankers.

    ``error``: the model's root mean squared error, in answers; ``known_error``: whether targets
    told; ``centre``: the mean answer.
    """

    foreign: ForeignModel
    error: float = 1.0
    known_error: bool = False
    centre: float = 0.0

    @property
    def ranks(self) -> bool:
        """Return whether the answers are scores of a ranker, which only order rows."""
        return self.foreign.task == "ranking"

    @property
    def counting(self) -> Counting:
        """Return how numbers are compared: in units of the error, lists by their order."""
        kind = "ranks" if self.ranks else "numbers"
        return Counting(kind, self.error, self.known_error, self.centre)

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return targets, float64 [n], or targets and group numbers, float64 [n, 2]."""
        numbers = take_numbers(given, n, f"{what} targets")
        if groups is None:
            return numbers
        if not self.ranks:
            raise InputError("groups are for rankers.", hint="leave them out.", parameter="groups")
        return np.column_stack([numbers, take_groups(groups, n, f"{what} groups")])

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order that depends on the rows alone and keeps groups together."""
        keys = row_keys(X, seed)
        if target is None or target.ndim == 1:
            return np.argsort(keys, kind="stable")
        return np.lexsort((keys, row_keys(target[:, 1:], seed)))

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return every other row or group, and the others."""
        if target is None or target.ndim == 1:
            return order[::2], order[1::2]
        group = target[order, 1]
        second = np.cumsum(np.append(False, group[1:] != group[:-1])) % 2 == 1
        return order[~second], order[second]

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, holding: np.ndarray
    ) -> Numbers:
        """Return the task with the model's error and its mean answer."""
        answers = self.foreign.answers(margins)
        spread = float(np.std(answers)) or 1.0
        error, known = _UNKNOWN_ERROR * spread, False
        if target is not None and not self.ranks:
            error, known = float(np.sqrt(np.mean((target - answers[:, 0]) ** 2))), True
        error = max(error, _LEAST_ERROR * spread)
        return replace(self, error=error, known_error=known, centre=float(answers.mean()))


def task_of(foreign: ForeignModel) -> Task:
    """Return the task of a model, before any units are known."""
    if foreign.task != "classification":
        return Numbers(foreign)
    from timbermark.marking.classification import Classification

    return Classification(foreign)
