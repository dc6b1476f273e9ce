"""Attacks on the trees of a stolen model: on leaf values, on thresholds, and by cutting.

Leaves are Newton steps of the loss, and the length of these steps can be estimated from the leaves
that are there, so a thief can refit the file of any library. LightGBM offers the same as ``refit``
and XGBoost as the updater ``refresh``. Leaves that look edited can be flattened: they take the
value that the rest of their branch, or the thief's own rows, suggest.

Splits are moved within or beyond the gaps between the thief's values: a threshold between two
neighbouring values of the thief's rows can lie anywhere between them without changing an answer on
these rows. All thresholds of a feature that are equal move together, as they must in files that
share them among trees.

Cutting leaves fewer iterations, or none of the trees that matter least, or of the weakest splits.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from timbermark.attacks.own_models import group_sizes, inner_booster, n_rounds, with_booster
from timbermark.attacks.stolen import LeafValues, NotOfferedError, Stolen, Thief, library_of, steal
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.models import open_model
from timbermark.marking.preparing import columns
from timbermark.trees.construction import first_trees
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, flatten_leaves, inner_levels, node_means

_L2 = 1e-3
"""What keeps a leaf with hardly any row from leaping."""
_LARGEST_STEP = 3.0
"""No leaf of a log-loss is refitted to more than this, before the learning rate."""


def refit(stolen: Stolen, thief: Thief, decay: float) -> Stolen:
    """Refit all leaves on the thief's rows and keep a share of ``decay`` of what they were.

    Needs: file, rows, labels. Leaves that no row of the thief's reaches stay as they are.
    """
    leaves = LeafValues.of(stolen, thief.X)
    new = refitted_values(leaves, thief)
    return leaves.put(
        [decay * old + (1.0 - decay) * to for old, to in zip(leaves.value, new, strict=True)]
    )


def refit_by_library(stolen: Stolen, thief: Thief, decay: float) -> Stolen:
    """Refit with LightGBM's ``refit`` or XGBoost's ``refresh``; ``decay`` as in `refit`.

    Needs: file, rows, labels.
    """
    library = library_of(stolen.trees())
    if library == "lightgbm":
        return _refit_lightgbm(stolen.file(), thief, decay)
    if library == "xgboost":
        foreign = stolen.file()
        return _blend(foreign, _refresh_xgboost(foreign, thief), decay)
    raise NotOfferedError("no-refit")


def flatten_by_file(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Give the ``share`` of leaves that look most edited the mean of their siblings' subtree.

    Needs: file. Edits are cheapest in leaves with little weight, and make them differ from the rest
    of their branch by more than their weight explains.
    """
    return stolen.put(flatten_leaves(stolen.trees().ensemble, share))


