"""Which library a model or a file belongs to, and model files that are written whole or not at all.

The modules of the libraries are imported only when something looks like theirs. Beyond what
`timbermark.libraries.reading` says, a module may have two more functions, used here if it has them:

- ``native_rows(reading, rows) -> X``: the inverse of ``rows``, an X that ``predict`` takes;
- ``holds(path) -> bool``: whether a file is its own, where its beginning cannot tell.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

import numpy as np

from timbermark.errors import FileFormatError, InputError
from timbermark.files import atomic_write
from timbermark.libraries.probing import check_equal, probe_rows
from timbermark.trees import reference

LIBRARIES = ("xgboost", "lightgbm", "catboost", "histogram_boosting", "gradient_boosting")

# Where the classes of each library's models are defined, which tells without an import.
_PACKAGES = {
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "histogram_boosting": "sklearn",
    "gradient_boosting": "sklearn",
}
_SUPPORTED = (
    "XGBClassifier and Booster of xgboost, LGBMClassifier and Booster of lightgbm, "
    "CatBoostClassifier of catboost, HistGradientBoostingClassifier and "
    "GradientBoostingClassifier of scikit-learn"
)
_FILES = (
    "XGBoost's JSON or UBJSON, LightGBM's text, CatBoost's cbm or JSON, or skops for scikit-learn"
)
_WRAPPERS = ("Pipeline", "GridSearchCV", "RandomizedSearchCV", "CalibratedClassifierCV")
_MANY_OUTPUTS = ("MultiOutputClassifier", "ClassifierChain")

_HEAD = 1 << 16
# Pickle from protocol 2 on and in most cases before, and the compressions joblib puts around it.
_PICKLE_HEADS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"ccopy_reg\n")
_PACKED_HEADS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00", b"\x04\x22\x4d\x18", b"ZF0x")
_ZLIB_HEADS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_N_PROBES = 256
_SINGLE_ROWS = 5  # how many of them are also asked one by one


def module_of(model: object) -> ModuleType:
    """Return the module of the library that a model belongs to.

    Raises InputError, with a sentence of its own for regressors and for models around models, if it
    belongs to none.

    >>> module_of("a text")
    Traceback (most recent call last):
    timbermark.errors.InputError: str is not a supported model. Hint: supported are XGBClassifier \
and Booster of xgboost, LGBMClassifier and Booster of lightgbm, CatBoostClassifier of catboost, \
HistGradientBoostingClassifier and GradientBoostingClassifier of scikit-learn.
    """
    _refuse_numbers(model)
    packages = {c.__module__.partition(".")[0] for c in type(model).__mro__}
    for name in LIBRARIES:
        if _PACKAGES[name] in packages:
            module = _import(name)
            if module.is_model(model):
                return module
    _refuse_model(model)


def module_of_file(path: str | os.PathLike[str]) -> ModuleType:
    """Return the module of the library whose model is in a file, by what the file holds.

    Raises FileFormatError if it is none of theirs, with a sentence of its own for pickles, which
    are never read; OSError if it cannot be opened.
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    name = os.fspath(path)
    if not head:
        raise FileFormatError(f"{name} is empty.", hint="get it again from where it came.")
    _refuse_pickle(head, name)
    for library in LIBRARIES:
        module = _import(library)
        if module.is_file(head) and (not hasattr(module, "holds") or module.holds(path)):
            return module
    hint = f"supported are {_FILES}."
    if head.startswith(b"timbermark "):
        hint = "it is timbermark's own, for timbermark.load."
    raise FileFormatError(f"{name} is not a model file of a supported library.", hint=hint)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return the model in a library's file.

    Raises FileFormatError if it is not a supported model file, MissingLibraryError if the library
    is not installed, OSError if the file cannot be opened.
    """
    return module_of_file(path).load(path)


def save_model(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model to its library's own file, in the format that ``path`` ends in.

    The file is written beside its place, read back by the library and asked: only if its margins
    are those of the model, bit for bit, does it take its place. Otherwise nothing is left behind.

    Raises InputError if the model is not supported, the folder does not exist, or the file exists
    and ``overwrite`` is false; StateError if what was read back predicts something else; OSError if
    the system refuses.
    """
    target = Path(path)
    module = module_of(model)
    if not overwrite and target.exists() and not target.is_dir():
        raise InputError(f"{target} exists.", hint="give another name, or ask to overwrite it.")
    reading = module.read(model)

    def write(file: IO[bytes]) -> None:
        with tempfile.TemporaryDirectory(prefix=".timbermark-", dir=target.parent) as folder:
            # Libraries choose the format by the end of the name.
            draft = Path(folder) / target.name
            module.save(model, draft)
            _check_margins(module, reading, module.load(draft))
            with open(draft, "rb") as written:
                shutil.copyfileobj(written, file)

    atomic_write(target, write)


def _check_margins(module: ModuleType, reading: Any, model: Any) -> None:
    """Raise StateError unless a model's margins are those of a reading."""
    # Thresholds beyond float32 are asked as infinities, which is no reason for a warning.
    with np.errstate(over="ignore"):
        probes: Any = probe_rows(reading.ensemble, n_rows=_N_PROBES)
    X = module.native_rows(reading, probes) if hasattr(module, "native_rows") else probes
    ours = reference.margins(reading.ensemble, module.rows(reading, X))
    check_equal(ours, module.margins(model, X), module.NAME)
    for i in range(_SINGLE_ROWS):
        check_equal(ours[i : i + 1], module.margins(model, X[i : i + 1]), module.NAME)


def _import(library: str) -> ModuleType:
    return importlib.import_module(f"timbermark.libraries.{library}")


def _refuse_numbers(model: object) -> None:
    name = type(model).__name__
    if any(c.__name__.endswith(("Regressor", "Ranker")) for c in type(model).__mro__):
        raise InputError(f"{name} gives numbers, not labels.", hint="give a classifier.")


def _refuse_model(model: object) -> NoReturn:
    kinds = [c.__name__ for c in type(model).__mro__]
    name = kinds[0]
    if isinstance(model, type):
        raise InputError(f"{model.__name__} is a class, not a model.", hint="give a fitted one.")
    if any(kind in _MANY_OUTPUTS for kind in kinds):
        raise InputError(
            f"{name} has several outputs.", hint="give one of its estimators_, each is a model."
        )
    if any(kind in _WRAPPERS for kind in kinds):
        raise InputError(
            f"{name} is a model around a model.",
            hint="give the fitted model in it, and rows as that one takes them.",
        )
    raise InputError(f"{name} is not a supported model.", hint=f"supported are {_SUPPORTED}.")


def _refuse_pickle(head: bytes, name: str) -> None:
    if head.startswith(_PICKLE_HEADS):
        what = "a pickle"
    elif head.startswith((*_PACKED_HEADS, *_ZLIB_HEADS)):
        what = "compressed, as joblib's pickles are"
    else:
        return
    raise FileFormatError(
        f"{name} is {what}; it is not read, since reading it can run any code.",
        hint="if you trust it, load the model yourself and give that; "
        "skops files of scikit-learn models are safe.",
    )
