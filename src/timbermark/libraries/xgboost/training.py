"""How an XGBoost model was trained: from its configuration, if its trees bear that out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from timbermark.dtypes import Reals
from timbermark.libraries.reading import Training
from timbermark.trees.ensemble import Ensemble

_CLOSE = 1e-3
_FEWEST = 3


def find_training(ensemble: Ensemble, config: str, n_parallel: int) -> Training:
    """Return how the ensemble was trained, as far as that can be told.

    ``config`` is what ``save_config`` gives. A model file does not hold it: after ``load_model`` a
    model states the default values, whatever it was trained with. So learning rate and
    regularization are worked out from the weights and hessians of the trees as well; where these
    contradict the configuration, it is not used.
    """
    stated = _stated(config)
    factor = 1.0 if ensemble.objective == "logistic" else 2.0
    try:
        eta, l2 = float(stated["eta"]), float(stated["lambda"])
        # No default: whoever states these was trained, and with these the trees tell nothing.
        is_own = float(stated["alpha"]) != 0 or float(stated["max_delta_step"]) != 0
        depth, leaves = int(stated["max_depth"]), int(stated["max_leaves"])
        min_hessian = float(stated["min_child_weight"])
    except (KeyError, ValueError):
        return Training(hessian_factor=factor)
    found_l2 = _regularization(ensemble)
    found_eta = _learning_rate(ensemble, l2 if found_l2 is None else found_l2)
    if found_eta is not None:
        found_eta *= n_parallel
        l2_agrees = found_l2 is None or abs(found_l2 - l2) <= _CLOSE * (1 + l2)
        is_own |= l2_agrees and abs(found_eta - eta) <= _CLOSE * eta
    if is_own:
        # float32 in XGBoost: 0.1 comes back as 0.100000001.
        return Training(
            learning_rate=_short(eta),
            l2_regularization=_short(l2),
            min_hessian=_short(min_hessian),
            max_leaf_nodes=leaves or None,
            max_depth=depth or None,
            hessian_factor=factor,
        )
    return Training(
        learning_rate=None if found_eta is None else _rounded(found_eta),
        l2_regularization=None if found_l2 is None else _rounded(found_l2),
        hessian_factor=factor,
    )


def _stated(config: str) -> dict[str, Any]:
    booster = json.loads(config).get("learner", {}).get("gradient_booster", {})
    found: dict[str, Any] = booster.get("gbtree", booster).get("tree_train_param", {})
    return found


# A node's weight is w = -G / (H + l2), and the gradients G of two children add up to the parent's.
# Leaves are the weights times the learning rate, inner nodes the weights themselves.


def _regularization(e: Ensemble) -> float | None:
    """Return what l2 must have been, from splits whose children are both split."""
    above, left, right = _families(e, leaves=False)
    if not len(above[0]):
        return None
    (w, h), (w_left, h_left), (w_right, h_right) = above, left, right
    rest = w - w_left - w_right
    return _agreed((w_left * h_left + w_right * h_right - w * h), rest, floor=0.0)


def _learning_rate(e: Ensemble, l2: float) -> float | None:
    """Return what the learning rate must have been, from splits whose children are both leaves."""
    (w, h), (v_left, h_left), (v_right, h_right) = _families(e, leaves=True)
    return _agreed(v_left * (h_left + l2) + v_right * (h_right + l2), w * (h + l2), floor=None)


def _families(e: Ensemble, *, leaves: bool) -> list[tuple[Reals, Reals]]:
    """Return value and hessian of splits, their left and their right children."""
    base = np.repeat(e.tree_start[:-1], np.diff(e.tree_start))
    split = np.flatnonzero(e.left >= 0)
    left, right = base[split] + e.left[split], base[split] + e.right[split]
    wanted = ((e.left[left] < 0) == leaves) & ((e.left[right] < 0) == leaves)
    return [(e.value[at[wanted], 0], e.hessian[at[wanted]]) for at in (split, left, right)]


def _agreed(above: Reals, below: Reals, floor: float | None) -> float | None:
    """Return the quotient that most agree on, or None if they do not.

    Quotients of small numbers are mostly rounding, and do not count.
    """
    size = np.abs(below)
    large = size > 0.1 * size.max(initial=0.0)
    if np.count_nonzero(large) < _FEWEST:
        return None
    quotients = above[large] / below[large]
    low, middle, high = np.quantile(quotients, [0.25, 0.5, 0.75])
    agrees = high - low <= 2 * _CLOSE * (1 + abs(middle) if floor is not None else abs(middle))
    if not agrees:
        return None
    return float(middle if floor is None else max(middle, floor))


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) > 1e-6 else 0.0
