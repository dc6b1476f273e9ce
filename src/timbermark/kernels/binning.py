"""Values to bin codes."""

import numpy as np

from timbermark.kernels.compile import kernel


@kernel
def assign_codes(values, thresholds, missing_code, out):
    """Code of each value: the number of thresholds below it; NaN gets ``missing_code``.

    IN values float64[n]; IN thresholds float64[t], ascending; OUT out uint8|uint16[n]. A value
    equal to a threshold lies below it (``x <= t`` goes left).
    """
    n_thresholds = thresholds.shape[0]
    for i in range(values.shape[0]):
        x = values[i]
        if np.isnan(x):
            out[i] = missing_code
            continue
        low = 0
        size = n_thresholds
        # Halving with a conditional step instead of a branch: about twice as fast on noise.
        while size > 1:
            half = size // 2
            low += half if thresholds[low + half - 1] < x else 0
            size -= half
        out[i] = low + 1 if size == 1 and thresholds[low] < x else low
