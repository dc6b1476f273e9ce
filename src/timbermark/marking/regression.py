"""Regression and ranking: pairs of rows answer with levels around the difference they had before.

The levels are equally far apart in margins, before any inverse link: a model that predicts with an
exponential then has levels that differ by a factor, which cost the same wherever the trigger is.
How far depends on the pair: a copy that was averaged with another model keeps the mark only where
levels are as far apart as the differences of two models are. Shadow models, trained on small parts
of the rows with the model's own answers and noise of the size of its error, tell how far that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import take_groups, take_numbers
from timbermark.marking.mixing import row_keys
from timbermark.marking.tallies import Counting
from timbermark.ownership.evidence import numbers_evidence
from timbermark.trees import reference

_UNKNOWN_ERROR = 0.2
"""Without targets, the error is taken as this share of the answers' standard deviation."""
_LEAST_ERROR = 0.01
"""The smallest error, as a share of the same deviation, for models that overfit their rows."""
_LEAST_WEIGHT, _MOST_WEIGHT = 0.05, 20.0
_LEAST_GAP = 0.01
"""The smallest difference between models that is assumed anywhere, as a share of the error."""
_REFITTED = 0.05
"""Refitting leaves to a fifth of the rows adds a variance of this much times its room to a
difference, in units of the error, at a learning rate of 0.1."""
_SHADOWS, _JUDGES, _SHADOW_TREES = 6, 2, 60
"""The numbers of shadow models that choose pairs and of those that forecast averaging; their
trees."""
_ENOUGH_KEPT = 128.0
"""Bits of an averaged copy above which further evidence does not count in a forecast."""
_SLOPE_STEP = 0.01
"""The step for slopes of transformed answers, as a share of the margins' standard deviation."""
_CHECKED_SHARE, _CHECKED_LEADS = 0.98, (0.05, 0.5, 2.0)
"""Transformed answers must be monotone over the margins of this share of rows; pairs outside of
them are used if their levels rise at these leads."""
_SHADOW_SHARE, _FEWEST_SHADOW_ROWS, _MOST_SHADOW_ROWS = 0.2, 300, 4_000
"""The rows that a shadow model is trained on: as many as a thief is assumed to have."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The `timbermark.marking.tasks.Task` of regressors and rankers.

    ``error``: the model's root mean squared error, in answers; ``known_error``: whether targets
    told; ``unit``: the change of a margin that changes answers by so much; ``shadows``: models of
    others, which tell how far apart models are on a row; ``falls``: a transformation of targets
    makes answers fall where margins rise; ``centre``: the mean answer.
    """

    foreign: ForeignModel
    error: float = 1.0
    unit: float = 1.0
    known_error: bool = False
    shadows: tuple[Any, ...] = ()
    falls: bool = False
    centre: float = 0.0
    budget_share = 0.9
    # A level that is reached half way proves nearly as much, as all triggers are read together.
    set_shares = (0.65, 0.4)
    in_pairs = True

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
            raise InputError("groups are for rankers.", hint="leave them out.")
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
        self, margins: np.ndarray, target: np.ndarray | None, columns: np.ndarray,
        holding: np.ndarray, seed: int,
    ) -> Numbers:  # fmt: skip
        """Return the task with the model's error, its equivalent in margins, and shadow models."""
        answers, slope = self.foreign.answers(margins), slopes(self.foreign, margins)
        spread = float(np.std(answers)) or 1.0
        error, known = _UNKNOWN_ERROR * spread, False
        if target is not None and not self.ranks:
            error, known = float(np.sqrt(np.mean((target - answers[:, 0]) ** 2))), True
        error = max(error, _LEAST_ERROR * spread)
        unit = error / max(float(np.sqrt(np.mean(slope**2))), 1e-300)
        shadows = fit_shadows(columns, holding[:, 0], unit, seed)
        return replace(
            self, error=error, known_error=known, unit=unit, shadows=shadows,
            falls=answers_fall(self.foreign, margins), centre=float(answers.mean()),
        )  # fmt: skip

    def weigh_rows(self, margins: np.ndarray) -> np.ndarray:
        """Return float64 [n, 1]: how far an answer moves when its margin does, 1 on average."""
        moves = slopes(self.foreign, margins)
        moves = moves / max(float(moves.mean()), 1e-300)
        return np.asarray(np.clip(moves, _LEAST_WEIGHT, _MOST_WEIGHT))

    def find_alphabets(
        self, columns: np.ndarray, margins: np.ndarray, q: int, room: np.ndarray | None = None
    ) -> np.ndarray:
        """Return float64 [n, q]: by how much each level changes the difference within n pairs.

        That is at a lead of 1 and in margins. Levels are farther apart where models differ more, or
        where leaves that are fitted again move more: only then is the same lead worth the same on
        every trigger. Levels are infinite where answers do not tell them apart.
        """
        assert room is not None  # of pairs
        others = np.array([shadow.predict(columns) for shadow in self.shadows[:_SHADOWS]])
        steps = (others[:, 1::2] - others[:, ::2]) - (margins[1::2, 0] - margins[::2, 0])
        squares = (steps / self.unit) ** 2
        noise = np.sqrt(squares.mean(axis=0) + _LEAST_GAP**2 + _REFITTED * room)
        unit = -self.unit if self.falls else self.unit
        alphabets = unit * noise[:, None] * (np.arange(q) - 0.5 * (q - 1))
        if self.foreign.numbers is not None:
            for lead in _CHECKED_LEADS:
                levels = self._levels(margins, np.where(np.isinf(alphabets), 0.0, alphabets), lead)
                alphabets[~(np.diff(levels, axis=1) > 0.0).all(axis=1)] = np.inf
        return np.asarray(alphabets)

    def wanted_margins(self, margins: np.ndarray, target: np.ndarray, lead: float) -> np.ndarray:
        """Return the margins of pairs [2k, 1] whose differences change by ``lead * target`` [k]."""
        wanted = margins.copy()
        wanted[::2, 0] -= 0.5 * lead * target
        wanted[1::2, 0] += 0.5 * lead * target
        return wanted

    def find_leads(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float,
    ) -> np.ndarray:  # fmt: skip
        """Return ``lead`` where a level is met exactly, 0 half way to the next one.

        To outer levels 0.4 of the way is enough: evidence is read from all triggers together, and a
        copy that has the same part of every change is as clear as one that has all of them.
        """
        wanted = lead * alphabets[np.arange(len(symbols)), symbols]
        step = lead * np.abs(alphabets[:, 1] - alphabets[:, 0])
        shift = (after - before)[:, 0]
        missed = np.abs(shift[1::2] - shift[::2] - wanted)
        return np.asarray(lead * (1.0 - missed / np.maximum(0.5 * step, 0.6 * np.abs(wanted))))

    def prove(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float,
    ) -> float:  # fmt: skip
        """Return the bits that the numbers of an untouched copy prove."""
        answers = self.foreign.answers(after)[:, 0]
        levels = self._levels(before, alphabets, lead)
        return numbers_evidence(answers[1::2] - answers[::2], levels, symbols)

    def forecast(
        self, before: np.ndarray, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray,
        lead: float, columns: np.ndarray,
    ) -> float:  # fmt: skip
        """Return the mean bits after averaging half and half with models that chose no pair.

        What proves more than anyone asks for does not make up for what proves too little.
        """
        levels = self._levels(before, alphabets, lead)
        kept = []
        for other in self.shadows[_SHADOWS:]:
            answers = self.foreign.answers(0.5 * (after + other.predict(columns)[:, None]))[:, 0]
            bits = numbers_evidence(answers[1::2] - answers[::2], levels, symbols)
            kept.append(min(bits, _ENOUGH_KEPT))
        return float(np.mean(kept))

    def describe_triggers(
        self, rows: Any, margins: np.ndarray, alphabets: np.ndarray, lead: float
    ) -> Mapping[str, Any]:
        """Return the levels of differences and the unmarked model's numbers."""
        plain = margins.astype(np.float64)
        return {
            "answers": "numbers",
            "alphabets": self._levels(plain, alphabets, lead),
            "reference": self.foreign.answers(plain).reshape(-1, 2),
        }

    def _levels(self, margins: np.ndarray, alphabets: np.ndarray, lead: float) -> np.ndarray:
        """Return the differences of answers at all levels, float64 [k, q]."""
        moved = 0.5 * lead * alphabets
        first, second = margins[::2] - moved, margins[1::2] + moved
        return self.foreign.answers(second) - self.foreign.answers(first)


