"""The chart of an attack lab: what the thief keeps against the evidence that is left."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from timbermark.attacks.results import AttackResult, AttackRow, worth
from timbermark.files import atomic_write

_COLOURS = {
    "tune": "#0072b2",
    "cut": "#009e73",
    "blur": "#7f7f7f",
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
    """Draw the curves on Matplotlib's axes, and their legend beside them."""
    axis.axhspan(0, 20, color="#d55e00", alpha=0.12, lw=0, zorder=0)
    for bits, said in ((64, "conclusive"), (20, "indicative")):
        axis.axhline(bits, color="#777777", lw=0.8, ls="--", zorder=1)
        axis.text(0.0, bits, f" {said}", va="bottom", ha="left", fontsize=8,
                  transform=axis.get_yaxis_transform())  # fmt: skip
    axis.axvline(0.5, color="#777777", lw=0.8, ls=":", zorder=1)
    curves: dict[str, list[AttackRow]] = {}
    for row in result.rows:
        if row.score_bits is not None:
            curves.setdefault(row.attack, []).append(row)
    for number, (name, rows) in enumerate(curves.items()):
        axis.plot(
            [max(worth(r), _LEFTMOST) for r in rows], [r.score_bits or 0.0 for r in rows],
            color=_COLOURS.get(rows[0].family, "#777777"),
            marker=_MARKERS[number % len(_MARKERS)],
            ls=_DASHES[number // len(_MARKERS) % len(_DASHES)],
            ms=4.5, lw=1.1, label=name,
        )  # fmt: skip
    start = result.untouched
    axis.plot([worth(start)], [start.score_bits or 0.0], "k*", ms=12, label="untouched", zorder=5)
    axis.set_xlabel("theft kept (0: the thief's own model, 1: the stolen one)")
    axis.set_ylabel("evidence left, bits by scores")
    axis.set_ylim(bottom=0)
    axis.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, fontsize=7, frameon=False
    )
