"""What the lab found: one row per attack, as a table, as CSV, as plain values, as a chart.

Results hold codes and numbers. `explain` and `AttackResult.__str__` make sentences of them.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from timbermark.attacks.stolen import REASONS
from timbermark.errors import FileFormatError
from timbermark.files import atomic_write
from timbermark.files.tables import csv_bytes
from timbermark.reportable import Reportable

MEASURE_NAMES = {"accuracy": "accuracy", "rmse": "RMSE", "ndcg": "NDCG"}
PAYS = 0.5
"""The least theft kept at which an attack pays."""


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One attack at one strength, and what was left.

    ``score_bits``: the evidence where the suspect answers with scores or numbers, ``label_bits``
    where it gives labels alone, None for numbers; ``level``: the level of the former.
    ``split_bits``, ``leaf_bits``: the evidence of each seal, None where a verdict does not tell.
    ``quality``: accuracy, RMSE or NDCG, as `AttackResult.measure` says. ``theft_kept``: 1 as good
    as the stolen model, 0 no better than what the thief can train alone, None where that is as good
    as the stolen model. ``skipped``: the code of why the attack was not run (see
    `timbermark.attacks.stolen.REASONS`); the figures are then None.
    """

    attack: str
    family: str
    strength: float
    score_bits: float | None = None
    label_bits: float | None = None
    quality: float | None = None
    theft_kept: float | None = None
    seconds: float | None = None
    level: str = ""
    split_bits: float | None = None
    leaf_bits: float | None = None
    skipped: str = ""

    @property
    def reason(self) -> str:
        """Return why the attack was not run, in words; empty where it was."""
        return REASONS.get(self.skipped, self.skipped)

    @property
    def name(self) -> str:
        """Return the attack with its strength, as `timbermark.attack` takes it."""
        return self.attack if self.family in _UNNAMED else f"{self.attack}:{self.strength:g}"

    @property
    def pays(self) -> bool:
        """Return whether half of the theft's worth is kept, or more."""
        return self.theft_kept is not None and self.theft_kept >= PAYS


_UNNAMED = ("none", "chain")
"""Families whose name says the strength, or that have none."""
_TEXTS = ("attack", "family", "level", "skipped")
_COLUMNS = [field.name for field in fields(AttackRow)]