def slopes(foreign: ForeignModel, margins: np.ndarray) -> np.ndarray:
    """Return how far an answer moves when its margin does, at each margin, float64 [n, 1].

    >>> from sklearn.ensemble import GradientBoostingRegressor
    >>> from timbermark import libraries
    >>> model = GradientBoostingRegressor(n_estimators=2).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> slopes(libraries.open(model), np.array([[0.0], [1.0]])).tolist()
    [[1.0], [1.0]]
    """
    scale, objective = foreign.margin_scale, foreign.ensemble.objective
    if foreign.numbers is not None:
        step = max(_SLOPE_STEP * float(np.std(margins)), 1e-9)
        moved = foreign.answers(margins + step) - foreign.answers(margins - step)
        return np.abs(np.where(np.isfinite(moved), moved, 0.0)) / (2.0 * step)
    if objective == "identity":
        return np.full(margins.shape, scale)
    answers = reference.numbers(margins * scale, objective)
    return scale * (answers if objective == "exponential" else answers * (1.0 - answers))


def answers_fall(foreign: ForeignModel, margins: np.ndarray) -> bool:
    """Return whether answers fall where margins rise, as transformed numbers may.

    Raises InputError if they rise here and fall there, are constant or not finite.
    """
    if foreign.numbers is None:
        return False
    beyond = 0.5 * (1.0 - _CHECKED_SHARE)
    low, high = np.quantile(margins, [beyond, 1.0 - beyond])
    grid = np.linspace(low, high, 257)[:, None]
    steps = np.diff(foreign.answers(grid)[:, 0])
    rises, falls = bool((steps >= 0.0).all()), bool((steps <= 0.0).all())
    if rises == falls:
        raise InputError(
            f"What the {foreign.kind} makes of the numbers inside does not always rise with them, "
            "or is not finite.",
            hint="use a transformation of targets that is monotone, such as a logarithm; or mark "
            "its regressor_ with targets as that one was trained on.",
        )
    return falls


def fit_shadows(
    columns: np.ndarray, margins: np.ndarray, noise: float, seed: int
) -> tuple[Any, ...]:
    """Return shadow models, each trained on a part of the rows [n, d] and margins [n].

    >>> X = np.arange(80.0)[:, None]
    >>> len(fit_shadows(X, X[:, 0] ** 2, 1.0, seed=0))
    8
    """
    from timbermark.estimator import TimberRegressor

    wanted = np.clip(_SHADOW_SHARE * len(columns), _FEWEST_SHADOW_ROWS, _MOST_SHADOW_ROWS)
    n, rng = min(int(wanted), len(columns)), np.random.default_rng(seed + 5)
    shadows = []
    for number in range(_SHADOWS + _JUDGES):
        rows = np.sort(rng.permutation(len(columns))[:n])
        target = margins[rows] + noise * rng.normal(size=n)
        shadow = TimberRegressor(
            max_iter=_SHADOW_TREES, max_leaf_nodes=31, min_samples_leaf=20, split_sampling=1.0,
            keep_state=False, random_state=number,
        )  # fmt: skip
        shadows.append(shadow.fit(columns[rows], target))
    return tuple(shadows)
