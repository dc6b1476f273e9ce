"""LightGBM's models: which they are, what they predict, and how they are read and written."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Reals, Rows
from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.libraries.lightgbm.blocks import Blocks
from timbermark.libraries.lightgbm.tables import to_numbers
from timbermark.libraries.lightgbm.text import Frame, parse_text, print_text
from timbermark.libraries.lightgbm.trees import from_ensemble, to_ensemble, with_finite_statistics
from timbermark.libraries.reading import Reading, Training
from timbermark.trees.ensemble import Ensemble

NAME = "LightGBM"

_MODELS = frozenset({"Booster", "CVBooster", "LGBMModel"})
# LightGBM writes one format only, and these endings promise another.
_OTHER_FORMATS = frozenset({".json", ".onnx", ".pkl", ".pickle", ".joblib"})


def is_model(model: object) -> bool:
    """Return whether an object is a model of LightGBM, supported or not.

    >>> is_model("a text")
    False
    """
    return not _MODELS.isdisjoint(_ancestors(model))


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is LightGBM's.

    >>> is_file(b"tree\\nversion=v4\\nnum_class=1\\n"), is_file(b"trees are green")
    (True, False)
    """
    return head.startswith((b"tree\nversion=", b"tree\r\nversion="))


def load(path: str | os.PathLike[str]) -> Any:
    """Return the `Booster` in a text file, whose labels are 0, 1, ….

    The library sees a text that was printed anew from checked values, never the file.

    Raises FileFormatError if the file is damaged, of another layout or no supported classifier,
    MissingLibraryError without LightGBM, OSError if the file cannot be opened.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(
            "The LightGBM model is damaged: it is not text.",
            hint="get the file again from where it came.",
        ) from None
    frame, blocks = parse_text(text)
    to_ensemble(frame, blocks)
    basic = _library().basic
    text = print_text(_plain(frame), with_finite_statistics(blocks))
    try:
        # The library prints its warnings, but standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            booster = basic.Booster(model_str=text)
            # Early versions leave this to those who read from a file.
            booster.params = booster.params or booster._get_loaded_param()
    except (basic.LightGBMError, ValueError) as error:
        raise FileFormatError(
            f"LightGBM does not accept the file ({' '.join(str(error).split())}).",
            hint="get the file again from where it came.",
        ) from None
    return booster


def read(model: Any) -> Reading:
    """Read a `Booster` or `LGBMClassifier`, as far as its ``predict`` uses it.

    That is up to the best iteration if training stopped early. ``extra`` holds what `write` needs
    and, as ``"probability_scale"``, what margins are multiplied by before they become
    probabilities: the sigmoid parameter, or the share of a tree in a random forest.

    Raises InputError if the model is not fitted or not supported.
    """
    booster = _booster(model)
    best = max(int(booster.best_iteration or 0), 0)
    text = booster.model_to_string(num_iteration=-1)
    try:
        frame, blocks = parse_text(text, best)
        ensemble = to_ensemble(frame, blocks)
    except FileFormatError as error:
        raise InputError(error.message, hint=error.hint) from None
    classes = _classes(model, ensemble)
    n_iterations = ensemble.n_trees // ensemble.n_outputs
    scale = 1 / max(n_iterations, 1) if frame.average_output else frame.sigmoid
    names = frame.feature_names
    automatic = names == tuple(f"Column_{i}" for i in range(len(names)))
    return Reading(
        library=NAME,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=classes,
        feature_names=None if automatic else names,
        training=_training(frame, blocks),
        native=_rebuilt(model, text, best),
        notes=tuple(_notes(model, frame, classes, n_iterations, booster.current_iteration())),
        extra={
            "frame": frame,
            "shrinkage": blocks.shrinkage,
            "best_iteration": best,
            "probability_scale": scale,
        },
    )


def rows(reading: Reading, X: Any) -> Rows:
    """Return float64 [n, d]: what the model's ``predict`` makes of ``X``.

    ``X`` is an array, a list of lists, a sparse matrix, or a table of pandas, pyarrow or polars.
    Categories of pandas become their numbers in the training data. Whole numbers in an array go
    through float32, as in the library: above 2^24 they are rounded.

    Raises InputError if ``X`` cannot be used or has another number of columns.
    """
    # scikit-learn makes float64 of objects before the library sees them.
    objects = np.float64 if "LGBMClassifier" in _ancestors(reading.native) else np.float32
    numbers = to_numbers(X, _inner(reading.native).pandas_categorical, objects)
    if numbers.ndim != 2 or numbers.shape[1] != reading.ensemble.n_features:
        raise InputError(
            f"X has the shape {numbers.shape}, expected (n, {reading.ensemble.n_features}).",
            hint="give one row per sample and one column per feature.",
        )
    return numbers


def margins(model: Any, X: Any) -> Reals:
    """Return float64 [n, outputs]: the raw scores of the model's own ``predict``.

    Raises InputError if the model is not fitted or not supported; what the library raises about
    ``X`` passes through.
    """
    booster = _booster(model)
    n_outputs = int(booster.num_model_per_iteration())
    if (X.shape[0] if hasattr(X, "shape") else len(X)) == 0:
        return np.empty((0, n_outputs))
    with warnings.catch_warnings():
        # scikit-learn's about names of columns: columns are told apart by their place.
        warnings.simplefilter("ignore", category=UserWarning)
        scores = model.predict(X, raw_score=True)
    return np.asarray(scores, dtype=np.float64).reshape(-1, n_outputs)


def write(reading: Reading, ensemble: Ensemble) -> Any:
    """Return a model of the type that was read, with the trees of ``ensemble``.

    Everything else is as it was: parameters, classes, names of features, categories of pandas. If
    training had stopped early, the best iteration is now the last.

    Raises InputError if the ensemble is not sound or no LightGBM model can predict as it does.
    """
    old = reading.ensemble
    for name in ("n_features", "n_outputs", "objective"):
        if getattr(ensemble, name) != getattr(old, name):
            raise InputError(
                f"The ensemble has {name}={getattr(ensemble, name)!r}, the model "
                f"{getattr(old, name)!r}.",
                hint="change only the trees of the ensemble that was read.",
            )
    shrinkage = reading.extra["shrinkage"]
    if len(shrinkage) != ensemble.n_trees:
        more = np.full(ensemble.n_trees, reading.training.learning_rate or 1.0)
        shrinkage = np.concatenate([shrinkage, more])[: ensemble.n_trees]
    text = print_text(reading.extra["frame"], from_ensemble(ensemble, shrinkage))
    best = ensemble.n_trees // ensemble.n_outputs if reading.extra["best_iteration"] else 0
    return _rebuilt(reading.native, text, best)


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write the library's text file, up to the best iteration if there is one.

    The labels of an `LGBMClassifier` are not part of it: `load` gives a `Booster`.

    Raises InputError if the model is not fitted or not supported, or if ``path`` ends like a
    format that LightGBM does not have; OSError if the system refuses.
    """
    ending = Path(path).suffix.lower()
    if ending in _OTHER_FORMATS:
        raise InputError(
            f"LightGBM has no {ending} files that it could read again.",
            hint="its format is text, for example model.txt.",
        )
    Path(path).write_bytes(_booster(model).model_to_string().encode("utf-8"))


