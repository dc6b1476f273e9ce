"""Several boosting iterations on several threads.

Each thread runs the same kernel. With many outputs it derives, in each iteration, the gradients of
its part of the rows, meets the others, and takes trees to grow until none is left. With one output
all threads grow one tree: the rows that a thread owns need nobody else, from margins to leaves.
"""

from timbermark.kernels.barrier import meet, own_rows, take
from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.growing import add_values, finish_tree, grow
from timbermark.kernels.layout import N_MEETINGS, N_NODES, Fit


@kernel
def train_trees(turn, training, trees, growth, team):
    """Do one thread's part of some iterations.

    IN turn Turn; INOUT training Training; OUT trees Trees; growth Growth, this thread's own; team
    Team, of one where there are many outputs.
    """
    if training.margins.shape[0] == 1:
        train_together(turn, training, trees, growth, team)
    else:
        train_apart(turn, training, trees, growth, team)


@part
def train_together(turn, training, trees, growth, team):
    """Grow the trees of one output, all threads each of them."""
    margins, grad, hess = training.margins, training.grad, training.hess
    n = margins.shape[1]
    fit = Fit(training.binned, grad[0], hess[0], training.rule)
    growth.control[N_MEETINGS] = 0
    is_first = team.thread == 0
    for t in range(turn.first, turn.last):
        for a in range(team.thread * team.chunk, n, team.n_threads * team.chunk):
            b = min(a + team.chunk, n)
            if t > 0:
                # Not before: margins and gradients of a chunk are derived while it is at hand.
                add_values(team.value, leaf_of(t - 1, trees, team), a, b, margins[0])
            derive_gradients(margins, training.loss, a, b, grad, hess)
        nodes = trees.nodes[t] if is_first else team.nodes
        record = trees.record[t] if is_first else trees.record[t][:0]
        if not grow(team, fit, training.keys[t], nodes, growth, record):
            return
        finish_tree(nodes, training.rule, growth, leaf_of(t, trees, team), team.value)
        if is_first:
            trees.n_nodes[t] = growth.control[N_NODES]
    if turn.last == trees.n_nodes.shape[0]:
        for a in range(team.thread * team.chunk, n, team.n_threads * team.chunk):
            b = min(a + team.chunk, n)
            add_values(team.value, leaf_of(turn.last - 1, trees, team), a, b, margins[0])


@part
def train_apart(turn, training, trees, growth, team):
    """Grow the trees of many outputs, each on one thread."""
    margins, grad, hess = training.margins, training.grad, training.hess
    n_outputs, n = margins.shape
    start, stop = own_rows(turn, n)
    for iteration in range(turn.first, turn.last):
        derive_gradients(margins, training.loss, start, stop, grad, hess)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 1, turn.n_threads):
            return
        output = take(turn.tickets, iteration)
        while output < n_outputs:
            t = iteration * n_outputs + output
            fit = Fit(training.binned, grad[output], hess[output], training.rule)
            grow(team, fit, training.keys[t], trees.nodes[t], growth, trees.record[t])
            trees.n_nodes[t] = growth.control[N_NODES]
            leaf = leaf_of(t, trees, team)
            finish_tree(trees.nodes[t], training.rule, growth, leaf, team.value)
            add_values(team.value, leaf, 0, n, margins[output])
            output = take(turn.tickets, iteration)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return


@part
def leaf_of(t, trees, team):
    """Return where the leaves of the rows in tree ``t`` are noted."""
    return trees.leaf[t] if trees.leaf.shape[1] > 0 else team.leaf
