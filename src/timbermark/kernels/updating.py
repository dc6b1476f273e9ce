"""Several iterations of the in-place update on several threads, as in training."""

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.histogram import pack
from timbermark.kernels.layout import N_NODES, Fit, OldTree
from timbermark.kernels.renewing import finish_renewal, renew_tree
from timbermark.kernels.workers import meet, own_rows, take


@part
def list_touches(fit, moved, old_grad, old_hess, out):
    """List the touches of one tree: added rows enter, moved rows change. Returns how many.

    IN fit Fit; IN moved bool[n], old rows; IN old_grad, old_hess int32[n], what the moved rows'
    part in the old sums was (empty: no row has moved); OUT out TOUCH[rows].
    """
    grad, hess, binned = fit.grad, fit.hess, fit.binned
    n = 0
    for row in range(moved.shape[0], grad.shape[0]):
        out[n]["row"] = row
        out[n]["g"] = np.int64(grad[row])
        out[n]["packed"] = pack(np.int64(hess[row]), np.int64(binned.count[row]), binned)
        n += 1
    for row in range(old_grad.shape[0]):
        if moved[row]:
            g = np.int64(grad[row]) - np.int64(old_grad[row])
            h = np.int64(hess[row]) - np.int64(old_hess[row])
            if g != 0 or h != 0:
                out[n]["row"] = row
                out[n]["g"] = g
                out[n]["packed"] = pack(h, np.int64(0), binned)
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
def renew_trees(turn, renewal, trees, nodes, n_nodes, walk):
    """Do one thread's part of renewing the trees of some iterations.

    IN turn Turn; INOUT renewal Renewal; IN trees Trees, the forest and the state of its training on
    the old rows; OUT nodes NODE[trees, m], n_nodes int64[trees]: the renewed forest; walk Walk,
    this thread's own.
    """
    before, after, grad, hess = renewal.before, renewal.after, renewal.grad, renewal.hess
    moved, old_grad, old_hess = renewal.moved, renewal.old_grad, renewal.old_hess
    n_outputs, n_rows = after.shape
    compare = old_grad.shape[1] > 0
    start, stop = own_rows(turn, n_rows)
    old_stop = min(stop, before.shape[1])
    for iteration in range(turn.first, turn.last):
        derive_gradients(after, renewal.loss, start, stop, grad, hess)
        if compare and start < old_stop:
            find_moved(before, after, renewal.tolerance, start, old_stop, moved)
            derive_gradients(before, renewal.loss, start, old_stop, old_grad, old_hess)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 1, turn.n_threads):
            return
        output = take(turn.tickets, iteration)
        while output < n_outputs:
            t = iteration * n_outputs + output
            old = OldTree(trees.nodes[t], trees.record[t], trees.leaf[t])
            fit = Fit(renewal.binned, grad[output], hess[output], renewal.rule)
            n_touches = list_touches(fit, moved, old_grad[output], old_hess[output], walk.touches)
            renew_tree(n_touches, nodes[t], fit, old, renewal.patience, walk)
            finish_renewal(nodes[t], fit.rule, old, walk, before[output], after[output], compare)
            n_nodes[t] = walk.growth.control[N_NODES]
            output = take(turn.tickets, iteration)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return
