"""Closing a model around other leaf values, checked before and after."""

from __future__ import annotations

from typing import Any

from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.leaf_edits import check_edit
from timbermark.libraries.probing import check_margins
from timbermark.trees.ensemble import Ensemble


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a new model of the same type with the leaf values of ``ensemble``.

    Everything else stays, trees after the best iteration included; the statistics of inner nodes
    follow the leaves by the library's own formula. Margins are those of
    `timbermark.trees.reference`, bit for bit, which is checked on awkward rows.

    Raises InputError if anything but leaf values differs from the foreign model's ensemble, or a
    value cannot be held by the library; StateError if the new model predicts something else.

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
    return model
