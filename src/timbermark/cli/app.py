"""The Typer application that every command joins."""

from typing import Annotated

import typer

import timbermark
from timbermark.cli.exit_codes import EXIT_CODES

app = typer.Typer(
    help="Mark gradient-boosted models, prove they are yours, see what it costs.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    # Tracebacks are for bugs, and a plain one is what a bug report needs.
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"timbermark {timbermark.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that stand before any command."""


# Commands register themselves on import; each imports what it needs when it is called, so that
# `timbermark --help` starts at once.
from timbermark.cli import (  # noqa: E402, F401
    attack,
    card,
    claims,
    demo,
    guard,
    inspect,
    judge,
    marking,
    tracing,
    update,
    verify,
)
