"""Several boosting iterations on several threads.

Each thread runs the same kernel. In an iteration it derives the gradients of its part of the rows,
meets the others, and takes trees to grow until none is left.
"""

from timbermark.kernels.barrier import meet, own_rows, take
from timbermark.kernels.compile import kernel
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.growing import finish_tree, grow
from timbermark.kernels.layout import N_NODES, PHASE, START, Fit


@kernel
def train_trees(turn, training, trees, growth):
    """Do one thread's part of some iterations.

    IN turn Turn; INOUT training Training; OUT trees Trees; growth Growth, this thread's own.
    """
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
            growth.control[PHASE] = START
            grow(fit, training.keys[t], n, trees.nodes[t], growth, trees.record[t])
            trees.n_nodes[t] = growth.control[N_NODES]
            finish_tree(trees.nodes[t], training.rule, growth, trees.leaf[t], margins[output])
            output = take(turn.tickets, iteration)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return
