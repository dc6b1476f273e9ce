"""Counts and sums that compare a model before and after an edit, added up over parts of a table.

A table in memory is a table of one part. Counts are whole numbers and sums are exact, so that they
depend neither on the order of the rows nor on the parts. Ranks come from a joint histogram: how
many rows have which score before and which score after, in bins so fine that what they hide is far
below what is printed.

Plots are made of small counts of how answers are distributed before and after marking. They are
taken where the cost is measured, so that a result carries no row and no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timbermark.kernels.layout import add_by_exponent

TOP_SHARE = 0.02
"""The share of rows with the highest scores that `top` figures are about."""
TOP_OF_LIST = 10
"""The rows of each list of a ranker that `top` figures are about; of short lists half."""
_BINS, _FEWER_BINS, _MANY_ROWS = 1 << 15, 1 << 13, 1_000_000
"""Bins of scores, and those of tables with many rows, of which most bins would hold several."""
_WIDEST = 30.0
"""The largest log-odds, and the largest size of numbers on their scale, on either side."""
_NARROW = 1.0
"""The largest gap between the log-probabilities of a row's two best labels with which the row takes
part in estimating the share of changed labels."""
_LEAST = float(np.finfo(np.float64).eps)
"""The distance from 0 and 1 to which the log-loss clips probabilities, as scikit-learn's does."""
_WEIGHT = 1 << 20
"""The whole number that stands for a weight of 1."""
_LOWEST = 1074 + 53
"""Sums are whole multiples of 2 to the minus this, as all numbers of float64 are."""


def exact_sum(values: np.ndarray) -> int:
    """Return the sum of finite float64 values in units of the smallest, the same in any order.

    >>> as_float(exact_sum(np.array([1e300, 1.5, -1e300])))
    1.5
    """
    sums = np.zeros((2047, 2), np.int64)
    add_by_exponent(np.ascontiguousarray(values, np.float64).ravel().view(np.int64), sums)
    total = 0
    used = np.flatnonzero(sums[:, 0] | sums[:, 1])
    for exponent, (high, low) in zip(used.tolist(), sums[used].tolist(), strict=True):
        total += ((high << 27) + low) << (max(exponent, 1) + _LOWEST - 1075)
    return int(total)


