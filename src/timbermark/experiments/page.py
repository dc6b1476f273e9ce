"""What a run leaves in its folder: results, tables, figures, and a page in Markdown and HTML."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import timbermark
from timbermark.errors import TimbermarkError
from timbermark.experiments.datasets import TITLES, cut, load_dataset
from timbermark.experiments.figures import (
    draw_accuracy,
    draw_shared_errors,
    draw_strategies,
    illustrate,
)
from timbermark.experiments.measuring import Cell, Measured, Plan
from timbermark.experiments.results import AVERAGE, Place, Results, collect, to_csv
from timbermark.experiments.tables import (
    DASH,
    METRIC_TITLES,
    SCENARIO_TITLES,
    Comparison,
    Overall,
    Table,
    compare,
    count_wrong,
    find_shared_errors,
    make_tables,
    method_title,
    overall,
    show_difference,
    show_number,
    to_markdown,
)
from timbermark.files import atomic_write
from timbermark.files.tables import csv_bytes
from timbermark.report.pages import environment, style

Row = tuple[str, ...]
_THIEF = (
    "robustness", "accuracy_tuned", "robustness_model_only", "accuracy_model_only",
    "robustness_regrown", "accuracy_regrown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A plain table with a title and a word of explanation; ``marked``: rows that need a look."""

    title: str
    text: str
    header: Row
    rows: tuple[Row, ...]
    marked: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that has been drawn; ``path`` lies within the folder of the page."""

    title: str
    caption: str
    path: Path

    @property
    def data(self) -> str:
        """Return the image as text."""
        return base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True, slots=True)
class Page:
    """All that is shown. ``notes``: sentences on how to read it."""

    version: str
    settings: str
    overall: Part
    notes: tuple[str, ...]
    figures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    parts: tuple[Part, ...]


def make_page(
    plan: Plan,
    results: Results,
    finished: Mapping[Cell, Measured],
    figures: tuple[Picture, ...] = (),
    notes: tuple[str, ...] = (),
) -> Page:
    """Put a run's numbers into the shapes that are shown."""
    seeds = len(plan.seeds)
    settings = (
        f"{len(plan.datasets)} of 6 data sets, {seeds} seed{'s' if seeds > 1 else ''}, ratios "
        f"{', '.join(f'{ratio:g}' for ratio in plan.ratios)}, {len(plan.cells)} cells."
    )
    return Page(
        timbermark.__version__,
        settings,
        _overall_part(overall(plan, results)),
        (*_READING, *notes),
        figures,
        tuple(make_tables(plan, results)),
        (
            _averages_part(compare(plan, results)),
            _thief_part(plan, results),
            _wrong_part(plan, finished),
        ),
    )


_READING = (
    "A cell has our number (mean ± standard deviation over seeds), below it the paper's and the "
    "difference. The highest number of a column is bold. A cell that is marked is further below "
    "the paper's than 0.02 (effectiveness, adjusted accuracy), 0.03 (robustness) or 0.05 (adjusted "
    "resilience; effectiveness with fewer than 10 triggers).",
    "Wrong Prediction Flip has a dash where there are fewer wrong predictions than candidates. "
    "Adjusted resilience has one where every candidate is a trigger, robustness where no trigger "
    "took.",
    "An average is that of the data sets that have a number, as in the paper. The paper's average "
    "of adjusted resilience, D_cand ≠ D_train, Wrong (Dist), 0.01 is printed as 0.621, but its row "
    "gives 0.747. In the summary only data sets count for which both we and the paper have one.",
)


def overall_lines(plan: Plan, results: Results) -> list[str]:
    """Return the summary in a few words, for a terminal."""
    return [
        f"{METRIC_TITLES[line.metric]}, {SCENARIO_TITLES[line.candidates]}: ours "
        f"{show_number(line.ours)}, paper {show_number(line.paper)}, {line.low} of {line.averages} "
        "averages too low"
        for line in overall(plan, results)
    ]


def _overall_part(lines: list[Overall]) -> Part:
    rows = tuple(
        (
            METRIC_TITLES[line.metric],
            SCENARIO_TITLES[line.candidates],
            show_number(line.ours),
            show_number(line.paper),
            show_difference(line.ours, line.paper),
            ("yes" if line.is_higher else "no") if line.cells else DASH,
            f"{line.low} of {line.averages}",
            str(line.cells),
        )
        for line in lines
    )
    header = (
        "metric", "scenario", "ours", "paper", "difference", "higher on average",
        "averages too low", "cells compared",
    )  # fmt: skip
    return Part("Summary", "", header, rows)