def flatten_by_rows(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Give the ``share`` of leaves that the thief's rows contradict most the value these suggest.

    Needs: file, rows, labels.
    """
    leaves = LeafValues.of(stolen, thief.X)
    new = refitted_values(leaves, thief)
    odd = []
    for c, (old, to) in enumerate(zip(leaves.value, new, strict=True)):
        first = leaves.router.first[c]
        count = np.zeros(len(old))
        for t in range(len(first) - 1):
            size = int(first[t + 1] - first[t])
            count[first[t] : first[t + 1]] = np.bincount(leaves.routes.leaf[c][t], minlength=size)
        odd.append(np.abs(old - to) * np.sqrt(count))
    level = np.quantile(np.concatenate(odd), 1.0 - share)
    return leaves.put(
        [
            np.where((o >= level) & (o > 0.0), to, old)
            for o, old, to in zip(odd, leaves.value, new, strict=True)
        ]
    )


def add_leaf_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Add noise to every leaf, with a standard deviation of ``size`` times that of the leaves.

    Needs: file.
    """
    rng = thief.rng("leaf noise")
    leaves = LeafValues.of(stolen, thief.X[:1])
    return leaves.put(
        [
            v + size * (v - start).std() * rng.standard_normal(len(v))
            for v, start in zip(leaves.value, _starts(leaves), strict=True)
        ]
    )


def round_leaves(stolen: Stolen, thief: Thief, bits: float) -> Stolen:
    """Round every leaf to one of 2^``bits`` evenly spaced values; 16 stands for float16.

    Needs: file.
    """
    leaves = LeafValues.of(stolen, thief.X[:1])

    def coarse(value: np.ndarray) -> np.ndarray:
        if bits == 16:
            return value.astype(np.float16).astype(np.float64)
        low, high = float(value.min()), float(value.max())
        unit = (high - low) / (2.0**bits - 1.0)
        return low + unit * np.rint((value - low) / unit) if unit > 0.0 else value

    return leaves.put(
        [
            start + coarse(value - start)
            for value, start in zip(leaves.value, _starts(leaves), strict=True)
        ]
    )


def _starts(leaves: LeafValues) -> list[np.ndarray]:
    """Return what boosting starts from at the leaves of first trees, else 0, [K] of [leaves].

    LightGBM adds the mean that boosting starts from to the leaves of the first tree. It is no part
    of the spread of leaf values, where it lies outside of all others.
    """
    found = []
    for c, value in enumerate(leaves.value):
        last = int(leaves.router.first[c][1])
        start = np.zeros(len(value))
        mean, others = float(value[:last].mean()), value[last:]
        if len(others) and not others.min() <= mean <= others.max():
            start[:last] = mean
        found.append(start)
    return found


def refitted_values(leaves: LeafValues, thief: Thief) -> list[np.ndarray]:
    """Return each leaf's Newton step on the thief's rows, [K] of float64 [leaves].

    Round after round as in training, each from the margins of the refitted rounds before it. A leaf
    that no row reaches keeps its value.
    """
    return _walk(leaves, thief, step_length(leaves, thief))[0]


def step_length(leaves: LeafValues, thief: Thief) -> float:
    """Return the learning rate that explains the leaf values best, by least squares."""
    _, (both, square) = _walk(leaves, thief, None)
    return float(np.clip(both / square, 1e-3, 1.0)) if square > 0.0 else 0.1


def _walk(
    leaves: LeafValues, thief: Thief, rate: float | None
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Compute all Newton steps; without a rate the margins follow the leaves as they are.

    Returns new values, and Σ w·old·step and Σ w·step² over leaves, w being their hessians.
    """
    foreign, router = leaves.foreign, leaves.router
    outputs = foreign.ensemble.n_outputs
    margins = np.tile(foreign.ensemble.init, (len(thief.X), 1))
    # No learning rate applies to the mean that boosting starts from; see `_starts`.
    start = [float(leaves.given(c, 0).mean()) for c in range(outputs)]
    margins += start
    squared = foreign.task == "regression" and foreign.ensemble.objective == "identity"
    limit = np.inf if squared else _LARGEST_STEP / foreign.margin_scale
    new = [value.copy() for value in leaves.value]
    both = square = 0.0
    for t in range(max(len(trees) for trees in router.trees)):
        gradient, hessian = _gradients(foreign, margins, thief)
        for c in range(outputs):
            if t >= len(router.trees[c]):
                continue
            part = slice(int(router.first[c][t]), int(router.first[c][t + 1]))
            here, size = leaves.routes.leaf[c][t], int(part.stop - part.start)
            h = np.bincount(here, hessian[:, c], size)
            step = np.bincount(here, gradient[:, c], size) / (h + _L2)
            step = np.clip(step, -limit, limit)
            offset = start[c] if t == 0 else 0.0
            old = leaves.value[c][part] - offset
            both += float((h * old * step).sum())
            square += float((h * step**2).sum())
            moved = old
            if rate is not None:
                reached = np.bincount(here, minlength=size) > 0
                moved = np.where(reached, rate * step, old)
                new[c][part] = moved + offset
            margins[:, c] += moved[here]
    return new, (both, square)


def _gradients(
    foreign: ForeignModel, margins: np.ndarray, thief: Thief
) -> tuple[np.ndarray, np.ndarray]:
    """Return negative gradients and hessians of the loss in the margins, float64 [n, outputs].

    Log-loss for labels; for numbers squared error, Poisson deviance or log-loss by what the margin
    becomes; for rankers the logistic loss of pairs within a list.
    """
    scale, outputs = foreign.margin_scale, foreign.ensemble.n_outputs
    if foreign.task == "classification":
        p = foreign.confidence(margins)[:, -outputs:]
        truth = thief.target[:, None] == np.arange(len(foreign.classes))[-outputs:]
        return scale * (truth - p), scale**2 * p * (1.0 - p)
    if foreign.task == "ranking":
        return _pair_gradients(margins[:, 0], thief)
    found = foreign.answers(margins)
    slope = {"identity": np.ones(found.shape), "exponential": found}.get(
        foreign.ensemble.objective, found * (1.0 - found)
    )
    return scale * (thief.target[:, None] - found), scale**2 * np.maximum(slope, 1e-9)


def _pair_gradients(margins: np.ndarray, thief: Thief) -> tuple[np.ndarray, np.ndarray]:
    gradient, hessian = np.zeros(len(margins)), np.zeros(len(margins))
    groups = np.zeros(len(margins), np.int64) if thief.groups is None else thief.groups
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    for first, last in zip(starts, np.append(starts[1:], len(margins)), strict=True):
        f, y = margins[first:last], thief.target[first:last]
        better = np.sign(y[:, None] - y[None, :])
        wrong = 1.0 / (1.0 + np.exp(np.clip(better * (f[:, None] - f[None, :]), -50.0, 50.0)))
        gradient[first:last] = (better * wrong).sum(axis=1)
        hessian[first:last] = (np.abs(better) * wrong * (1.0 - wrong)).sum(axis=1)
    return gradient[:, None], hessian[:, None]


def _refit_lightgbm(foreign: ForeignModel, thief: Thief, decay: float) -> Stolen:
    from lightgbm.basic import LightGBMError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = inner_booster(foreign.native).refit(
                thief.X, thief.target.astype(float), decay_rate=decay,
                group=group_sizes(thief.groups), num_threads=1, verbosity=-1,
            )  # fmt: skip
    except LightGBMError:
        raise NotOfferedError("refit-refused") from None
    refitted = open_model(made).ensemble.value
    if refitted.shape != foreign.ensemble.value.shape:  # trees that predict does not use
        raise NotOfferedError("refit-refused")
    # The trees are the same, so that the wrapper around them can stay what it is.
    return steal(foreign).put(refitted)


def _refresh_xgboost(foreign: ForeignModel, thief: Thief) -> np.ndarray:
    import xgboost

    booster, matrix = xgboost_inputs(foreign, thief)
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    params = {**xgboost_params(foreign, booster), **update}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = xgboost.train(
            params, matrix, num_boost_round=booster.num_boosted_rounds(), xgb_model=booster
        )
    refreshed = open_model(made).ensemble.value
    return np.asarray(refreshed[: foreign.ensemble.n_nodes])


def xgboost_inputs(foreign: ForeignModel, thief: Thief) -> tuple[Any, Any]:
    """Return the booster of an XGBoost model, and the thief's rows as its training takes them."""
    import xgboost

    booster = inner_booster(foreign.native)
    matrix = xgboost.DMatrix(
        thief.X, thief.target.astype(float), missing=foreign.extra.missing, qid=thief.groups
    )
    matrix.feature_names = booster.feature_names
    matrix.feature_types = booster.feature_types
    return booster, matrix


def xgboost_params(foreign: ForeignModel, booster: Any) -> dict[str, Any]:
    """Return the parameters that an XGBoost model was trained with, as far as it tells."""
    learner = json.loads(booster.save_config())["learner"]
    steps = foreign.extra.steps
    found: dict[str, Any] = {
        "objective": learner["objective"]["name"], "nthread": 1, "lambda": float(steps.l2),
        "eta": float(np.median(steps.rate)),
    }  # fmt: skip
    n_classes = int(learner["learner_model_param"]["num_class"])
    return {**found, "num_class": n_classes} if n_classes else found


def _blend(foreign: ForeignModel, refitted: np.ndarray, decay: float) -> Stolen:
    return steal(foreign).put(decay * foreign.ensemble.value + (1.0 - decay) * refitted)


_HEAVY = 0.01
"""A value that more than this share of rows have is not crossed: it would cost the thief much."""
Move = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Thresholds [m], ascending and distinct; how many nodes have each, [m]; all of the thief's values
of the feature, ascending → new thresholds [m]."""


def snap_thresholds(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Move every threshold a ``share`` of the way to the middle of the thief's gap around it.

    Needs: file, rows. Thresholds outside of the thief's values stay.
    """
    strict = stolen.trees().ensemble.strict
    return _move_all(stolen, thief, lambda t, n, v: _snapped(t, v, strict, share), within=True)


def jitter_thresholds(stolen: Stolen, thief: Thief, gaps: float) -> Stolen:
    """Move every threshold at random within the thief's gap around it and so many ``gaps`` more.

    Needs: file, rows. With 0 it stays in its own gap; with 3 it may cross three of the thief's
    values on either side, but none that many rows have, such as the zeros of a sparse column.
    Thresholds outside of the thief's values stay.
    """
    strict, rng = stolen.trees().ensemble.strict, thief.rng("jitter")

    def jitter(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        known, count = np.unique(values, return_counts=True)
        place = _gap_of(threshold, known, strict)
        inside = (place >= 0) & (place + 1 < len(known))
        heavy = np.flatnonzero(count > _HEAVY * len(values))
        stops = np.concatenate([[0], heavy, [len(known) - 1]])
        low = np.maximum(place - gaps, stops[np.searchsorted(stops, place, "right") - 1])
        high = np.searchsorted(stops, place + 1, "left").clip(max=len(stops) - 1)
        high = np.minimum(place + 1 + gaps, stops[high])
        drawn = low + rng.random(len(threshold)) * (high - low)
        moved = np.interp(drawn, np.arange(len(known)), known)
        return np.where(inside, moved, threshold)

    return _move_all(stolen, thief, jitter, within=gaps == 0)


def merge_thresholds(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Join neighbouring thresholds of a feature that at most a ``share`` of rows lies between.

    Needs: file, rows. With 0 those are joined that none of the thief's rows tells apart. Joined
    thresholds take their mean, weighted by how many splits have each.
    """
    most = share * len(thief.X)
    strict = stolen.trees().ensemble.strict

    def merge(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        below = np.searchsorted(values, threshold, side="left" if strict else "right")
        group = np.zeros(len(threshold), np.int64)
        first = 0
        for i in range(1, len(threshold)):
            if below[i] - below[first] > most:
                first = i
            group[i] = first
        weight = np.bincount(group, nodes, len(threshold))
        total = np.bincount(group, nodes * threshold, len(threshold))
        return np.asarray(total[group] / weight[group])

    return _move_all(stolen, thief, merge, within=share == 0)


def move_thresholds(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Move every threshold by noise of ``size`` times its feature's standard deviation.

    Needs: file, rows.
    """
    rng = thief.rng("thresholds")

    def move(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.asarray(threshold + size * values.std() * rng.standard_normal(len(threshold)))

    return _move_all(stolen, thief, move)


def _snapped(threshold: np.ndarray, values: np.ndarray, strict: bool, share: float) -> np.ndarray:
    known = np.unique(values)
    place = _gap_of(threshold, known, strict)
    inside = (place >= 0) & (place + 1 < len(known))
    low = known[np.clip(place, 0, len(known) - 1)]
    high = known[np.clip(place + 1, 0, len(known) - 1)]
    middle = low + (high - low) / 2.0
    return np.where(inside, threshold + share * (middle - threshold), threshold)


def _gap_of(threshold: np.ndarray, known: np.ndarray, strict: bool) -> np.ndarray:
    """Return which of the distinct ``known`` values is the last one that goes left; -1: none."""
    # Equal to a threshold goes left with <= and right with <.
    return np.searchsorted(known, threshold, side="left" if strict else "right") - 1


def _move_all(stolen: Stolen, thief: Thief, move: Move, within: bool = False) -> Stolen:
    foreign = stolen.trees()
    rows = columns(foreign, thief.X)
    return stolen.put_thresholds(_moved(foreign.ensemble, rows, move, within))


def _moved(e: Ensemble, rows: np.ndarray, move: Move, within: bool) -> np.ndarray:
    """Return all thresholds [N] after a move, as the model's file can hold them.

    ``within``: the move crosses none of the thief's values, and rounding shall not do so either.
    """
    splits = (e.left >= 0) & (e.category_set < 0) & np.isfinite(e.threshold)
    if not splits.any():
        raise NotOfferedError("no-thresholds")
    if e.input_dtype == "f4":
        rows = rows.astype(np.float32).astype(np.float64)
    new = e.threshold.copy()
    for feature in np.unique(e.feature[splits]).tolist():
        mine = np.flatnonzero(splits & (e.feature == feature))
        values = np.sort(rows[np.isfinite(rows[:, feature]), feature])
        if len(values) == 0:
            continue
        old, place, nodes = np.unique(e.threshold[mine], return_inverse=True, return_counts=True)
        moved = _held(move(old, nodes, values), e)
        if within:
            # A gap as narrow as the type has room for one threshold only.
            crossed = _gap_of(moved, values, e.strict) != _gap_of(old, values, e.strict)
            moved = np.where(crossed, old, moved)
        new[mine] = moved[place]
    return new


def _held(threshold: np.ndarray, e: Ensemble) -> np.ndarray:
    """Return thresholds in the type of the rows that they are compared with."""
    return threshold.astype(np.float32).astype(np.float64) if e.input_dtype == "f4" else threshold


def keep_first(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Keep the first iterations, a ``share`` of them, through the library's own interface.

    Needs: file.
    """
    foreign = stolen.file()
    rounds = n_rounds(foreign.ensemble)
    kept = max(round(share * rounds), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return steal(_first_rounds(foreign, kept))


def drop_first(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Drop the first iterations and keep the last ones, a ``share`` of all.

    Needs: file, rows. A dropped tree gives every row what it gave the thief's rows on average.
    """
    leaves = LeafValues.of(stolen, thief.X)
    rounds = n_rounds(leaves.foreign.ensemble)
    return _drop(leaves, np.arange(rounds) < rounds - max(round(share * rounds), 1))


def drop_weakest(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Keep the ``share`` of iterations that tell the thief's rows apart most.

    Needs: file, rows.
    """
    leaves = LeafValues.of(stolen, thief.X)
    rounds = n_rounds(leaves.foreign.ensemble)
    spread = np.zeros(rounds)
    for c in range(len(leaves.value)):
        for t in range(min(len(leaves.routes.leaf[c]), rounds)):
            spread[t] += leaves.given(c, t).std()
    kept = max(round(share * rounds), 1)
    weakest = np.argsort(spread, kind="stable")[: rounds - kept]
    return _drop(leaves, np.isin(np.arange(rounds), weakest))


def prune(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Take back the ``share`` of splits that gain least: their leaves become one.

    Needs: file. Gains are those that the file states, or else the variance between the sides.
    """
    foreign = stolen.file()
    e = foreign.ensemble
    leaf = e.left < 0
    left, right = find_children(e)
    mass, mean = node_means(e)
    a, b = np.where(leaf, 0, left), np.where(leaf, 0, right)
    variance = ((mass[a] * mass[b] / mass)[:, None] * (mean[a] - mean[b]) ** 2).sum(axis=1)
    stated = e.gain if (e.gain[~leaf] > 0.0).any() else variance
    # A split is taken back only with all splits below it.
    least = np.where(leaf, -np.inf, stated)
    for level in reversed(inner_levels(e)):
        below = np.maximum(least[left[level]], least[right[level]])
        least[level] = np.maximum(least[level], below)
    if leaf.all():
        return stolen
    merged = ~leaf & (least <= np.quantile(stated[~leaf], share))
    value = mean.copy()
    for level in inner_levels(e):
        for child in (left[level], right[level]):
            value[child] = np.where(merged[level, None], value[level], value[child])
            merged[child] |= merged[level]
    return stolen.put(np.where(merged[:, None], value, e.value))


def _drop(leaves: LeafValues, dropped: np.ndarray) -> Stolen:
    """Make trees constant; ``dropped`` bool [rounds]."""
    value = [own.copy() for own in leaves.value]
    for c, own in enumerate(value):
        first = leaves.router.first[c]
        for t in np.flatnonzero(dropped[: len(leaves.routes.leaf[c])]).tolist():
            own[first[t] : first[t + 1]] = leaves.given(c, t).mean()
    return leaves.put(value)


def _first_rounds(foreign: ForeignModel, kept: int) -> Any:
    """Return the library's own model of the first iterations."""
    native = foreign.native
    cut: Any
    match library_of(foreign):
        case "lightgbm":
            from lightgbm import Booster

            whole = inner_booster(native)
            cut = Booster(model_str=whole.model_to_string(num_iteration=kept))
            cut.params = whole.params
            cut.pandas_categorical = whole.pandas_categorical
            return with_booster(native, cut)
        case "xgboost":
            cut = inner_booster(native)[:kept]
            cut.set_attr(best_iteration=None, best_score=None)
            return with_booster(native, cut)
        case "catboost":
            cut = native.copy()
            cut.shrink(ntree_end=kept)
            return cut
        case "histogram_boosting":
            cut = copy.copy(native)
            cut._predictors = native._predictors[:kept]
            return cut
        case "gradient_boosting":
            cut = copy.copy(native)
            cut.estimators_, cut.n_estimators_ = native.estimators_[:kept], kept
            return cut
        case _:
            cut = copy.copy(native)
            cut._install(first_trees(foreign.ensemble, kept * foreign.ensemble.n_outputs), None)
            return cut
