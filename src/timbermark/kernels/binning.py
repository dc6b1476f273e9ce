"""Values to bin codes."""

import numpy as np

from timbermark.kernels.compile import kernel

_BLOCK = 256


@kernel
def assign_codes(values, thresholds, missing_code, out):
    """Write the code of each value: how many thresholds are below it; NaN: ``missing_code``.

    IN values float64[n]; IN thresholds float64[t], ascending; OUT out uint8|uint16[n]. A value
    equal to a threshold lies below it (``x <= t`` goes left).
    """
    n_thresholds = thresholds.shape[0]
    low = np.empty(_BLOCK, np.int64)
    for a in range(0, values.shape[0], _BLOCK):
        b = min(a + _BLOCK, values.shape[0])
        block = values[a:b]
        low[:] = 0
        size = n_thresholds
        # Many searches in step, each step conditional instead of a branch: a processor need neither
        # guess which way one goes nor wait for one before it goes on with the next.
        while size > 1:
            half = size // 2
            for i in range(b - a):
                low[i] += half if thresholds[low[i] + half - 1] < block[i] else 0
            size -= half
        for i in range(b - a):
            x = block[i]
            if np.isnan(x):
                out[a + i] = missing_code
            else:
                out[a + i] = low[i] + 1 if size == 1 and thresholds[low[i]] < x else low[i]
