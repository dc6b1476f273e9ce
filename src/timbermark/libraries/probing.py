"""Rows that ask a tree model awkward questions, and the comparison of two sets of margins."""

from __future__ import annotations

import numpy as np

from timbermark.errors import StateError
from timbermark.trees.ensemble import Ensemble

_MOST_ROWS = 512


def probe_rows(ensemble: Ensemble, n_rows: int = 256, seed: int = 0) -> np.ndarray:
    """float64[n, d]: rows on, just below and just above the ensemble's thresholds, some missing.

    Values of category features are categories that occur in its sets, and some that do not.

    >>> from timbermark.trees.making import constant_ensemble
    >>> probe_rows(constant_ensemble(n_features=2, value=1.0), n_rows=3).shape
    (3, 2)
    """
    n_rows = min(n_rows, _MOST_ROWS)
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, ensemble.n_features))
    inner = ensemble.left >= 0
    by_category = inner & (ensemble.category_set >= 0)
    for feature in np.unique(ensemble.feature[inner]):
        here = inner & (ensemble.feature == feature)
        if (here & by_category).any():
            sets = np.unique(ensemble.category_set[here & by_category])
            known = np.concatenate(
                [
                    ensemble.category_values[
                        ensemble.category_offsets[s] : ensemble.category_offsets[s + 1]
                    ]
                    for s in sets
                ]
            )
            values = np.append(np.unique(known), [0, known.max(initial=0) + 1]).astype(np.float64)
        else:
            at = np.unique(ensemble.threshold[here])
            at = at[np.isfinite(at)]
            if len(at) == 0:
                continue
            # A threshold beyond float32 is asked as an infinity.
            with np.errstate(over="ignore"):
                single = at.astype(np.float32)
                below = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
                above = np.nextafter(single, np.float32(np.inf)).astype(np.float64)
            values = np.concatenate([at, below, above, [at.min() - 1.0, at.max() + 1.0]])
        rows[:, feature] = rng.choice(values, n_rows)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows


def check_equal(ours: np.ndarray, theirs: np.ndarray, library: str) -> None:
    """Raise StateError unless two sets of margins are equal bit for bit."""
    hint = "nothing was written; please report the model's parameters and versions."
    if ours.shape != theirs.shape:
        raise StateError(f"{library} gives margins of the shape {theirs.shape}.", hint)
    differ = int((ours != theirs).any(axis=1).sum())
    if differ:
        raise StateError(
            f"{library} does not predict what timbermark does on {differ} of {len(ours)} rows.",
            hint,
        )
