"""Results that can become a page: for a file, and for notebooks."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


class Reportable:
    """A result that `timbermark.report` can show.

    The pages know the results, and not the other way round: this class finds them by name when a
    page is asked for, so that nothing else pays for what draws them.
    """

    __slots__ = ()

    def report(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write one self-contained HTML page, which needs neither a network nor scripts.

        Raises InputError if the file exists, unless ``force``, and MissingLibraryError where
        Jinja2 or Matplotlib is not installed.
        """
        write_page(self, path, force=force)

    def _repr_html_(self) -> str | None:
        """Return the page as a notebook shows it; None where the packages for it are missing."""
        shown: str | None = import_module("timbermark.report").show_in_notebook(self)
        return shown


def make_page(result: Any, written: str) -> str | None:
    """Return the page of a result, with the date ``written``; None where packages are missing."""
    page: str | None = import_module("timbermark.report").try_page(result, written)
    return page


def write_page(result: Any, path: str | os.PathLike[str], *, force: bool, **more: Any) -> None:
    """Write the page of a result; ``more`` is what the page of its kind takes beside it."""
    import_module("timbermark.report").write_page(result, path, force=force, **more)
