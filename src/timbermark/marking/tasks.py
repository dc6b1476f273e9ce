"""What marking must know of the answers that a model gives: labels, or numbers.

Everything else, how rows are chosen, how leaves are edited, how strengths are rehearsed, is the
same for every task. `Classification` and `Numbers` are the two that there are; which one a model
has is decided once, by `task_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from timbermark.libraries.contract import ForeignModel
from timbermark.marking.tallies import Counting


class Task(Protocol):
    """The answers of one model. Margins are [n, K], answers [n, classes] or, of numbers, [n, 1]."""

    @property
    def counting(self) -> Counting:
        """Return how answers before and after an edit are compared."""

    @property
    def unit(self) -> float:
        """Return the size of a change of the margin that matters."""

    @property
    def budget_share(self) -> float:
        """Return the share of the budget that a rehearsal may use.

        The real symbols may cost more, and unseen rows may move more than those that judge.
        """

    @property
    def set_shares(self) -> tuple[float, float]:
        """Return the shares of set symbols that are enough, and below which a mark is hopeless.

        Below the latter no other triggers are tried at the same strength.
        """

    @property
    def in_pairs(self) -> bool:
        """Return whether a trigger is a pair of rows; the rows of a pair follow each other."""

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return the true answers of n rows, as `Counting.tally` takes them.

        Raises InputError if they do not fit the model or the rows.
        """

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order of rows that depends on them alone; what belongs together stays so."""

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return two halves of rows in order; what belongs together stays so."""

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, columns: np.ndarray,
        holding: np.ndarray, seed: int,
    ) -> Task:  # fmt: skip
        """Return the task with its units.

        ``margins`` and ``target``: of rows that judge; ``columns`` [n, d] and ``holding`` [n, K]:
        the given rows that hold the model as columns of the ensemble, and their margins.
        """

    def weigh_rows(self, margins: np.ndarray) -> np.ndarray:
        """Return float64 [n, K]: how much it matters that each margin stays."""

    def find_alphabets(
        self, columns: np.ndarray, margins: np.ndarray, q: int, room: np.ndarray | None = None
    ) -> np.ndarray:
        """Return [n, q]: the alphabets of n rows, or of n pairs of rows.

        ``columns``: the rows as columns of the ensemble; ``room`` [n]: how easily the difference
        within each pair changes.
        """

    def wanted_margins(self, margins: np.ndarray, target: np.ndarray, lead: float) -> np.ndarray:
        """Return the margins [k, K] with which rows answer as ``target`` [k] of their alphabets."""

    def find_leads(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float,
    ) -> np.ndarray:  # fmt: skip
        """Return float64 [k]: above 0 where a row answers as it should, about ``lead`` at best."""

    def prove(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float,
    ) -> float:  # fmt: skip
        """Return the bits that the answers of an untouched copy prove, from margins [k, K]."""

    def forecast(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float, columns: np.ndarray,
    ) -> float:  # fmt: skip
        """Return the bits that attacked copies would prove; 0 where strengths are not compared."""

    def describe_triggers(
        self, rows: Any, margins: np.ndarray, alphabets: np.ndarray, lead: float
    ) -> Mapping[str, Any]:
        """Return what a mark holds of its triggers beside the rows: arguments of `Mark.make`.

        ``rows``: the triggers as the model is asked.
        """


def task_of(foreign: ForeignModel) -> Task:
    """Return the task of a model, before any units are known."""
    if foreign.task == "classification":
        from timbermark.marking.classification import Classification

        return Classification(foreign)
    from timbermark.marking.regression import Numbers

    return Numbers(foreign)
