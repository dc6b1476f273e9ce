"""From a described page to HTML: Jinja2 with autoescape, one style, plots as inline SVG."""

from __future__ import annotations

import secrets
from functools import cache
from importlib import resources
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timbermark.report.pages import Page


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

    from timbermark.report.drawing import draw_plot

    numbers = count(1)
    template = environment().get_template("body.html")
    shown = template.render(page=page, draw=lambda p: draw_plot(p, f"{prefix}-{next(numbers)}"))
    return Markup(shown)
