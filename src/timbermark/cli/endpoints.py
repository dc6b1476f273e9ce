"""Endpoints from flags: credentials from the environment or a file, templates from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from timbermark.errors import InputError


def read_token(variable: str | None, file: Path | None) -> str | None:
    """Return the token from an environment variable or from a file; None if neither is named."""
    if variable is not None and file is not None:
        raise InputError("--token-env and --token-file are both given.", hint="give one of them.")
    if variable is not None:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise InputError(
                f"The environment variable {variable} holds no token.", hint="set it, or leave out."
            )
        return token
    if file is None:
        return None
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise InputError(f"{file} holds no token.", hint="write it there, and nothing else.")
    return token


def read_headers(file: Path | None) -> dict[str, str]:
    """Return the headers in a file, one "Name: value" on each line."""
    headers: dict[str, str] = {}
    if file is None:
        return headers
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip()):
            # The line is not shown: it may be a secret.
            raise InputError(
                f"{file} holds a line that is no header.", hint='as in "X-Api-Key: …".'
            )
        if line.strip():
            headers[name.strip()] = value.strip()
    return headers


def read_body(given: str | None) -> Any:
    """Return the template of the request: JSON, or @ and the name of a file that holds it."""
    from timbermark.verification.endpoints.protocols.json_template import read_template

    if given is None:
        return None
    if given.startswith("@"):
        given = Path(given[1:]).read_text(encoding="utf-8", errors="replace")
    return read_template(given)


def split_words(given: str | None) -> list[str] | None:
    """Return words that are separated by commas.

    >>> split_words("age, income")
    ['age', 'income']
    """
    return None if given is None else [word.strip() for word in given.split(",")]


def read_label_map(given: str | None) -> dict[str, str] | None:
    """Return the labels of a suspect and the mark's classes for them, as in "a=1,b=2".

    >>> read_label_map("no=0, yes=1")
    {'no': '0', 'yes': '1'}
    """
    if given is None:
        return None
    pairs = [word.partition("=") for word in split_words(given) or ()]
    label_map = {theirs.strip(): yours.strip() for theirs, _, yours in pairs}
    if not all(sign for _, sign, _ in pairs) or len(label_map) < len(pairs):
        raise InputError(
            f"--label-map {given[:40]} does not say once for each label which class it is.",
            hint="as in --label-map no=0,yes=1.",
        )
    return label_map


def read_stop(given: str | None) -> float | str | None:
    """Return the bits at which asking stops: a number, auto or off."""
    if given is None or given in ("auto", "off"):
        return given
    try:
        return float(given)
    except ValueError:
        raise InputError(
            f"--stop-at {given[:40]} is neither a number of bits nor off.",
            hint="64 bits convince anyone, 20 convince you.",
        ) from None