def as_float(total: int, n: int = 1) -> float:
    """Return an exact sum divided by ``n``, as float64."""
    return total / (n << _LOWEST)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """How many rows have which score before and after: cells that are not empty, in order.

    ``before`` and ``after`` int64 [cells]: bins; ``count`` int64: rows; ``weight`` int64: the sum
    of the rows' weights in the second class, in units of `_WEIGHT`. Rows of different labels are
    in different cells, so that a cell's mean weight is each row's.
    """

    bins: int
    before: np.ndarray
    after: np.ndarray
    count: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(
        cls, before: np.ndarray, after: np.ndarray, weight: np.ndarray | None, n_rows: int
    ) -> Joint:
        """Count scores [n] between -30 and 30; ``n_rows``: of the whole table."""
        bins = _BINS if n_rows <= _MANY_ROWS else _FEWER_BINS
        own = np.zeros(len(before)) if weight is None else weight
        whole = np.rint(own * _WEIGHT).astype(np.int64)
        places = [
            np.clip((score + _WIDEST) * (bins / (2.0 * _WIDEST)), 0, bins - 1).astype(np.int64)
            for score in (before, after)
        ]
        sure = (whole == _WEIGHT).astype(np.int64)
        return cls._gather(
            bins, (sure * bins + places[0]) * bins + places[1], np.ones_like(whole), whole
        )

    @classmethod
    def _gather(cls, bins: int, codes: np.ndarray, count: np.ndarray, weight: np.ndarray) -> Joint:
        cells, place = np.unique(codes, return_inverse=True)
        # Sums of whole numbers below 2^53 are exact in float64.
        sums = [
            np.bincount(place, weights=part.astype(np.float64), minlength=len(cells))
            for part in (count, weight)
        ]
        whole = [part.astype(np.int64) for part in sums]
        return cls(bins, cells // bins, cells % bins, whole[0], whole[1])

    def __add__(self, other: Joint) -> Joint:
        assert self.bins == other.bins
        codes = [part.before * part.bins + part.after for part in (self, other)]
        return self._gather(
            self.bins,
            np.concatenate(codes),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.weight, other.weight]),
        )

    @property
    def width(self) -> float:
        """Return the width of a bin, in the unit of the scores."""
        return 2.0 * _WIDEST / self.bins

    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the bins of every cell before and after, without the labels."""
        return self.before % self.bins, self.after

    def shares(self) -> np.ndarray:
        """Return the weight of a row of each cell in the second class, float64 from 0 to 1."""
        return self.weight / (self.count * float(_WEIGHT))


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """What an edit changed on ``n`` rows: whatever parts of a table add up to.

    ``sums``: exact sums by name; ``counts``: int64 arrays; ``most``: maxima; ``joint``: of two
    classes or of numbers. ``has_target``: the true answers are known or estimated; ``estimated``:
    they are weights in the classes, not labels.
    """

    n: int
    sums: Mapping[str, int]
    counts: Mapping[str, np.ndarray]
    most: Mapping[str, float]
    joint: Joint | None
    has_target: bool
    estimated: bool = False

    def __add__(self, other: Tally) -> Tally:
        joint = None
        if self.joint is not None and other.joint is not None:
            joint = self.joint + other.joint
        return Tally(
            self.n + other.n,
            {name: self.sums[name] + other.sums[name] for name in self.sums},
            {name: self.counts[name] + other.counts[name] for name in self.counts},
            {name: max(self.most[name], other.most[name]) for name in self.most},
            joint,
            self.has_target,
            self.estimated,
        )

    def mean(self, name: str) -> float:
        """Return a sum divided by the number of rows."""
        return as_float(self.sums[name], self.n)

    def total(self, name: str) -> float:
        """Return a sum."""
        return as_float(self.sums[name])


@dataclass(frozen=True, slots=True)
class Counting:
    """How answers are compared: ``kind``: "labels", "numbers" or "ranks".

    ``error``: the unit of changes of numbers, told by targets if ``known_error``; ``centre``: the
    number from which answers are counted as large.
    """

    kind: str
    error: float = 1.0
    known_error: bool = False
    centre: float = 0.0

    def tally(
        self,
        before: np.ndarray,
        after: np.ndarray,
        target: np.ndarray | None,
        n_rows: int | None = None,
    ) -> Tally:
        """Compare answers, probabilities [n, K] or numbers [n, 1], before and after.

        ``target`` as the task takes it; where a classifier has none, its own probabilities stand
        for labels. ``n_rows``: of the whole table, if these are a part.
        """
        if self.kind == "labels":
            own = before / before.sum(axis=1, keepdims=True) if target is None else target
            return tally_labels(before, after, own, n_rows)
        return tally_numbers(
            before[:, 0], after[:, 0], target, self.error, self.centre, self.kind == "ranks", n_rows
        )


def add_up(tallies: Sequence[Tally]) -> Tally:
    """Return the tally of all rows together.

    >>> p = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> add_up([tally_labels(p, p, np.array([0, 1]))] * 3).n
    6
    """
    while len(tallies) > 1:
        # In pairs, because adding up one after the other sorts the same cells again and again.
        odd = tallies[len(tallies) & ~1 :]
        tallies = [a + b for a, b in zip(tallies[::2], tallies[1::2], strict=False)] + list(odd)
    return tallies[0]


def tally_labels(
    before: np.ndarray, after: np.ndarray, target: np.ndarray, n_rows: int | None = None
) -> Tally:
    """Compare probabilities [n, K] before and after.

    ``target``: class numbers, int64 [n], or estimates of how likely each class is, float64 [n, K];
    ``n_rows``: of the whole table, if these are a part.

    >>> p = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> int(tally_labels(p, p[:, ::-1], np.array([0, 1])).counts["changed"])
    2
    """
    n, n_classes = before.shape
    rows = np.arange(n)
    was, now = before.argmax(axis=1), after.argmax(axis=1)
    differs = was != now
    # By class rather than by row: the largest of few classes is found far quicker so.
    moved = np.abs(np.ascontiguousarray((after - before).T)).max(axis=0)
    old, new = (np.log(np.maximum(p, 1e-12)) for p in (before, after))
    expected, leading, swings = _expected_changes(old, new)
    sums = {
        "moved": exact_sum(moved),
        "moved²": exact_sum(moved**2),
        "expected": exact_sum(expected),
        "expected²": exact_sum(expected**2),
        "swings": exact_sum(swings),
    }
    touched = np.concatenate([was[differs], now[differs]])
    counts = {
        "changed": np.asarray(differs.sum()),
        "touched": np.bincount(touched, minlength=n_classes),
    }
    for c in range(n_classes):
        shift = after[:, c] - before[:, c]
        near = sums["expected"], sums["expected²"]
        if n_classes > 2:
            own = expected * (leading == c).any(axis=1)
            near = exact_sum(own), exact_sum(own**2)
        sums |= {
            f"before {c}": exact_sum(before[:, c]),
            f"after {c}": exact_sum(after[:, c]),
            f"shift² {c}": exact_sum(shift**2),
            f"near {c}": near[0],
            f"near² {c}": near[1],
        }
    estimated = target.ndim == 2
    member = target if estimated else np.eye(n_classes)[target]
    # Estimated labels vary as drawn ones would, so that squares are those of drawn ones.
    lost = member[rows, was] - member[rows, now]
    sums |= {
        "lost": exact_sum(lost),
        "lost²": exact_sum((member[rows, was] + member[rows, now])[differs]),
    }
    for side, p, answer in (("before", before, was), ("after", after, now)):
        share = np.clip(p / p.sum(axis=1, keepdims=True), _LEAST, 1.0 - _LEAST)
        sums[f"loss {side}"] = exact_sum(-(member * np.log(share)).sum(axis=1))
        sums[f"right {side}"] = exact_sum(member[rows, answer])
        for c in range(n_classes):
            sums[f"right {side} {c}"] = exact_sum(member[answer == c, c])
    gaps = [_gaps(log_p) for log_p in (old, new)]
    nearness = np.maximum(1.0 - np.abs(gaps[0]) / _NARROW, 0.0) / _NARROW
    flips = np.clip(nearness * (gaps[0] - gaps[1]), -1.0, 1.0)
    for c in range(n_classes):
        drop = member[:, c] * flips[:, c]
        sums |= {
            f"of {c}": exact_sum(member[:, c]),
            f"worse {c}": exact_sum(member[differs & (was == c), c]),
            f"drop {c}": exact_sum(drop),
            f"drop² {c}": exact_sum(drop * flips[:, c]),
        }
    joint = None
    if n_classes == 2:
        odds = [log_p[:, 1] - log_p[:, 0] for log_p in (old, new)]
        joint = Joint.of(odds[0], odds[1], member[:, 1], n if n_rows is None else n_rows)
    most = {"moved": float(moved.max(initial=0.0))}
    return Tally(n, sums, counts, most, joint, True, estimated)


def _expected_changes(
    old: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how likely a row like each one changes its label, its two best labels, and the move.

    Counting changed labels needs thousands of rows, because few change. A label changes where the
    gap between the two best labels is smaller than what it moves by, so that rows with a small gap
    tell the share more precisely: it is the density of gaps at 0 times half of their mean move.
    """
    rows = np.arange(len(old))
    if old.shape[1] == 2:
        first = old.argmax(axis=1)
        best = np.column_stack([first, 1 - first])
    else:
        best = np.argsort(-old, axis=1, kind="stable")[:, :2]
    gap = old[rows, best[:, 0]] - old[rows, best[:, 1]]
    move = np.abs(new[rows, best[:, 0]] - new[rows, best[:, 1]] - gap)
    return np.maximum(1.0 - gap / _NARROW, 0.0) / _NARROW * move, best, np.minimum(move, 1.0)


