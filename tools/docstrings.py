"""Make Markdown of our docstrings: an extension of Griffe, with which mkdocstrings reads source.

Examples become blocks of code, and references of other systems become code.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":\w+:`~?([^`]+)`")


class Docstrings(Extension):
    """Rewrite every docstring when it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    r"""Return a docstring with its examples in fences.

    >>> to_markdown(":func:`f` adds.\n\n>>> f(1)\n2")
    '`f` adds.\n\n```pycon\n>>> f(1)\n2\n```'
    """
    paragraphs = re.split(r"\n\s*\n", _ROLE.sub(r"`\1`", text))
    return "\n\n".join(
        f"```pycon\n{paragraph}\n```" if paragraph.lstrip().startswith(">>>") else paragraph
        for paragraph in paragraphs
    )
