"""`timbermark attack`: what a mark survives, on the owner's own model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.printing import show, show_json, tell
from timbermark.cli.secrets import unlock
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.libraries.contract import ForeignModel


@app.command()
def attack(
    model: Annotated[Path, typer.Argument(help="The marked model's file, of any library.")],
    mark: Annotated[Path, typer.Option(help="Its secret mark.")],
    rows: Annotated[Path, typer.Option(help="The thief's rows: CSV, .csv.gz or Parquet.")],
    label: Annotated[str, typer.Option(help="The label column.")],
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            help="all, fast (default), or a name such as refit, refit:0.5 or "
            "keep-first:0.5+refit:0.9; can be repeated."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Labelled rows to measure accuracy on; else a part of --rows."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for results.csv and the chart; it is taken up again."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For random choices.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Attack your own marked model as a thief would, and show what evidence is left.

    The table states bits of evidence by scores and by labels, the accuracy, and how much of the
    theft's worth the thief keeps: 1 as good as your model, 0 no better than what the thief's rows
    alone would give.
    """
    from timbermark.attacks.lab import attack as run
    from timbermark.attacks.registry import find_attacks
    from timbermark.cli.tables import check_width, read_labels, read_table
    from timbermark.marking.models import open_model
    from timbermark.ownership.mark import Mark

    wanted = take_attacks(attacks)
    find_attacks(wanted)
    opened = open_model(model)
    secret = unlock(lambda passphrase: Mark.load(mark, passphrase))
    tables: list[Any] = []
    for flag, path in (("--rows", rows), ("--evaluation", evaluation)):
        if path is None:
            tables.append(None)
            continue
        table = read_table(path, opened.feature_names, label)
        if table.labels is None:
            raise InputError(
                f"{path} of {flag} has no column '{label}'.", hint="check the name after --label."
            )
        if opened.feature_names is None:
            check_width(opened, table)
        tables.append((table.X, read_labels(table.labels, opened.classes)))
    found = run(
        opened, secret, *tables[0], attacks=wanted, evaluation=tables[1], out=out,
        random_state=seed, verbose=1,
    )  # fmt: skip
    show_found(found, as_json)
    if out is not None and not as_json:
        show(f"{out}: results.csv, chart.png, chart.svg")


def take_attacks(given: list[str] | None) -> str | list[str]:
    """Return what the lab takes for the words after --attacks, which commas may separate.

    >>> take_attacks(["refit:0.5,majority"]), take_attacks(None)
    (['refit:0.5', 'majority'], 'fast')
    """
    words = [word.strip() for text in given or ["fast"] for word in text.split(",")]
    words = [word for word in words if word]
    return words[0] if len(words) == 1 and words[0] in ("all", "fast") else words


def show_found(found: AttackResult, as_json: bool) -> None:
    """Print what the lab found, and its notes."""
    tell(found.notes)
    if as_json:
        show_json(found.to_dict())
        return
    show(str(found))
    worst = found.worst
    if worst is not None and worst.score_bits is not None:
        show(
            f"weakest where at least half of the theft is kept: {worst.attack} {worst.strength:g}, "
            f"{worst.score_bits:.0f} bits"
        )


def check_attacks(given: list[str] | None, validation: Path | None) -> str | list[str] | None:
    """Return the attacks that a plan shall try, None for none; refuse what cannot be."""
    if not given:
        return None
    from timbermark.attacks.registry import find_attacks

    wanted = take_attacks(given)
    find_attacks(wanted)
    if validation is None:
        raise InputError(
            "--attacks needs rows that the model was not trained on.",
            hint="give them with --validation, and their labels with --label.",
        )
    return wanted


def check_forecast(model: ForeignModel, rows: dict[str, Any]) -> None:
    """Raise InputError if the validation rows are too few for attacks or have no labels."""
    from timbermark.attacks.forecasting import take_validation

    take_validation(model, rows["validation"])


def forecast(
    model: ForeignModel, rows: dict[str, Any], choices: dict[str, Any], wanted: str | list[str]
) -> AttackResult:
    """Return what a rehearsed mark survives."""
    from timbermark.attacks import forecasting

    return forecasting.forecast(model, **rows, **choices, attacks=wanted, verbose=1)
