"""Passphrases: from a prompt or the environment, never from the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import typer

from timbermark.errors import InputError

Loaded = TypeVar("Loaded")

VARIABLE = "TIMBERMARK_PASSPHRASE"


def new_passphrase(wanted: bool) -> str | None:
    """A passphrase to protect a new file with, asked for twice; None where none is wanted."""
    if not wanted:
        return None
    given = os.environ.get(VARIABLE)
    if given is None:
        given = typer.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True)
    if not given:
        raise InputError("The passphrase is empty.", hint="leave --passphrase out for none.")
    return str(given)


def unlocked(load: Callable[[str | None], Loaded]) -> Loaded:
    """What ``load(passphrase)`` gives; a passphrase is asked for only where one is needed."""
    from timbermark.ownership.sealing import PassphraseNeededError

    try:
        return load(None)
    except PassphraseNeededError:
        given = os.environ.get(VARIABLE)
        if given is None and not sys.stdin.isatty():
            raise
        if given is None:
            given = str(typer.prompt("passphrase", hide_input=True, err=True))
        return load(given)
