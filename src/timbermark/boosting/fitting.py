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
from timbermark.boosting.objective import make_objective
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Scale, shares_word
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.growing import divide_part, finish_rows, grow, set_values
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import fill_rows
from timbermark.kernels.layout import (
    CONTROL_SIZE,
    DIVIDE,
    DONE,
    N_NODES,
    PHASE,
    PLACE,
    START,
    WAITING,
    Binned,
    Fit,
    Growth,
    Training,
    Trees,
    Turn,
)
from timbermark.kernels.training import train_trees
from timbermark.kernels.workers import Workers

Progress = Callable[[int], None]
"""Told, now and then, how many iterations are done."""

share_above = 16_384
"""Rows of a node from which work is worth waking other threads for. It cannot change a tree."""
_SHARED_TABLE = 8
"""Tables with more than so many times `share_above` rows are shared; of smaller ones, waking takes
longer than it saves. (`./dev bench fit numbers`, diamonds: 0.26 s with shared nodes, 0.23 without.)
"""
AT_ONCE = 10
"""Iterations between two looks at the progress, and at the keyboard."""


def no_progress(done: int) -> None:
    """Do nothing."""


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

    @property
    def trees(self) -> Trees:
        """Return the view the kernels take."""
        return Trees(self.forest.nodes, self.forest.n_nodes, self.record, self.leaf)


def leaf_dtype(max_leaves: int) -> type[np.unsignedinteger]:
    """Return the type that holds a node number of a tree with so many leaves."""
    return np.uint8 if 2 * max_leaves - 1 <= 256 else np.uint16


def tree_key(seed: int, tree: int) -> np.uint64:
    """Return the key from which a tree's root draws its split candidates."""
    key: np.uint64 = mix(np.uint64(seed), np.uint64(tree))
    return np.uint64(key)


def make_growth(binned: Binned, max_leaves: int) -> Growth:
    """Return scratch space for one thread."""
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
    one_word = shares_word(scale, data, params)
    binned = data.binned(params, scale.shift, scale.bits if one_word else -1)
    splits = leaves - 1 if record else 0
    trained = Trained(
        forest=empty_forest(n_trees, leaves, outputs),
        leaf=np.empty((n_trees, n if record else 0), leaf_dtype(leaves)),
        record=np.empty((n_trees, splits, 2 * int(binned.firsts[-1])), np.int64),
        margins=np.full((outputs, n), scale.start),
    )
    objective = make_objective(data, params, scale)
    training = Training(
        binned=binned,
        loss=objective.loss,
        rule=objective.rule,
        keys=np.array([tree_key(params.seed, t) for t in range(n_trees)], np.uint64),
        margins=trained.margins,
        grad=np.empty((outputs, n), np.int32),
        hess=np.empty((outputs, 0 if one_word else n), np.int32),
    )
    if outputs == 1 and workers.n_threads > 1 and n > _SHARED_TABLE * share_above:
        _train_shared(training, trained.trees, workers, progress)
    else:
        _train_in_step(training, trained.trees, workers, progress)
    return trained


def take_turns(
    work: Callable[[Turn], None],
    n_iterations: int,
    n_threads: int,
    workers: Workers,
    progress: Progress,
) -> None:
    """Run ``work`` on ``n_threads`` threads in step, for a few iterations at a time."""
    tickets = np.zeros(n_iterations, np.int64)
    for first in range(0, n_iterations, AT_ONCE):
        last = min(first + AT_ONCE, n_iterations)

        def run(thread: int, sync: np.ndarray, first: int = first, last: int = last) -> None:
            if thread < n_threads:
                work(Turn(thread, n_threads, sync, tickets, first, last))

        workers.in_step(run)
        progress(last)


def _train_in_step(training: Training, trees: Trees, workers: Workers, progress: Progress) -> None:
    """Grow one tree per thread at a time."""
    outputs = len(training.margins)
    n_threads = min(workers.n_threads, outputs)
    growths = [make_growth(training.binned, training.rule.max_leaves) for _ in range(n_threads)]

    def work(turn: Turn) -> None:
        train_trees(turn, training, trees, growths[turn.thread])

    take_turns(work, len(trees.n_nodes) // outputs, n_threads, workers, progress)


def _train_shared(training: Training, trees: Trees, workers: Workers, progress: Progress) -> None:
    """Grow one tree at a time; all threads share the work on its large nodes."""
    binned, margins = training.binned, training.margins
    growth = make_growth(binned, training.rule.max_leaves)
    parts = np.zeros((workers.n_threads, growth.histograms.shape[1]), np.int64)
    fit = Fit(binned, training.grad[0], training.hess[0], training.rule)

    def derive(thread: int, start: int, stop: int) -> None:
        derive_gradients(margins, training.loss, start, stop, training.grad, training.hess)

    def fill_part(thread: int, start: int, stop: int) -> None:
        begin = growth.places[growth.control[WAITING]]["start"]
        parts[thread] = 0
        fill_rows(
            binned, growth.rows, begin + start, begin + stop, fit.grad, fit.hess, parts[thread]
        )

    for t in range(len(trees.n_nodes)):
        nodes = trees.nodes[t]

        def finish_part(thread: int, start: int, stop: int, t: int = t) -> None:
            finish_rows(trees.nodes[t], growth, start, stop, trees.leaf[t], margins[0])

        workers.split(derive, margins.shape[1])
        growth.control[PHASE] = START
        while growth.control[PHASE] != DONE:
            if growth.control[PHASE] == DIVIDE:
                _divide(nodes, binned, growth, workers)
            elif growth.control[PHASE] != START:
                place = growth.places[growth.control[WAITING]]
                workers.split(fill_part, int(place["stop"] - place["start"]))
                growth.histograms[place["slot"]] += parts.sum(axis=0)
            grow(fit, training.keys[t], share_above, nodes, growth, trees.record[t])
        trees.n_nodes[t] = growth.control[N_NODES]
        set_values(nodes, training.rule, growth)
        workers.split(finish_part, margins.shape[1])
        progress(t + 1)


def _divide(nodes: np.ndarray, binned: Binned, growth: Growth, workers: Workers) -> None:
    """Give the rows of a large node to its children; they stay in order."""
    node = int(growth.control[WAITING])
    begin, end = (int(growth.places[node][side]) for side in ("start", "stop"))
    lefts, rights = ([growth.rows[:0]] * workers.n_threads for _ in range(2))

    def divide(thread: int, start: int, stop: int) -> None:
        first, last = begin + start, begin + stop
        spare = growth.spare[first:last]
        middle = int(divide_part(node, nodes, binned, growth.rows, first, last, spare))
        lefts[thread], rights[thread] = growth.rows[first:middle], growth.rows[middle:last]

    workers.split(divide, end - begin)
    middle = begin + sum(map(len, lefts))
    growth.rows[begin:end] = np.concatenate([*lefts, *rights])
    left = int(nodes[node]["left"])
    growth.places["start"][left : left + 2] = begin, middle
    growth.places["stop"][left : left + 2] = middle, end
