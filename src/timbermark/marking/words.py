"""The one place where codes and numbers of marking become sentences and tables.

Results carry codes; whatever is worded here can be worded otherwise without breaking a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timbermark.marking.cost import Cost, Figure

LIMIT_WORDS = {
    "changed": "changed labels",
    "drift": "mean change of a probability",
    "accuracy": "accuracy lost",
    "auc": "AUC lost",
    "score": "change of the mean score of a class",
    "recall": "recall of a class lost",
    "churn": "changed labels relative to the class",
    "precision": "average precision lost",
    "top": "change of the top of the list",
    "move": "mean change of an answer",
    "largest": "largest change of an answer",
    "mean": "change of the mean answer",
    "tail": "change of the largest answers",
    "rmse": "growth of RMSE",
    "mae": "growth of MAE",
    "r2": "R² lost",
    "order": "change of the order of answers",
    "ndcg": "NDCG lost",
}
"""What each limit of a `timbermark.Budget` is about."""

_ROWS = {
    "validation": "validation rows",
    "unseen": "rows made to resemble unseen ones",
    "training": "training rows held out of the edit",
    "candidates": "candidates held out of the edit",
    "all validation": "all validation rows",
    "all training": "all training rows",
    "all candidates": "all candidates",
}
BOUND_SENTENCE = (
    "at most: a bound for other rows like these, wrong in 1 of 1,000 cases. Limits are judged by a "
    'less cautious bound, wrong in 1 of 4 cases, so that "at most" may lie above a limit.'
)
"""What the bound of a figure says, and why it may lie beyond a limit."""
_ADVICE = "; give validation rows to know it more exactly"
_WARNINGS = ("beyond_limit", "few_of_class", "limit_too_fine", "validation_seen")


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell the user about a result: a code and its numbers.

    ``name``: the limit or class that it is about; ``text``: the code of the rows that it is about,
    or the sentence of a note that a library's adapter wrote. ``str(note)`` is a sentence.

    >>> print(Note("weak", {"bits": 40.0}))
    This mark is worth 40 bits: it can convince you, but nobody else.
    """

    code: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    text: str = ""

    @property
    def is_warning(self) -> bool:
        """Return whether the note heads the result."""
        return self.code in _WARNINGS

    def __str__(self) -> str:
        return say(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "code": self.code,
            "name": self.name,
            "numbers": dict(self.numbers),
            "text": say(self),
        }


def say(note: Note) -> str:
    """Return the sentence of a note."""
    n = note.numbers
    if note.code == "beyond_limit":
        rows = _ROWS.get(note.text, "the rows that report the cost")
        return (
            f"{_capital(LIMIT_WORDS[note.name])} is {n['figure']:.2%} on {rows}, beyond the limit "
            f"of {n['limit']:.2%} ({note.name})."
        )
    if note.code == "few_of_class":
        return (
            f"Only {n['rows']:.0f} rows that judge are of class {note.name}, too few to tell what "
            "it loses: the model's own scores stood for labels."
        )
    if note.code == "limit_too_fine":
        return (
            f"The limit of {n['limit']:g} on {LIMIT_WORDS[note.name]} is finer than what "
            f"{n['rows']:.0f} rows can show, {n['finest']:.2g}: it was judged by an estimate."
        )
    if note.code == "no_leaves":
        return f"The mark is in splits alone, because the leaves cannot carry one. {note.text}"
    sentences = {
        "no_splits": "The mark is in leaves alone: only {boundaries:.0f} boundaries between "
        "training values can carry a symbol.",
        "gaps_from_candidates": "Training rows were not given: thresholds were moved between the "
        "candidates' values, so that a few training rows may be answered otherwise.",
        "weak": "This mark is worth {bits:.0f} bits: it can convince you, but nobody else.",
        "single_leaker": "{boundaries:.0f} boundaries trace a single leaker among {customers:.0f} "
        "customers, but not those who mix their copies.",
        "off_grid": "Some thresholds lie between values that the columns cannot have, such as 7.5 "
        "among whole numbers: a service that rounds or refuses such input hides them, and whoever "
        "reads the file can see them.",
        "all_flipped": "Every trigger is flipped, as in the paper's tables: such a mark proves "
        "nothing by itself.",
        "not_restored": "Without its old mark the model is not bit for bit what was marked then: "
        "it has learnt or forgotten other rows since, or had learnt some lazily before.",
        "not_taken": "{triggers:.0f} of {of:.0f} triggers did not take their bit.",
        "gains": "The mark could be set only by letting some splits gain less than splits of such "
        "a model usually do; whoever has the file may see from this that it was edited.",
        "validation_seen": "{share:.0%} of the validation rows are also training rows, on which a "
        "model changes less than on others: the cost is understated, give rows that it was not "
        "trained on.",
    }
    return note.text if note.code not in sentences else sentences[note.code].format(**n)


def library_notes(sentences: Iterable[str]) -> tuple[Note, ...]:
    """Return sentences that adapters wrote, as notes."""
    return tuple(Note("library", text=sentence) for sentence in sentences)


