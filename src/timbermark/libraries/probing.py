"""Rows that ask a tree model awkward questions, and the comparison of its margins with ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from timbermark.dtypes import Reals
from timbermark.errors import StateError
from timbermark.libraries.contract import ForeignModel
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble

_MOST_ROWS = 512
_MOST_SINGLE = float(np.finfo(np.float32).max)
_SINGLE_ROWS = 5  # how many of them are also asked one by one


def probe_rows(ensemble: Ensemble, n_rows: int = 256, seed: int = 0) -> Reals:
    """Return rows on, just below and just above the ensemble's thresholds, some missing, [n, d].

    Values of category features are categories that occur in its sets, and some that do not.

    >>> from timbermark.trees.construction import constant_ensemble
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
            if ensemble.input_dtype == "f4":  # such libraries take no infinity
                values = np.clip(values, -_MOST_SINGLE, _MOST_SINGLE)
        rows[:, feature] = rng.choice(values, n_rows)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows


def check_margins(
    foreign: ForeignModel, ensemble: Ensemble, model: Any, probes: Reals | None = None
) -> None:
    """Raise StateError unless a model's margins are those of an ensemble, bit for bit.

    ``model`` is of the foreign model's library. It is asked for many rows at once and for single
    ones, which some libraries predict in another way. ``probes``: rows [n, d] to ask about, by
    default those of the ensemble. The models inside a deployed one are checked one by one when
    they are closed.
    """
    if foreign.inside:
        return
    adapter = foreign.adapter
    X = adapter.native_rows(foreign, probe_rows(ensemble) if probes is None else probes)
    ours = reference.margins(ensemble, adapter.rows(foreign, X)).astype(np.float64)
    check_equal(ours, adapter.margins(model, X), adapter.name)
    for i in range(_SINGLE_ROWS):
        check_equal(ours[i : i + 1], adapter.margins(model, X[i : i + 1]), adapter.name)


def check_equal(ours: Reals, theirs: Reals, library: str) -> None:
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
