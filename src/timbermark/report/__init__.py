"""Pages to file: a result becomes one self-contained HTML file, readable without scripts.

A page is described first, as plain data (`timbermark.report.pages`), and rendered then. Modules
that describe pages know the results only; Jinja2 and Matplotlib are imported when one is written.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timbermark.errors import InputError, MissingLibraryError, require_library
from timbermark.files import atomic_write

if TYPE_CHECKING:
    from timbermark.report.pages import Page

__all__ = ["check_packages", "describe", "page_html", "show_in_notebook", "try_page", "write_page"]

# By the names of classes, so that no page imports the results of others.
_PAGES = {
    **dict.fromkeys(("EmbedResult", "Plan", "Cost", "GuardCost"), "marking_page.describe"),
    "Verdict": "verdict_pages.describe_verdict",
    "Judgment": "verdict_pages.describe_judgment",
    "Dispute": "verdict_pages.describe_dispute",
    "Trace": "verdict_pages.describe_trace",
    "AttackResult": "attack_page.describe",
}
# Whoever sees answers to opened triggers learns which ones to avoid; a trace names customers.
_CONFIDENTIAL = {"Judgment", "Dispute", "Trace"}
_OWNER_ONLY = 0o600


def check_packages() -> None:
    """Raise MissingLibraryError unless everything that draws a page is installed.

    >>> check_packages()
    """
    for package in ("jinja2", "matplotlib"):
        require_library(package, "report", "to write a page")


def describe(result: Any, **more: Any) -> Page:
    """Return the page of a result as plain data.

    Raises InputError for what has no page.

    >>> describe(3)
    Traceback (most recent call last):
    timbermark.errors.InputError: There is no page of a int. Hint: results of embed, plan, verify, \
judge, trace and attack have one.
    """
    names = [kind.__name__ for kind in type(result).__mro__ if kind.__name__ in _PAGES]
    if not names:
        raise InputError(
            f"There is no page of a {type(result).__name__}.",
            hint="results of embed, plan, verify, judge, trace and attack have one.",
        )
    module, _, function = _PAGES[names[0]].partition(".")
    page: Page = getattr(import_module(f"timbermark.report.{module}"), function)(result, **more)
    return page


def page_html(result: Any, *, written: str | None = None, **more: Any) -> str:
    """Return the whole page of a result; ``written`` is its date, by default now.

    Raises MissingLibraryError where a package is missing, InputError for what has no page.
    """
    check_packages()
    from timbermark.report.pages import render_page

    return render_page(describe(result, **more), written or show_now())


def write_page(
    result: Any, path: str | os.PathLike[str], *, force: bool = False, **more: Any
) -> None:
    """Write the page of a result to a file, whole or not at all.

    A page that shows answers to opened triggers is readable by its owner only.

    Raises as `page_html` does, and InputError if the file exists, unless ``force``.
    """
    if os.path.lexists(path) and not force:
        raise InputError(
            f"{os.fspath(path)} exists already, the page was not written.",
            hint="choose another name, or force=True to replace it.",
        )
    names = {kind.__name__ for kind in type(result).__mro__}
    mode = _OWNER_ONLY if names & _CONFIDENTIAL else None
    atomic_write(Path(path), page_html(result, **more).encode(), mode=mode)


def try_page(result: Any, written: str) -> str | None:
    """Return the page of a result with a given date; None where a package is missing."""
    return page_html(result, written=written) if _is_complete() else None


def show_in_notebook(result: Any) -> str | None:
    """Return the page as a fragment for a notebook; None where a package is missing."""
    if not _is_complete():
        return None
    from timbermark.report.pages import render_fragment

    return render_fragment(describe(result))


def _is_complete() -> bool:
    try:
        check_packages()
    except MissingLibraryError:
        return False
    return True


def show_now() -> str:
    """Return the time, UTC, as pages state it.

    >>> show_now().endswith("Z")
    True
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
