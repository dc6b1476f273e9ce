"""Data sets of the kind that users have: texts, missing values, two classes, prices.

They cannot be fetched: their files must be in the folder of the data sets, and a file is used only
if its sha256 is the one noted here.
"""

import csv
import gzip
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timbermark.errors import FileFormatError, InputError

FILES = {
    "census_income": (
        "field/census_income/census-income.data.gz",
        "5af0244397fa52b5ac93ef5fd8293426b6bc04a30adb6c15f5e527e4dcbef33a",
    ),
    "churn": (
        "field/churn/churn.csv",
        "ed041d67e5576ae3956550f5e0c47b78138044b32e6930258b1f539e20629c17",
    ),
    "diamonds": (
        "field/diamonds/diamonds.csv",
        "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
    ),
    "spambase": (
        "field/spambase/spambase.csv",
        "b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12",
    ),
}
"""The path of each file within the folder of the data sets, and its sha256."""
_TARGET = {"census_income": 41, "churn": 20, "diamonds": 6, "spambase": 57}
"""The column of the answers."""
_NO_FEATURES = {"census_income": (24,), "churn": (3,)}
"""A weight of the sampling and a phone number."""
_HEADERS = ("churn", "diamonds")
_MISSING = ("", "?")


@dataclass(frozen=True, slots=True)
class FieldSet:
    """Cells as texts, as they stand in the file.

    ``names`` of the features, ``column N`` where the file has none; ``rows`` and ``target``, the
    answers, in the order of the file.
    """

    name: str
    names: tuple[str, ...]
    rows: list[tuple[str, ...]]
    target: list[str]


def load_field_set(name: str, folder: str | os.PathLike[str]) -> FieldSet:
    """Return the field set ``name`` from the folder of the data sets.

    Raises InputError for an unknown name and a file that is not there, FileFormatError for a file
    whose content is not what it should be.
    """
    if name not in FILES:
        raise InputError(f"There is no field set '{name}'.", hint=f"use one of {', '.join(FILES)}.")
    path = Path(folder, FILES[name][0])
    if not path.is_file():
        raise InputError(
            f"The files of the data set {name} are not here.",
            hint=f"TIMBERMARK_DATA names a folder that holds {FILES[name][0]}.",
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != FILES[name][1]:
        raise FileFormatError(f"{path} has another sha256.", hint="put the original in its place.")
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("latin1")
    table = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if row]
    header = table.pop(0) if name in _HEADERS else [f"column {i}" for i in range(len(table[0]))]
    target = _TARGET[name]
    kept = [i for i in range(len(header)) if i != target and i not in _NO_FEATURES.get(name, ())]
    whole = [row for row in table if len(row) == len(header)]
    return FieldSet(
        name,
        tuple(header[i] for i in kept),
        [tuple(row[i] for i in kept) for row in whole],
        [row[target] for row in whole],
    )


def encode_texts(rows: Iterable[Sequence[str]]) -> np.ndarray:
    """Return the rows as float64[n, d]; a column of texts becomes their numbers in sorted order.

    Empty cells and question marks among numbers are missing.

    >>> encode_texts([("1.5", "no"), ("?", "yes")]).tolist()
    [[1.5, 0.0], [nan, 1.0]]
    """
    columns = []
    for column in zip(*rows, strict=True):
        try:
            columns.append([np.nan if cell in _MISSING else float(cell) for cell in column])
        except ValueError:
            numbers = {cell: float(i) for i, cell in enumerate(sorted(set(column)))}
            columns.append([numbers[cell] for cell in column])
    return np.array(columns).T
