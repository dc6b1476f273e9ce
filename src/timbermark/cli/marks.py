"""`timbermark marks`: all marks of a folder, with their openings and claims."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.printing import show, show_json, tell
from timbermark.cli.secrets import unlock


@app.command()
def marks(
    folder: Annotated[Path, typer.Argument(help="The folder in which your marks are.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the marks of a folder: model, date, strength, openings, claims; nothing secret."""
    from timbermark.ownership.mark import Mark
    from timbermark.ownership.mark_folder import list_marks

    listed, notes = list_marks(folder, lambda path: unlock(lambda secret: Mark.load(path, secret)))
    if as_json:
        show_json({"marks": [asdict(mark) for mark in listed], "notes": list(notes)})
        return
    for mark in listed:
        show(mark.path)
        if mark.problem:
            show(f"  {mark.problem}")
            continue
        show(f"  mark {mark.mark_id} of {mark.owner}, made {mark.created}")
        show(f"  model {mark.model_digest[:16]}… {mark.model_kind}".rstrip())
        show(f"  {mark.triggers} triggers, {mark.bits:.0f} bits")
        if mark.openings:
            show(
                f"  opened for {', '.join(mark.openings)}; {mark.unopened} triggers, "
                f"{mark.bits_left:.0f} bits are left"
            )
        for claim in mark.claims:
            show(f"  claim {claim.path} of {claim.claimed}, {claim.n_stamps} time stamps")
            named = f"{claim.model}, " if claim.model else ""
            show(f"    on the marked model {named}{claim.marked_digest[:16]}…")
        if not mark.claims:
            show("  no claim")
    if not listed:
        show(f"no marks in {folder}")
    tell(notes)
