"""From margins to quantised gradients, for every loss there is.

Gradients are kept as integers of 2^-bits. Their sums are then exact in any order: a histogram
does not depend on the number of threads, a subtraction leaves no residue, and a row can be taken
out of a sum again without a trace.
"""

import numpy as np

from timbermark.kernels.compile import allocating, bits_to_float, inlined, kernel, part

_BLOCK = 128
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.0)
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)
# Taylor coefficients of e^r; on |r| <= ln(2)/2 the error is below one unit in the last place.
_C2, _C3, _C4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
_C5, _C6 = np.float32(1 / 120), np.float32(1 / 720)


@inlined
def exp_nonpositive(x):  # IN
    """Return e^x for a float32 x <= 0, from multiplications alone.

    The C library's exp is neither vectorised nor the same on every machine; this is both.
    """
    x = x if x > _LOWEST else _LOWEST
    n = np.int32(x * _LOG2_E - _HALF)
    k = np.float32(n)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    poly = _C4 + r * (_C5 + r * _C6)
    poly = _ONE + r * (_ONE + r * (_C2 + r * (_C3 + r * poly)))
    return poly * bits_to_float(np.int32((n + np.int32(127)) << np.int32(23)))


@inlined
def weighted(value, weight):
    """Return a float32 >= 0, rounded and then weighted: a weight of 3 is exactly three copies."""
    return np.int32(np.float32(np.int32(value + _HALF)) * weight + _HALF)


@allocating
def softmax_gradients(margins, label, weight, unit, start, stop, grad, hess):
    """Write the gradients of the softmax loss for the rows ``start`` to ``stop``.

    IN margins float64[K, n]; IN label int32[n]; IN weight float32[n]; IN unit float32, 2^bits;
    OUT grad int32[K, n], y - p; OUT hess int32[K, n], p (1 - p), both in units and weighted.
    """
    n_classes = margins.shape[0]
    e = np.empty((n_classes, _BLOCK), dtype=np.float32)
    top = np.empty(_BLOCK, dtype=np.float64)
    total = np.empty(_BLOCK, dtype=np.float32)
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
        # Slices start at zero, which lets LLVM drop the test for negative indices and vectorise.
        w = weight[a:b]
        for i in range(b - a):
            top[i] = margins[0, a + i]
            total[i] = np.float32(0.0)
        for k in range(1, n_classes):
            row = margins[k, a:b]
            for i in range(b - a):
                top[i] = row[i] if row[i] > top[i] else top[i]
        for k in range(n_classes):
            row = margins[k, a:b]
            power = e[k]
            for i in range(b - a):
                power[i] = np.float32(row[i] - top[i])
            # Apart from the line above: a loop with float64 in it is vectorised half as wide.
            for i in range(b - a):
                power[i] = exp_nonpositive(power[i])
            for i in range(b - a):
                total[i] += power[i]
        for i in range(b - a):
            total[i] = _ONE / total[i]
        for k in range(n_classes):
            power = e[k]
            out_grad = grad[k, a:b]
            out_hess = hess[k, a:b]
            for i in range(b - a):
                p = power[i] * total[i]
                p = p if p < _ONE else _ONE
                out_grad[i] = -weighted(p * unit, w[i])
                out_hess[i] = weighted(p * (_ONE - p) * unit, w[i])
        for i in range(a, b):
            grad[label[i], i] += weighted(unit, weight[i])


@allocating
def logistic_gradients(margins, label, weight, unit, start, stop, grad, hess):
    """Write the gradients of the logistic loss; as :func:`softmax_gradients` with K = 1."""
    # Slices, and a loop of its own for float64, as above.
    narrow = np.empty(_BLOCK, dtype=np.float32)
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
        row, y, w = margins[0, a:b], label[a:b], weight[a:b]
        out_grad, out_hess = grad[0, a:b], hess[0, a:b]
        for i in range(b - a):
            narrow[i] = np.float32(row[i])
        for i in range(b - a):
            margin = narrow[i]
            e = exp_nonpositive(-abs(margin))
            small = e / (_ONE + e)
            p = small if margin < np.float32(0.0) else _ONE - small
            out_grad[i] = y[i] * weighted(unit, w[i]) - weighted(p * unit, w[i])
            out_hess[i] = weighted(p * (_ONE - p) * unit, w[i])


@part
def squared_gradients(margins, loss, start, stop, grad, hess):
    """Write residuals, and where ``hess`` has room hessians of one per row.

    A residual beyond ``loss.most`` pulls as one of that size does. Shapes as in
    :func:`softmax_gradients` with K = 1.
    """
    row = margins[0, start:stop]
    target, weight = loss.target[start:stop], loss.weight[start:stop]
    out = grad[0, start:stop]
    for i in range(stop - start):
        units = np.floor((target[i] - row[i]) * loss.residual_unit + 0.5)
        units = min(max(units, -loss.most), loss.most)
        # Rounded and then weighted, as above.
        out[i] = np.int32(np.floor(units * np.float64(weight[i]) + 0.5))
    if hess.shape[1] > 0:
        for i in range(start, stop):
            hess[0, i] = weighted(loss.unit, loss.weight[i])


@part
def gradients_of_rows(margins, loss, start, stop, grad, hess):
    """Derive the gradients of the rows ``start`` to ``stop``; IN loss Loss says of which loss.

    With classes, one output means two of them.
    """
    if loss.target.shape[0] > 0:
        squared_gradients(margins, loss, start, stop, grad, hess)
    elif margins.shape[0] == 1:
        logistic_gradients(margins, loss.label, loss.weight, loss.unit, start, stop, grad, hess)
    else:
        softmax_gradients(margins, loss.label, loss.weight, loss.unit, start, stop, grad, hess)


@kernel
def derive_gradients(margins, loss, start, stop, grad, hess):
    """Do what `gradients_of_rows` does, called from Python."""
    gradients_of_rows(margins, loss, start, stop, grad, hess)
