"""Boundaries: where thresholds of a model can lie without anybody noticing, and at what price.

A *boundary* is a column and an interval (a, b) between two training values in which the model has
thresholds. A symbol moves all of them to one end or the other, so that a value in the middle goes
the way of b, or of a, in every tree. A boundary is *free* if no training row lies inside. A *wide*
boundary takes in a few training rows on either side of its middle: these change, and in return
nobody can move the thresholds back without crossing rows.

Thresholds look as the library itself would have set them. Every library cuts between two
neighbouring training values by a rule of its own (at one of them, half way, in float32 or not), and
a threshold moves to where that rule puts it if the middle value were a training value too. The
middle lies on the column's own grid of decimals; where the grid leaves no room, such as in columns
of whole numbers, only wide boundaries are possible, unless values between two of the grid are
allowed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import MISSING_NONE, MISSING_ZERO, ZERO_RANGE, Ensemble

Answers = Callable[[np.ndarray], np.ndarray]
"""Margins float64 [n, outputs] → probabilities [n, classes] or numbers [n, 1]."""

_UPPER, _LOWER, _MIDDLE, _NEXT, _SINGLE = range(5)
"""How libraries cut between two values: at the upper one (XGBoost), at the lower one
(HistGradientBoosting, many values), half way (scikit-learn, timbermark), at the next number after
that (LightGBM), half way in float32 (CatBoost)."""
_MOST_DECIMALS = 8
_MOST_LOOKED_AT = 500
"""Values of a column that tell its decimals."""
_LEAST_ULPS = 16.0
"""The least width of a boundary, in units of float32's last place at its ends."""
_PROBED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The distinct thresholds of an ensemble's numeric splits, by feature and value.

    ``feature`` int64 [T], ``value`` float64 [T]. Left out are features that have splits by
    category as well, and thresholds that are infinite.
    """

    feature: np.ndarray
    value: np.ndarray
    strict: bool
    single: bool  # whether rows are cast to float32

    @classmethod
    def of(cls, e: Ensemble) -> Cuts:
        """Return the cuts of an ensemble.

        >>> from timbermark.trees.construction import make_ensemble
        >>> stump = make_ensemble(
        ...     n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
        ...     left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1],
        ... )
        >>> Cuts.of(stump).value
        array([0.5])
        """
        nodes = numeric_splits(e)
        feature, value = e.feature[nodes].astype(np.int64), e.threshold[nodes]
        new = np.ones(len(nodes), np.bool_)
        new[1:] = (feature[1:] != feature[:-1]) | (value[1:] != value[:-1])
        return cls(feature[new], value[new], e.strict, e.input_dtype == "f4")


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """The training values on both sides of each of T cuts, float64 [T] each.

    ``below``: the largest value that goes left, minus infinity where none does; ``above``: the
    smallest that goes right, infinity where none does.
    """

    below: np.ndarray
    above: np.ndarray


def scan(cuts: Cuts, Z: np.ndarray, columns: Mapping[int, Column] | None = None) -> Gaps:
    """Return the gaps around the cuts in some rows, ``Z`` [n, d] as columns of the ensemble.

    ``columns``: those of the same rows, where they were read before. Whatever parts a table is
    divided into, `merge` of their gaps is the same.

    >>> gaps = scan(Cuts(np.array([0]), np.array([0.5]), False, False), np.array([[0.1], [0.7]]))
    >>> gaps.below, gaps.above
    (array([0.1]), array([0.7]))
    """
    below, above = np.full(len(cuts.value), -np.inf), np.full(len(cuts.value), np.inf)
    starts = np.append(np.flatnonzero(np.diff(cuts.feature, prepend=-1)), len(cuts.feature))
    for first, last in itertools.pairwise(starts.tolist()):
        f = int(cuts.feature[first])
        if columns is not None and f in columns and not columns[f].filled:
            values = columns[f].z
        else:
            values = _cast(Z[:, f], cuts.single)
            values = np.sort(values[~np.isnan(values)])
        part = slice(first, last)
        below[part], above[part] = _around(values, cuts.value[part], cuts.strict)
    return Gaps(below, above)


def merge(parts: Sequence[Gaps]) -> Gaps:
    """Return the gaps of all rows from those of all parts.

    >>> one, other = (Gaps(np.array([a]), np.array([b])) for a, b in ((1.0, 9.0), (2.0, np.inf)))
    >>> merge([one, other]).below, merge([one, other]).above
    (array([2.]), array([9.]))
    """
    return Gaps(
        np.max([part.below for part in parts], axis=0),
        np.min([part.above for part in parts], axis=0),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of the ensemble as the rows in memory have it.

    ``source``: the column of the deployed model that it is made of; ``falls``: it falls where that
    one rises. ``z`` float64 [m]: its distinct values, rising; ``raw`` [m]: a value of the source
    for each; ``below`` [m]: the number of rows up to each. ``decimals``: of the source's values,
    -1 where they have more than 8; ``single``: those are all float32; ``filled``: missing values
    are among them, as zeros.
    """

    source: int
    falls: bool
    z: np.ndarray
    raw: np.ndarray
    below: np.ndarray
    decimals: int
    single: bool
    filled: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Which column of the deployed model each column of the ensemble is made of, -1 if none alone.

    ``plain``: every column is its own source, as it is.
    """

    source: np.ndarray
    plain: bool
    notes: tuple[str, ...] = ()


def find_sources(
    X: np.ndarray, Z: np.ndarray, to_columns: Answers, usable: np.ndarray | None = None
) -> Sources:
    """Return the source of each column of the ensemble, found by changing one column at a time.

    ``X`` [n, D]: rows as the deployed model takes them; ``Z`` [n, d]: the same as columns of the
    ensemble, by ``to_columns``; ``usable`` bool [D]: which hold numbers. A source changes one
    column of the ensemble, and nothing else changes that one.

    >>> X = np.random.default_rng(0).random((50, 2))
    >>> find_sources(X, 2 * X[:, :1], lambda X: 2 * X[:, :1]).source
    array([0])
    """
    n_raw, n_columns = X.shape[1], Z.shape[1]
    some = slice(_PROBED)
    if n_raw == n_columns and (
        np.array_equal(X[some], Z[some], equal_nan=True)
        or np.array_equal(_cast(X[some], True), Z[some], equal_nan=True)
    ):
        source = np.arange(n_columns)
        if usable is not None:
            source[~usable] = -1
        return Sources(source, True)
    each = min(_PROBED, len(X))
    chosen = np.linspace(0, len(X) - 1, each).astype(np.int64)
    asked = np.repeat(X[chosen][None], n_raw, axis=0)
    for j in range(n_raw):
        values = X[~np.isnan(X[:, j]), j]
        if len(values):
            places = np.linspace(0, len(values) - 1, each).astype(np.int64)
            asked[j, :, j] = np.roll(values[places], each // 2)
    try:
        seen = to_columns(asked.reshape(-1, n_raw)).reshape(n_raw, each, n_columns)
    except InputError:
        # Transformers refuse some value: one column after the other, those are left out.
        seen = np.repeat(Z[chosen][None], n_raw, axis=0)
        for j in range(n_raw):
            with contextlib.suppress(InputError):
                seen[j] = to_columns(asked[j])
    plain = Z[chosen]
    changed = ~((seen == plain) | (np.isnan(seen) & np.isnan(plain))).all(axis=1)
    source = np.full(n_columns, -1)
    numbers = np.ones(n_raw, np.bool_) if usable is None else usable
    for j in np.flatnonzero((changed.sum(axis=1) == 1) & numbers).tolist():
        f = int(changed[j].argmax())
        if changed[:, f].sum() == 1:
            source[f] = j
    several = np.flatnonzero((changed.sum(axis=1) > 1) & numbers).tolist()
    said = "The trees have several columns made of each of the columns"
    return Sources(source, False, _leave_out(said, several))


def _leave_out(said: str, columns: list[int]) -> tuple[str, ...]:
    """Return a note on the columns of the deployed model that are left out, if there are some."""
    shown = ", ".join(str(j) for j in columns[:5]) + (", …" if len(columns) > 5 else "")
    return (f"{said} {shown}: no boundary is there.",) if columns else ()


def read_columns(
    e: Ensemble, cuts: Cuts, X: np.ndarray, Z: np.ndarray, sources: Sources, workers: Workers
) -> tuple[dict[int, Column], tuple[str, ...]]:
    """Return the columns that have cuts, by number, and notes on those that are left out.

    A column is left out if it does not rise or fall with its source.
    """
    found: dict[int, Column] = {}
    wrong: list[int] = []
    nan_is_zero = np.zeros(e.n_features, np.bool_)
    nan_is_zero[e.feature[(e.left >= 0) & (e.missing_kind == MISSING_NONE)]] = True

    def read(f: int) -> Column | None:
        j = int(sources.source[f])
        z = None if sources.plain else Z[:, f]
        return _read_column(j, X[:, j], z, cuts, bool(nan_is_zero[f]))

    usable = [f for f in np.unique(cuts.feature).tolist() if sources.source[f] >= 0]
    for f, column in zip(usable, workers.map(read, usable), strict=True):
        if column is None:
            wrong.append(int(sources.source[f]))
        elif len(column.z) > 1:
            found[f] = column
    notes = _leave_out("The transformers are not monotone in the columns", wrong)
    return found, (*sources.notes, *notes)


def _read_column(
    j: int, x: np.ndarray, z: np.ndarray | None, cuts: Cuts, nan_is_zero: bool
) -> Column | None:
    falls = filled = False
    if z is None:
        empty = np.isnan(x)
        if empty.any():
            filled = nan_is_zero
            x = np.where(empty, 0.0, x) if nan_is_zero else x[~empty]
        raw = np.sort(x) + 0.0
        z = _cast(raw, cuts.single)
    else:
        z = _cast(z, cuts.single)
        # Rows without a value of the source have one in the ensemble if a transformer fills it in.
        order = np.lexsort((x, z))
        order = order[~np.isnan(z[order])]
        raw, z = x[order], z[order]
        known = ~np.isnan(raw)
        steps = np.diff(raw[known])
        same = np.diff(z[known]) == 0.0
        falls = bool(len(steps)) and bool(raw[known][-1] < raw[known][0])
        if falls:
            # Within one value of the ensemble the source rises, by the way they were sorted.
            steps = steps[~same]
        if len(steps) and (steps < 0.0).any() != falls:
            return None
        if falls and (steps > 0.0).any():
            return None
    if not len(z):
        return None
    new = np.append(True, z[1:] != z[:-1])
    starts = np.flatnonzero(new)
    below = np.append(starts[1:], len(z))
    distinct = raw[starts]
    known = distinct[np.isfinite(distinct)]
    single = _are_single(_look_at(known))
    return Column(j, falls, z[starts], distinct, below, count_decimals(known), single, filled)


def _look_at(values: np.ndarray) -> np.ndarray:
    places = np.linspace(0, len(values) - 1, min(len(values), _MOST_LOOKED_AT))
    return np.asarray(values[places.astype(np.int64)])


def _are_single(values: np.ndarray) -> bool:
    return bool((values.astype(np.float32).astype(np.float64) == values).all())


def count_decimals(values: np.ndarray) -> int:
    """Return the decimals that some of the ``values`` have, -1 where these have more than 8.

    >>> count_decimals(np.array([1.0, 2.5, 3.25])), count_decimals(np.array([1 / 3]))
    (2, -1)
    """
    values = _look_at(values)
    for decimals in range(_MOST_DECIMALS + 1):
        if (np.round(values, decimals) == values).all():
            return decimals
    # Decimals that went through float32 on their way.
    short = values.astype(np.float32)
    if (short.astype(np.float64) == values).all():
        for decimals in range(_MOST_DECIMALS - 1):
            if (np.round(values, decimals).astype(np.float32) == short).all():
                return decimals
    return -1


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """B boundaries. All are arrays [B].

    ``column``: of the deployed model; ``a`` < ``mid`` < ``b``: three values of it; ``feature``: the
    column of the ensemble; ``below`` < ``above``: its values for a and b, or for b and a where it
    ``falls`` as the deployed model's column rises; ``low`` and ``high``: thresholds between
    ``below`` and the middle, and between the middle and ``above``. ``wide``: whether training rows
    are inside; ``inside``: how many, of those in memory; ``mass``: the share of all rows that is
    expected to change sides, the mean of both symbols; ``price``: the change of answers that this
    makes, by which boundaries are chosen.
    """

    column: np.ndarray
    a: np.ndarray
    mid: np.ndarray
    b: np.ndarray
    feature: np.ndarray
    below: np.ndarray
    above: np.ndarray
    falls: np.ndarray
    low: np.ndarray
    high: np.ndarray
    wide: np.ndarray
    inside: np.ndarray
    mass: np.ndarray
    price: np.ndarray

    def __len__(self) -> int:
        return len(self.column)

    def take(self, places: np.ndarray) -> Boundaries:
        """Return some of the boundaries, in the given order."""
        return Boundaries(*(getattr(self, field.name)[places] for field in fields(self)))

    def thresholds(self, symbols: np.ndarray) -> np.ndarray:
        """Return the threshold that each symbol asks for; 1: the middle is answered like b."""
        return np.where((np.asarray(symbols) == 1) != self.falls, self.low, self.high)


def join(first: Boundaries, second: Boundaries) -> Boundaries:
    """Return the boundaries of both, one after the other."""
    pairs = ((getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
    return Boundaries(*(np.concatenate(pair) for pair in pairs))


def are_inside(Z: np.ndarray, boundaries: Boundaries, single: bool) -> np.ndarray:
    """Return which rows [n, d] have a value inside a boundary, bool [n]."""
    found = np.zeros(len(Z), np.bool_)
    for feature in np.unique(boundaries.feature):
        own = boundaries.feature == feature
        order = np.argsort(boundaries.below[own])
        below, above = boundaries.below[own][order], boundaries.above[own][order]
        values = _cast(Z[:, feature], single)
        # Boundaries of a column do not overlap, so that the last one that begins below decides.
        place = np.searchsorted(below, values) - 1
        found |= (place >= 0) & (values < above[np.maximum(place, 0)])
        found |= np.isnan(values)
    return found


def find_boundaries(
    e: Ensemble,
    cuts: Cuts,
    columns: dict[int, Column],
    gaps: Gaps,
    n_rows: int,
    least_rows: int,
    transform: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    off_grid: bool = False,
) -> tuple[Boundaries, Boundaries]:
    """Return all free and all wide boundaries, which may overlap, with a price of 0.

    ``columns``: of the rows in memory; ``gaps``: of all ``n_rows`` rows; ``least_rows``: that a
    wide boundary has on either side of its middle, the middle included; ``transform``: columns and
    values of the deployed model [m] → the ensemble's values [m], None where they are the same;
    ``off_grid``: free boundaries may have a middle between two values of the column's grid.
    """
    styles = _find_styles(cuts, gaps, columns)
    free, wide = [_no_window()], [_no_window()]
    for f, column in columns.items():
        part = slice(*np.searchsorted(cuts.feature, [f, f + 1]))
        below, above = gaps.below[part], gaps.above[part]
        keep = np.isfinite(below) & np.isfinite(above)
        _, once = np.unique(below[keep], return_index=True)
        below, above = below[keep][once], above[keep][once]
        free.append(_free_windows(f, column, below, above, n_rows, styles[f], off_grid))
        wide.append(_wide_windows(f, column, below, least_rows, styles[f], cuts.strict))
    zero_cuts = _library_zero_cuts(e)
    return (
        _finish(_join_windows(free), False, cuts, styles, columns, transform, zero_cuts),
        _finish(_join_windows(wide), True, cuts, styles, columns, transform, zero_cuts),
    )


class _Windows(NamedTuple):
    """Intervals that may become boundaries, arrays [n].

    ``below`` and ``above``: their ends in the ensemble's column; ``lower`` and ``upper``: those in
    the source. ``extra``: a value of the source as if it were a training value, between which and
    the ends thresholds are cut unless ``low`` and ``high`` are given; ``middle``: what is asked.
    """

    feature: np.ndarray
    below: np.ndarray
    above: np.ndarray
    lower: np.ndarray
    extra: np.ndarray
    middle: np.ndarray
    upper: np.ndarray
    low: np.ndarray
    high: np.ndarray
    inside: np.ndarray
    mass: np.ndarray


def _no_window() -> _Windows:
    return _Windows(*(np.zeros(0) for _ in _Windows._fields))


def _join_windows(parts: list[_Windows]) -> _Windows:
    return _Windows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _free_windows(
    f: int, c: Column, below: np.ndarray, above: np.ndarray, n_rows: int, style: int, off_grid: bool
) -> _Windows:
    lower, upper = _raw_values(c, below), _raw_values(c, above)
    extra = _to_grid(lower / 2 + upper / 2, c)
    middle = _away(extra, lower, upper, c, style, 0.5)
    # The expected share of unseen rows in the gap, from the training values around it.
    place = np.searchsorted(c.z, below, side="right") - 1
    first, last = np.maximum(place - 8, 0), np.minimum(place + 9, len(c.z) - 1)
    rows = c.below[last] - c.below[first]
    span = np.maximum(c.z[last] - c.z[first], 1e-300)
    share = rows / max(int(c.below[-1]), 1) * np.minimum((above - below) / span, 1.0)
    n = len(below)
    if off_grid and c.decimals >= 0:
        full = (extra <= np.minimum(lower, upper)) | (extra >= np.maximum(lower, upper))
        finer = replace(c, decimals=c.decimals + 2)
        extra = np.where(full, _to_grid(lower / 2 + upper / 2, finer), extra)
        middle = np.where(full, _away(extra, lower, upper, finer, style, 0.5), middle)
        share[full] = 0.0  # no row has a value between two of the grid
    return _Windows(
        np.full(n, float(f)), below, above, lower, extra, middle,
        upper, np.full(n, np.nan), np.full(n, np.nan), np.zeros(n),
        0.25 * np.minimum(share, 4.0 / n_rows),
    )  # fmt: skip


def _wide_windows(
    f: int, c: Column, below: np.ndarray, least: int, style: int, strict: bool
) -> _Windows:
    m, total = len(c.z), max(int(c.below[-1]), 1)
    place = np.searchsorted(c.z, below, side="right") - 1
    middle = np.unique(np.concatenate([place, place + 1]))
    middle = middle[(middle > 0) & (middle < m - 1)]
    before = np.append(0, c.below)  # the number of rows below each value
    first = np.searchsorted(before, before[middle + 1] - least, side="right") - 2
    first = np.minimum(first, middle - 1)
    last = np.searchsorted(c.below, before[middle] + least, side="left") + 1
    last = np.maximum(last, middle + 1)
    if style in (_UPPER, _LOWER):
        # A value at which a threshold is cut is not asked if the grid has another one beside it;
        # else the next value is cut at, so that input may be rounded.
        inner = np.clip(middle, 1, m - 2)
        beside = np.arange(1, m - 1) if m > 2 else np.zeros(0, np.int64)
        room = np.zeros(m, np.bool_)
        room[beside] = (
            _away(c.raw[beside], c.raw[beside - 1], c.raw[beside + 1], c, style, 0.25)
            != c.raw[beside]
        )
        if style == _UPPER:
            first = np.where((first == middle - 1) & ~room[inner], middle - 2, first)
        else:
            last = np.where((last == middle + 1) & ~room[inner], middle + 2, last)
    good = (first >= 0) & (last < m)
    first, middle, last = first[good], middle[good], last[good]
    inside = before[last] - before[first + 1]
    extra, lower, upper = c.raw[middle], c.raw[first], c.raw[last]
    # A value at which a threshold is cut is not asked if there is another one beside it.
    at_cut = middle == (first + 1 if style == _UPPER else last - 1)
    # It stays nearer to that value, which whoever moves thresholds back has in their own rows.
    asked = np.where(at_cut, _away(extra, lower, upper, c, style, 0.25), extra)
    return _Windows(
        np.full(len(first), float(f)), c.z[first], c.z[last], lower, extra, asked, upper,
        _cut(c.z[first], c.z[first + 1], style, strict),
        _cut(c.z[last - 1], c.z[last], style, strict), inside.astype(np.float64),
        0.5 * inside / total,
    )  # fmt: skip


def _away(
    extra: np.ndarray, lower: np.ndarray, upper: np.ndarray, c: Column, style: int, far: float
) -> np.ndarray:
    """Return the value to ask: where libraries cut at values, ``far`` from it to the next one."""
    if style not in (_UPPER, _LOWER):
        return extra
    asked = _to_grid((1.0 - far) * extra + far * (upper if style == _UPPER else lower), c)
    inside = (asked > np.minimum(lower, upper)) & (asked < np.maximum(lower, upper))
    return np.where(inside, asked, extra)


def _finish(
    w: _Windows,
    wide: bool,
    cuts: Cuts,
    styles: dict[int, int],
    columns: dict[int, Column],
    transform: Callable[[np.ndarray, np.ndarray], np.ndarray] | None,
    zero_cuts: np.ndarray,
) -> Boundaries:
    """Return boundaries whose three values stay apart in every type, with natural thresholds."""
    feature = w.feature.astype(np.int64)
    size = max(columns, default=0) + 1
    source, style = np.zeros(size, np.int64), np.zeros(size, np.int64)
    falling = np.zeros(size, np.bool_)
    for f, column in columns.items():
        source[f], falling[f], style[f] = column.source, column.falls, styles[f]
    falls = falling[feature]
    known = np.isfinite([w.lower, w.extra, w.middle, w.upper]).all(axis=0)
    z = np.where(known, [w.extra, w.middle], 0.0)
    if transform is not None and known.any():
        z[:, known] = transform(
            np.tile(source[feature[known]], 2), z[:, known].ravel()
        ).reshape(2, -1)  # fmt: skip
    extra, middle = _cast(z, cuts.single)
    low, high = w.low, w.high
    if not wide:
        low = _cut(w.below, extra, style[feature], cuts.strict)
        high = _cut(extra, w.above, style[feature], cuts.strict)
    a, b = np.where(falls, w.upper, w.lower), np.where(falls, w.lower, w.upper)
    good = known & _separates(w.below, low, middle, cuts.strict)
    good &= _separates(middle, high, w.above, cuts.strict)
    with np.errstate(invalid="ignore"):
        for left, right in ((a, w.middle), (w.middle, b), (w.below, middle), (middle, w.above)):
            ulp = np.spacing(np.maximum(np.abs(left), np.abs(right)).astype(np.float32))
            good &= right - left >= _LEAST_ULPS * ulp
    made = Boundaries(
        source[feature], a, w.middle, b, feature, w.below, w.above, falls, low, high,
        np.full(len(feature), wide), w.inside, w.mass, np.zeros(len(feature)),
    )  # fmt: skip
    # Where zero is missing, or has a cut of the library's own around it, thresholds stay.
    zero = np.isin(feature, zero_cuts) & (w.below <= 0.0) & (w.above >= 0.0)
    return made.take(np.flatnonzero(good & ~zero))


def _library_zero_cuts(e: Ensemble) -> np.ndarray:
    """Return the features with splits around zero that are not between two values."""
    inner = e.left >= 0
    at_zero = (np.abs(e.threshold) <= ZERO_RANGE) & (e.threshold != 0.0)
    return np.unique(e.feature[inner & (at_zero | (e.missing_kind == MISSING_ZERO))])


def _to_grid(values: np.ndarray, c: Column) -> np.ndarray:
    if c.decimals >= 0:
        rounded = np.round(values, c.decimals)
        return rounded.astype(np.float32).astype(np.float64) if c.single and c.decimals else rounded
    return values.astype(np.float32).astype(np.float64) if c.single else values


def _raw_values(c: Column, z: np.ndarray) -> np.ndarray:
    """Return the source's value for each value of the ensemble; the same where none is known."""
    place = np.minimum(np.searchsorted(c.z, z), len(c.z) - 1)
    known = c.z[place] == z
    if known.all():
        return c.raw[place]
    return np.where(known, c.raw[place], _shortest(z) if c.decimals >= 0 else z)


