"""The paper's six data sets as rows and class numbers, and its splits.

Files are in a folder, in the user's cache or in the UCI archive. Whatever the place, a file is used
only if its sha256 is the one noted here, so that everybody's tables are made from the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np

from timbermark.errors import FileFormatError, InputError
from timbermark.files import atomic_write

VARIABLE = "TIMBERMARK_DATA"
"""The environment variable that names the folder of the data sets."""
_ARCHIVE = "https://archive.ics.uci.edu/static/public"
_TIMEOUT = 60.0
_MOST_BYTES = 64 * 2**20
"""No archive of the six comes near; more is not what was asked for."""

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one data set.

    ``sums`` gives the sha256 of each file that the paper uses, ``unused`` that of published ones
    which it leaves out; the order matters.
    """

    folder: str
    archive: str
    sums: dict[str, str]
    unused: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the address of the archive that holds the files."""
        return f"{_ARCHIVE}/{self.archive}"


def _read_sources() -> dict[str, Source]:
    text = (resources.files(__package__) / "sources.csv").read_text(encoding="ascii")
    found: dict[str, Source] = {}
    for row in csv.DictReader(text.splitlines()):
        source = found.setdefault(row["dataset"], Source(row["folder"], row["archive"], {}))
        sums = source.sums if row["used"] == "yes" else source.unused
        sums[row["file"]] = row["sha256"]
    return found


SOURCES = _read_sources()
"""The paper's data sets, in the order of its tables."""


def find_files(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    cache: Path | None = None,
    fetch: Fetch | None = None,
    published: bool = False,
) -> dict[str, bytes]:
    """Return the content of the files of the data set ``name``, each checked, by file name.

    Looked for in ``folder`` (or the one that TIMBERMARK_DATA names), then in ``cache`` (the
    user's), then fetched from the UCI archive and kept in the cache. ``published`` also asks for
    the files that the paper leaves out.

    Raises InputError for a name that is not known, a folder that does not exist and a download
    that fails, FileFormatError for a file whose content is not what it should be.
    """
    if name not in SOURCES:
        raise InputError(
            f"There is no data set '{name}' in the paper.", hint=f"use one of {', '.join(SOURCES)}."
        )
    source = SOURCES[name]
    sums = {**source.sums, **source.unused} if published else source.sums
    cache = cache_folder() if cache is None else cache
    for place in (_given_folder(folder), cache):
        paths = None if place is None else _paths_in(place, name, source.folder, sums)
        if paths is not None:
            return {path.name: _read_checked(path, sums[path.name]) for path in paths}
    found = _unpack(name, source.url, sums, _download(name, source.url, fetch or fetch_url))
    for file, content in found.items():
        place = cache / source.folder
        place.mkdir(parents=True, exist_ok=True)
        atomic_write(place / file, content)
    return found


