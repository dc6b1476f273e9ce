"""Options that `timbermark embed`, `plan` and `rotate` share, as Typer declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_ROWS = "Rows (CSV, .csv.gz, Parquet or 'many/*.parquet')"

Model = Annotated[Path, typer.Argument(help="The model file, of any library.")]
Train = Annotated[
    Path | None, typer.Option(help="Training rows; they hold the model.", rich_help_panel=_ROWS)
]
Label = Annotated[
    str | None,
    typer.Option(help="The label column; only the cost needs it.", rich_help_panel=_ROWS),
]
Separate = Annotated[
    Path | None,
    typer.Option("--candidates", help="Rows to make triggers from.", rich_help_panel=_ROWS),
]
Validation = Annotated[
    Path | None,
    typer.Option(help="Held-out rows to measure the cost on.", rich_help_panel=_ROWS),
]
Group = Annotated[
    str | None,
    typer.Option(help="The column of groups (qid), for rankers.", rich_help_panel=_ROWS),
]
Attacks = Annotated[
    list[str] | None,
    typer.Option(
        help="Attack the mark, or its rehearsal: fast, all or names as in timbermark attack. Needs "
        "labelled --validation rows, half of which are the thief's."
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        help="Where passes over Parquet files run: local, or a Dask scheduler's address.",
        rich_help_panel=_ROWS,
    ),
]
Key = Annotated[Path, typer.Option(help="Your owner key.")]
Out = Annotated[Path, typer.Option(help="Where the marked model goes.")]
Report = Annotated[
    Path | None, typer.Option(help="Write a page to file, HTML; nothing in it is secret.")
]
Passphrase = Annotated[bool, typer.Option("--passphrase", help="Encrypt the mark.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
