"""What a run leaves in its folder: results, tables, page and figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from timbermark.errors import TimbermarkError
from timbermark.experiments.datasets import load_dataset
from timbermark.experiments.figures import draw_accuracy, draw_shared_errors, draw_strategies
from timbermark.experiments.grid import Cell, Plan
from timbermark.experiments.illustrating import illustrate
from timbermark.experiments.measuring import Measured
from timbermark.experiments.page import Picture, make_page, page_to_html, page_to_markdown
from timbermark.experiments.results import Results, collect, to_csv
from timbermark.experiments.shared_errors import SharedErrors, find_shared_errors
from timbermark.experiments.splits import cut
from timbermark.files import atomic_write

RESULTS, MARKDOWN, HTML = "results.csv", "tables.md", "tables.html"


def write_report(
    plan: Plan,
    finished: Mapping[Cell, Measured],
    out: Path,
    data: Path | None = None,
    with_figures: bool = True,
) -> list[Path]:
    """Write everything that follows from the finished cells to the folder ``out``.

    Gives the files that were written. ``data``: the folder of the data sets, for the figure that
    needs one of them.
    """
    results = collect(plan, finished)
    figures: list[Picture] = []
    notes: list[str] = []
    if with_figures:
        figures, notes = _draw_all(plan, results, out, data)
    page = make_page(plan, results, finished, tuple(figures), tuple(notes))
    texts = {
        RESULTS: to_csv(results),
        MARKDOWN: page_to_markdown(page),
        HTML: page_to_html(page),
    }
    for name, text in texts.items():
        atomic_write(out / name, text.encode())
    return [out / name for name in texts] + [figure.path for figure in figures]


def _draw_all(
    plan: Plan, results: Results, out: Path, data: Path | None
) -> tuple[list[Picture], list[str]]:
    """Return the figures, and a sentence for each one that could not be drawn."""
    accuracy = out / "accuracy.png"
    draw_accuracy(plan, results, accuracy)
    strategies = out / "strategies.png"
    draw_strategies(illustrate(), strategies)
    figures = [
        Picture(
            "Accuracy against effectiveness",
            "A point is a method at a ratio, averaged over data sets. Wrong Prediction Flip exists "
            "for some data sets only; there its change of accuracy is taken from the average of "
            "all.",
            accuracy,
        ),
        Picture(
            "The four strategies in two dimensions",
            "Above, what each strategy chooses from D_cand: six candidates, three of them "
            "triggers. Below, the marked model: triggers with their new labels.",
            strategies,
        ),
    ]
    try:
        split = cut(load_dataset("optdigits", data), "train", 0)
    except TimbermarkError as error:
        return figures, [f"The figure of shared errors could not be drawn: {error.message}"]
    found = find_shared_errors(split)
    atomic_write(out / "shared-errors.csv", _shared_errors_csv(found).encode())
    notes = []
    if found.missing:
        names = ", ".join(found.missing)
        notes.append(f"Not installed, so not in the figure of shared errors: {names}.")
    if found.shared:
        path = out / "shared-errors.png"
        draw_shared_errors(found, path)
        figures.append(
            Picture(
                "Errors shared with other libraries",
                f"Of the {found.n_errors} rows of optdigits that our unmarked model gets wrong, "
                "the share that models of other libraries get wrong as well: wrong predictions "
                "alone say little about whose model it is.",
                path,
            )
        )
    return figures, notes


def _shared_errors_csv(found: SharedErrors) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["library", "errors", "shared", "same_answer"])
    for name, share in found.shared.items():
        writer.writerow([name, found.n_errors, share, found.same[name]])
    return text.getvalue()
