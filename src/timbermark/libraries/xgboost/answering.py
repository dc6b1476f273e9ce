"""What a model of XGBoost answers with: by which estimator, by which trees, from which start."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from timbermark.dtypes import Reals
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries.contract import Task
from timbermark.libraries.xgboost.document import Outline, with_trees
from timbermark.libraries.xgboost.encoding import encode_trees
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble

ESTIMATORS: dict[Task, str] = {
    "classification": "XGBClassifier",
    "regression": "XGBRegressor",
    "ranking": "XGBRanker",
}


def check_version(known: Outline, xgb: ModuleType) -> None:
    """Raise FileFormatError if a newer XGBoost than the installed one wrote a document."""
    installed = tuple(int(part) for part in xgb.__version__.split(".")[:2])
    # An older XGBoost reads a newer file without a word and predicts something else.
    if known.version[:2] > installed:
        raise FileFormatError(
            f"It was written by XGBoost {'.'.join(map(str, known.version))}, "
            f"and {xgb.__version__} is installed.",
            hint="pip install --upgrade xgboost",
        )


def check_task(model: Any, booster: Any, known: Outline) -> None:
    """Raise InputError if a wrapper was trained with an objective that is not its own."""
    labels = any(kind.__name__ == "XGBClassifier" for kind in type(model).__mro__)
    if model is not booster and labels != (known.task == "classification"):
        raise InputError(
            f"A {type(model).__name__} with the objective {known.objective} does not predict what "
            "the objective is for.",
            hint=f"use {ESTIMATORS[known.task]}, or give model.get_booster() instead.",
        )


def answers_by_wrapper(known: Outline) -> bool:
    """Return whether ``predict`` of the wrapper gives labels where it should.

    For softprob with two classes it takes them for two questions with one answer each. It compares
    the raw scores of logitraw with 0.5.
    """
    if known.objective == "multi:softprob":
        return known.n_outputs > 2
    return known.objective != "binary:logitraw"


def counted_trees(known: Outline, *, by_best_round: bool) -> int:
    """Return how many trees a model predicts with."""
    if known.best_round is None or not by_best_round:
        return known.n_trees
    if known.best_round + 1 >= len(known.round_start):
        raise FileFormatError(
            f"best_iteration={known.best_round} is not among the "
            f"{len(known.round_start) - 1} rounds.",
            hint="get the model again from where it came.",
        )
    return int(known.round_start[known.best_round + 1])


def list_notes(known: Outline, ensemble: Ensemble, wrapped: bool) -> tuple[str, ...]:
    """Return what a user should know of how a model predicts, in sentences."""
    notes = []
    rest = known.n_trees - ensemble.n_trees
    if rest:
        notes.append(
            f"Prediction stops at best_iteration={known.best_round}: the {rest} trees after it "
            "stay as they are."
        )
    elif (
        not wrapped
        and known.best_round is not None
        and known.best_round + 2 < len(known.round_start)
    ):
        notes.append(
            f"best_iteration={known.best_round} is set, but Booster.predict uses all rounds: all "
            "of them count here, too."
        )
    if wrapped and known.booster == "dart":
        notes.append(
            "XGBClassifier.predict rounds sums of dart trees a little otherwise than "
            "Booster.predict; the margins here are those of the latter."
        )
    return tuple(notes)


def find_init(xgb: ModuleType, known: Outline) -> Reals:
    """Return where the sums start, by asking for the margins of leaves of 0.

    From the base score XGBoost computes it in float32, with roundings of its own.
    """
    outputs = np.arange(known.n_outputs)
    none = np.full(len(outputs), -1)
    flat = make_ensemble(
        n_features=known.n_features,
        n_outputs=known.n_outputs,
        tree_start=np.arange(len(outputs) + 1),
        tree_output=outputs,
        feature=none,
        threshold=np.zeros(len(outputs)),
        left=none,
        right=none,
        value=np.zeros(len(outputs)),
    )
    booster = xgb.Booster({"nthread": 1})
    raw = with_trees(known, encode_trees(flat), outputs, np.array([0, len(outputs)]))
    booster.load_model(bytearray(raw))
    row = xgb.DMatrix(np.zeros((1, known.n_features)), nthread=1)
    found = booster.predict(row, output_margin=True, validate_features=False)
    return np.asarray(found, dtype=np.float64).reshape(known.n_outputs)
