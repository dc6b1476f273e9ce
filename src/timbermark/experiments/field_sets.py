"""Data sets as users have them, for benchmarks: texts, missing values, two classes, prices."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from timbermark.errors import InputError
from timbermark.experiments.sources import FIELD_SOURCES, find_files

FIELD_NAMES: tuple[str, ...] = tuple(FIELD_SOURCES)

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


def load_field_set(name: str, folder: str | os.PathLike[str] | None = None) -> FieldSet:
    """Return the field set ``name`` from ``folder`` or the one that TIMBERMARK_DATA names.

    Raises as :func:`timbermark.experiments.sources.find_files` does.
    """
    if name not in FIELD_SOURCES:
        raise InputError(
            f"There is no field set '{name}'.", hint=f"use one of {', '.join(FIELD_NAMES)}."
        )
    ((file, content),) = find_files(name, folder).items()
    text = (gzip.decompress(content) if file.endswith(".gz") else content).decode("latin1")
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
