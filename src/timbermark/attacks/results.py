"""What the lab found: one row per attack, as a table, as CSV, as plain values."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError
from timbermark.files import atomic_write
from timbermark.ownership.statistics import level
from timbermark.reportable import Reportable


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One attack at one strength, and what was left.

    ``score_bits``, ``label_bits``: the evidence where the suspect gives scores, and where it gives
    labels alone; ``theft_kept``: 1 as good as the stolen model, 0 no better than what the thief can
    train alone, None where that is as good as the stolen model. ``skipped``: why the attack was not
    run; the figures are then None.
    """

    attack: str
    family: str
    strength: float
    score_bits: float | None = None
    label_bits: float | None = None
    accuracy: float | None = None
    theft_kept: float | None = None
    seconds: float | None = None
    skipped: str = ""

    @property
    def level(self) -> str:
        """Return the level of evidence that scores leave; empty where the attack was skipped."""
        return "" if self.score_bits is None else level(self.score_bits)


_NUMBERS = ("strength", "score_bits", "label_bits", "accuracy", "theft_kept", "seconds")
_COLUMNS = [field.name for field in fields(AttackRow)]


@dataclass(frozen=True, slots=True)
class AttackResult(Reportable):
    """What a mark survives.

    ``rows``: one for each attack and strength; ``untouched``: the stolen model as it is;
    ``own_accuracy``: of the best model that the thief could train on their rows alone;
    ``n_attack``, ``n_evaluation``: rows that the thief used, and rows that accuracies are from.
    """

    rows: tuple[AttackRow, ...]
    untouched: AttackRow
    own_accuracy: float
    n_attack: int
    n_evaluation: int
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> AttackRow | None:
        """Return the attack that leaves least evidence but keeps half of the theft's worth."""
        counted = [r for r in self.rows if r.score_bits is not None and worth(r) >= 0.5]
        return min(counted, key=lambda r: r.score_bits or 0.0, default=None)

    def __str__(self) -> str:
        head = ["attack", "strength", "scores", "labels", "accuracy", "theft kept", "level left"]
        lines = [head, _line(self.untouched)] + [_line(row) for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        shown = []
        for line in lines:
            cells = [line[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(line[1:6], widths[1:6], strict=True)]
            shown.append("  ".join([*cells, line[6]]).rstrip())
        shown.append(
            f"bits of evidence; the thief's own model has an accuracy of {self.own_accuracy:.4f} "
            f"({self.n_attack} rows to attack with, {self.n_evaluation} to measure on)"
        )
        return "\n".join(shown)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "untouched": _plain(self.untouched),
            "own_accuracy": self.own_accuracy,
            "attack_rows": self.n_attack,
            "evaluation_rows": self.n_evaluation,
            "rows": [_plain(row) for row in self.rows],
            "notes": list(self.notes),
        }


def worth(row: AttackRow) -> float:
    """Return the theft kept; 1 where the thief's own model is as good, so that nothing hides.

    >>> worth(AttackRow("refit", "tune", 0.5, theft_kept=0.25))
    0.25
    """
    return 1.0 if row.theft_kept is None else row.theft_kept


def write_rows(path: Path, rows: list[AttackRow]) -> None:
    """Write results.csv, whole or not at all."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*_COLUMNS, "level"])
    for row in rows:
        cells = [getattr(row, name) for name in _COLUMNS]
        table.writerow(["" if c is None else c for c in cells] + [row.level])
    atomic_write(path, text.getvalue().encode())


def read_rows(path: Path) -> list[AttackRow]:
    """Return what `write_rows` wrote. Raises FileFormatError for anything else."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if table.fieldnames != [*_COLUMNS, "level"]:
                raise ValueError("other columns")
            return [_read(cells) for cells in table]
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise FileFormatError(
            f"{path} is not a table of the attack lab ({error}).",
            hint="choose another folder, or remove the file.",
        ) from None


def _read(cells: dict[str, str]) -> AttackRow:
    given: dict[str, Any] = {name: cells[name] for name in ("attack", "family", "skipped")}
    for name in _NUMBERS:
        number = float(cells[name]) if cells[name] else None
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{name} is {number}")
        given[name] = number
    return AttackRow(**given)


def _line(row: AttackRow) -> list[str]:
    if row.score_bits is None:
        return [row.attack, f"{row.strength:g}", "", "", "", "", f"skipped: {row.skipped}"]
    kept = "–" if row.theft_kept is None else f"{row.theft_kept:.2f}"
    strength = "" if row.family in ("none", "chain") else f"{row.strength:g}"
    return [
        row.attack, strength, f"{row.score_bits:.0f}", f"{row.label_bits:.0f}",
        f"{row.accuracy:.4f}", kept, row.level,
    ]  # fmt: skip


def _plain(row: AttackRow) -> dict[str, Any]:
    return {**{name: getattr(row, name) for name in _COLUMNS}, "level": row.level}
