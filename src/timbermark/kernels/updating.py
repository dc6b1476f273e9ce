"""Several iterations of the in-place update on several threads, as in training."""

import numpy as np

from timbermark.kernels.barrier import meet, take
from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.layout import N_NODES
from timbermark.kernels.renewing import finish_renewal, renew_tree


@part
def list_touches(moved, grad, hess, old_grad, old_hess, count, shift, out):
    """Touches of one tree: added rows enter, moved rows change. Returns how many there are.

    IN moved bool[n], old rows; IN old_grad, old_hess int32[n], what the moved rows' part in the
    old sums was; OUT out TOUCH[rows].
    """
    n = 0
    n_old = moved.shape[0]
    for row in range(n_old, grad.shape[0]):
        out[n]["row"] = row
        out[n]["g"] = np.int64(grad[row])
        out[n]["packed"] = (np.int64(hess[row]) << shift) + np.int64(count[row])
        n += 1
    for row in range(old_grad.shape[0]):
        if moved[row]:
            g = np.int64(grad[row]) - np.int64(old_grad[row])
            h = np.int64(hess[row]) - np.int64(old_hess[row])
            if g != 0 or h != 0:
                out[n]["row"] = row
                out[n]["g"] = g
                out[n]["packed"] = h << shift
                n += 1
    return n


@part
def find_moved(before, after, tolerance, start, stop, out):
    """Mark the rows whose margin moved by more than ``tolerance`` in any output.

    IN before, after float64[outputs, n]; OUT out bool[n].
    """
    flags = out[start:stop]
    flags[:] = False
    for output in range(before.shape[0]):
        a = before[output, start:stop]
        b = after[output, start:stop]
        for i in range(stop - start):
            flags[i] |= abs(a[i] - b[i]) > tolerance


@kernel
def renew_trees(
    thread, n_threads, sync, tickets, first, last, old, binned, loss, shift, rule,
    patience, tolerance, max_leaves, max_depth, step, limit, before, after, grad, hess, old_grad,
    old_hess, moved, nodes, n_nodes, walk, growth,
):  # fmt: skip
    """Renew the trees of the iterations ``first`` to ``last``, as one thread of ``n_threads``.

    IN old Old, the forest and its training on the first n rows; IN loss Loss of all rows;
    INOUT before float64[outputs, n]; INOUT after float64[outputs, rows]; OUT grad, hess
    int32[outputs, rows]; OUT old_grad, old_hess int32[outputs, n] (no rows where the tolerance is
    infinite: nothing moves then); IN max_leaves int64[trees]; IN max_depth int64;
    OUT moved bool[n]; OUT nodes NODE[trees, m]; the rest as in
    :func:`timbermark.kernels.training.train_trees`.
    """
    n_outputs, n = before.shape
    n_all = after.shape[1]
    part = (n_all + n_threads - 1) // n_threads
    start, stop = min(thread * part, n_all), min((thread + 1) * part, n_all)
    old_stop = min(stop, n)
    for iteration in range(first, last):
        derive_gradients(after, loss, start, stop, grad, hess)
        if old_grad.shape[1] > 0 and start < old_stop:
            find_moved(before, after, tolerance, start, old_stop, moved)
            derive_gradients(before, loss, start, old_stop, old_grad, old_hess)
        if not meet(sync, 2 * (iteration - first) + 1, n_threads):
            return
        while True:
            output = take(tickets, iteration)
            if output >= n_outputs:
                break
            t = iteration * n_outputs + output
            n_touches = list_touches(
                moved, grad[output], hess[output], old_grad[output], old_hess[output],
                binned.count, shift, walk.touches,
            )  # fmt: skip
            renew_tree(
                n_touches, old.nodes[t], old.record[t], old.leaf[t], binned, grad[output],
                hess[output], shift, rule, patience, max_leaves[t], max_depth, nodes[t], walk,
                growth,
            )  # fmt: skip
            n_nodes[t] = growth.control[N_NODES]
            finish_renewal(
                old.nodes[t], old.leaf[t], nodes[t], step, rule[0], limit, walk, growth,
                before[output], after[output], old_grad.shape[1] > 0,
            )  # fmt: skip
        if not meet(sync, 2 * (iteration - first) + 2, n_threads):
            return