def _ancestors(model: object) -> set[str]:
    """Return the names of the classes of LightGBM that an object belongs to."""
    return {
        kind.__name__
        for kind in type(model).__mro__
        if kind.__module__.partition(".")[0] == "lightgbm"
    }


def _library() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingLibraryError.for_extra("lightgbm", "to read a LightGBM model") from None
    return lightgbm


def _inner(model: Any) -> Any:
    """Return the `Booster` that a model is or holds, None if it is not fitted."""
    return model if "Booster" in _ancestors(model) else getattr(model, "_Booster", None)


def _booster(model: Any) -> Any:
    """Return the trained `Booster` in a supported model."""
    kinds = _ancestors(model)
    if "Booster" in kinds:
        return model
    if "CVBooster" in kinds:
        _refuse_model(model, "holds several boosters", "give one of its boosters.")
    if "_DaskLGBMModel" in kinds:
        _refuse_model(model, "belongs to a Dask cluster", "give what its to_local() returns.")
    if "LGBMClassifier" not in kinds:
        _refuse_model(model, "is not a classifier", "give an LGBMClassifier or a Booster.")
    booster = _inner(model)
    if booster is None:
        _refuse_model(model, "is not fitted", "call its fit first.")
    if model.get_params().get("pred_early_stop"):
        _refuse_model(
            model, "leaves out trees when it predicts (pred_early_stop)", "switch that off."
        )
    return booster