@dataclass(frozen=True, slots=True)
class AttackResult(Reportable):
    """What a mark survives.

    ``rows``: one for each attack and strength; ``untouched``: the stolen model as it is;
    ``own_quality``: of the best model that the thief could train on their rows alone;
    ``n_attack``, ``n_evaluation``: rows that the thief used, and rows that qualities are from;
    ``measure``: what these are, "accuracy", "rmse" or "ndcg".
    """

    rows: tuple[AttackRow, ...]
    untouched: AttackRow
    own_quality: float
    n_attack: int
    n_evaluation: int
    measure: str = "accuracy"

    @property
    def stealable(self) -> bool:
        """Return whether the stolen model is better than the thief's own; else nothing pays."""
        return self.untouched.theft_kept is not None

    @property
    def run(self) -> tuple[AttackRow, ...]:
        """Return the attacks that were run."""
        return tuple(row for row in self.rows if row.score_bits is not None)

    @property
    def worst(self) -> AttackRow | None:
        """Return the attack that leaves least evidence but keeps half of the theft's worth."""
        return _least(row for row in self.run if row.pays)

    @property
    def weakest(self) -> AttackRow | None:
        """Return the attack that leaves least evidence, whatever it costs the thief."""
        return _least(self.run)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return codes of what a reader must know: "nothing-to-steal"."""
        return () if self.stealable else ("nothing-to-steal",)

    def __str__(self) -> str:
        lines = [[*line[:1], *line[2:], line[1]] for line in tabulate(self)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        shown = []
        for line in lines:
            cells = [line[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(line[1:-1], widths[1:-1], strict=True)]
            shown.append("  ".join([*cells, line[-1]]).rstrip())
        shown.append(
            f"bits of evidence; the thief's own model has {_quality(self, self.own_quality)} "
            f"({self.n_attack} rows to attack with, {self.n_evaluation} to measure on)"
        )
        return "\n".join(shown)

    def __repr__(self) -> str:
        least = self.worst if self.stealable else self.weakest
        said = "" if least is None else f", {least.name} leaves {least.score_bits or 0.0:.0f} bits"
        return f"AttackResult({len(self.run)} attacks{said})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "measure": self.measure,
            "untouched": _plain(self.untouched),
            "own_quality": self.own_quality,
            "stealable": self.stealable,
            "attack_rows": self.n_attack,
            "evaluation_rows": self.n_evaluation,
            "rows": [_plain(row) for row in self.rows],
            "notes": list(self.notes),
        }


def tabulate(result: AttackResult) -> list[tuple[str, ...]]:
    """Return a header and a line for the untouched model and each attack, as texts.

    The first two columns are the attack and the level that is left, or why it was not run. Columns
    that say nothing about this model are left out: labels of numbers, theft kept where nothing
    could be stolen, seals where verdicts do not tell them apart.
    """

    def bits(value: float | None) -> str:
        return "" if value is None else f"{value:.0f}"

    lines = [
        ("attack", "level left", "strength", "scores", "labels", "splits", "leaves",
         MEASURE_NAMES[result.measure], "theft kept")
    ]  # fmt: skip
    for row in (result.untouched, *result.rows):
        lines.append((
            row.attack, f"skipped: {row.reason}" if row.skipped else row.level,
            "" if row.family in _UNNAMED else f"{row.strength:g}", bits(row.score_bits),
            bits(row.label_bits), bits(row.split_bits), bits(row.leaf_bits),
            "" if row.quality is None else show_quality(row.quality),
            "" if row.theft_kept is None else f"{row.theft_kept:.2f}",
        ))  # fmt: skip
    shown = [i for i in range(len(lines[0])) if i < 2 or any(line[i] for line in lines[1:])]
    return [tuple(line[i] for i in shown) for line in lines]


def explain(result: AttackResult) -> tuple[str, ...]:
    """Return the notes of a result as sentences.

    >>> start = AttackRow("untouched", "none", 0.0, 200.0, 200.0, 0.9)
    >>> explain(AttackResult((), start, 0.91, 400, 300))[0][:59]
    'Nothing could be stolen: the stolen model has an accuracy o'
    """
    sentences = {
        "nothing-to-steal": (
            f"Nothing could be stolen: the stolen model has "
            f"{_quality(result, result.untouched.quality or 0.0)}, the thief's own "
            f"{_quality(result, result.own_quality)}. Theft kept is not defined, and no attack can "
            "be said to pay."
        )
    }
    return tuple(sentences[code] for code in result.notes)


def summarize(result: AttackResult) -> str:
    """Return the attack that matters most, in one line; empty where none was run."""
    row = result.worst if result.stealable else result.weakest
    if row is None:
        kept = "no attack keeps half of the theft's worth"
        return kept if result.stealable and result.run else ""
    words = "weakest where at least half of the theft is kept" if result.stealable else "weakest"
    return f"{words}: {row.name}, {row.score_bits or 0.0:.0f} bits"


def show_quality(value: float) -> str:
    """Return an accuracy, an RMSE or an NDCG as it is printed.

    >>> show_quality(0.5), show_quality(541.2873)
    ('0.5000', '541.29')
    """
    return f"{value:.4f}" if abs(value) <= 1.0 else f"{value:.5g}"


def write_rows(path: Path, rows: list[AttackRow]) -> None:
    """Write results.csv, whole or not at all."""
    atomic_write(path, csv_bytes(_COLUMNS, [list(_plain(row).values()) for row in rows]))


def read_rows(path: Path) -> list[AttackRow]:
    """Return what `write_rows` wrote. Raises FileFormatError for anything else."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if table.fieldnames != _COLUMNS:
                raise ValueError("other columns")
            return [_read(cells) for cells in table]
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise FileFormatError(
            f"{path} is not a table of the attack lab ({error}).",
            hint="choose another folder, or remove the file.",
        ) from None


