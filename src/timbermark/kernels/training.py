"""Several boosting iterations on several threads.

Each thread runs the same kernel. In an iteration it derives the gradients of its part of the rows,
meets the others, and takes trees to grow until none is left.
"""

from timbermark.kernels.barrier import meet, take
from timbermark.kernels.compile import kernel
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.growing import finish_tree, grow
from timbermark.kernels.layout import N_NODES, PHASE, START


@kernel
def train_trees(
    thread, n_threads, sync, tickets, first, last, binned, loss, shift, rule,
    max_leaves, step, limit, keys, margins, grad, hess, nodes, n_nodes, leaf, record, growth,
):  # fmt: skip
    """Iterations ``first`` to ``last`` as thread number ``thread`` of ``n_threads``.

    IN binned Binned; IN loss Loss; IN keys uint64[trees]; INOUT margins float64[outputs, n]; OUT
    grad, hess int32[outputs, n]; OUT nodes NODE[trees, m]; OUT n_nodes int64[trees]; OUT leaf
    uint8|uint16[trees, n]; OUT record int64[trees, splits, 2 * candidates]; growth belongs to this
    thread, sync and tickets int64[iterations] to all.
    """
    n_outputs, n = margins.shape
    part = (n + n_threads - 1) // n_threads
    start, stop = min(thread * part, n), min((thread + 1) * part, n)
    for iteration in range(first, last):
        derive_gradients(margins, loss, start, stop, grad, hess)
        if not meet(sync, 2 * (iteration - first) + 1, n_threads):
            return
        while True:
            output = take(tickets, iteration)
            if output >= n_outputs:
                break
            t = iteration * n_outputs + output
            growth.control[PHASE] = START
            grow(
                binned, grad[output], hess[output], shift, rule, max_leaves, keys[t], n,
                nodes[t], growth, record[t],
            )  # fmt: skip
            n_nodes[t] = growth.control[N_NODES]
            finish_tree(nodes[t], growth, step, rule[0], limit, leaf[t], margins[output])
        if not meet(sync, 2 * (iteration - first) + 2, n_threads):
            return
