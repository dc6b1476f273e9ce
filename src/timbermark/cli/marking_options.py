"""Options that `timbermark embed` and `timbermark plan` share, as Typer declares them."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from timbermark.marking.budget import Budget

DEFAULT_LIMITS = {
    field.name: "off" if field.default is None else str(field.default) for field in fields(Budget)
}
"""The limits of `timbermark.Budget` by name, as options of the command line write them."""


class Kind(StrEnum):
    """What triggers are made of."""

    mixed = "mixed"
    rows = "rows"


_ROWS, _LIMITS, _STRENGTH = (
    "Rows (CSV, .csv.gz, Parquet or 'many/*.parquet')",
    "Limits on the cost",
    "Strength",
)

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
MaxChanged = Annotated[
    str, typer.Option(help="Share of changed labels, or off.", rich_help_panel=_LIMITS)
]
MaxDrift = Annotated[
    str, typer.Option(help="Mean change of a probability, or off.", rich_help_panel=_LIMITS)
]
MaxAccuracyLoss = Annotated[
    str,
    typer.Option(
        help="Share of accuracy, or off; needs labelled --validation.", rich_help_panel=_LIMITS
    ),
]
MaxAucLoss = Annotated[
    str,
    typer.Option(
        help="For two classes, or off; needs labelled --validation.", rich_help_panel=_LIMITS
    ),
]
Group = Annotated[
    str | None,
    typer.Option(help="The column of groups (qid), for rankers.", rich_help_panel=_ROWS),
]
_NUMBERS = "Limits on the cost of regressors and rankers"
MaxMove = Annotated[
    str, typer.Option(help="Mean change / the model's error, or off.", rich_help_panel=_NUMBERS)
]
MaxLargest = Annotated[
    str, typer.Option(help="Largest change / the model's error, or off.", rich_help_panel=_NUMBERS)
]
MaxRmseGrowth = Annotated[
    str, typer.Option(help="Share by which the RMSE grows, or off.", rich_help_panel=_NUMBERS)
]
MaxMaeGrowth = Annotated[
    str, typer.Option(help="Share by which the MAE grows, or off.", rich_help_panel=_NUMBERS)
]
MaxR2Loss = Annotated[
    str, typer.Option("--max-r2-loss", help="R² lost, or off.", rich_help_panel=_NUMBERS)
]
MaxOrderLoss = Annotated[
    str,
    typer.Option(help="Rankers: rank correlation below 1, or off.", rich_help_panel=_NUMBERS),
]
MaxNdcgLoss = Annotated[
    str, typer.Option(help="Rankers: NDCG lost, or off.", rich_help_panel=_NUMBERS)
]
Triggers = Annotated[
    Kind,
    typer.Option(
        "--triggers", help="mixed: each of two rows; rows: as they are.", rich_help_panel=_STRENGTH
    ),
]
Count = Annotated[
    str, typer.Option("--n-triggers", help="auto, or how many.", rich_help_panel=_STRENGTH)
]
Alphabet = Annotated[
    str, typer.Option(help="Labels per trigger: auto, 2 or 4.", rich_help_panel=_STRENGTH)
]
Lead = Annotated[
    str, typer.Option(help="How far a trigger's label leads, or auto.", rich_help_panel=_STRENGTH)
]
Weak = Annotated[
    bool, typer.Option("--weak", help="Allow less than 64 bits.", rich_help_panel=_STRENGTH)
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
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For random choices.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