def _gaps(log_p: np.ndarray) -> np.ndarray:
    """Return by how much each class is ahead of the best other one, float64 [n, K]."""
    if log_p.shape[1] == 2:
        return np.asarray(log_p - log_p[:, ::-1])
    ordered = np.sort(log_p, axis=1)
    best, next_best = ordered[:, -1:], ordered[:, -2:-1]
    return np.asarray(np.where(log_p == best, best - next_best, log_p - best))


def tally_numbers(
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    error: float,
    centre: float,
    ranks: bool,
    n_rows: int | None = None,
) -> Tally:
    """Compare numbers [n] before and after.

    ``target``: true numbers [n], or gains and group numbers of a ranker [n, 2]; ``error``: the
    unit of changes; ``centre``: the number from which answers are counted as large; ``n_rows``: of
    the whole table, if these are a part.

    >>> answers = np.arange(5.0)
    >>> tally_numbers(answers, answers + 0.5, None, 2.0, 0.0, False).mean("moved")
    0.25
    """
    shift = (after - before) / error
    moved = np.abs(shift)
    size = np.abs(before - centre) / error
    relative = np.minimum(moved / np.maximum(size, 1.0), 1.0)
    scores = [np.arcsinh((answers - centre) / error) for answers in (before, after)]
    joint = Joint.of(scores[0], scores[1], None, len(before) if n_rows is None else n_rows)
    place = np.clip(np.arcsinh(size) * (_BINS / _WIDEST), 0, _BINS - 1).astype(np.int64)
    parts = np.rint(relative * _WEIGHT).astype(np.int64)
    sums = {
        "moved": exact_sum(moved),
        "moved²": exact_sum(moved**2),
        "shift": exact_sum(shift),
        "before": exact_sum(before / error),
        "after": exact_sum(after / error),
        "size": exact_sum(np.abs(before) / error),
    }
    counts = {
        "sizes": np.bincount(place, minlength=_BINS),
        "relative": _add_whole(place, parts),
        "relative²": _add_whole(place, np.rint(relative**2 * _WEIGHT).astype(np.int64)),
    }
    if target is not None and ranks:
        sums |= _sum_lists(before, after, grouped(target))
    elif target is not None:
        was, now = np.abs(target - before) / error, np.abs(target - after) / error
        sums |= {
            "missed before": exact_sum(was),
            "missed after": exact_sum(now),
            "missed² before": exact_sum(was**2),
            "missed² after": exact_sum(now**2),
            "grown²": exact_sum((now - was) ** 2),
            "squares grown²": exact_sum((now**2 - was**2) ** 2),
            "target": exact_sum(target / error),
            "target²": exact_sum((target / error) ** 2),
        }
    most = {"moved": float(moved.max(initial=0.0))}
    return Tally(len(before), sums, counts, most, joint, target is not None)


