"""Training: one tree per class and iteration, each on its own thread.

With two classes or numbers there is one tree at a time, and the threads share the histograms of
its large nodes instead. Sums are integers, so neither way can change a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from timbermark.boosting.data import TrainingData, TrainParams
from timbermark.boosting.forest import Forest, empty_forest
from timbermark.boosting.objective import Scale, make_objective, shares_word
from timbermark.kernels.growing import train_trees
from timbermark.kernels.hashing import mix_all
from timbermark.kernels.layout import (
    CONTROL_SIZE,
    NODE,
    PLACE,
    Binned,
    Growth,
    Team,
    Training,
    Trees,
    Turn,
)
from timbermark.kernels.workers import Workers

Progress = Callable[[int], None]
"""Told, now and then, how many iterations are done."""

_CHUNK = 4096
"""Rows that a thread owns in a row, where all threads grow one tree: sorted tables are shared
evenly."""
_ALONE = 2**16
"""Codes of a table, for each thread, below which meeting may take longer than sharing a tree saves.
An estimate: not measured yet. It cannot change a tree."""
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
    return np.uint64(mix_all(seed, np.array([tree]))[0])


def make_growth(binned: Binned, max_leaves: int) -> Growth:
    """Return scratch space for one thread."""
    n = len(binned.count)
    slots = int(binned.n_thresholds.sum()) + 2 * len(binned.n_thresholds)
    width = slots if binned.hessian_bits >= 0 else 2 * slots
    n_nodes = 2 * max_leaves - 1
    return Growth(
        control=np.zeros(CONTROL_SIZE, np.int64),
        rows=np.zeros(n, np.uint32),
        spare=np.zeros(n, np.uint32),
        places=np.zeros(n_nodes, PLACE),
        histograms=np.zeros((max_leaves, width), np.int64),
        sums=np.zeros((max_leaves, 2 * int(binned.firsts[-1])), np.int64),
        gain=np.zeros(1 + int(binned.firsts[-1])),
        extra=np.zeros(width, np.int64),
    )


def make_team(
    binned: Binned, max_leaves: int, n_threads: int, leaf: np.ndarray
) -> list[tuple[Growth, Team]]:
    """Return for each thread of those that grow a tree together its scratch space and its place.

    ``leaf`` uint8|uint16[trees or 1, n]: where the leaves of all trees, or of the last, are noted.
    """
    n, n_nodes = len(binned.count), 2 * max_leaves - 1
    growths = [make_growth(binned, max_leaves) for _ in range(n_threads)]
    shared, width = growths[0], growths[0].histograms.shape[1]
    # Features of like numbers of slots for each thread.
    ends = np.cumsum(binned.n_thresholds + 2)
    shares = np.arange(n_threads + 1) * (ends[-1] / n_threads)
    offsets = np.concatenate([[0], ends])
    bounds = np.searchsorted(offsets, shares)
    words = width // int(ends[-1]) * offsets
    place = Team(
        thread=0,
        n_threads=n_threads,
        sync=np.zeros(2, np.int64),
        chunk=min(_CHUNK, -(-n // (8 * n_threads))),
        first=0,
        last=0,
        start=0,
        stop=0,
        parts=np.zeros((n_threads if n_threads > 1 else 0, width), np.int64),
        found=np.zeros((n_threads, 2, 2)),
        nodes=np.zeros(n_nodes, NODE),
        leaf=leaf,
        value=np.zeros(n_nodes),
    )
    return [
        (
            growth._replace(histograms=shared.histograms, sums=shared.sums),
            place._replace(
                thread=thread,
                first=int(bounds[thread]),
                last=int(bounds[thread + 1]),
                start=int(words[bounds[thread]]),
                stop=int(words[bounds[thread + 1]]),
                nodes=place.nodes.copy(),
                value=place.value.copy(),
            ),
        )
        for thread, growth in enumerate(growths)
    ]


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
        keys=mix_all(params.seed, np.arange(n_trees)),
        margins=trained.margins,
        grad=np.empty((outputs, n), np.int32),
        hess=np.empty((outputs, 0 if one_word else n), np.int32),
    )

    def notes() -> np.ndarray:
        return trained.leaf if record else np.zeros((1, n), leaf_dtype(leaves))

    if outputs == 1:
        n_threads = min(workers.n_threads, max(1, data.codes.size // _ALONE))
        team = make_team(binned, leaves, n_threads, notes())
    else:
        n_threads = min(workers.n_threads, outputs)
        team = [make_team(binned, leaves, 1, notes())[0] for _ in range(n_threads)]

    def work(turn: Turn) -> None:
        growth, place = team[turn.thread]
        train_trees(turn, training, trained.trees, growth, place._replace(sync=turn.sync))

    take_turns(work, params.max_iter, n_threads, workers, progress)
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
