"""Ask a model file of somebody else in a process of its own, with limits of time and memory.

A ``.skops`` file says which transformers rows pass, with which numbers. What is not known to be
safe is kept out by `timbermark.libraries.skops_files`; the rest still runs logic of a file that
nobody vouches for. So `open_apart` has the file read, checked and asked in a child process:

- Linux: at most `SECONDS` for each request and `MEMORY` bytes beyond what the libraries take; no
  file is written, none is opened but those of Python and its packages, no process is started.
- macOS: the same, but its kernel does not limit memory.
- Windows: the time is limited, the rest by the list of steps alone.

Both sides talk in containers (see `timbermark.files`): what the child says is data that is checked
as every file is, so that a child that was taken over cannot take over its parent. The child has
none of the parent's environment variables, so that it sees no token or passphrase in them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np

from timbermark import errors
from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import FileFormatError, InputError, TimbermarkError
from timbermark.files import container_bytes, read_container
from timbermark.files.reading import Arrays, Meta
from timbermark.libraries.contract import Adapter, ForeignModel, PathLike
from timbermark.libraries.skops_files import HINT
from timbermark.ownership.columns import plain_rows
from timbermark.trees.construction import join
from timbermark.trees.ensemble_file import ensemble_from_arrays, ensemble_to_arrays

SECONDS = 60.0
"""For opening a file and for each request to it; ordinary pipelines take two seconds and less."""
MEMORY = 1 << 30

_KIND, _VERSION = "apart", 1
_MOST_REPLY = 1 << 29
_KEPT = ("LANG", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT")  # what Python itself needs to start
_ONE_THREAD = ("MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from timbermark.libraries.apart import serve; serve(*map(float, sys.argv[2:]))"
)
_REFUSED = (
    *("os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename", "os.spawn", "os.system"),
    *("socket.", "subprocess."),
)
_FACTS = (
    *("library", "kind", "margin_scale", "leaf_dtype", "threshold_dtype", "task", "takes_frames"),
    "stores_labels",
)


def open_apart(path: PathLike) -> ForeignModel:
    """Return the model in a file of somebody else, which is read and asked in another process.

    Its trees are here; ``rows``, ``confidence`` and ``answers`` ask the other process, which ends
    with the model. It has no ``native``, and cannot be closed around other trees.

    Raises what opening the file raises; FileFormatError with the code ``file.limits`` if that takes
    more time or memory than is allowed, or ends the process; OSError if it cannot be opened.
    """
    name = os.fspath(path)
    child = Child(name)
    meta, arrays = child.request({"do": "open", "path": os.path.abspath(path), "name": name}, {})
    try:
        return _read_model(child, meta, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{name} is not a sound model ({error}).", hint=HINT) from error


class Child:
    """A process that has opened a model file, and is its adapter; see `open_apart`."""

    name = "scikit-learn"

    def __init__(self, file_name: str) -> None:
        self._file_name = file_name
        paths = [os.path.abspath(path) for path in sys.path]
        environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
        environment |= dict.fromkeys(_ONE_THREAD, "1")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, json.dumps(paths), str(SECONDS), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=tempfile.gettempdir(),
            # Ctrl-C on a terminal is for the parent, which ends the child.
            start_new_session=os.name == "posix",
        )
        weakref.finalize(self, _end, self._process)

    def request(self, meta: Mapping[str, Any], arrays: Arrays) -> tuple[Meta, Arrays]:
        """Return what the process replies to a request.

        Raises the error that it replies with, FileFormatError if it ends or takes too long.
        """
        given = cast(IO[bytes], self._process.stdin)
        said = cast(IO[bytes], self._process.stdout)
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(SECONDS, stop)
        timer.start()
        try:
            _send(given, meta, arrays)
            found = _receive(said)
        except (OSError, FileFormatError):
            found = None
        finally:
            timer.cancel()
        if found is None:
            self._process.kill()
            self._process.wait()
            reason = f"took more than {SECONDS:g} seconds" if late.is_set() else "ended the process"
            raise FileFormatError(
                f"{self._file_name} {reason} that reads and asks it.", hint=HINT, code="file.limits"
            )
        if "error" in found[0]:
            _raise(found[0])
        return found

    def rows(self, foreign: ForeignModel, X: Any) -> Reals:
        """Return what the model takes as columns of the ensemble, float64 [n, d]."""
        meta, arrays = _pack_rows(X)
        found = self.request({"do": "rows", **meta}, arrays)[1]
        rows: Reals = found["found"]
        if rows.dtype != np.float64 or rows.shape != (len(X), foreign.ensemble.n_features):
            raise InputError(f"{self._file_name} makes other columns of rows than its trees have.")
        return rows

    def ask(self, what: str, values: Reals) -> Reals:
        """Return scores or numbers that the model makes of margins or numbers."""
        return self.request({"do": what}, {"values": np.asarray(values, np.float64)})[1]["found"]

    def _refuse(self, *_: Any) -> NoReturn:
        raise InputError(
            f"{self._file_name} was opened to be asked, not to be changed.",
            hint="open it with timbermark.load.",
        )

    is_model = open = open_file = native_rows = margins = close = save = _refuse


def _read_model(child: Child, meta: Meta, arrays: Arrays) -> ForeignModel:
    # Those that are joined each have an objective of their own, and are checked one by one.
    parts = [ensemble_from_arrays(one, arrays, f"t{i}.") for i, one in enumerate(meta["trees"])]
    classes = arrays.get("classes")
    if classes is None:
        classes = np.array(meta["classes"], dtype=object)
    names = meta["feature_names"]
    return ForeignModel(
        **{fact: meta[fact] for fact in _FACTS},
        ensemble=parts[0] if len(parts) == 1 else join(parts),
        classes=classes,
        feature_names=None if names is None else tuple(map(str, names)),
        native=None,
        adapter=cast(Adapter, child),
        notes=tuple(map(str, meta["notes"])),
        scores=(lambda margins: child.ask("scores", margins)) if meta["scores"] else None,
        numbers=(lambda given: child.ask("numbers", given)) if meta["numbers"] else None,
    )


def _describe(foreign: ForeignModel) -> tuple[Meta, Arrays]:
    trees: list[Meta] = []
    arrays: Arrays = {}
    for number, part in enumerate(foreign.inside or (foreign,)):
        facts, held = ensemble_to_arrays(part.ensemble, f"t{number}.")
        trees.append(facts)
        arrays |= held
    classes: Any = foreign.classes
    if classes.dtype.kind != "O":
        arrays["classes"], classes = classes, None
    meta: Meta = {
        **{fact: getattr(foreign, fact) for fact in _FACTS},
        "trees": trees,
        "classes": None if classes is None else classes.tolist(),
        "feature_names": foreign.feature_names and list(foreign.feature_names),
        "notes": list(foreign.notes),
        "scores": foreign.scores is not None,
        "numbers": foreign.numbers is not None,
    }
    return meta, arrays


def _pack_rows(X: Any) -> tuple[Meta, Arrays]:
    """Return rows as a suspect is given them, a matrix or a frame, as data."""
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    matrix = X.to_numpy(dtype=object) if names is not None else np.asarray(X)
    if matrix.dtype != object:
        return {"names": None}, {"rows": np.asarray(matrix, np.float64)}
    texts: dict[str, list[str | None]] = {}
    numbers = np.zeros(matrix.shape)
    for place in range(matrix.shape[1]):
        column = matrix[:, place].tolist()
        if any(isinstance(value, str) for value in column):
            texts[str(place)] = [one if isinstance(one, str) else None for one in column]
        elif all(value is None for value in column):
            texts[str(place)] = column
        else:
            numbers[:, place] = np.array(column, dtype=np.float64)
    return {"names": names, "texts": texts}, {"rows": numbers}


def _unpack_rows(meta: Meta, arrays: Arrays) -> Any:
    rows = arrays["rows"]
    if "texts" not in meta:
        return rows
    texts = {int(place): tuple(column) for place, column in meta["texts"].items()}
    return plain_rows([texts.get(p, rows[:, p]) for p in range(rows.shape[1])], meta["names"])


def _send(pipe: IO[bytes], meta: Mapping[str, Any], arrays: Arrays) -> None:
    data = container_bytes(_KIND, _VERSION, meta, arrays, compress=False)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[Meta, Arrays] | None:
    size = int.from_bytes(pipe.read(8), "little")
    data = pipe.read(size) if 0 < size <= _MOST_REPLY else b""
    if not data or len(data) != size:
        return None
    return read_container(data, _KIND, _VERSION)[1:]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not sent is not missed
                continue


def _raise(said: Meta) -> NoReturn:
    kind = getattr(errors, str(said["error"]), None)
    known = isinstance(kind, type) and issubclass(kind, TimbermarkError)
    words = [str(said.get(key, ""))[:2000] for key in ("message", "hint", "code")]
    raise (kind if known else InputError)(*words)  # type: ignore[misc]


def serve(seconds: float, memory: float) -> None:
    """Open the file that standard input names first, then answer requests until it ends.

    This is what the child runs; it never returns before its input ends.
    """
    said = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    given = sys.stdin.buffer
    foreign: ForeignModel | None = None
    with _prepare():
        from timbermark.libraries import registry

        while (request := _receive(given)) is not None:
            meta, arrays = request
            try:
                if foreign is None:
                    path = meta["path"]
                    _limit(seconds, int(memory) + 4 * os.path.getsize(path), path)
                    foreign = registry.open(path)
                    reply: tuple[Meta, Arrays] = _describe(foreign)
                else:
                    reply = {}, {"found": _answer(foreign, meta, arrays)}
            except MemoryError:
                reply = _TOO_LARGE, {}
            except Exception as error:
                reply = _describe_error(error, meta), {}
            _send(said, *reply)


@contextlib.contextmanager
def _prepare() -> Iterator[None]:
    """Import what is large before memory is limited; run everything in one process."""
    warnings.simplefilter("ignore")
    with contextlib.suppress(ImportError):  # opening the file says what is missing
        joblib = importlib.import_module("joblib")
        for large in ("sklearn.pipeline", "skops.io"):
            importlib.import_module(large)
        with joblib.parallel_backend("sequential"):
            yield
        return
    yield


_TOO_LARGE = {
    "error": "FileFormatError",
    "message": "The file needs more memory than is allowed.",
    "hint": HINT,
    "code": "file.limits",
}


def _answer(foreign: ForeignModel, meta: Meta, arrays: Arrays) -> AnyArray:
    if meta["do"] == "rows":
        return foreign.rows(_unpack_rows(meta, arrays))
    function = foreign.scores if meta["do"] == "scores" else foreign.numbers
    if function is None:
        raise InputError(f"It does not answer with {meta['do']}.")
    return np.asarray(function(arrays["values"]), dtype=np.float64)


def _describe_error(error: Exception, meta: Meta) -> Meta:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return _TOO_LARGE
        cause = cause.__cause__
    kind = type(error).__name__ if isinstance(error, TimbermarkError) else "InputError"
    message = str(getattr(error, "message", f"{type(error).__name__}: {error}"))
    found = {
        "error": kind,
        "message": message.replace(meta.get("path", "\0"), meta.get("name", "")),
    }
    return found | {key: str(getattr(error, key, "")) for key in ("hint", "code")}


def _limit(seconds: float, memory: int, path: str) -> None:
    """Set limits to what this process can take from now on, as far as the system does."""
    if sys.platform != "win32":
        import resource

        limits = {"CORE": 0, "FSIZE": 0, "NPROC": 0, "CPU": 10 * int(seconds) + 1}
        if sys.platform == "linux":  # other kernels take the number and ignore it
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limits["AS"] = pages * resource.getpagesize() + memory
        for name, most in limits.items():
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (most, most))
    packages = tuple({os.path.realpath(p) for p in (*sys.path, sys.prefix, sys.base_prefix)})
    model = os.path.realpath(path)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise PermissionError(f"{event} is not allowed here")
        if event == "open" and isinstance(arguments[0], str | bytes):
            where = os.path.realpath(os.fsdecode(arguments[0]))
            known = where == model or where.startswith(packages)
            writes = int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if not known or writes or arguments[1] not in ("r", "rb", None):
                raise PermissionError(f"{where} is not opened here")

    sys.addaudithook(watch)
