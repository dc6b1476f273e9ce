"""Open, close, load and save models of any supported library.

The adapters are imported only when something looks like theirs, and so are the libraries.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Any, NoReturn

from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.files import atomic_write
from timbermark.libraries import skops_files
from timbermark.libraries.closing import check_margins
from timbermark.libraries.contract import Adapter, ForeignModel, PathLike
from timbermark.libraries.scikit_learn import GRADIENT_KINDS, HISTOGRAM_KINDS
from timbermark.libraries.wrappers import KINDS, WrapperAdapter, is_wrapper

LIBRARIES = {
    "xgboost.models": "xgboost",
    "lightgbm.models": "lightgbm",
    "catboost.models": "catboost",
    "histogram_boosting": "sklearn",
    "gradient_boosting": "sklearn",
}
"""The modules that are adapters, and where the classes of their models are defined, which tells
without an import."""
_IN_SKOPS = {
    **dict.fromkeys(HISTOGRAM_KINDS, "histogram_boosting"),
    **dict.fromkeys(GRADIENT_KINDS, "gradient_boosting"),
}
_SUPPORTED = (
    "classifiers, regressors and rankers of xgboost, lightgbm and catboost, boosters of the first "
    "two, HistGradientBoosting and GradientBoosting of scikit-learn, and timbermark's own"
)
_FILES = (
    "XGBoost's JSON or UBJSON, LightGBM's text, CatBoost's cbm, skops for scikit-learn, or "
    "timbermark's own"
)
_REFUSED = {
    (
        *("MultiOutputClassifier", "ClassifierChain"),
        *("MultiOutputRegressor", "RegressorChain"),
    ): ("has several outputs.", "give one of its estimators_, each is a model."),
    ("IsolationForest", "ExtendedIsolationForest"): (
        "counts splits on the way to a leaf: it has no leaf values that could be changed.",
        "mark a model that was boosted.",
    ),
    (*("GradientBoostingSurvivalAnalysis", "ComponentwiseGradientBoostingSurvivalAnalysis"),): (
        "answers with curves of survival, not with labels or numbers.",
        "mark a classifier, a regressor or a ranker.",
    ),
    (
        *("VotingClassifier", "StackingClassifier", "BaggingClassifier", "AdaBoostClassifier"),
        *("VotingRegressor", "StackingRegressor", "BaggingRegressor", "AdaBoostRegressor"),
        *("OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier"),
        *("FixedThresholdClassifier", "TunedThresholdClassifierCV", "SelfTrainingClassifier"),
    ): (
        "decides by several models, or by a rule of its own.",
        "give one of the boosted models in it, and rows as that one takes them; pipelines, "
        "searches and calibrated models are taken whole.",
    ),
}
"""Types that look like models of ours, why they are not, and what to do."""

_HEAD = 1 << 16
# Pickle from protocol 2 on and in most cases before, and the compressions joblib puts around it.
_PICKLE_HEADS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"ccopy_reg\n")
_PACKED_HEADS = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00", b"\x04\x22\x4d\x18", b"ZF0x")
_ZLIB_HEADS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def open(source: Any) -> ForeignModel:
    """Return a model as neutral trees, with a copy of it; the model itself is not touched.

    ``source`` is a fitted model, or the path of a file of its library.

    Raises InputError if the model is not fitted or not supported; FileFormatError if the file is
    damaged, foreign or not supported; MissingLibraryError if its library is not installed; OSError
    if the file cannot be opened.

    >>> open(7)
    Traceback (most recent call last):
    timbermark.errors.InputError: int is not a supported model. Hint: supported are classifiers, \