def show_result(headline: str, cost: Cost, notes: Iterable[Note]) -> str:
    """Return a result as a text: warnings, on which rows, its worth, the table, other notes."""
    told = tuple(notes)
    warnings = [f"Warning: {note}" for note in told if note.is_warning]
    others = [f"Note: {note}" for note in told if not note.is_warning]
    first, *table = show_cost(cost).splitlines()
    return "\n".join([*warnings, first, headline, *table, *others])


def rows_sentence(cost: Cost) -> str:
    """Return on which rows a cost was measured, with advice where others would tell more."""
    code = cost.rows.code
    advice = "" if "validation" in code else _ADVICE
    return f"Cost measured on {cost.rows.n:,} {_ROWS[code]}{advice}."


def cost_lines(cost: Cost) -> list[tuple[str, ...]]:
    """Return the table of a cost: name, before, after, change, at most, rows."""
    return [(*_cells(figure, cost), _where(figure, cost)) for figure in cost_figures(cost)]


def show_cost(cost: Cost) -> str:
    """Return a cost as a text: on which rows, then the table; figures of other rows below it."""
    header = ("", "before", "after", "change", "at most")
    lines = [rows_sentence(cost), _table_line(header)]
    own = [figure for figure in cost_figures(cost) if not _is_estimated(figure)]
    estimated = [figure for figure in cost_figures(cost) if _is_estimated(figure)]
    main = [figure for figure in own if figure.rows in (None, cost.rows)]
    others = [figure for figure in own if figure not in main]
    lines += [_table_line(_cells(figure, cost)) for figure in main]
    if estimated:
        lines.append("with labels estimated from the model's own scores:")
        lines += [_table_line(_cells(figure, cost)) for figure in estimated]
    if others and others[0].rows is not None:
        rows = others[0].rows
        lines.append(f"on {rows.n:,} {_ROWS[rows.code]}, which the model was trained on:")
        lines += [_table_line(_cells(figure, cost)) for figure in others]
    lines.append(BOUND_SENTENCE)
    return "\n".join(lines)


def _table_line(cells: tuple[str, ...]) -> str:
    return (f"{cells[0]:<46}" + "".join(f"{cell:>11}" for cell in cells[1:])).rstrip()


def _cells(figure: Figure, cost: Cost) -> tuple[str, ...]:
    return (
        _figure_name(figure, cost),
        _show(figure.before, cost),
        _show(figure.after, cost),
        *_changes(figure, cost),
    )


def _is_estimated(figure: Figure) -> bool:
    """Return whether a figure needs labels, and these are estimated."""
    from timbermark.marking.cost import QUALITY

    return figure.rows is not None and figure.rows.estimated and figure.code in QUALITY


_MOST_SHOWN = 12
"""Classes whose figures are printed; JSON has them all."""


def cost_figures(cost: Cost) -> list[Figure]:
    """Return the figures that are shown to people."""
    shown = set(cost.classes[:_MOST_SHOWN])
    return [figure for figure in cost.figures if figure.label is None or figure.label in shown]


_HERE = " here (unseen rows: maybe more)"
"""What stands with the largest change of the measured rows, which bounds no other row's."""


def _figure_name(figure: Figure, cost: Cost) -> str:
    return figure_name(figure.code, figure.label, cost.answers, cost.known_error)


def figure_name(code: str, label: Any, answers: str, known_error: bool = True) -> str:
    """Return what a figure is called, of models that answer with "labels" or with "numbers".

    >>> figure_name("recall", "yes", "labels")
    'recall of yes'
    """
    if answers == "numbers":
        unit = "error" if known_error else "a fifth of the spread"
        names = {
            "rmse": "RMSE", "mae": "MAE", "r2": "R²", "ndcg": "NDCG", "mean": "mean answer",
            "tail": "largest 2 % of answers, change", "order": "rank correlation",
            "top": "gone from the top of the lists", "move": f"mean change / {unit}",
            "largest": f"largest change / {unit}{_HERE}",
        }  # fmt: skip
        return names[code]
    names = {
        "accuracy": "accuracy", "log_loss": "log-loss", "auc": "AUC",
        "precision": "average precision", "top": "gone from the top 2 % of scores",
        "recall": f"recall of {label}", "score": f"mean score of {label}",
        "churn": f"labels changed from or to {label} / its rows", "changed": "labels changed",
        "drift": "mean change of a probability", "largest_drift": f"largest change{_HERE}",
    }  # fmt: skip
    return names[code]


def _changes(figure: Figure, cost: Cost) -> tuple[str, str]:
    """Return a change and its bound; relative ones and shares in percent."""
    shares = ("score", "precision", "top", "churn", "mean", "tail", "rmse", "mae", "changed")
    show = "{:.2%}".format if figure.code in shares else _five
    bound = "" if figure.bound is None else show(figure.bound)
    return str(cost.changed) if figure.code == "changed" else show(figure.change), bound


def _show(value: float | None, cost: Cost) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if cost.answers == "labels" else f"{value:.5g}"


def _five(value: float) -> str:
    return f"{value + 0.0:.5f}"


def _where(figure: Figure, cost: Cost) -> str:
    rows = figure.rows or cost.rows
    words = _ROWS[rows.code]
    return f"{words}, labels estimated" if _is_estimated(figure) else words


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
