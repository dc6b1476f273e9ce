"""A counter-based generator: the same key gives the same number, in any order, on any thread.

Split candidates are drawn from it, so they need no storage: whoever knows the seed and the path
from the root to a node knows the node's candidates.
"""

import numpy as np

from timbermark.kernels.compile import inlined, kernel, wrapping

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


@inlined
@wrapping
def scramble(z):
    """Return the bits of a uint64, each spread over all."""
    z = (z ^ (z >> np.uint64(30))) * _MULTIPLIER_1
    z = (z ^ (z >> np.uint64(27))) * _MULTIPLIER_2
    return z ^ (z >> np.uint64(31))


@inlined
@wrapping
def mix(key, counter):  # IN, IN
    """Return a 64-bit hash of the pair (``key``, ``counter``), both uint64."""
    return scramble(key + (counter + np.uint64(1)) * _STEP)


def count_steps(counters: np.ndarray) -> np.ndarray:
    """Return what a key must be raised by for `scramble` to give ``mix(key, counter)``, uint64."""
    return (counters.astype(np.uint64) + np.uint64(1)) * _STEP


def mix_all(key: int, counters: np.ndarray) -> np.ndarray:
    """Return ``mix(key, counter)`` for every counter, without compiling anything."""
    # Arrays of unsigned numbers wrap silently.
    z = np.uint64(key) + count_steps(counters)
    z = (z ^ (z >> np.uint64(30))) * _MULTIPLIER_1
    z = (z ^ (z >> np.uint64(27))) * _MULTIPLIER_2
    return np.asarray(z ^ (z >> np.uint64(31)))


@kernel
def hash_rows(bits, seed, out):
    """Hash every row: IN bits uint64[n, d]; IN seed uint64; OUT out uint64[n]."""
    for i in range(bits.shape[0]):
        key = seed
        for j in range(bits.shape[1]):
            key = mix(key ^ bits[i, j], np.uint64(j))
        out[i] = key


@kernel
def mix_cells(X, keys, second, shares, out, differs):
    """Replace some values of every row by those of another: what is drawn follows from its key.

    IN X float64[n, d]; IN keys uint64[n]; IN second float64[m, d]: rows to take values from; IN
    shares uint64[s]: how much comes from them, in turn, as a part of 2^64; OUT out float64[n, d];
    OUT differs bool[n]: which rows are not as they were.
    """
    for i in range(X.shape[0]):
        other = np.int64(mix(keys[i], np.uint64(0)) % np.uint64(second.shape[0]))
        share = shares[np.int64(mix(keys[i], np.uint64(1)) % np.uint64(shares.shape[0]))]
        differs[i] = False
        for j in range(X.shape[1]):
            old = X[i, j]
            new = old
            if mix(keys[i], np.uint64(j + 2)) < share:
                new = second[other, j]
                if new != old and (new == new or old == old):
                    differs[i] = True
            out[i, j] = new
