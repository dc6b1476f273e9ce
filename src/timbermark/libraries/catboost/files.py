"""CatBoost's own binary files (.cbm): recognised, loaded with care, saved."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.libraries.catboost.cbm import MAGIC, pack, unpack
from timbermark.libraries.catboost.losses import estimator_of, find_task
from timbermark.libraries.catboost.models import (
    open_contents,
    serialize,
)
from timbermark.libraries.catboost.soundness import check_contents
from timbermark.libraries.contract import ForeignModel, PathLike

# The other format of CatBoost's, which is told apart in order to say how to convert it.
_JSON_HEAD = re.compile(
    rb'\s*\{\s*"(?:ctr_data|features_info|model_info|oblivious_trees|scale_and_bias|trees)"\s*:'
)
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
        return _open_checked(catboost, pack(contents), name)
    if is_file(data[:256]):
        raise FileFormatError(
            f"{name} is CatBoost's JSON, which rounds leaf values and is not read.",
            hint="convert it with CatBoost:\n"
            f"    model = catboost.CatBoost().load_model({name!r}, format='json')\n"
            f"    model.save_model({os.fspath(Path(name).with_suffix('.cbm'))!r})",
        )
    raise FileFormatError(f"{name} is not a file of CatBoost.", _HINT)


def save(model: Any, path: PathLike) -> None:
    """Write CatBoost's own binary file.

    Raises InputError if ``path`` ends in .json; OSError if the system refuses.
    """
    if Path(path).suffix.lower() == ".json":
        raise InputError(
            "CatBoost's JSON rounds leaf values, so that it is not written.",
            hint="save the model as .cbm.",
        )
    Path(path).write_bytes(serialize(model))


def _import_catboost(purpose: str) -> Any:
    try:
        import catboost
    except ImportError:
        raise MissingLibraryError.for_extra("catboost", purpose) from None
    return catboost


def _open_checked(catboost: Any, data: bytes, name: str) -> ForeignModel:
    with tempfile.TemporaryDirectory() as folder:
        checked = Path(folder) / "model.cbm"
        checked.write_bytes(data)
        try:
            # Only from a file does CatBoost take over the parameters of training.
            model = catboost.CatBoost().load_model(str(checked))
            contents = unpack(serialize(model), name)
            check_contents(contents, name)
            estimator = getattr(catboost, estimator_of(find_task(contents)))
            model = estimator().load_model(str(checked))
            return open_contents(model, model, contents)
        except FileFormatError:
            raise
        except InputError as error:
            raise FileFormatError(f"{name}: {error.message}", error.hint) from None
        except Exception as error:  # whatever CatBoost says, the file is the reason
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FileFormatError(f"CatBoost cannot load {name}: {reason[:200]}", _HINT) from None
