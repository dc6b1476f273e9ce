"""Ensembles that differ from a foreign model's in leaf values only."""

from dataclasses import replace

import numpy as np


def other_leaves(foreign, seed=0, share=0.4, size=0.2):
    """A share of the leaves, and a zero among them, moved by about this much of all values."""
    rng = np.random.default_rng(seed)
    e = foreign.ensemble
    leaf = e.left < 0
    spread = np.abs(e.value[leaf]).mean() or 1.0
    moved = e.value + size * spread * rng.normal(size=e.value.shape)
    moved[np.flatnonzero(leaf)[-1]] = 0.0
    chosen = leaf & (rng.random(e.n_nodes) < share)
    moved = moved.astype(foreign.leaf_dtype).astype(np.float64)
    return replace(e, value=np.where(chosen[:, np.newaxis], moved, e.value))