_COLOURS = {
    "tune": "#0072b2",
    "cut": "#009e73",
    "blur": "#7f7f7f",
    "splits": "#785ef0",
    "mix": "#d55e00",
    "copy": "#cc79a7",
    "mark": "#e69f00",
    "flatten": "#56b4e9",
    "dodge": "#000000",
    "chain": "#a6705f",
}
# Each curve has a pair of its own, so that the chart can be read without colours.
_MARKERS, _DASHES = "osD^vP*X", ("-", "--", ":", "-.")
_LEFTMOST = -0.5


def draw_chart(result: AttackResult, path: Path) -> None:
    """Draw x = theft kept, y = bits by scores, one curve per attack; the ending is the format."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    draw_curves(result, figure.subplots())
    kind = path.suffix.lstrip(".")
    drawn = io.BytesIO()
    # Without a date and random names, the same results give the same file.
    with rc_context({"svg.hashsalt": "timbermark"}):
        figure.savefig(
            drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )
    atomic_write(path, drawn.getvalue())


def draw_curves(result: AttackResult, axis: Any) -> None:
    """Draw the curves on Matplotlib's axes, and their legend beside them.

    Where nothing could be stolen, x is the quality of the attacked models.
    """
    axis.axhspan(0, 20, color="#d55e00", alpha=0.12, lw=0, zorder=0)
    for bits, said in ((64, "conclusive"), (20, "indicative")):
        axis.axhline(bits, color="#777777", lw=0.8, ls="--", zorder=1)
        axis.text(0.0, bits, f" {said}", va="bottom", ha="left", fontsize=8,
                  transform=axis.get_yaxis_transform())  # fmt: skip
    name = MEASURE_NAMES[result.measure]
    if result.stealable:
        axis.axvline(PAYS, color="#777777", lw=0.8, ls=":", zorder=1)
        axis.set_xlabel("theft kept (0: the thief's own model, 1: the stolen one)")
    else:
        axis.axvline(result.own_quality, color="#777777", lw=0.8, ls=":", zorder=1)
        axis.set_xlabel(f"{name} (nothing could be stolen; dotted: the thief's own model)")

    def place(row: AttackRow) -> float:
        if result.stealable:
            return max(row.theft_kept or 0.0, _LEFTMOST)
        return row.quality or 0.0

    curves: dict[str, list[AttackRow]] = {}
    for row in result.run:
        curves.setdefault(row.attack, []).append(row)
    for number, (attack, rows) in enumerate(curves.items()):
        axis.plot(
            [place(r) for r in rows], [r.score_bits or 0.0 for r in rows],
            color=_COLOURS.get(rows[0].family, "#777777"),
            marker=_MARKERS[number % len(_MARKERS)],
            ls=_DASHES[number // len(_MARKERS) % len(_DASHES)],
            ms=4.5, lw=1.1, label=attack,
        )  # fmt: skip
    start = result.untouched
    axis.plot([place(start)], [start.score_bits or 0.0], "k*", ms=12, label="untouched", zorder=5)
    axis.set_ylabel("evidence left, bits")
    axis.set_ylim(bottom=0)
    axis.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, fontsize=7, frameon=False
    )


def _least(rows: Any) -> AttackRow | None:
    return min(rows, key=lambda row: row.score_bits, default=None)


def _quality(result: AttackResult, value: float) -> str:
    # An RMSE, an NDCG, an accuracy.
    return f"an {MEASURE_NAMES[result.measure]} of {show_quality(value)}"


def _read(cells: dict[str, str]) -> AttackRow:
    given: dict[str, Any] = {name: cells[name] for name in _TEXTS}
    for name in (column for column in _COLUMNS if column not in _TEXTS):
        number = float(cells[name]) if cells[name] else None
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{name} is {number}")
        given[name] = number
    return AttackRow(**given)


def _plain(row: AttackRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COLUMNS}
