"""Training: one tree per class and iteration, each on its own thread.

With two classes or numbers there is one tree at a time, and the threads share the histograms of
its large nodes instead. Sums are integers, so neither way can change a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from timbermark.boosting.data import TrainingData
from timbermark.boosting.forest import Forest, empty_forest
from timbermark.boosting.objective import Objective, make_objective
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Scale, shares_word
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.growing import finish_tree, grow
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import fill_rows
from timbermark.kernels.layout import (
    CONTROL_SIZE,
    DONE,
    N_NODES,
    PHASE,
    PLACE,
    START,
    WAITING,
    Binned,
    Growth,
)
from timbermark.kernels.training import train_trees
from timbermark.kernels.workers import Workers

Progress = Callable[[int], None]
"""Told, now and then, how many iterations are done."""

share_above = 16_384
"""Rows from which a histogram is worth waking other threads for. It cannot change a tree."""
AT_ONCE = 10
"""Iterations between two looks at the progress, and at the keyboard."""


def no_progress(done: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What training leaves behind.

    ``leaf`` uint8|uint16[T, n]: the node each row ends in; ``record`` int64[T, L - 1, 2c]: sums
    to the left of each split candidate, by tree and split (both are empty unless recorded);
    ``margins`` float64[outputs, n].
    """

    forest: Forest
    leaf: np.ndarray
    record: np.ndarray
    margins: np.ndarray


def leaf_dtype(max_leaves: int) -> type[np.unsignedinteger]:
    """The type that holds a node number of a tree with so many leaves."""
    return np.uint8 if 2 * max_leaves - 1 <= 256 else np.uint16


def tree_key(seed: int, tree: int) -> np.uint64:
    """The key from which a tree's root draws its split candidates."""
    key: np.uint64 = mix(np.uint64(seed), np.uint64(tree))
    return np.uint64(key)


def make_growth(binned: Binned, max_leaves: int) -> Growth:
    """Scratch space for one thread."""
    n = len(binned.count)
    slots = int(binned.n_thresholds.sum()) + 2 * len(binned.n_thresholds)
    n_nodes = 2 * max_leaves - 1
    return Growth(
        control=np.zeros(CONTROL_SIZE, np.int64),
        rows=np.zeros(n, np.uint32),
        spare=np.zeros(n, np.uint32),
        places=np.zeros(n_nodes, PLACE),
        histograms=np.zeros(
            (max_leaves, slots if binned.hessian_bits >= 0 else 2 * slots), np.int64
        ),
        sums=np.zeros((max_leaves, 2 * int(binned.firsts[-1])), np.int64),
        gain=np.zeros(1),
    )


def train(
    data: TrainingData,
    params: TrainParams,
    scale: Scale,
    workers: Workers,
    record: bool = False,
    progress: Progress = no_progress,
) -> Trained:
    """Grow ``params.max_iter`` trees per output on ``data``.

    The result depends on the data, the parameters and the scale alone.
    """
    n, outputs, leaves = data.n_rows, data.n_outputs, params.max_leaf_nodes
    n_trees = params.max_iter * outputs
    binned = data.binned(params)
    one_word = shares_word(scale, data, params)
    if one_word:
        binned = binned._replace(hessian_bits=scale.bits)
    splits = leaves - 1 if record else 0
    trained = Trained(
        forest=empty_forest(n_trees, leaves, outputs),
        leaf=np.empty((n_trees, n if record else 0), leaf_dtype(leaves)),
        record=np.empty((n_trees, splits, 2 * int(binned.firsts[-1])), np.int64),
        margins=np.full((outputs, n), scale.start),
    )
    run = Run(
        binned=binned,
        objective=make_objective(data, params, scale),
        shift=scale.shift,
        max_leaves=leaves,
        keys=np.array([tree_key(params.seed, t) for t in range(n_trees)], np.uint64),
        grad=np.empty((outputs, n), np.int32),
        hess=np.empty((outputs, 0 if one_word else n), np.int32),
    )
    if outputs == 1 and workers.n_threads > 1 and n > share_above:
        _train_shared(run, trained, workers, progress)
    else:
        _train_in_step(run, trained, workers, progress)
    return trained


@dataclass(frozen=True, slots=True)
class Run:
    """What all threads of one training read, and the gradients they share."""

    binned: Binned
    objective: Objective
    shift: int
    max_leaves: int
    keys: np.ndarray
    grad: np.ndarray
    hess: np.ndarray


def _train_in_step(run: Run, trained: Trained, workers: Workers, progress: Progress) -> None:
    """One tree per thread at a time."""
    goal = run.objective
    outputs, n_trees = len(trained.margins), trained.forest.n_trees
    n_iterations = n_trees // outputs
    n_threads = min(workers.n_threads, outputs)
    growths = [make_growth(run.binned, run.max_leaves) for _ in range(n_threads)]
    tickets = np.zeros(n_iterations, np.int64)
    for first in range(0, n_iterations, AT_ONCE):
        last = min(first + AT_ONCE, n_iterations)

        def work(thread: int, sync: np.ndarray, first: int = first, last: int = last) -> None:
            if thread >= n_threads:
                return
            train_trees(
                thread, n_threads, sync, tickets, first, last, run.binned, goal.loss, run.shift,
                goal.rule, run.max_leaves, goal.step, goal.limit, run.keys, trained.margins,
                run.grad, run.hess, trained.forest.nodes, trained.forest.n_nodes, trained.leaf,
                trained.record, growths[thread],
            )  # fmt: skip

        workers.in_step(work)
        progress(last)


def _train_shared(run: Run, trained: Trained, workers: Workers, progress: Progress) -> None:
    """One tree at a time; all threads share the histograms of its large nodes."""
    n, goal = trained.margins.shape[1], run.objective
    growth = make_growth(run.binned, run.max_leaves)
    parts = np.zeros((workers.n_threads, growth.histograms.shape[1]), np.int64)

    def derive(thread: int, start: int, stop: int) -> None:
        derive_gradients(trained.margins, goal.loss, start, stop, run.grad, run.hess)

    def fill_part(thread: int, start: int, stop: int) -> None:
        begin = growth.places[growth.control[WAITING]]["start"]
        parts[thread] = 0
        fill_rows(
            run.binned, growth.rows, begin + start, begin + stop, run.grad[0], run.hess[0],
            run.shift, parts[thread],
        )  # fmt: skip

    for t in range(trained.forest.n_trees):
        workers.split(derive, n)
        nodes = trained.forest.nodes[t]
        growth.control[PHASE] = START
        while growth.control[PHASE] != DONE:
            if growth.control[PHASE] != START:
                place = growth.places[growth.control[WAITING]]
                workers.split(fill_part, int(place["stop"] - place["start"]))
                growth.histograms[place["slot"]] += parts.sum(axis=0)
            grow(
                run.binned, run.grad[0], run.hess[0], run.shift, goal.rule, run.max_leaves,
                run.keys[t], share_above, nodes, growth, trained.record[t],
            )  # fmt: skip
        trained.forest.n_nodes[t] = growth.control[N_NODES]
        finish_tree(
            nodes, growth, goal.step, goal.rule[0], goal.limit, trained.leaf[t], trained.margins[0]
        )
        progress(t + 1)