def _add_whole(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    sums = np.bincount(place, weights=values.astype(np.float64), minlength=_BINS)
    return np.asarray(sums.astype(np.int64))


def largest_answers(tally: Tally) -> tuple[float, float, int]:
    """Return the mean relative change of the largest answers, its variance, and how many they are.

    These are the `TOP_SHARE` of rows farthest from the centre, at least one.
    """
    counts = tally.counts["sizes"]
    above = np.cumsum(counts[::-1])[::-1]
    wanted = max(int(np.ceil(TOP_SHARE * tally.n)), 1)
    first = int(np.flatnonzero(above >= wanted)[-1])
    n = int(above[first])
    mean, square = (
        float(tally.counts[name][first:].sum()) / _WEIGHT / n for name in ("relative", "relative²")
    )
    return mean, max(square - mean**2, 0.0), n


def grouped(target: np.ndarray) -> np.ndarray:
    """Return gains and group numbers [n, 2]; without groups all rows are one.

    >>> grouped(np.array([1.0, 2.0])).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    return target if target.ndim == 2 else np.column_stack([target, np.zeros(len(target))])


def _sum_lists(before: np.ndarray, after: np.ndarray, target: np.ndarray) -> dict[str, int]:
    """Sum NDCG and the share of the top that is kept over the lists of a ranker."""
    first, second = group_ndcg(before, target), group_ndcg(after, target)
    lost = first - second
    gone = []
    for rows in _groups(target):
        k = min(TOP_OF_LIST, (len(rows) + 1) // 2)
        if len(rows) > 1:
            was, now = (
                np.argsort(-answers[rows], kind="stable")[:k] for answers in (before, after)
            )
            gone.append(1.0 - len(np.intersect1d(was, now)) / k)
    return {
        "lists": len(lost),
        "ndcg before": exact_sum(first),
        "ndcg after": exact_sum(second),
        "ndcg lost": exact_sum(lost),
        "ndcg lost²": exact_sum(lost**2),
        "tops": len(gone),
        "gone": exact_sum(np.array(gone)),
        "gone²": exact_sum(np.array(gone) ** 2),
    }


def group_ndcg(answers: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return NDCG of each group, float64; ``target`` [n, 2] has gains and group numbers.

    Gains count as they are given, ties of answers by their mean discount. Groups without any gain,
    or of one row, have no order to speak of and are left out.

    >>> target = np.array([[3.0, 0], [0.0, 0], [1.0, 0], [0.0, 1]])
    >>> group_ndcg(np.array([9.0, 1.0, 5.0, 0.0]), target)
    array([1.])
    """
    from sklearn.metrics import ndcg_score

    found = []
    for rows in _groups(target):
        gain = target[rows, 0] - min(float(target[rows, 0].min()), 0.0)
        if len(rows) > 1 and gain.any():
            found.append(ndcg_score([gain], [answers[rows]]))
    return np.array(found)


def _groups(target: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(target[:, 1], kind="stable")
    starts = np.flatnonzero(np.diff(target[order, 1], prepend=np.nan) != 0.0)
    return list(np.split(order, starts[1:]))


N_BINS = 20
N_RELIABILITY_BINS = 10
CHANGE_EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Edges of the bins for changes of a probability, finer near 0, where most changes are."""
_TAIL = 0.005
"""The share of numbers on either side that the outer bins collect."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many rows lie in each bin, ``before`` and ``after``; ``edges`` has one number more.

    The outer bins collect what lies beyond them.
    """

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Rows with similar scores: how many, the mean of their scores, and how often they hold."""

    n: int
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class ClassCalibration:
    """One class: its share of the rows and the calibration errors before and after.

    A calibration error is the mean distance of scores and shares over bins of 0.1, weighted by the
    number of rows.
    """

    share: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ScoreDistributions:
    """The scores of a classifier.

    ``scores``: of two classes, those of the second; of more, those of the most likely class of each
    row. ``changes``: how many rows' largest change of a probability lies in each bin. What needs
    labels is empty without them. ``mean_before`` and ``mean_after``: the mean score of each class.
    """

    scores: Histogram
    changes: tuple[int, ...]
    reliability_before: tuple[ReliabilityBin, ...] = ()
    reliability_after: tuple[ReliabilityBin, ...] = ()
    by_class: tuple[ClassCalibration, ...] = ()
    mean_before: tuple[float, ...] = ()
    mean_after: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberDistributions:
    """The numbers of a regressor or a ranker; what needs targets is None without them.

    ``changes``: answers after minus before, in units of the model's error; ``errors``: answers
    minus targets of a regressor; ``ndcg``: of each group of a ranker.
    """

    answers: Histogram
    changes: Histogram
    errors: Histogram | None = None
    ndcg: Histogram | None = None


def score_distributions(
    before: np.ndarray, after: np.ndarray, label: np.ndarray | None, moved: np.ndarray
) -> ScoreDistributions:
    """Count probabilities [n, K] before and after; ``moved``: the largest change of each row.

    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> found = score_distributions(p, p, np.array([0, 1]), np.zeros(2))
    >>> found.scores.after[2], found.scores.after[16], found.changes[0]
    (1, 1, 2)
    >>> found.by_class[1].share
    0.5
    """
    scores = Histogram(
        _edges(0.0, 1.0),
        *(_count(_top(given), _edges(0.0, 1.0)) for given in (before, after)),
    )
    changes = _count(moved, CHANGE_EDGES)
    means = [tuple(given.mean(axis=0).tolist()) for given in (before, after)]
    if label is None:
        return ScoreDistributions(scores, changes, mean_before=means[0], mean_after=means[1])
    bins = [_reliability(_top(given), _holds(given, label)) for given in (before, after)]
    by_class = tuple(
        ClassCalibration(
            share=float((label == kind).mean()),
            before=_calibration_error(before[:, kind], label == kind),
            after=_calibration_error(after[:, kind], label == kind),
        )
        for kind in range(before.shape[1])
    )
    return ScoreDistributions(scores, changes, bins[0], bins[1], by_class, *means)


def number_distributions(
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    moved: np.ndarray,
    ndcg: tuple[np.ndarray, np.ndarray] | None = None,
) -> NumberDistributions:
    """Count numbers [n] before and after on rows with ``target`` [n], or without.

    ``moved``: the change of each number, in units of the error; ``ndcg``: of each group.

    >>> answers = np.arange(20.0)
    >>> found = number_distributions(answers, answers, answers + 1.0, np.zeros(20))
    >>> sum(found.answers.before), max(found.errors.after)
    (20, 20)
    """
    return NumberDistributions(
        answers=_histogram(before, after),
        changes=_histogram(np.zeros(0), moved, around_zero=True),
        errors=None if target is None
        else _histogram(before - target, after - target, around_zero=True),
        ndcg=None if ndcg is None or not len(ndcg[0])
        else Histogram(_edges(0.0, 1.0), *(_count(part, _edges(0.0, 1.0)) for part in ndcg)),
    )  # fmt: skip


def _histogram(before: np.ndarray, after: np.ndarray, around_zero: bool = False) -> Histogram:
    low, high = np.quantile(np.concatenate([before, after]), [_TAIL, 1.0 - _TAIL])
    if around_zero:
        high = max(abs(low), abs(high))
        low = -high
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = _edges(float(low), float(high))
    return Histogram(edges, _count(before, edges), _count(after, edges))


def _edges(low: float, high: float) -> tuple[float, ...]:
    return tuple(float(edge) for edge in np.linspace(low, high, N_BINS + 1))


def _count(values: np.ndarray, edges: tuple[float, ...]) -> tuple[int, ...]:
    inside = np.clip(values, edges[0], edges[-1])
    return tuple(int(n) for n in np.histogram(inside, np.asarray(edges))[0])


def _top(confidence: np.ndarray) -> np.ndarray:
    found: np.ndarray = confidence[:, 1] if confidence.shape[1] == 2 else confidence.max(axis=1)
    return found


def _holds(confidence: np.ndarray, label: np.ndarray) -> np.ndarray:
    if confidence.shape[1] == 2:
        return np.asarray(label == 1)
    return np.asarray(confidence.argmax(axis=1) == label)


def _reliability(score: np.ndarray, holds: np.ndarray) -> tuple[ReliabilityBin, ...]:
    places = np.clip((score * N_RELIABILITY_BINS).astype(int), 0, N_RELIABILITY_BINS - 1)
    return tuple(
        ReliabilityBin(int(rows.sum()), float(score[rows].mean()), float(holds[rows].mean()))
        for rows in (places == place for place in range(N_RELIABILITY_BINS))
        if rows.any()
    )


def _calibration_error(score: np.ndarray, holds: np.ndarray) -> float:
    bins = _reliability(score, holds)
    return sum(b.n * abs(b.score - b.share) for b in bins) / len(score)
