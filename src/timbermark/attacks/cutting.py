"""Cutting: fewer iterations, without the trees that matter least, without the weakest splits."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np

from timbermark.attacks.own_models import n_rounds
from timbermark.attacks.stolen import LeafValues, Stolen, Thief, library_of, steal
from timbermark.libraries.contract import ForeignModel
from timbermark.trees.branches import node_means
from timbermark.trees.joining import first_trees
from timbermark.trees.statistics import find_children, inner_levels


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

            whole = native if isinstance(native, Booster) else native.booster_
            cut = Booster(model_str=whole.model_to_string(num_iteration=kept))
            cut.params = whole.params
            cut.pandas_categorical = whole.pandas_categorical
            return cut if whole is native else copy.deepcopy(native, {id(whole): cut})
        case "xgboost":
            from xgboost import Booster as XGBooster

            whole = native if isinstance(native, XGBooster) else native.get_booster()
            cut = whole[:kept]
            cut.set_attr(best_iteration=None, best_score=None)
            return cut if whole is native else copy.deepcopy(native, {id(whole): cut})
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
