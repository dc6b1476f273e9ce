"""Attacks with timbermark itself: marks of the thief's own, and edits undone that look like ours.

The thief knows timbermark's source: how candidates are made, which ones are taken, how leaves are
edited. Only the owner's rows and key are unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timbermark.attacks.own_models import fit_quietly, new_like, own_model
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import Task
from timbermark.marking.budget import LIMITS, Budget
from timbermark.marking.choosing import Candidates
from timbermark.marking.leaves import fill_missing, reroute, set_leaves
from timbermark.marking.mixing import mix_rows
from timbermark.marking.models import open_model
from timbermark.marking.preparing import Prepared, columns, prepare
from timbermark.marking.rehearsing import list_strengths, rehearse
from timbermark.marking.sealing import Choices, Draft, draft_mark, move_thresholds
from timbermark.marking.tasks import leads, rank_labels
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import (
    find_children,
    find_parents,
    inner_levels,
    node_means,
    replace_oddest,
)

_WIDE = {
    "changed": 0.03, "drift": 0.03, "move": 0.02, "rmse": 0.003, "order": 0.002, "ndcg": 0.002,
}  # fmt: skip
"""What a thief accepts: three times the owner's limits, without labels."""
_POOL_PER_GUESS = 4
_GUESSED_LEAD = 0.5
_OWN_MODELS = 3
_LEARNT_LEAVES = 60_000


def mark_again(stolen: Stolen, thief: Thief, times: float) -> Stolen:
    """Mark the stolen model with timbermark, ``times`` times, each with other triggers.

    Needs: file, rows. The thief's rows stand for the training rows, and both seals are set. The
    symbols are random bits, because nobody will ask for this mark.
    """
    for number in range(round(times)):
        foreign, seed = stolen.trees(), thief.seed + 1 + number
        choices = Choices(budget=_wide_budget(foreign.task), weak=True)
        rng = thief.rng(f"mark {number}")
        try:
            with Workers(count_threads(None)) as workers:
                draft = draft_mark(
                    foreign, thief.X, None, None, None, None, choices, seed, workers, _quiet
                )
                made = _set_symbols(draft, rng, workers)
        except InputError:
            raise NotOfferedError("no-mark-fits") from None
        stolen = stolen.put_thresholds(made.threshold).put(made.value)
    return stolen


def _set_symbols(draft: Draft, rng: np.random.Generator, workers: Workers) -> Ensemble:
    """Return the ensemble with random symbols in both seals, as far as the draft has them."""
    held = draft.prepared
    if draft.splits is not None:
        symbols = rng.integers(2, size=len(draft.splits))
        held = move_thresholds(held, draft.splits.boundaries, symbols, workers)
    if draft.rehearsal is None:
        return held.router.ensemble
    strength = draft.rehearsal.strength
    triggers = reroute(held, draft.rehearsal.triggers, workers)
    symbols = rng.integers(strength.q, size=len(triggers))
    setting = set_leaves(held, triggers, symbols, strength.lead, workers, strength.hidden)
    return setting.edit.ensemble


def _wide_budget(task: Task) -> Budget:
    """Return what a thief accepts, in the limits of a task."""
    return Budget.only(**{name: limit for name, limit in _WIDE.items() if name in LIMITS[task]})


def _quiet(said: str) -> None:
    """Do nothing with what is said."""


def relabel_unsure(stolen: Stolen, thief: Thief, guesses: float) -> Stolen:
    """Edit mixtures of which the stolen model is least sure to answer as the thief's model does.

    Needs: file, rows, labels. Triggers are mixtures whose best labels are close; the thief makes as
    many ``guesses`` of this kind and sets them as timbermark sets symbols.
    """

    def sureness(X: np.ndarray) -> np.ndarray:
        scores = np.sort(stolen.answer(X), axis=1)
        return np.asarray(scores[:, -1] - scores[:, -2])

    return _relabel(stolen, thief, int(guesses), sureness)


def relabel_outliers(stolen: Stolen, thief: Thief, guesses: float) -> Stolen:
    """Edit mixtures that least resemble the thief's rows to answer as the thief's model does.

    Needs: file, rows, labels.
    """
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(random_state=thief.seed).fit(fill_missing(thief.X))
    return _relabel(stolen, thief, int(guesses), lambda X: forest.score_samples(fill_missing(X)))


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


def _relabel(
    stolen: Stolen, thief: Thief, guesses: int, rank: Callable[[np.ndarray], np.ndarray]
) -> Stolen:
    """Set the guesses that rank lowest to the answers of the thief's own model."""
    if stolen.task != "classification":
        raise NotOfferedError("labels-only")
    own = own_model(stolen, thief)
    pool = mix_rows(thief.X, _POOL_PER_GUESS * guesses, thief.rng("guesses")).X
    chosen = pool[np.argsort(rank(pool), kind="stable")[:guesses]]
    prepared, workers = _prepare(stolen, thief, thief.seed)
    with workers:
        routes = prepared.router.route(columns(prepared.foreign, chosen), workers)
        margins = prepared.router.margins(routes, workers)
        target = own.answer(chosen).argmax(axis=1)
        # Those that answer so already are left alone.
        other = leads(margins, target) <= 0.0
        if not other.any():
            return stolen
        alphabets = np.column_stack([target, rank_labels(margins, 1)[:, 0]])
        found = Candidates(chosen, routes, margins, alphabets, len(pool)).take(
            np.flatnonzero(other)
        )
        symbols = np.zeros(len(found), np.int64)
        setting = set_leaves(prepared, found, symbols, _GUESSED_LEAD, workers)
    return stolen.put(setting.edit.ensemble.value)


def _prepare(stolen: Stolen, thief: Thief, seed: int) -> tuple[Prepared, Workers]:
    """Return the thief's rows in the roles that the owner's had."""
    workers = Workers(count_threads(None))
    try:
        return prepare(stolen.trees(), thief.X, None, None, None, seed, workers), workers
    except InputError:
        raise NotOfferedError("too-few-rows") from None


def _learn_edits(stolen: Stolen, thief: Thief) -> object:
    """Return a regressor from features of a leaf to its edit, in units of the model's leaves."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    foreign, rng = stolen.file(), thief.rng("own models")
    if foreign.task != "classification":
        raise NotOfferedError("labels-only")
    features, edits = [], []
    strengths = list_strengths(len(foreign.classes), "auto", "auto", "auto", weak=True)
    for number in range(_OWN_MODELS):
        part = rng.permutation(len(thief.X))[: int(0.9 * len(thief.X))]
        part = np.sort(part)  # lists of a ranker stay together
        target, groups = thief.target[part], None if thief.groups is None else thief.groups[part]
        target = np.unique(target, return_inverse=True)[1]
        model = new_like(foreign, thief.seed + number, foreign.task)
        own = open_model(fit_quietly(model, thief.X[part], target, groups))
        with Workers(count_threads(None)) as workers:
            try:
                ready = prepare(own, thief.X[part], None, None, None, thief.seed, workers)
                marked = rehearse(
                    ready, _wide_budget("classification"), strengths, "mixed", workers
                ).setting
            except InputError:
                continue
        after = marked.edit.ensemble
        leaf = np.flatnonzero(after.left < 0)
        found = _leaf_features(after)
        for column in range(after.value.shape[1]):
            changed = (after.value - own.ensemble.value)[leaf, column] / _scale(after, column)
            features.append(found[column][leaf])
            edits.append(changed)
    if not features:
        raise NotOfferedError("no-mark-fits")
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
