"""What the paper printed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the tables a number stands. ``dataset`` may be ``average``."""

    metric: str
    candidates: str
    method: str
    selection: str
    dataset: str
    ratio: float


@cache
def published() -> dict[Place, float | None]:
    """Return the numbers of the paper's eight tables; None where it prints a dash.

    >>> published()[Place("robustness", "holdout", "wrong", "distance", "letter", 0.01)]
    0.95
    """
    text = (resources.files(__package__) / "published.csv").read_text(encoding="ascii")
    rows = csv.reader(text.splitlines())
    header = next(rows)
    found: dict[Place, float | None] = {}
    for row in rows:
        for title, value in zip(header[4:], row[4:], strict=True):
            dataset, _, ratio = title.partition(":")
            place = Place(row[0], row[1], row[2], row[3], dataset, float(ratio))
            found[place] = float(value) if value else None
    return found
