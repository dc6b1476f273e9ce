"""`timbermark questions`: the questions of a mark as a file, for suspects without a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.options import read_rows, split_words
from timbermark.cli.outputs import check_outputs
from timbermark.cli.printing import show
from timbermark.cli.secrets import is_roll, load_roll, unlock


@app.command()
def questions(
    mark: Annotated[
        Path, typer.Argument(help="Your secret mark or roll, or evidence opened for you.")
    ],
    out: Annotated[Path, typer.Option(help="Where the questions go: .csv or .parquet.")],
    decoys: Annotated[int, typer.Option(help="Decoys for each trigger.")] = 1,
    decoys_from: Annotated[
        Path | None, typer.Option(help="Rows whose values decoys take; many/*.parquet will do.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="The suspect's columns in its order, with commas.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write your triggers among decoys; `timbermark verify answers.csv mark` judges the answers.

    Have them answered in any way, and write the answers beside the ids in the first column: labels
    in a column called label, or scores in columns called like the classes.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.judge import find_parts
    from timbermark.verification.packs import is_pack, read_pack
    from timbermark.verification.table import id_column, write_questions

    check_outputs({"--out": out}, {"the mark": mark, "--decoys-from": decoys_from}, force)
    opened: Mark
    if is_pack(mark):
        # A judge asks what was opened for him.
        claim, opening = find_parts(read_pack(mark), None)
        opened = opening.check(claim)
    elif is_roll(mark):
        opened = unlock(lambda secret: load_roll(mark, secret)).grid
    else:
        opened = unlock(lambda secret: Mark.load(mark, secret))
    n = write_questions(
        opened,
        out,
        decoys=decoys,
        decoys_from=read_rows(opened.feature_names, decoys_from, opened.columns),
        columns=split_words(columns),
    )
    show(f"{out}: {n} questions, {opened.n_triggers} of them triggers; keep it to yourself")
    show(f"answers belong beside the column '{id_column(opened)}'; their order does not matter")