def _refuse_model(model: Any, why: str, hint: str) -> NoReturn:
    raise InputError(f"The {type(model).__name__} {why}.", hint=hint)


def _classes(model: Any, ensemble: Ensemble) -> AnyArray:
    if "LGBMClassifier" not in _ancestors(model):
        return np.arange(ensemble.n_classes)
    classes = np.array(model.classes_)
    if len(classes) != ensemble.n_classes:
        _refuse_model(
            model,
            f"has {len(classes)} labels for {ensemble.n_classes} classes",
            "train it on data of at least two classes, with an objective that goes with them.",
        )
    return classes


def _training(frame: Frame, blocks: Blocks) -> Training:
    def number(name: str) -> float | None:
        try:
            return float(frame.parameters.get(name, ""))
        except ValueError:
            return None

    def whole(name: str) -> int | None:
        found = number(name)
        return int(found) if found is not None and found > 0 else None

    rate = number("learning_rate")
    if frame.average_output:
        rate = 1.0
    elif rate is None and len(blocks.shrinkage) > frame.n_outputs:
        # The first iteration says 1, because it holds the starting score as well.
        rate = float(np.median(blocks.shrinkage[frame.n_outputs :]))
    n = frame.n_outputs
    return Training(
        learning_rate=rate,
        l2_regularization=number("lambda_l2"),
        min_hessian=number("min_sum_hessian_in_leaf"),
        min_samples_leaf=whole("min_data_in_leaf"),
        max_leaf_nodes=whole("num_leaves"),
        max_depth=whole("max_depth"),
        hessian_factor=n / (n - 1) if frame.objective == "multiclass" else frame.sigmoid**2,
    )


def _notes(
    model: Any, frame: Frame, classes: AnyArray, n_iterations: int, all_iterations: int
) -> list[str]:
    notes = []
    if n_iterations < all_iterations:
        notes.append(
            f"Training stopped early: only the first {n_iterations} of {all_iterations} "
            "iterations predict, and only these are written back."
        )
    if frame.average_output:
        notes.append(
            "A random forest: its margins are sums, but its probabilities come from means."
        )
    elif frame.sigmoid != 1:
        notes.append(
            f"Its probabilities are those of margins times sigmoid={frame.sigmoid:g}; "
            "labels are the same."
        )
    if classes.tolist() != list(range(len(classes))):
        notes.append(
            "LightGBM's file does not hold the labels: a model loaded from it says "
            f"0 to {len(classes) - 1}."
        )
    return notes


def _rebuilt(model: Any, text: str, best_iteration: int) -> Any:
    """Return a copy of a model, with another text in place of its trees."""
    booster = _inner(model)
    # A Booster's own copy forgets the best iteration and, in early versions, the parameters. What
    # pickle takes is complete, and holds the text where the trees are.
    left_out = ("_handle", "train_set", "valid_sets", "_Booster__init_predictor")
    state = {key: value for key, value in booster.__dict__.items() if key not in left_out}
    state = copy.deepcopy(state)
    state |= {"_handle": text, "_network": False}
    if best_iteration:
        state["best_iteration"] = best_iteration
    kind: Any = type(booster)
    rebuilt = kind.__new__(kind)
    with contextlib.redirect_stdout(sys.stderr):
        rebuilt.__setstate__(state)
    if booster is model:
        return rebuilt
    # Copies everything but takes the booster that is already there.
    around = copy.deepcopy(model, {id(booster): rebuilt})
    if getattr(around, "_best_iteration", None):
        around._best_iteration = best_iteration
    return around


def _plain(frame: Frame) -> Frame:
    """Return a frame whose parameters the library can put into JSON without quoting."""
    return replace(
        frame,
        parameters={
            key: value
            for key, value in frame.parameters.items()
            if '"' not in value and "\\" not in value
        },
    )
