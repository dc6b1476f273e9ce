"""The ensemble's file format; docs/model-format.md describes it for other programs.

The rule for FORMAT_VERSION: raise it by one whenever a reader of the present version would refuse
a new file or, worse, predict something else from it. A new version keeps reading all older ones,
and a file written by each released version stays among the tests.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError, InputError
from timbermark.files import read_container, write_container
from timbermark.files.limits import Arrays, Meta
from timbermark.trees.ensemble import ARRAY_TYPES, Ensemble, scalars
from timbermark.trees.validation import validate_ensemble

KIND = "ensemble"
FORMAT_VERSION = 2
"""1: classes only. 2: also regression, the objective ``identity``."""

_SCALAR_TYPES: dict[str, type] = {
    "n_features": int,
    "n_outputs": int,
    "objective": str,
    "categories_go": str,
    "init_last": bool,
    "scale": float,
    "strict": bool,
    "input_dtype": str,
    "sum_dtype": str,
    "zero_is_positive": bool,
}
_HINT = "it was not written by timbermark, do not trust it."


def save_ensemble(path: str | os.PathLike[str], ensemble: Ensemble) -> None:
    """Write an ensemble to a file of its own, atomically.

    Raises InputError if the folder does not exist, OSError if the system refuses.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from timbermark.trees.construction import constant_ensemble
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ensemble(Path(folder) / "trees", constant_ensemble(n_features=1, value=2.0))
    ...     load_ensemble(Path(folder) / "trees").n_leaves
    1
    """
    meta, arrays = ensemble_to_arrays(ensemble)
    write_container(path, KIND, FORMAT_VERSION, meta, arrays)


def load_ensemble(source: str | os.PathLike[str] | bytes) -> Ensemble:
    """Read what `save_ensemble` wrote, from a file or from its bytes.

    Raises FileFormatError if it is not such a file or not a sound ensemble, OSError if it cannot
    be opened. See `save_ensemble` for an example.

    >>> load_ensemble(b"")
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The data is empty. Hint: get the file again from where it \
came, it was damaged on the way.
    """
    _, meta, arrays = read_container(source, KIND, FORMAT_VERSION)
    return ensemble_from_arrays(meta, arrays)


def ensemble_to_arrays(ensemble: Ensemble, prefix: str = "") -> tuple[Meta, Arrays]:
    """Return an ensemble as metadata and arrays for a container.

    The names of the arrays begin with ``prefix``, so that a larger file can hold an ensemble among
    other things. The law: ``ensemble_from_arrays(*ensemble_to_arrays(e, p), p) == e``.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> meta, arrays = ensemble_to_arrays(constant_ensemble(n_features=1, value=2.0), "trees.")
    >>> meta["objective"], arrays["trees.value"]
    ('logistic', array([[2.]]))
    """
    return scalars(ensemble), {prefix + name: getattr(ensemble, name) for name in ARRAY_TYPES}


def ensemble_from_arrays(
    meta: Mapping[str, Any], arrays: Mapping[str, AnyArray], prefix: str = ""
) -> Ensemble:
    """Return the ensemble that `ensemble_to_arrays` took apart.

    Arrays whose names do not begin with ``prefix`` are ignored; everything else must be exactly as
    written: every field there, no other, each of its type.

    Raises FileFormatError if anything is missing, foreign, of another type or not sound.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> meta, arrays = ensemble_to_arrays(constant_ensemble(n_features=1, value=2.0))
    >>> ensemble_from_arrays(meta, arrays).n_trees
    1
    """
    found = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    _check_names("metadata", set(meta), set(_SCALAR_TYPES))
    _check_names("arrays", set(found), set(ARRAY_TYPES))
    for name, expected in _SCALAR_TYPES.items():
        if type(meta[name]) is not expected:
            raise FileFormatError(
                f"The file's {name}={meta[name]!r} is not of the type {expected.__name__}.", _HINT
            )
    for name, dtype in ARRAY_TYPES.items():
        if found[name].dtype != dtype:
            raise FileFormatError(
                f"The file's array {name} has the type {found[name].dtype}, "
                f"not {np.dtype(dtype).name}.",
                _HINT,
            )
    content: dict[str, Any] = {**meta, **found}
    try:
        ensemble = Ensemble(**content)
        validate_ensemble(ensemble)
    except InputError as error:
        raise FileFormatError(f"The file holds no sound ensemble. {error.message}", _HINT) from None
    return ensemble


def _check_names(what: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        raise FileFormatError(
            f"The file's {what} are not those of an ensemble: missing "
            f"{sorted(expected - found)}, foreign {sorted(found - expected)}.",
            _HINT,
        )
