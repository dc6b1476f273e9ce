"""What a mark is chosen from: everything that was given, checked and turned into numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.marking.candidates import Pool
from timbermark.marking.engine import Marked
from timbermark.marking.foreign import Foreign
from timbermark.marking.rows import distinct_codes, repeated_codes, shared_codes


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything a mark is chosen from: the model, the pool, and the rows cost is measured on."""

    marked: Marked | Foreign
    pool: Pool
    separate: bool
    n_rows: int
    test_rows: np.ndarray
    test_label: np.ndarray
    test_confidence: np.ndarray  # under the unmarked model
    measured_on: str


def survey(
    model: Any,
    X: Any,
    y: Any,
    candidates: Any,
    validation: Any,
    sample_weight: Any,
    verbose: int = 0,
    training: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Ground:
    """Check all that was given and find the rows that may become triggers.

    ``seed``: what is drawn for a model of another library follows from it.
    """
    _check_pairs(X, y, candidates, validation)
    marked: Marked | Foreign
    if isinstance(model, TimberClassifier):
        if training:
            raise InputError(
                "A model of timbermark knows how it was trained.",
                hint="leave out training, that is --learning-rate, --l2 and so on.",
            )
        marked = Marked(model, X, y, sample_weight, verbose)
    else:
        marked = Foreign(model, X, y, sample_weight, verbose, candidates, seed, training)
    separate = candidates is not None
    rows = marked.rows(candidates[0] if candidates is not None else X)
    label = marked.labels(candidates[1] if candidates is not None else y, len(rows))
    codes, allowed = marked.codes(rows), marked.survives_rounding(rows)
    if separate:
        allowed &= distinct_codes(codes) & ~shared_codes(codes, marked.training_codes)
    else:
        allowed &= ~repeated_codes(codes)
    others = marked.rows(X) if separate and X is not None else None
    pool = Pool(rows, label, marked.confidence(rows), allowed, others)
    if validation is not None:
        test_rows = marked.rows(validation[0])
        test_label = marked.labels(validation[1], len(test_rows))
    elif X is not None:
        test_rows = marked.rows(X)
        test_label = marked.labels(y, len(test_rows))
    else:
        test_rows, test_label = rows, label
    same = validation is None and not separate
    sure = pool.confidence if same else marked.confidence(test_rows)
    if len(test_rows) == 0:
        name = "rows" if validation is None else "validation rows"
        raise InputError(f"There are no {name}.", hint="give some.")
    measured_on = "candidates" if X is None else "training"
    if validation is not None:
        measured_on = "validation"
    return Ground(marked, pool, separate, marked.n_rows, test_rows, test_label, sure, measured_on)


def _check_pairs(X: Any, y: Any, candidates: Any, validation: Any) -> None:
    """Rows come with labels, or not at all."""
    if (X is None) != (y is None):
        raise InputError(
            "The training rows X and their labels y go together.", hint="give both, or neither."
        )
    if X is None and candidates is None:
        raise InputError(
            "There is nothing to choose triggers from.",
            hint="pass the training rows X and y, or candidates=(rows, labels).",
        )
    for name, pair in (("candidates", candidates), ("validation", validation)):
        if pair is not None and not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputError(f"{name} is no pair of rows and labels.", hint=f"{name}=(X, y).")
