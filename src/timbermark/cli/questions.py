"""`timbermark questions`: the questions of a mark as a file, for suspects without a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.endpoints import split_words
from timbermark.cli.large_tables import LOCAL, is_pattern, on_scheduler
from timbermark.cli.outputs import check_outputs
from timbermark.cli.printing import show
from timbermark.cli.secrets import unlock

if TYPE_CHECKING:
    import numpy as np


@app.command()
def questions(
    mark: Annotated[Path, typer.Argument(help="Your secret mark, or evidence opened for you.")],
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
    from timbermark.verification.judging_claims import find_parts
    from timbermark.verification.packs import is_pack, read_pack
    from timbermark.verification.question_files import id_column, write_questions

    check_outputs({"--out": out}, {"the mark": mark, "--decoys-from": decoys_from}, force)
    opened: Mark
    if is_pack(mark):
        # A judge asks what was opened for him.
        claim, opening = find_parts(read_pack(mark), None)
        opened = opening.check(claim)
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


def read_rows(
    feature_names: Sequence[str] | None,
    path: Path | None,
    columns: Sequence[Sequence[str | None] | np.ndarray] | None = None,
    scheduler: str = LOCAL,
) -> object:
    """Return rows to make decoys from, in the mark's columns; None without a file.

    ``columns``: the mark's, which are numbers or texts; None where only the table tells. What the
    mark has no value of is missing. Of many files, and of Parquet where there is a cluster, some
    rows are enough.
    """
    if path is not None and _is_sampled(path, scheduler):
        from timbermark.verification.decoys import sample_rows

        with on_scheduler(scheduler, [str(path)]):
            return sample_rows(path, feature_names)
    with on_scheduler(scheduler, []):
        pass  # which refuses one that has nothing to do
    if path is None:
        return None
    from timbermark.cli.tables import read_table

    if columns is None:
        return read_table(path, feature_names, None, None).X
    texts = [place for place, column in enumerate(columns) if isinstance(column, tuple)]
    # In columns that the mark has no value of there may be anything; a decoy has none, either.
    known = {
        place: None
        for place, column in enumerate(columns)
        if all(value is None or value != value for value in column)
    }
    X = read_table(path, feature_names, None, frozenset([*texts, *known]), known).X
    if known:
        X[:, list(known)] = None
    return X


def _is_sampled(path: Path, scheduler: str) -> bool:
    from timbermark.files.tables import is_parquet

    return is_pattern(path) or (scheduler != LOCAL and is_parquet(path))