def cache_folder() -> Path:
    """Return the folder of the user's cache in which downloaded data sets are kept."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "timbermark" / "datasets"


def fetch_url(url: str) -> bytes:
    """Return the content of an address, at most 64 MB of it. Raises OSError where that fails."""
    from urllib.request import urlopen

    with urlopen(url, timeout=_TIMEOUT) as answer:
        return bytes(answer.read(_MOST_BYTES + 1))


def _given_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    said = folder if folder is not None else os.environ.get(VARIABLE) or None
    if said is None:
        return None
    place = Path(said)
    if not place.is_dir():
        raise InputError(
            f"The folder of the data sets, {place}, does not exist.",
            hint=f"--data or {VARIABLE} names a folder that holds the files of the UCI archive.",
        )
    return place


def _paths_in(place: Path, name: str, folder: str, files: Iterable[str]) -> list[Path] | None:
    """Return the paths of all files, or None where one is absent."""
    for within in (place / folder, place / name, place):
        paths = [within / file for file in files]
        if all(path.is_file() for path in paths):
            return paths
    return None


def _read_checked(path: Path, expected: str) -> bytes:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise FileFormatError(
            f"{path} is not the file that the UCI archive publishes: its sha256 is {found[:12]}…, "
            f"expected {expected[:12]}….",
            hint="delete it, or put the original in its place.",
        )
    return content


def _download(name: str, url: str, fetch: Fetch) -> bytes:
    hint = f"fetch it yourself, and name its folder with --data or {VARIABLE}."
    try:
        content = fetch(url)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The data set {name} could not be fetched from {url} ({error}).", hint=hint
        ) from error
    if len(content) > _MOST_BYTES:
        raise InputError(f"{url} is larger than a data set of the paper can be.", hint=hint)
    return content


def _unpack(name: str, url: str, sums: dict[str, str], content: bytes) -> dict[str, bytes]:
    """Return the members with the right sums, wherever in the archive they are."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.infolist():
                file = Path(member.filename).name
                if file in sums and file not in found and member.file_size <= _MOST_BYTES:
                    data = archive.read(member)
                    if hashlib.sha256(data).hexdigest() == sums[file]:
                        found[file] = data
    # The last one is what zipfile raises for encrypted members and for a compression it lacks.
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise FileFormatError(
            f"What {url} holds is no zip archive ({error}).",
            hint="try again later, or fetch the files yourself and name their folder with --data.",
        ) from error
    missing = [file for file in sums if file not in found]
    if missing:
        raise FileFormatError(
            f"{url} does not hold {missing[0]} of the data set {name} with the sha256 that "
            "it should have.",
            hint="the archive has changed; fetch the original file, and name its folder with "
            "--data.",
        )
    return {file: found[file] for file in sums}


NAMES: tuple[str, ...] = tuple(SOURCES)
TITLES = {
    "avila": "Avila",
    "image_segmentation": "Img Seg.",
    "letter": "Letter Recognition",
    "optdigits": "optdigits",
    "pendigits": "pendigits",
    "wine_quality": "Wine Quality",
    "average": "average",
}
"""The data sets as the paper's tables call them."""

_HEADER_LINES = 5  # of segmentation.data
# The authors' engine comes with optdigits and pendigits in files that lack the first row of both
# originals, as if it were a header, and the last ten training rows, which are a file of their own
# for tuning. That gives the row counts of the paper.
_DIGITS = ("optdigits", "pendigits")
_FIRST, _LAST = 1, -10


@dataclass(frozen=True, slots=True)
class Dataset:
    """``X`` float64[n, d]; ``y`` int64[n], numbers of ``classes``, which are sorted.

    ``n_train``: the first rows, which the data set itself says are for training; None where it
    has no split of its own. :func:`timbermark.experiments.datasets.cut` makes the paper's splits.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    n_train: int | None

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.classes)


def load_dataset(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    fetch: Fetch | None = None,
    published: bool = False,
) -> Dataset:
    """Return the data set ``name`` from ``folder``, the user's cache or the UCI archive.

    The rows are those of the paper, or with ``published`` all that the archive has.

    Raises as :func:`timbermark.experiments.datasets.find_files` does.
    """
    files = find_files(name, folder, fetch=fetch, published=published)
    data = _READERS[name](name, *[content.decode("latin1") for content in files.values()])
    return data if published or name not in _DIGITS else _drop_rows(data)


def _read_two_files(name: str, train: str, test: str) -> Dataset:
    tables = [_table(name, text) for text in (train, test)]
    return _made(name, *_cut_label(np.concatenate(tables), -1), len(tables[0]))


def _drop_rows(digits: Dataset) -> Dataset:
    """Return optdigits or pendigits without the rows that the authors' files lack."""
    n_train = digits.n_train or 0
    train, test = np.arange(n_train)[_FIRST:_LAST], np.arange(n_train, len(digits.X))[_FIRST:]
    kept = np.concatenate([train, test])
    return replace(digits, X=digits.X[kept], y=digits.y[kept], n_train=len(train))


def _read_segmentation(name: str, train: str, test: str = "") -> Dataset:
    tables = [
        _table(name, "\n".join(text.splitlines()[_HEADER_LINES:])) for text in (train, test) if text
    ]
    n_train = len(tables[0]) if test else None
    return _made(name, *_cut_label(np.concatenate(tables), 0), n_train)


def _read_letter(name: str, text: str) -> Dataset:
    return _made(name, *_cut_label(_table(name, text), 0), None)


