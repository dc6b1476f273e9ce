"""What a page shows, as plain data, and how that becomes HTML.

Jinja2 with autoescape, one style, plots as inline SVG.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import count
from typing import Any, TypeAlias

from timbermark.verification.verdict import show_chance

Row: TypeAlias = tuple[str, ...]
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are, one on a line; long texts such as digests break anywhere."""

    rows: tuple[tuple[str, str], ...]
    kind: str = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that scrolls in its own box.

    ``texts``: the number of columns, from the left, that hold texts; the others hold numbers.
    ``marked``: numbers of the rows that need a look.
    """

    caption: str
    header: Row
    rows: tuple[Row, ...]
    texts: int = 1
    marked: tuple[int, ...] = ()
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: ``draw`` puts it on Matplotlib's axes; the words are for whoever cannot see it.

    ``wide``: it needs the width of the page and scrolls where there is less.
    """

    title: str
    description: str
    draw: Callable[[Any], None]
    wide: bool = False
    kind: str = "plot"


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, one below the other."""

    lines: tuple[str, ...]
    kind: str = "notes"


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to type into a terminal."""

    lines: tuple[str, ...]
    kind: str = "commands"


Part: TypeAlias = Facts | Table | Plot | Notes | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, paragraphs and what follows them."""

    title: str
    parts: tuple[Part, ...]
    text: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page.

    ``what``: the kind of page in a few words; ``headline``: the sentence that is read first;
    ``level``: "conclusive", "indicative", "none" or empty; ``lead``: what the headline means;
    ``figures``: a few numbers and what they are; ``version``: of timbermark.
    """

    what: str
    headline: str
    lead: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    version: str
    level: str = ""


def facts(*rows: tuple[str, str | None]) -> Facts:
    """Return facts without those that are None or empty.

    >>> facts(("owner", "Ann"), ("digest", None)).rows
    (('owner', 'Ann'),)
    """
    return Facts(tuple((name, value) for name, value in rows if value))


def section(title: str, *content: str | Part | None) -> Section:
    """Return a section of paragraphs, which come first, and of parts, without what is None.

    >>> section("Notes", "Read these.", None, Notes(("One.",))).text
    ('Read these.',)
    """
    parts = tuple(part for part in content if part is not None and not isinstance(part, str))
    return Section(title, parts, tuple(text for text in content if isinstance(text, str)))


def note_section(title: str, lines: Iterable[str]) -> tuple[Section, ...]:
    """Return the section of some notes, or none where there are no notes."""
    notes = tuple(lines)
    return (Section(title, (Notes(notes),)),) if notes else ()


def capitalized(sentence: str) -> str:
    """Return a sentence with a capital first letter and a full stop.

    >>> capitalized("the suspect carries the mark of ann")
    'The suspect carries the mark of ann.'
    """
    end = "" if sentence.endswith((".", "!", "?")) else "."
    return sentence[:1].upper() + sentence[1:] + end


def chance_of(bits: float) -> str:
    """Return the chance 2^-bits as pages write it.

    >>> chance_of(192.0), chance_of(7.5)
    ('1 in 6·10⁵⁷', '1 in 181')
    """
    said, _, power = show_chance(bits).partition("^")
    return said + power.translate(_RAISED)


def chance_in_words(bits: float) -> str:
    """Return a number of bits in words, as a series of coin tosses.

    >>> chance_in_words(64.2)
    'The chance that a model which knows nothing of the mark answers like this is at most 1 in \
2·10¹⁹: as if 64 tosses of a coin were foretold without a mistake.'
    >>> chance_in_words(0.3)
    'A model that knows nothing of the mark often answers like this.'
    """
    if bits < 1.0:
        return "A model that knows nothing of the mark often answers like this."
    tosses = "a toss of a coin" if bits < 2.0 else f"{int(bits)} tosses of a coin"
    return (
        "The chance that a model which knows nothing of the mark answers like this is at most "
        f"{chance_of(bits)}: as if {tosses} were foretold without a mistake."
    )


def render_page(page: Page, written: str) -> str:
    """Return a whole HTML document."""
    body = _body(page, "plot")
    text: str = environment().get_template("page.html").render(
        page=page, body=body, style=style(), version=page.version, written=written
    )  # fmt: skip
    return text


def render_fragment(page: Page) -> str:
    """Return the page as a part of another document, with its style."""
    from markupsafe import Markup

    # Notebooks hold many results on one page, of several runs, whose names must differ.
    body = _body(page, f"plot-{secrets.token_hex(4)}")
    shown = Markup('<style>{}</style>\n<div class="timbermark">{}</div>\n')
    return str(shown.format(style(), body))


@cache
def environment() -> Any:
    """Return the environment in which every template escapes what it is given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("timbermark.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def style() -> Any:
    """Return the style sheet of all pages, safe to stand in a style element."""
    from markupsafe import Markup

    sheet = resources.files("timbermark.report") / "templates" / "style.css"
    return Markup(sheet.read_text(encoding="utf-8"))


def _body(page: Page, prefix: str) -> Any:
    from markupsafe import Markup

    from timbermark.report.plots import draw_plot

    numbers = count(1)
    template = environment().get_template("body.html")
    shown = template.render(page=page, draw=lambda p: draw_plot(p, f"{prefix}-{next(numbers)}"))
    return Markup(shown)
