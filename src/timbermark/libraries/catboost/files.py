"""CatBoost's own files, binary (.cbm) and JSON (.json): recognised, loaded with care, saved."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.libraries.catboost.cbm import MAGIC, pack, unpack
from timbermark.libraries.catboost.json_file import KEYS, clean_json, rewrite_exactly
from timbermark.libraries.catboost.losses import estimator_of, find_task
from timbermark.libraries.catboost.models import (
    open_contents,
    serialize,
)
from timbermark.libraries.catboost.soundness import MEAN_TYPES, check_contents, ctr_key
from timbermark.libraries.contract import ForeignModel, PathLike

_JSON_HEAD = re.compile(rb'\s*\{\s*"(?:' + "|".join(KEYS).encode() + rb')"\s*:')
_HINT = "write it again with CatBoost's save_model."


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is one of CatBoost's.

    >>> is_file(b"CBM1..."), is_file(b'{"features_info": {'), is_file(b'{"learner": {')
    (True, True, False)
    """
    return head.startswith(MAGIC) or _JSON_HEAD.match(head) is not None


def holds(path: PathLike) -> bool:
    """Return True: the beginning of a file is enough to tell.

    >>> holds("model.cbm")
    True
    """
    return True


def open_file(path: PathLike) -> ForeignModel:
    """Return the model in a file, a CatBoostClassifier or what its loss asks for, as neutral trees.

    CatBoost itself sees only what was checked before: it trusts the numbers in a file and would
    end the process.

    Raises FileFormatError if the file is damaged, has an unknown layout, features of text or
    embeddings, or does not hold a supported classifier;
    MissingLibraryError if CatBoost is not installed; OSError if it cannot be opened.
    """
    catboost = _import_catboost("to load a CatBoost model")
    name, data = os.fspath(path), Path(path).read_bytes()
    if data.startswith(MAGIC):
        contents = unpack(data, name)
        check_contents(contents, name)
        # Written anew, so that it holds no offset but ours.
        return _open_checked(catboost, pack(contents), "cbm", name)
    if not is_file(data[:256]):
        raise FileFormatError(f"{name} is not a file of CatBoost.", _HINT)
    return _open_checked(catboost, clean_json(data, name), "json", name)


def save(model: Any, path: PathLike) -> None:
    """Write CatBoost's own file: JSON if ``path`` ends in .json, else binary.

    Numbers in a JSON file stand in such digits that CatBoost reads back what was written.

    Raises InputError if JSON cannot hold the model; OSError if the system refuses.
    """
    if Path(path).suffix.lower() != ".json":
        Path(path).write_bytes(serialize(model))
        return
    _refuse_lossy(model)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "model.json"
        model.save_model(str(written), format="json")
        data = written.read_bytes()
    Path(path).write_bytes(rewrite_exactly(data))


def _import_catboost(purpose: str) -> Any:
    try:
        import catboost
    except ImportError:
        raise MissingLibraryError.for_extra("catboost", purpose) from None
    return catboost


def _open_checked(catboost: Any, data: bytes, form: str, name: str) -> ForeignModel:
    with tempfile.TemporaryDirectory() as folder:
        checked = Path(folder) / f"model.{form}"
        checked.write_bytes(data)
        try:
            # Only from a file does CatBoost take over the parameters of training.
            model = catboost.CatBoost().load_model(str(checked), format=form)
            contents = unpack(serialize(model), name)
            check_contents(contents, name)
            estimator = getattr(catboost, estimator_of(find_task(contents)))
            model = estimator().load_model(str(checked), format=form)
            return open_contents(model, model, contents)
        except FileFormatError:
            raise
        except InputError as error:
            raise FileFormatError(f"{name}: {error.message}", error.hint) from None
        except Exception as error:  # whatever CatBoost says, the file is the reason
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FileFormatError(f"CatBoost cannot load {name}: {reason[:200]}", _HINT) from None


def _refuse_lossy(model: Any) -> None:
    """Raise if CatBoost's JSON form leaves out what the model needs."""
    contents = unpack(serialize(model))
    trees = contents.trees
    bases = [feature["Ctr"]["Base"] for feature in trees["CtrFeatures"]]
    means = any(base["CtrType"] in MEAN_TYPES for base in bases)
    keys = {ctr_key(base) for base in bases}
    # JSON does not say which of several ways to make classes of the target a statistic is of.
    mixed = len({key[:2] for key in keys}) < len(keys)
    infinite = any(np.isinf(each["Borders"]).any() for each in trees["FloatFeatures"])
    if means or mixed or infinite:
        raise InputError(
            "CatBoost's JSON form cannot hold this model exactly.", hint="save it as .cbm instead."
        )
