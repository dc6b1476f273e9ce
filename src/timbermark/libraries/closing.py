"""Closing a model around other leaf values and thresholds, checked before and after."""

from __future__ import annotations

from typing import Any

from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.leaf_edits import changed_thresholds, check_edit
from timbermark.libraries.probing import check_margins, probe_rows
from timbermark.trees.ensemble import Ensemble


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a new model of the same type with the leaf values and thresholds of ``ensemble``.

    Everything else stays, trees after the best iteration included. The statistics of inner nodes
    follow leaf values by the library's own formula; counts, hessians and gains stay as they are
    where only thresholds move. Margins are those of `timbermark.trees.reference`, bit for bit,
    which is checked on rows at and next to thresholds, old and new.

    Raises InputError if anything else differs from the foreign model's ensemble, a number cannot be
    held by the library, or a threshold cannot be moved (see `ForeignModel.movable`); StateError if
    the new model predicts something else.

    >>> from dataclasses import replace
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> from timbermark import libraries
    >>> model = GradientBoostingClassifier(init="zero").fit([[0.0], [1.0]], [0, 1])
    >>> foreign = libraries.open(model)
    >>> halved = replace(foreign.ensemble, value=foreign.ensemble.value / 2)
    >>> marked = close(foreign, halved)
    >>> bool(marked.decision_function([[0.0]]) * 2 == model.decision_function([[0.0]]))
    True
    """
    check_edit(foreign, ensemble)
    model = foreign.adapter.close(foreign, ensemble)
    check_margins(foreign, ensemble, model)
    if changed_thresholds(foreign.ensemble, ensemble).any():
        check_margins(foreign, ensemble, model, probe_rows(foreign.ensemble))
    return model
