"""What a mark costs: figures with their bounds, out of tallies.

Every figure is a change with an upper confidence bound. `timbermark.marking.budget` compares the
bounds of the rows that judge with the limits; the report states the changes and wider bounds on
other rows, and says which rows these are. Labels, numbers and ranks differ in which figures they
have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from timbermark.marking.defaults import (
    CONFIDENCE,
    FEW_ROWS,
    RARE_SHARE,
    STATED_CONFIDENCE,
    UNSEEN_ANSWER,
    UNSEEN_MOVE,
    UNSEEN_NUMBER,
    UNSEEN_ORDER,
    UNSEEN_PRECISION,
    UNSEEN_RANKS,
    UNSEEN_SLACK,
    UNSEEN_SQUARE,
)
from timbermark.marking.tallies import (
    TOP_SHARE,
    Joint,
    NumberDistributions,
    ScoreDistributions,
    Tally,
    as_float,
    largest_answers,
)
from timbermark.reportable import Reportable

_ONE_ROW = 1.0 / 3.0
"""What Bernstein's inequality adds, per unit of a bound's logarithm, where each row counts as 1."""
_NEAR_EDGE = 0.5
"""The distance from the edge of the top, in log-odds, within which rows tell how many cross it."""
QUALITY = ("accuracy", "log_loss", "auc", "precision", "recall")
"""The figures of classifiers that need labels."""
_WITHOUT_BOUND = ("log_loss", "largest", "largest_drift")
"""The figures that say nothing of unseen rows: their chance is not known."""


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows that figures were measured on.

    ``code``: "validation", "training", "candidates", each "all …" of a large table, or "unseen":
    rows made to resemble unseen ones. ``estimated``: true labels are not known, the model's own
    scores stand for them.
    """

    code: str
    n: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: a code, of one class its ``label``, the values ``before`` and ``after``.

    ``change``: what a limit is about, 0 or below if nothing was lost; ``error``: its standard
    error; ``steadier``: an estimate of the change with less chance in it, which the bound starts
    from; ``hits``: how many of how many rows changed, and ``scale``: what a share of 1 of them
    would be. ``one_more``: what an unseen row may add that changes as no row of these did.
    ``rows``: what it was measured on.
    """

    code: str
    change: float
    error: float = 0.0
    before: float | None = None
    after: float | None = None
    label: Any = None
    steadier: float | None = None
    hits: tuple[int, int] | None = None
    scale: float = 1.0
    one_more: float = 0.0
    rows: RowSet | None = None

    def at_most(self, confidence: float) -> float:
        """Return the upper confidence bound of the change, 0 at least.

        >>> Figure("drift", 0.01, 0.001).at_most(0.5)
        0.01
        """
        start = self.change if self.steadier is None else self.steadier
        bound = start + float(ndtri(confidence)) * self.error
        if self.hits is not None:
            # Should more rows have changed than the estimate explains, the count decides.
            least = self.scale * share_at_least(*self.hits, confidence)
            bound = min(max(bound, least), self._count_at_most(confidence))
        return max(bound, 0.0)

    @property
    def bound(self) -> float | None:
        """Return the bound that is stated with the figure, wider where rows are made up.

        The log-loss and the largest change have none. Where rows are counted the bound is that of
        the count, which assumes nothing. Otherwise so many rows may change as none does here as a
        count of none allows.
        """
        if self.code in _WITHOUT_BOUND:
            return None
        made_up = self.rows is not None and self.rows.code == "unseen"
        bound = self.at_most(STATED_CONFIDENCE) - math.log(1.0 - STATED_CONFIDENCE) * self.one_more
        if self.hits is not None:
            bound = self._count_at_most(STATED_CONFIDENCE)
        return max((UNSEEN_SLACK if made_up else 1.0) * bound, self.change)

    def _count_at_most(self, confidence: float) -> float:
        assert self.hits is not None
        return self.scale * share_at_most(*self.hits, confidence)


@dataclass(frozen=True, slots=True)
class Cost(Reportable):
    """What marking changed, figure by figure, each with the rows that it was measured on.

    ``task``: "classification", "regression" or "ranking"; ``rows``: what most figures were measured
    on; ``classes``: of classifiers. ``error``: of numbers the unit of changes, the model's root
    mean squared error on rows that judge or, where ``known_error`` is false, a fifth of the
    standard deviation of its answers. ``distributions``: counts that plots are made from.

    ``cost["auc"]`` is a `Figure`, ``cost["recall", "yes"]`` that of one class.
    """

    task: str
    rows: RowSet
    figures: tuple[Figure, ...]
    classes: tuple[Any, ...] = ()
    error: float = 1.0
    known_error: bool = False
    distributions: ScoreDistributions | NumberDistributions | None = None

    def __getitem__(self, wanted: str | tuple[str, Any]) -> Figure:
        code, label = wanted if isinstance(wanted, tuple) else (wanted, None)
        for figure in self.figures:
            if figure.code == code and (not isinstance(wanted, tuple) or figure.label == label):
                return figure
        raise KeyError(wanted)

    def __contains__(self, wanted: str | tuple[str, Any]) -> bool:
        try:
            self[wanted]
        except KeyError:
            return False
        return True

    @property
    def measured_on(self) -> str:
        """Return the code of the rows that most figures were measured on."""
        return self.rows.code

    @property
    def n_rows(self) -> int:
        """Return the number of these rows."""
        return self.rows.n

    @property
    def answers(self) -> str:
        """Return the kind of the model's answers: "labels" or "numbers"."""
        return "labels" if self.task == "classification" else "numbers"

    @property
    def changed(self) -> int:
        """Return the number of changed labels."""
        return round(self["changed"].change * self.n_rows)

    @property
    def drift(self) -> float:
        """Return the mean over rows of the largest change of a probability."""
        return self["drift"].change

    @property
    def move(self) -> float:
        """Return the mean change of a number, in units of the model's error."""
        return self["move"].change

    def lines(self) -> list[tuple[str, ...]]:
        """Return the table: name, before, after, change, at most, rows."""
        from timbermark.marking.words import cost_lines

        return cost_lines(self)

    def __str__(self) -> str:
        from timbermark.marking.words import show_cost

        return show_cost(self)

    def __repr__(self) -> str:
        codes = ("changed", "drift", "auc", "move", "rmse", "ndcg")
        said = [f"{code} {self[code].change:.2g}" for code in codes if code in self]
        return f"Cost({self.n_rows} {self.measured_on} rows: {', '.join(said)})"

    def _values(self, side: str) -> dict[str, float]:
        """Return the values of figures of the main rows, but for those of single classes."""
        return {
            figure.code: getattr(figure, side)
            for figure in self.figures
            if figure.label is None
            and figure.rows == self.rows
            and getattr(figure, side) is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it names a row."""
        from timbermark.marking.words import rows_sentence

        plain: dict[str, Any] = {
            "measured": rows_sentence(self),
            "measured_on": self.measured_on,
            "rows": self.n_rows,
            "before": self._values("before"),
            "after": self._values("after"),
            "figures": [
                {
                    "code": figure.code,
                    "class": _plain(figure.label),
                    "before": figure.before,
                    "after": figure.after,
                    "change": figure.change,
                    "at_most": figure.bound,
                    "rows": self.rows.code if figure.rows is None else figure.rows.code,
                    "labels_estimated": figure.rows is not None and figure.rows.estimated,
                }
                for figure in self.figures
            ],
        }
        if self.task == "classification":
            plain["classes"] = [_plain(label) for label in self.classes]
            plain["labels_changed"] = self.changed
            return plain
        return plain | {"error": self.error, "error_known": self.known_error}


def share_at_most(count: int, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the Clopper–Pearson upper confidence bound of a share, given ``count`` of ``n``.

    >>> round(share_at_most(0, 300), 4), round(share_at_most(1, 300), 4)
    (0.0046, 0.009)
    """
    return 1.0 if count >= n else float(betaincinv(count + 1, n - count, confidence))


def share_at_least(count: int, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the lower confidence bound of a share.

    >>> share_at_least(0, 300)
    0.0
    """
    return 0.0 if count == 0 else float(betaincinv(count, n - count + 1, 1.0 - confidence))


def label_figures(tally: Tally, classes: Sequence[Any], rows: RowSet) -> list[Figure]:
    """Return the figures of a classifier, from `tally_labels`."""
    n, n_classes = tally.n, len(classes)
    swing = tally.mean("swings") / n  # one more row at the edge that moves as the mean row does
    sizes = [tally.total(f"of {c}") for c in range(n_classes)]
    changed = int(tally.counts["changed"])
    hidden = tally.estimated
    right, loss = (
        [tally.mean(f"{what} {side}") for side in ("before", "after")] for what in ("right", "loss")
    )
    # Few labels change: rows near the edge tell how many may change on others.
    changes = max(tally.total("lost²"), tally.total("expected") + swing * n)
    chance = _root(changes) / n
    found = [
        replace(
            _shown("accuracy", tally.mean("lost"), chance, right, rows, hidden),
            one_more=_ONE_ROW / n,
        ),
        _shown("log_loss", loss[1] - loss[0], 0.0, loss, rows, hidden),
    ]
    if tally.joint is not None:
        found += _rank_figures(tally, rows, hidden)
    few = n_classes > 2
    most = max(tally.most["moved"], UNSEEN_MOVE) / n
    for c, label in enumerate(classes):
        if sizes[c] > 0 and not (few and sizes[c] < FEW_ROWS):
            found.append(_recall(tally, c, label, rows, hidden))
    for c, label in enumerate(classes):
        was, now = (tally.mean(f"{side} {c}") for side in ("before", "after"))
        if was <= 0.0 or (few and was * n < FEW_ROWS):
            continue
        spread = _root((tally.mean(f"shift² {c}") - (now - was) ** 2) / n)
        found.append(
            Figure(
                "score", abs(now - was) / was, spread / was, was, now, label, one_more=most / was,
                rows=rows,
            )
        )  # fmt: skip
    found.append(
        Figure(
            "changed", changed / n, _root(tally.total("expected²")) / n, rows=rows,
            steadier=tally.mean("expected") + swing, hits=(changed, n),
        )
    )  # fmt: skip
    for c, label in enumerate(classes):
        if sizes[c] <= 0 or (few and sizes[c] < FEW_ROWS):
            continue
        found.append(
            Figure(
                "churn", int(tally.counts["touched"][c]) / sizes[c],
                _root(tally.total(f"near² {c}")) / sizes[c], label=label, rows=rows,
                steadier=(tally.total(f"near {c}") + swing * n) / sizes[c],
                hits=(int(tally.counts["touched"][c]), n), scale=n / sizes[c],
            )
        )  # fmt: skip
    drift = tally.mean("moved")
    spread = _root(tally.mean("moved²") - drift**2)
    return [
        *found,
        Figure("drift", drift, spread / float(np.sqrt(n)), one_more=most, rows=rows),
        Figure("largest_drift", tally.most["moved"], rows=rows),
    ]


def _shown(
    code: str, change: float, error: float, sides: Sequence[float], rows: RowSet, hidden: bool
) -> Figure:
    """Return a figure without its values where labels are only estimated: these tell changes."""
    before, after = (None, None) if hidden else (sides[0], sides[1])
    return Figure(code, change, error, before, after, rows=rows)


def _recall(tally: Tally, c: int, label: Any, rows: RowSet, hidden: bool) -> Figure:
    size = tally.total(f"of {c}")
    recall = [tally.total(f"right {side} {c}") / size for side in ("before", "after")]
    lost = recall[0] - recall[1]
    # Few rows change their label: those near the edge tell more than the count.
    estimate = (tally.total(f"drop {c}") + tally.mean("swings")) / size
    before, after = (None, None) if hidden else recall
    return Figure(
        "recall",
        lost,
        _root(tally.total(f"drop² {c}")) / size,
        before,
        after,
        label,
        steadier=estimate,
        hits=(round(tally.total(f"worse {c}")), max(round(size), 1)),
        rows=rows,
    )


def _rank_figures(tally: Tally, rows: RowSet, hidden: bool) -> list[Figure]:
    """Return the figures that depend on the order of the scores of two classes."""
    joint = tally.joint
    assert joint is not None
    share = joint.shares()
    n_second = float((share * joint.count).sum())
    if not 0.0 < n_second < tally.n:
        return []
    first, second = joint.sides()
    if 2.0 * n_second > tally.n:
        # The figures are about the smaller class, so that the order is turned round.
        share, first, second = 1.0 - share, joint.bins - 1 - first, joint.bins - 1 - second
    places, n_own = (first, second), min(n_second, tally.n - n_second)
    found = []
    for code, influence in (("auc", _auc), ("precision", _average_precision)):
        values, on_own, on_other = [], np.zeros(len(share)), np.zeros(len(share))
        for place, sign in zip(places, (1.0, -1.0), strict=True):
            value, of_own, of_other = influence(joint, place, share)
            values.append(value)
            on_own += sign * of_own[place]
            on_other += sign * of_other[place]
        # Estimated labels vary as drawn ones would.
        variance = joint.count * (share * on_own**2 + (1.0 - share) * on_other**2)
        error, lost = _root(float(variance.sum())), values[0] - values[1]
        one_more = UNSEEN_RANKS
        if code == "precision":
            lost, error, one_more = lost / values[0], error / values[0], UNSEEN_PRECISION
        # A gain is mostly luck, and symbols are drawn again until they fit: it does not count.
        figure = _shown(code, lost, error, values, rows, hidden)
        found.append(replace(figure, steadier=max(lost, 0.0), one_more=one_more / n_own))
    if n_own <= RARE_SHARE * tally.n:
        found.append(_top(joint, places, rows))
    return found


def _masses(
    joint: Joint, place: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, float]:
    own = np.bincount(place, weights=share * joint.count, minlength=joint.bins)
    other = np.bincount(place, weights=(1.0 - share) * joint.count, minlength=joint.bins)
    return own, other, float(own.sum()), float(other.sum())


def _auc(
    joint: Joint, place: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the AUC and the influence of one more row of either class in each bin (DeLong)."""
    own, other, n_own, n_other = _masses(joint, place, share)
    above = (np.cumsum(other) - 0.5 * other) / n_other
    below = 1.0 - (np.cumsum(own) - 0.5 * own) / n_own
    value = float((own * above).sum() / n_own)
    return value, (above - value) / n_own, (below - value) / n_other


def _average_precision(
    joint: Joint, place: np.ndarray, share: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the average precision and the influence of one more row of either class."""
    own, other, n_own, _ = _masses(joint, place, share)
    hits = np.cumsum(own[::-1])[::-1]
    asked = np.maximum(np.cumsum((own + other)[::-1])[::-1], 1e-300)
    precision = hits / asked
    value = float((own * precision).sum() / n_own)
    falls = np.cumsum(own * precision / asked)
    rises = np.cumsum(own / asked)
    return value, (precision + rises - falls - value) / n_own, -falls / n_own


def _top(joint: Joint, places: tuple[np.ndarray, ...], rows: RowSet) -> Figure:
    """Return the share of the rows with the highest scores that are no longer among them.

    The bound starts from rows on either side of the edge, because few rows cross it: as many leave
    as are at the edge, times half of what they move by.
    """
    wanted = max(TOP_SHARE * float(joint.count.sum()), 1.0)
    inside, distance = [], []
    for place in places:
        count = np.bincount(place, weights=joint.count, minlength=joint.bins)
        above = np.cumsum(count[::-1])[::-1] - count
        part = np.clip((wanted - above) / np.maximum(count, 1.0), 0.0, 1.0)
        inside.append(part[place])
        distance.append((place - int(np.flatnonzero(above < wanted)[0])) * joint.width)
    gone = float(np.clip(1.0 - (joint.count * np.minimum(*inside)).sum() / wanted, 0.0, 1.0))
    nearness = np.maximum(1.0 - np.abs(distance[0]) / _NEAR_EDGE, 0.0) / _NEAR_EDGE
    moves = np.abs(distance[1] - distance[0])
    crossing = 0.5 * nearness * moves
    n_near = max(float((joint.count * (nearness > 0.0)).sum()), 1.0)
    one_more = float((joint.count * (nearness > 0.0) * moves).sum()) / n_near
    return Figure(
        "top",
        gone,
        _root(float((joint.count * crossing**2).sum())) / wanted,
        steadier=(float((joint.count * crossing).sum()) + one_more) / wanted,
        hits=(round(gone * wanted), round(wanted)),
        rows=rows,
    )


def number_figures(tally: Tally, error: float, ranks: bool, rows: RowSet) -> list[Figure]:
    """Return the figures of a regressor or a ranker, from `tally_numbers`."""
    root_n = float(np.sqrt(tally.n))
    found: list[Figure] = []
    if tally.has_target and ranks:
        found += _list_figures(tally, rows)
    elif tally.has_target:
        found += _error_figures(tally, error, rows)
    most = max(tally.most["moved"], UNSEEN_NUMBER) / tally.n
    move, shift = tally.mean("moved"), tally.mean("shift")
    spread = _root(tally.mean("moved²") - move**2) / root_n
    was, now = (tally.mean(side) * error for side in ("before", "after"))
    size = max(tally.mean("size"), 1e-300)
    shift_error = _root(tally.mean("moved²") - shift**2) / root_n
    tail, variance, n_tail = largest_answers(tally)
    assert tally.joint is not None
    if ranks and "tops" not in tally.sums:
        found.append(_top(tally.joint, tally.joint.sides(), rows))
    order, order_error = _rank_correlation(tally.joint)
    return [
        *found,
        Figure(
            "mean", abs(shift) / size, shift_error / size, was, now, one_more=most / size, rows=rows
        ),
        Figure("tail", tail, _root(variance / n_tail), one_more=UNSEEN_ANSWER / n_tail, rows=rows),
        Figure(
            "order",
            1.0 - order,
            order_error,
            None,
            order,
            one_more=UNSEEN_ORDER / tally.n,
            rows=rows,
        ),
        Figure("move", move, spread, one_more=most, rows=rows),
        Figure("largest", tally.most["moved"], rows=rows),
    ]


def _error_figures(tally: Tally, error: float, rows: RowSet) -> list[Figure]:
    was, now, was2, now2 = (
        tally.mean(f"missed{power} {side}") for power in ("", "²") for side in ("before", "after")
    )
    root_n = float(np.sqrt(tally.n))
    grown, worse = now2 - was2, now - was
    chance = _root(tally.mean("squares grown²") - grown**2) / root_n
    slack = _root(tally.mean("grown²") - worse**2) / root_n
    one_more, most = UNSEEN_SQUARE / tally.n, max(tally.most["moved"], UNSEEN_NUMBER) / tally.n
    spread = max(tally.mean("target²") - tally.mean("target") ** 2, 0.0)
    found = []
    if was2 > 0.0:
        root = float(np.sqrt(was2))
        growth = float(np.sqrt(now2 / was2)) - 1.0
        # The slope of √(1 + x) / 2 at 0: growths are small.
        found.append(
            Figure(
                "rmse", growth, chance / was2 / 2, root * error, float(np.sqrt(now2)) * error,
                one_more=one_more / 2, rows=rows,
            )
        )  # fmt: skip
        found.append(
            Figure(
                "mae", worse / was, slack / was, was * error, now * error, one_more=most / was,
                rows=rows,
            )
        )  # fmt: skip
    else:
        lost = float(now2 > 0.0)
        found.append(Figure("rmse", lost, 0.0, 0.0, float(np.sqrt(now2)) * error, rows=rows))
        found.append(Figure("mae", lost, 0.0, 0.0, now * error, rows=rows))
    if spread > 0.0:
        share = was2 / spread
        values = (1.0 - share, 1.0 - now2 / spread)
        found.append(
            Figure(
                "r2", grown / spread, chance / spread, *values, one_more=one_more * share, rows=rows
            )
        )
    return found


def _list_figures(tally: Tally, rows: RowSet) -> list[Figure]:
    """Return NDCG and the top of the lists, which are read from the first rows on."""
    found = []
    for code, name, n, unseen in (
        ("ndcg", "ndcg lost", "lists", UNSEEN_PRECISION),
        ("top", "gone", "tops", UNSEEN_MOVE),
    ):
        count = tally.sums[n]
        if count == 0:
            continue
        mean, square = (as_float(tally.sums[part], count) for part in (name, f"{name}²"))
        error = _root((square - mean**2) / count)
        sides: tuple[float | None, float | None] = (None, None)
        if code == "ndcg":
            sides = (
                as_float(tally.sums["ndcg before"], count),
                as_float(tally.sums["ndcg after"], count),
            )
        found.append(Figure(code, mean, error, *sides, one_more=unseen / count, rows=rows))
    return found


def _rank_correlation(joint: Joint) -> tuple[float, float]:
    """Return Spearman's correlation of answers before and after, 1 where one is constant.

    And its standard error: but for ties it is 1 less the mean of six squared shifts of a rank.
    """
    n, ranks = float(joint.count.sum()), []
    for place in joint.sides():
        count = np.bincount(place, weights=joint.count, minlength=joint.bins)
        rank = (np.cumsum(count) - 0.5 * count)[place] / n
        ranks.append(rank - float((joint.count * rank).sum()) / n)
    first, second = ranks
    norms = float((joint.count * first**2).sum()) * float((joint.count * second**2).sum())
    if norms == 0.0:
        return 1.0, 0.0
    lost = 6.0 * (first - second) ** 2
    mean, square = (float((joint.count * power).sum()) / n for power in (lost, lost**2))
    correlation = float((joint.count * first * second).sum()) / float(np.sqrt(norms))
    return min(correlation, 1.0), _root((square - mean**2) / n)


def _root(value: float) -> float:
    return float(np.sqrt(max(value, 0.0)))


def _plain(label: Any) -> Any:
    return label if label is None or isinstance(label, bool | int | float | str) else str(label)