regressors and rankers of xgboost, lightgbm and catboost, boosters of the first two, \
HistGradientBoosting and GradientBoosting of scikit-learn, and timbermark's own.
    """
    if isinstance(source, str | os.PathLike):
        return adapter_of_file(source).open_file(source)
    return adapter_of(source).open(source)


def open_suspect_file(path: PathLike, *, whole: bool = False) -> ForeignModel:
    """Return the model in a file of somebody else, to be asked and not to be changed.

    A ``.skops`` file runs steps that the file chose: it is opened and asked in a process of its
    own, see `timbermark.libraries.apart`. Others are trees. Unless they shall be ``whole``, with
    all that the library knows of them, it is not imported where trees can be asked without it.

    Raises what `open` raises for a path, and FileFormatError beyond the limits of that process.
    """
    with Path(path).open("rb") as file:
        head = file.read(_HEAD)
    if not skops_files.is_file(head):
        adapter = adapter_of_file(path)
        read = None if whole else getattr(adapter, "open_trees", None)
        found: ForeignModel | None = None if read is None else read(path)
        return adapter.open_file(path) if found is None else found
    skops_files.check_file(path)
    from timbermark.libraries.apart import open_apart

    return open_apart(path)


def load(path: PathLike) -> Any:
    """Return the model in a library's file.

    Raises what `open` raises for a path.
    """
    return open(os.fspath(path)).native


def save(model: Any, path: PathLike, force: bool = False) -> None:
    """Write a model to its library's own file, in the format that ``path`` ends in.

    The file is written beside its place, read back by the library and asked: only if its margins
    are those of the model, bit for bit, does it take its place. Otherwise nothing is left behind.

    Raises InputError if the model is not supported, the folder does not exist, or the file exists
    and ``force`` is false; StateError if what was read back predicts something else; OSError if
    the system refuses.
    """
    target = Path(path)
    adapter = adapter_of(model)
    if not force and target.exists() and not target.is_dir():
        raise InputError(
            f"{target} exists.", hint="give another name, or force=True to overwrite it."
        )
    foreign = adapter.open(model)

    def write(file: IO[bytes]) -> None:
        with tempfile.TemporaryDirectory(prefix=".timbermark-", dir=target.parent) as folder:
            # Libraries choose the format by the end of the name.
            draft = Path(folder) / target.name
            adapter.save(model, draft)
            try:
                written_model = adapter.open_file(draft)
            except FileFormatError as error:
                said = error.message.replace(os.fspath(draft), target.name)
                raise InputError(
                    f"This {foreign.kind} has no file that would be read again. {said}",
                    hint="nothing was written; leave such parts out, or pickle the model yourself.",
                ) from error
            check_margins(foreign, foreign.ensemble, written_model.native)
            if foreign.inside and written_model.ensemble != foreign.ensemble:
                raise StateError(
                    f"The file of the {foreign.kind} does not hold the same trees.",
                    hint="nothing was written; please report the model's parameters and versions.",
                )
            with draft.open("rb") as written:
                shutil.copyfileobj(written, file)

    atomic_write(target, write)


def is_supported(model: object) -> bool:
    """Return whether an object is a model of a supported library, fitted or not.

    >>> is_supported("a text")
    False
    """
    return _find_adapter(model) is not None


def way_of_asking(model: Any) -> str:
    """Return how a model is asked for answers: "trees", "no-labels", or "" for its own methods.

    Bare boosters, whose ``predict`` gives no labels, are asked as trees; so are models that want
    tables with categories, where a mark has texts or the model's codes, and models of CatBoost,
    which name their columns in their own way and, once loaded, count none. Classifiers of XGBoost
    store no labels.

    >>> way_of_asking(len)
    ''
    """
    package = type(model).__module__.partition(".")[0]
    if package == "catboost" and hasattr(model, "save_model"):
        return "trees"
    if package not in ("xgboost", "lightgbm"):
        return ""
    if type(model).__name__ == "Booster":
        return "trees"
    try:
        if package == "lightgbm":
            return "trees" if model.booster_.pandas_categorical else ""
        if "c" in (model.get_booster().feature_types or ()):
            return "trees"
    except Exception:  # not fitted, or no model: it is asked like any other, and says so
        return ""
    return "no-labels" if hasattr(model, "predict_proba") else ""


def adapter_of(model: object) -> Adapter:
    """Return the adapter of the library that a model belongs to.

    Raises InputError, with a sentence of its own for models around models and for those whose
    answers are no labels and no numbers, if it belongs to none.
    """
    adapter = _find_adapter(model)
    if adapter is None:
        _refuse_model(model)
    return adapter


def adapter_of_file(path: PathLike) -> Adapter:
    """Return the adapter of the library whose model is in a file, by what the file holds.

    Raises FileFormatError if it is none of theirs, with a sentence of its own for pickles, which
    are never read; OSError if it cannot be opened.
    """
    with Path(path).open("rb") as file:
        head = file.read(_HEAD)
    name = os.fspath(path)
    if not head:
        raise FileFormatError(f"{name} is empty.", hint="get it again from where it came.")
    _refuse_pickle(head, name)
    adapter = _find_file_adapter(head, path)
    if adapter is not None:
        return adapter
    hint = f"supported are {_FILES}."
    if head.startswith(b"timbermark "):
        hint = "it is timbermark's own, for timbermark.load."
    raise FileFormatError(f"{name} is not a model file of a supported library.", hint=hint)


def _find_file_adapter(head: bytes, path: PathLike) -> Adapter | None:
    if skops_files.is_file(head):
        kind = skops_files.kind_of(path)
        if kind in KINDS:
            return WrapperAdapter(adapter_of)
        return _import(_IN_SKOPS[kind]) if kind in _IN_SKOPS else None
    # One after the other: what recognizes the file first spares the others' import.
    others = (_import(module) for module, package in LIBRARIES.items() if package != "sklearn")
    return next((adapter for adapter in others if adapter.is_file(head)), None)


def _find_adapter(model: object) -> Adapter | None:
    if is_wrapper(model):
        return WrapperAdapter(adapter_of)
    packages = {c.__module__.partition(".")[0] for c in type(model).__mro__}
    for module, package in LIBRARIES.items():
        if package in packages:
            adapter: Adapter = _import(module)
            if adapter.is_model(model):
                return adapter
    return None


def _import(module: str) -> Any:
    return importlib.import_module(f"timbermark.libraries.{module}")


def _refuse_model(model: object) -> NoReturn:
    kinds = [c.__name__ for c in type(model).__mro__]
    name = kinds[0]
    if isinstance(model, dict) and "booster" in model:
        raise InputError(
            "That is what xgboost.dask.train returns, a booster and its history.",
            hint='give its ["booster"].',
        )
    if isinstance(model, type):
        raise InputError(f"{model.__name__} is a class, not a model.", hint="give a fitted one.")
    for refused, (why, hint) in _REFUSED.items():
        if not {*refused}.isdisjoint(kinds):
            raise InputError(f"{name} {why}", hint=hint)
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
