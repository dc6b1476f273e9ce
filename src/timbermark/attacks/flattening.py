"""Flattening what looks edited: suspicious leaves take the value that all else suggests.

Three ways to tell what looks edited: by what the file says of a leaf, by what the thief's own rows
say of it, and by what the thief learnt from models of their own that timbermark marked.
"""

from __future__ import annotations

import numpy as np

from timbermark.attacks.overwriting import WIDE_BUDGET
from timbermark.attacks.own_models import new_like
from timbermark.attacks.refitting import refitted_values
from timbermark.attacks.stolen import LeafValues, NotOfferedError, Stolen, Thief
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.marking.models import open_model
from timbermark.marking.preparing import prepare
from timbermark.marking.rehearsing import rehearse
from timbermark.marking.strengths import list_strengths
from timbermark.trees.branches import (
    find_parents,
    flatten_leaves,
    node_means,
    replace_oddest,
)
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, inner_levels

_OWN_MODELS = 3
_LEARNT_LEAVES = 60_000


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
    new = refitted_values(leaves, thief.label)
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


def flatten_by_learning(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Give the ``share`` of leaves that a trained eye finds edited what it takes for their value.

    Needs: file, rows, labels. The thief trains models of the same kind on parts of their rows,
    marks them with timbermark, and learns from statistics of a leaf by how much it was edited. The
    expected edit is taken back.
    """
    e = stolen.file().ensemble
    eye = thief.once("eye", lambda: _learn_edits(stolen, thief))
    leaf = np.flatnonzero(e.left < 0)
    found = _leaf_features(e)
    value = e.value.copy()
    guess = np.zeros(e.value.shape)
    for column in range(value.shape[1]):
        guess[leaf, column] = eye.predict(found[column][leaf]) * _scale(e, column)
    odd = np.abs(guess).sum(axis=1)
    return stolen.put(replace_oddest(value, value - guess, odd, e.left < 0, share))


def _learn_edits(stolen: Stolen, thief: Thief) -> object:
    """Return a regressor from features of a leaf to its edit, in units of the model's leaves."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    foreign, rng = stolen.file(), thief.rng("own models")
    features, edits = [], []
    strengths = list_strengths(len(foreign.classes), "auto", "auto", "auto", weak=True)
    reason = ""
    for number in range(_OWN_MODELS):
        part = rng.permutation(len(thief.X))[: int(0.9 * len(thief.X))]
        classes = np.unique(thief.label[part], return_inverse=True)[1]
        model = new_like(foreign, thief.seed + number).fit(thief.X[part], classes)
        own = open_model(model)
        with Workers(count_threads(None)) as workers:
            try:
                ready = prepare(own, thief.X[part], None, None, None, thief.seed, workers)
                marked = rehearse(ready, WIDE_BUDGET, strengths, "mixed", workers).setting
            except InputError as error:
                reason = error.message
                continue
        after = marked.edit.ensemble
        leaf = np.flatnonzero(after.left < 0)
        found = _leaf_features(after)
        for column in range(after.value.shape[1]):
            changed = (after.value - own.ensemble.value)[leaf, column] / _scale(after, column)
            features.append(found[column][leaf])
            edits.append(changed)
    if not features:
        raise NotOfferedError(f"no model of the thief's own could be marked: {reason}")
    X, y = np.concatenate(features), np.concatenate(edits)
    some = rng.permutation(len(X))[:_LEARNT_LEAVES]
    return HistGradientBoostingRegressor(max_iter=100, random_state=thief.seed).fit(
        X[some], y[some]
    )


def _leaf_features(e: Ensemble) -> list[np.ndarray]:
    """Return for each column of leaf values float64 [N, f]: what the file says of every node."""
    mass, mean = node_means(e)
    parent = find_parents(e)
    up = np.where(parent >= 0, parent, 0)
    above = np.where(parent[up] >= 0, parent[up], up)
    left, right = find_children(e)
    sibling = np.where(left[up] == np.arange(e.n_nodes), right[up], left[up])
    sibling = np.where(parent >= 0, sibling, 0)
    tree = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    depth = np.zeros(e.n_nodes)
    for number, level in enumerate(inner_levels(e)):
        depth[left[level]] = depth[right[level]] = number + 1
    log_gain = np.log(np.maximum(e.gain, 1e-12))
    found = []
    for column in range(e.value.shape[1]):
        scale = _scale(e, column)
        m = mean[:, column] / scale
        found.append(
            np.column_stack(
                [
                    m, m[sibling], m[up], m[above], m - m[sibling], m - m[up], m[up] - m[above],
                    np.log(mass), np.log(mass[sibling]), np.log(mass[up]),
                    log_gain[up], log_gain[above], log_gain[sibling], e.count, e.hessian,
                    e.left[sibling] < 0, depth, tree / e.n_trees,
                ]
            )
        )  # fmt: skip
    return found


def _scale(e: Ensemble, column: int) -> float:
    return float(np.abs(e.value[e.left < 0, column]).mean()) or 1.0
