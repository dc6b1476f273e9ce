"""Files of scikit-learn's models: ``.skops`` archives, which run no code when they are read.

`is_file` knows any such archive by its beginning, `kind_of` looks inside for the type of its model.
`timbermark.libraries.steps` says which steps are taken from a file. scikit-learn follows a tree's
child numbers without looking; so `open_file` has trees checked node by node before they predict.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.files.limits import most_unpacked
from timbermark.libraries.contract import ForeignModel, PathLike
from timbermark.libraries.steps import check_parts, check_schema

_HEAD = re.compile(rb"PK\x03\x04.{26}(?:schema\.json|[0-9a-f-]+\.(?:npy|npz|bin))", re.DOTALL)
_OTHER_VERSION = "it may be of another version of scikit-learn; if not, do not trust it."
_SHORT_SCHEMA = 4 << 20
_MOST_SCHEMA = 32 << 20  # of 10,000 trees: 15 MB; JSON takes some 20 times as much once it is read
_OLDEST = (0, 15)  # earlier ones call functions of numpy.random that a file names


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a skops archive; `kind_of` says of what.

    >>> is_file(b"CBM1")
    False
    """
    return _HEAD.match(head) is not None


def kind_of(path: PathLike) -> str:
    """Return the type of the object in a skops archive, without building it.

    A type of scikit-learn is named as it is, any other one after its module.

    Raises FileFormatError if it is no skops archive, OSError if it cannot be opened.
    """
    return _kind_in(_schema_in(Path(path).read_bytes(), os.fspath(path)))


def check_file(path: PathLike) -> None:
    """Raise FileFormatError if a skops archive names a step that is not run from a file.

    Nothing is built. A long schema is left to the process that opens the file.
    """
    with contextlib.suppress(zipfile.BadZipFile, KeyError), zipfile.ZipFile(path) as archive:
        if archive.getinfo("schema.json").file_size > _SHORT_SCHEMA:
            return
    check_schema(_schema_in(Path(path).read_bytes(), os.fspath(path)), os.fspath(path))


def open_file(
    path: PathLike,
    kinds: tuple[str, ...],
    trusted: Iterable[str],
    open_model: Callable[[Any], ForeignModel],
) -> ForeignModel:
    """Return the model of a type in ``kinds`` in a ``.skops`` file, opened by ``open_model``.

    ``trusted``: types that may be built, beyond those that skops trusts by itself. ``open_model``
    raises if the model is not sound.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    name, data = os.fspath(path), Path(path).read_bytes()
    schema = _schema_in(data, name)
    found = _kind_in(schema)
    if found not in kinds:
        wanted = " or ".join(kinds)
        raise FileFormatError(f"{name} holds a {found}, not a {wanted}.", hint="give another file.")
    skops_io = _skops("to read a .skops file")
    check_schema(schema, name)
    try:
        model = skops_io.loads(data, trusted=list(trusted))
        check_parts(model)
        return open_model(model)
    except skops_io.exceptions.UntrustedTypesFoundException as error:
        strange = str(error).strip().splitlines()[0].partition(": ")[2].strip("[].")
        raise FileFormatError(
            f"{name} holds types that are not known to be safe: {strange[:300]}.",
            hint="if you trust it, load the model yourself with skops, and give that from Python.",
            code="file.step",
        ) from error
    except Exception as error:  # a hostile file can make any constructor raise anything
        code = getattr(error, "code", "")
        raise FileFormatError(
            f"{name} does not hold a sound {found} ({getattr(error, 'message', error)}).",
            hint=getattr(error, "hint", "") if code else _OTHER_VERSION,
            code=code or "file.unsound",
        ) from error


def save(
    model: Any,
    path: PathLike,
    kind: str,
    strip: Callable[[Any], Any] | None = None,
) -> None:
    """Write a model of type ``kind`` to a ``.skops`` file.

    ``strip`` gives the model without what skops cannot write, and leaves the one it is given alone.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    target = Path(path)
    if target.suffix != ".skops":
        raise InputError(
            f"{target.name} does not end in .skops, the one file of a {kind} that is safe to read.",
            hint="name it so, or pickle the model yourself.",
        )
    skops_io = _skops("to write a .skops file")
    plain = model if strip is None else strip(model)
    try:
        data = skops_io.dumps(plain)
    except RecursionError:
        raise InputError(
            f"skops cannot write this {kind}: objects in it hold each other, as distributions of "
            "SciPy do.",
            hint="of a search give the best_estimator_, or pickle the model yourself.",
        ) from None
    except Exception as error:
        raise InputError(
            f"skops cannot write this {kind} ({error}).",
            hint="look for parameters that are objects or functions of your own.",
        ) from error
    target.write_bytes(data)


def _skops(purpose: str) -> Any:
    try:
        version = importlib.import_module("skops").__version__
        skops_io = importlib.import_module("skops.io")
    except ImportError:
        raise MissingLibraryError.for_extra("skops", purpose) from None
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _OLDEST:
        raise MissingLibraryError(
            f"skops {version} is too old {purpose}: what it lets pass is not always safe.",
            hint='pip install --upgrade "timbermark[skops]"',
        )
    return skops_io


def _kind_in(schema: dict[str, Any]) -> str:
    kind, module = schema.get("__class__"), schema.get("__module__")
    return str(kind) if str(module).startswith("sklearn.") else f"{module}.{kind}"


def _schema_in(data: bytes, name: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
            if unpacked > most_unpacked(len(data)):
                raise ValueError(f"it would unpack to {unpacked} bytes")
            size = archive.getinfo("schema.json").file_size
            if size > _MOST_SCHEMA:
                raise ValueError(f"its schema has {size} bytes, at most {_MOST_SCHEMA} are read")
            schema: dict[str, Any] = json.loads(archive.read("schema.json"))
        if not {"__class__", "__module__"} <= set(schema):
            raise ValueError("its schema names no type")
        return schema
    except Exception as error:
        raise FileFormatError(
            f"{name} is not a skops archive ({error}).",
            hint="pickle and joblib files are not read, since reading them can run any code; load "
            "the model yourself if you trust it, and give that.",
        ) from error