def _read_wine(name: str, red: str, white: str) -> Dataset:
    tables = [_table(name, "\n".join(text.splitlines()[1:]), ";") for text in (red, white)]
    X, quality = _cut_label(np.concatenate(tables), -1)
    colour = np.repeat([0.0, 1.0], [len(table) for table in tables])
    return _made(name, np.column_stack([X, colour]), quality, None)


_READERS: dict[str, Callable[..., Dataset]] = {
    "avila": _read_two_files,
    "image_segmentation": _read_segmentation,
    "letter": _read_letter,
    "optdigits": _read_two_files,
    "pendigits": _read_two_files,
    "wine_quality": _read_wine,
}


def _table(name: str, text: str, delimiter: str = ",") -> np.ndarray:
    """Return the cells as text, [rows, columns]."""
    rows = [line.split(delimiter) for line in text.splitlines() if line.strip()]
    if len({len(row) for row in rows}) != 1:
        raise FileFormatError(
            f"The rows of the data set {name} differ in length.", hint="fetch its files again."
        )
    return np.char.strip(np.array(rows))


def _cut_label(table: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    return np.delete(table, label, axis=1).astype(np.float64), table[:, label]


def _made(name: str, X: np.ndarray, labels: np.ndarray, n_train: int | None) -> Dataset:
    classes, y = np.unique(labels, return_inverse=True)
    return Dataset(name, X, y.astype(np.int64), tuple(classes.tolist()), n_train)


Scenario = Literal["train", "holdout"]
SCENARIOS: tuple[Scenario, ...] = ("train", "holdout")
_TEST, _FINE, _CANDIDATES = 4, 5, 5
"""One row in so many goes to the part."""
_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """``X`` float64[n, d] and ``y`` int64[n], class numbers."""

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class Split:
    """``candidates`` is None where triggers come from the training rows."""

    train: Rows
    candidates: Rows | None
    test: Rows
    fine: Rows

    @property
    def pool(self) -> Rows:
        """Return D_cand: the rows that triggers are taken from."""
        return self.train if self.candidates is None else self.candidates


def cut(data: Dataset, scenario: Scenario, seed: int) -> Split:
    """Return the split of one scenario, shuffled by ``seed``.

    A data set with training and test files of its own keeps them; others are cut 75 : 25. In the
    scenario ``holdout`` the training part is cut 80 : 20 into D_train and D_cand, and in both the
    test part is cut 80 : 20 into D_test and D_fine. The smaller part of a cut is rounded up, which
    gives the paper's row counts.

    A cut whose D_train lacks a class is drawn again: such a model could not be asked for it.
    Raises InputError where no cut has them all.
    """
    if scenario not in SCENARIOS:
        raise InputError(
            f"scenario={scenario!r} is not known.", hint=f"use one of {', '.join(SCENARIOS)}."
        )
    for attempt in range(_TRIES):
        rng = np.random.default_rng([seed, attempt])
        if data.n_train is None:
            train, test = _two_parts(rng, np.arange(len(data.y)), _TEST)
        else:
            train, test = np.arange(data.n_train), np.arange(data.n_train, len(data.y))
        test, fine = _two_parts(rng, test, _FINE)
        candidates = None
        if scenario == "holdout":
            train, candidates = _two_parts(rng, train, _CANDIDATES)
        if len(np.unique(data.y[train])) == data.n_classes:
            return Split(
                _rows(data, train),
                None if candidates is None else _rows(data, candidates),
                _rows(data, test),
                _rows(data, fine),
            )
    raise InputError(
        f"No cut of {data.name} has all {data.n_classes} classes among its training rows.",
        hint="a class with so few rows cannot be learned; leave it out.",
    )


def _two_parts(
    rng: np.random.Generator, rows: np.ndarray, one_in: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return most rows and one in so many, rounded up; both in the order of the data set."""
    n_second = -(-len(rows) // one_in)
    second = np.zeros(len(rows), np.bool_)
    second[rng.permutation(len(rows))[:n_second]] = True
    return rows[~second], rows[second]


def _rows(data: Dataset, rows: np.ndarray) -> Rows:
    return Rows(data.X[rows], data.y[rows])