def _shortest(z: np.ndarray) -> np.ndarray:
    """Return the numbers that the shortest decimals of float32 numbers stand for."""
    return np.array([float(str(np.float32(v))) if np.float32(v) == v else v for v in z.tolist()])


def _cast(values: np.ndarray, single: bool) -> np.ndarray:
    if not single:
        return values
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(np.float32).astype(np.float64))


def _around(values: np.ndarray, cuts: np.ndarray, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the values below and above each cut; ``values`` rise."""
    place = np.searchsorted(values, cuts, side="left" if strict else "right")
    ends = np.concatenate([[-np.inf], values, [np.inf]])
    return ends[place], ends[place + 1]


def _separates(x: np.ndarray, t: np.ndarray, y: np.ndarray, strict: bool) -> np.ndarray:
    """Return whether x goes left and y right."""
    with np.errstate(invalid="ignore"):
        return np.asarray((x < t) & (t <= y) if strict else (x <= t) & (t < y))


def _cut(x: np.ndarray, y: np.ndarray, style: int | np.ndarray, strict: bool) -> np.ndarray:
    """Return where a library cuts between neighbouring values x < y."""
    with np.errstate(invalid="ignore", over="ignore"):
        half = x / 2 + y / 2
        ways = np.stack([
            y, x, half, np.nextafter(half, np.inf),
            (np.float32(0.5) * (x.astype(np.float32) + y.astype(np.float32))).astype(np.float64),
        ])  # fmt: skip
    style = np.broadcast_to(style, half.shape)
    cut = np.take_along_axis(ways, style[None], axis=0)[0] if len(half) else half
    return np.where(_separates(x, cut, y, strict), cut, y if strict else x)


def _find_styles(cuts: Cuts, gaps: Gaps, columns: dict[int, Column]) -> dict[int, int]:
    """Return how each column is cut: in the way that explains most of its cuts."""
    x, y = gaps.below, gaps.above
    known = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(known, x, 0.0), np.where(known, y, 1.0)
    ways = [_cut(x, y, style, cuts.strict) == cuts.value for style in range(5)]
    fits = np.stack(ways, axis=1) & known[:, None]
    # x < t cannot cut at the lower of two values, nor x <= t at the upper one.
    fits[:, _LOWER if cuts.strict else _UPPER] = False
    overall = fits.sum(axis=0) / (len(cuts.value) + 1.0)
    overall[_MIDDLE] += 1e-3  # where nothing fits
    totals = np.stack(
        [
            np.bincount(cuts.feature, fits[:, s], minlength=max(columns, default=0) + 1)
            for s in range(5)
        ]
    )
    return {f: int((totals[:, f] + overall).argmax()) for f in columns}


def numeric_splits(e: Ensemble) -> np.ndarray:
    """Return the nodes that compare with finite thresholds, by feature and threshold."""
    inner = e.left >= 0
    by_set = np.zeros(e.n_features + 1, np.bool_)
    by_set[e.feature[inner & (e.category_set >= 0)]] = True
    nodes = np.flatnonzero(inner & ~by_set[e.feature] & np.isfinite(e.threshold))
    return nodes[np.lexsort((e.threshold[nodes], e.feature[nodes]))]


def node_ranges(e: Ensemble, nodes: np.ndarray, b: Boundaries) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last place in ``nodes`` of the splits inside each boundary."""
    feature, threshold = e.feature[nodes], e.threshold[nodes]
    first, last = np.zeros(len(b), np.int64), np.zeros(len(b), np.int64)
    side: Literal["left", "right"] = "right" if e.strict else "left"
    for f in np.unique(b.feature):
        start, stop = np.searchsorted(feature, [f, f + 1])
        own = np.flatnonzero(b.feature == f)
        first[own] = start + np.searchsorted(threshold[start:stop], b.below[own], side=side)
        last[own] = start + np.searchsorted(threshold[start:stop], b.above[own], side=side)
    return first, last
