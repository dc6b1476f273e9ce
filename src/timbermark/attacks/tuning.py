"""Fine-tuning a marked model on rows of one's own: by its owner, and by a thief.

The paper's engine keeps the owner's training state during fine-tuning, watermark rows included, so
that every update learns the mark again. A thief has the model and some rows and nothing else. Two
things can then be called an in-place update:

- *model only*: the splits stay and every leaf takes up the new rows. The model file holds each
  leaf's value and Σh, which give back the Σr it was made from; the rows are added to both. That is
  all an in-place update can do with what the file knows.
- *regrown*: a state is rebuilt from the thief's rows alone and updated with them, so that they
  decide every split again. Little of the model is left, of its mark and of its accuracy.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.boosting.objective import factor
from timbermark.boosting.params import TrainParams
from timbermark.estimator import TimberClassifier
from timbermark.estimator_checks import check_params, check_rows
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble


def tune_with_state(model: TimberClassifier, X: Any, y: Any) -> TimberClassifier:
    """Return a copy of the model, which has its state, updated with the rows.

    Exactly, because that is what the published figures are of. Raises StateError where there is no
    state.
    """
    tuned = copy.copy(model)
    tuned._state = model._need_state()
    return tuned.update(X, y, mode="exact")


def tune_regrown(model: TimberClassifier, X: Any, y: Any) -> TimberClassifier:
    """Return a copy of the model, updated with a state that is rebuilt from these rows alone."""
    # A copy has no state: it is the model as a file would hold it.
    return copy.copy(model).rebuild_state(X, y).update(X, y)


def tune_model_only(model: TimberClassifier, X: Any, y: Any) -> TimberClassifier:
    """Return a copy of the model without a state: the rows are added to the sums of the leaves.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TimberClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> tune_model_only(model, X[1::2], y[1::2]).score(X, y) > 0.9
    True
    """
    tuned = copy.copy(model)
    rows = check_rows(model, X, reset=False)
    label = model._known_answers(y, len(rows))
    tuned._install(add_to_leaves(model.ensemble_, rows, label, check_params(model)), None)
    return tuned


def add_to_leaves(
    ensemble: Ensemble, X: np.ndarray, label: np.ndarray, params: TrainParams
) -> Ensemble:
    """Return the ensemble with leaves (G + Σr) / (H + Σh + λ); r and h follow the new trees.

    ``label`` int64[n], class numbers. H is the leaf's ``hessian``, and G follows from it and the
    leaf's value. A leaf that no row reaches stays.
    """
    outputs, ridge, limit = ensemble.n_outputs, params.l2_regularization, params.leaf_limit
    step = params.learning_rate * factor(ensemble.n_classes)
    leaves = reference.leaf_indices(ensemble, X)
    value = ensemble.value[:, 0].copy()
    margins = np.tile(ensemble.init, (len(X), 1))
    truth = label[:, None] == np.arange(ensemble.n_classes)
    for first in range(0, ensemble.n_trees, outputs):
        p = reference.probabilities(margins, ensemble.objective)
        residual, hessian = truth - p, p * (1.0 - p)
        for tree in range(first, first + outputs):
            output = int(ensemble.tree_output[tree])
            # One logistic margin speaks for the second class.
            kind = output if outputs > 1 else 1
            nodes = slice(ensemble.tree_start[tree], ensemble.tree_start[tree + 1])
            here, size = leaves[:, tree], int(nodes.stop - nodes.start)
            old = ensemble.hessian[nodes]
            h = old + np.bincount(here, hessian[:, kind], size)
            g = value[nodes] * (old + ridge) / step + np.bincount(here, residual[:, kind], size)
            reached = (np.bincount(here, minlength=size) > 0) & (h + ridge > 0.0)
            new = np.divide(g, h + ridge, out=np.zeros(size), where=reached)
            value[nodes] = np.where(reached, step * np.clip(new, -limit, limit), value[nodes])
            margins[:, output] += value[nodes][here]
    return replace(ensemble, value=value[:, None])
