"""Options that several commands have, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def share_options(
    declare: Callable[..., None], name: str, gather: Callable[[Mapping[str, Any]], object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options in the signature of ``declare``.

    The command gets them together in its parameter ``name``, as ``gather`` makes it of their values
    by name; ``declare`` is never called.

    >>> def declare(loud: bool = False) -> None: ...
    >>> @share_options(declare, "flags", dict)
    ... def greet(who: str, flags: dict) -> None:
    ...     print(who, flags)
    >>> greet(who="Ann", loud=True)
    Ann {'loud': True}
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        options = inspect.signature(declare, eval_str=True).parameters

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option: given.pop(option) for option in options}
            command(**given, **{name: gather(values)})

        shown = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*own.parameters.values(), *options.values())
            if parameter.name != name
        ]
        # Typer reads the signature and the annotations, and looks behind no wrapper.
        run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        del run.__wrapped__
        return run

    return decorate
