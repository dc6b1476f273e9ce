"""Several boosting iterations on several threads.

Each thread runs the same kernel. With many outputs it derives, in each iteration, the gradients of
its part of the rows, meets the others, and takes trees to grow until none is left. With one output
all threads grow one tree: the rows that a thread owns need nobody else, from margins to leaves.
"""

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import gradients_of_rows
from timbermark.kernels.growing import add_values, finish_tree, grow
from timbermark.kernels.layout import N_MEETINGS, N_NODES, Fit
from timbermark.kernels.workers import meet, take


@kernel
def train_trees(turn, training, trees, growth, team):
    """Do one thread's part of some iterations.

    IN turn Turn; INOUT training Training; OUT trees Trees; growth Growth, this thread's own; team
    Team, of one where there are many outputs.
    """
    margins, grad, hess = training.margins, training.grad, training.hess
    n_outputs, n = margins.shape
    together = n_outputs == 1
    is_first = team.thread == 0
    growth.control[N_MEETINGS] = 0
    chunk = team.chunk if together else (n + turn.n_threads - 1) // turn.n_threads
    for iteration in range(turn.first, turn.last):
        for a in range(turn.thread * chunk, n, turn.n_threads * chunk):
            b = min(a + chunk, n)
            if together and iteration > 0:
                # Not before: margins and gradients of a chunk are derived while it is at hand.
                add_values(team.value, leaf_of(iteration - 1, trees, team), a, b, margins[0])
            gradients_of_rows(margins, training.loss, a, b, grad, hess)
        output = 0
        if not together:
            if not meet(turn.sync, 2 * (iteration - turn.first) + 1, turn.n_threads):
                return
            output = take(turn.tickets, iteration)
        while output < n_outputs:
            t = iteration * n_outputs + output
            nodes = trees.nodes[t] if is_first else team.nodes
            record = trees.record[t] if is_first else trees.record[t][:0]
            fit = Fit(training.binned, grad[output], hess[output], training.rule)
            if not grow(team, fit, training.keys[t], nodes, growth, record):
                return
            finish_tree(nodes, training.rule, growth, leaf_of(t, trees, team), team.value)
            if is_first:
                trees.n_nodes[t] = growth.control[N_NODES]
            if together:
                break
            add_values(team.value, leaf_of(t, trees, team), 0, n, margins[output])
            output = take(turn.tickets, iteration)
        if not together and not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return
    if together and turn.last == trees.n_nodes.shape[0]:
        for a in range(turn.thread * chunk, n, turn.n_threads * chunk):
            last_leaf = leaf_of(turn.last - 1, trees, team)
            add_values(team.value, last_leaf, a, min(a + chunk, n), margins[0])


@part
def leaf_of(t, trees, team):
    """Return where the leaves of the rows in tree ``t`` are noted."""
    return trees.leaf[t] if trees.leaf.shape[1] > 0 else team.leaf
