"""Passphrases: from a prompt or the environment, never from the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.tracing.roll import Roll

Loaded = TypeVar("Loaded")

VARIABLE = "TIMBERMARK_PASSPHRASE"


def new_passphrase(wanted: bool) -> str | None:
    """Return a passphrase to protect a new file with, asked for twice; None if none is wanted."""
    if not wanted:
        return None
    given = os.environ.get(VARIABLE)
    if given is None:
        given = _ask(twice=True)
    if not given.strip():
        raise InputError("The passphrase is empty.", hint="leave --passphrase out for none.")
    return given


def unlock(load: Callable[[str | None], Loaded]) -> Loaded:
    """Return the result of ``load(passphrase)``; ask for a passphrase only if it is needed."""
    loaded, encrypted = try_to_unlock(load)
    if loaded is None and encrypted:
        return load(None)  # which says that a passphrase is needed
    assert loaded is not None
    return loaded


def try_to_unlock(load: Callable[[str | None], Loaded]) -> tuple[Loaded | None, bool]:
    """Return what ``load(passphrase)`` gives, and whether a passphrase was needed.

    The first is None if it was needed and there is neither one in the environment nor a terminal
    to ask on.
    """
    from timbermark.errors import PassphraseNeededError

    try:
        return load(None), False
    except PassphraseNeededError:
        given = os.environ.get(VARIABLE)
        if given is None and not sys.stdin.isatty():
            return None, True
        return load(_ask(twice=False) if given is None else given), True


def is_roll(path: Path) -> bool:
    """Return whether a file says that it is a roll."""
    from timbermark.files import container_kind

    return container_kind(path) == "roll"


def load_roll(path: Path, secret: str | None) -> Roll:
    """Return the roll in a file."""
    from timbermark.tracing.roll import Roll

    return Roll.load(path, secret)


def _ask(twice: bool) -> str:
    try:
        return str(typer.prompt("passphrase", hide_input=True, confirmation_prompt=twice, err=True))
    except typer.Abort:
        raise InputError("No passphrase was given.", hint=f"type one, or set {VARIABLE}.") from None