def _averages_part(found: list[Comparison]) -> Part:
    rows, marked = [], []
    for one in found:
        place = one.place
        row = (
            METRIC_TITLES[place.metric],
            SCENARIO_TITLES[place.candidates],
            method_title(place.method, place.selection),
            f"{place.ratio:g}",
            show_number(one.ours),
            show_number(one.paper),
            show_difference(one.ours, one.paper),
            "too low" if one.is_low else "",
            str(one.datasets),
        )
        rows.append(row)
        if one.is_low:
            marked.append(row)
    header = (
        "metric", "scenario", "method", "ratio", "ours", "paper", "difference", "", "data sets",
    )  # fmt: skip
    text = "Over the data sets for which both we and the paper have a number."
    return Part("Averages over data sets", text, header, tuple(rows), tuple(marked))


def _thief_part(plan: Plan, results: Results) -> Part:
    rows = []
    for scenario, method, selection, ratio in plan.ways:
        numbers = [
            results[Place(metric, scenario, method, selection, AVERAGE, ratio)].mean
            for metric in ("accuracy", *_THIEF)
        ]
        name = method_title(method, selection)
        rows.append((SCENARIO_TITLES[scenario], name, f"{ratio:g}", *map(show_number, numbers)))
    header = (
        "scenario", "method", "ratio", "accuracy marked", "robustness, owner's state", "accuracy",
        "robustness, model only", "accuracy", "robustness, regrown", "accuracy",
    )  # fmt: skip
    text = (
        "Averages over data sets; each robustness with the accuracy of the model after it. In the "
        "paper's setting fine-tuning on D_fine keeps the owner's training state, watermark rows "
        "included, so that every retraining learns the mark again. A thief has the model and "
        "D_fine and nothing else. Model only: the splits stay, and D_fine is added to what the "
        "leaves were made from. Regrown: a state is rebuilt from D_fine alone and updated with "
        "D_fine, so that D_fine decides every split again; that is in effect a new model, trained "
        "on D_fine alone."
    )
    return Part("Fine-tuning with and without the owner's state", text, header, tuple(rows))


def _wrong_part(plan: Plan, finished: Mapping[Cell, Measured]) -> Part:
    rows = tuple(
        (
            SCENARIO_TITLES[scenario],
            TITLES[dataset],
            *(", ".join(map(str, counts)) or DASH for counts in found),
        )
        for (scenario, dataset), found in count_wrong(plan, finished).items()
    )
    ratios = ", ".join(f"{ratio:g}" for ratio in plan.ratios)
    header = ("scenario", "data set", "wrong predictions, seed by seed", f"wanted at {ratios}")
    text = "How many rows of D_cand the unmarked model predicts wrongly."
    return Part("What Wrong Prediction Flip has to choose from", text, header, rows)


def page_to_html(page: Page) -> str:
    """Return one HTML page that needs nothing outside it."""
    text = (resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    names = ("version", "settings", "overall", "notes", "figures", "tables", "parts")
    shown = {name: getattr(page, name) for name in names}
    html: str = environment().from_string(text).render(shown, style=style())
    return html


def page_to_markdown(page: Page) -> str:
    """Return the page as Markdown; figures are linked, by name."""
    lines = [
        "# The paper's tables, reproduced",
        "",
        f"*Robust Watermarking on Gradient Boosting Decision Trees* (Chung, Lao, Zhao, AAAI 2026), "
        f"with timbermark {page.version}. {page.settings}",
        "",
        _part_to_markdown(page.overall),
        *(f"- {note}" for note in page.notes),
        "",
    ]
    for figure in page.figures:
        lines += [f"![{figure.title}]({figure.path.name})", ""]
        lines += [f"**{figure.title}.** {figure.caption}", ""]
    lines += [to_markdown(table) for table in page.tables]
    lines += [_part_to_markdown(part) for part in page.parts]
    return "\n".join(lines).rstrip() + "\n"


def _part_to_markdown(part: Part) -> str:
    lines = [f"## {part.title}", ""]
    if part.text:
        lines += [part.text, ""]
    lines += ["| " + " | ".join(part.header) + " |", "|" + "---|" * len(part.header)]
    lines += ["| " + " | ".join(row) + " |" for row in part.rows]
    return "\n".join(lines) + "\n"


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
    shares = [
        (name, found.n_errors, share, found.same[name]) for name, share in found.shared.items()
    ]
    header = ("library", "errors", "shared", "same_answer")
    atomic_write(out / "shared-errors.csv", csv_bytes(header, shares))
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
