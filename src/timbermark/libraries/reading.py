"""What a library's module gives: a model read into neutral trees, and all it takes to go back.

Every module of a library has the same functions, so that callers need not know which one it is:

- ``NAME``: how the library is called in messages;
- ``is_model(model) -> bool``: whether an object is one of its models, without importing it;
- ``is_file(head) -> bool``: whether a file that begins with these bytes is one of its files;
- ``load(path) -> model``: a model from its file, checked before the library sees it;
- ``read(model) -> Reading``;
- ``rows(reading, X) -> float64[n, d]``: what ``predict`` takes, as columns of the ensemble;
- ``margins(model, X) -> float64[n, outputs]``: the library's own raw scores;
- ``write(reading, ensemble) -> model``: the same type of model around other trees, a new object;
- ``save(model, path)``: the library's own file, in the format that ``path`` ends in.

Some have more, where their library needs it:

- ``native_rows(reading, rows) -> X``: the inverse of ``rows``, an X that ``predict`` takes;
- ``holds(path) -> bool``: whether a file is its own, where the first bytes cannot tell;
- ``conform(reading, ensemble) -> Ensemble``: rounded to what the library can express.

``feature_names`` are those of the columns that the model takes. A learning rate that the library
multiplies in when it predicts is the ensemble's ``tree_weight``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timbermark.trees.ensemble import Ensemble


@dataclass(frozen=True, slots=True)
class Training:
    """How a model was trained, as far as it says; None where it does not.

    ``hessian_factor``: what the library's hessian of a row is, in units of p (1 - p).
    """

    learning_rate: float | None = None
    l2_regularization: float | None = None
    min_hessian: float | None = None
    min_samples_leaf: int | None = None
    max_leaf_nodes: int | None = None
    max_depth: int | None = None
    hessian_factor: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A foreign model as neutral trees.

    ``classes``: labels by class number, as the model's own ``predict`` gives them.
    ``native``: a copy of the model that nobody else holds; ``write`` starts from it.
    ``notes``: sentences the user should see, such as what writing back will change.
    ``shares_splits``: levels of a tree, or all outputs, share their splits; where one is changed
    the model becomes several times as large and slow.
    """

    library: str
    kind: str  # the type of the model, such as "XGBClassifier"
    ensemble: Ensemble
    classes: np.ndarray
    feature_names: tuple[str, ...] | None
    training: Training
    native: Any
    notes: tuple[str, ...] = ()
    shares_splits: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
