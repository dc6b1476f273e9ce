"""What a mark would survive, before there is one: attacks on a rehearsed mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.attacks.lab import FEWEST_ROWS, attack, take_labelled
from timbermark.attacks.registry import find_attacks
from timbermark.attacks.results import AttackResult
from timbermark.attacks.stolen import refuse_numbers
from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError
from timbermark.marking.embedding import embed
from timbermark.marking.inputs import take_pair
from timbermark.marking.large_tables import Say
from timbermark.marking.mixing import row_keys
from timbermark.marking.models import open_model
from timbermark.ownership.keys import OwnerKey


def forecast(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    validation: Any,
    attacks: str | Sequence[str] = "fast",
    random_state: int = 0,
    verbose: int = 0,
    **choices: Any,
) -> AttackResult:
    """Mark a copy of ``model`` with a throwaway key, attack it, and keep nothing but the figures.

    ``validation``: (rows, labels) that the model was not trained on. One half is the thief's, the
    other measures accuracies. ``attacks``: as in :func:`timbermark.attack`. All else, ``choices``
    included, is as in :func:`timbermark.embed`.

    Raises InputError, before anything runs, where validation rows or their labels are missing or
    too few, or an attack is not known; and where no mark fits.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import TimberClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=20, random_state=0).fit(X[:1000], y[:1000])
    >>> held = X[1000:], y[1000:]
    >>> found = forecast(model, X[:1000], validation=held, attacks=["round-answers:2"])
    >>> found.rows[0].level
    'conclusive'
    """
    find_attacks(attacks)
    foreign = open_model(model)
    with step_bar(verbose) as say:
        rows, label = take_validation(foreign, validation, say)
    made = embed(
        foreign, X, y, key=OwnerKey.generate(), owner="rehearsal", validation=validation,
        random_state=random_state, verbose=verbose, **choices,
    )  # fmt: skip
    order = np.argsort(row_keys(rows, random_state), kind="stable")
    thief, tested = order[::2], order[1::2]
    classes = foreign.classes
    return attack(
        made.model, made.mark, rows[thief], classes[label[thief]], attacks=attacks,
        evaluation=(rows[tested], classes[label[tested]]), random_state=random_state,
        verbose=verbose,
    )  # fmt: skip


def take_validation(
    model: Any, validation: Any, say: Say = lambda said: None
) -> tuple[np.ndarray, np.ndarray]:
    """Return validation rows and class numbers. Raises InputError if attacks need more of them.

    ``say``: told how many rows of a table in parts have been read.
    """
    foreign = open_model(model)
    refuse_numbers(foreign)
    given, labels = (None, None) if validation is None else take_pair(validation, "validation")
    if given is None or labels is None:
        raise InputError(
            "Attacks are measured on validation rows with labels.",
            hint="give some that the model was not trained on.",
        )
    rows, label = take_labelled(foreign, given, labels, "validation rows", 0, say)
    if len(rows) < 2 * FEWEST_ROWS:
        raise InputError(
            f"{len(rows)} validation rows are too few for attacks.",
            hint=f"give {2 * FEWEST_ROWS} at least: half of them are the thief's.",
        )
    return rows, label
