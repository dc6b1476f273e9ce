"""`timbermark judge`: check evidence without trusting anyone, and decide disputes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli import DONE, INDICATIVE, NONE
from timbermark.cli.app import app
from timbermark.cli.printing import show, show_json
from timbermark.cli.verify import Answers, exit_code
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.verification.judgments import Judgment

_SECOND, _DISPUTE = "Second opinion", "Disputes"


@app.command()
def judge(
    evidence: Annotated[
        Path, typer.Argument(help="The folder or zip that timbermark open or judge wrote.")
    ],
    claim: Annotated[
        Path | None, typer.Option(help="The claim as it was published; else the one inside.")
    ] = None,
    suspect: Annotated[
        str, typer.Option(help="What to ask; else the answers inside are judged again.")
    ] = "",
    name: Annotated[
        str | None, typer.Option("--for", help="Your name, for whom the mark was opened.")
    ] = None,
    roots: Annotated[
        list[Path] | None,
        typer.Option(help="PEM file of time-stamping authorities that you trust; may be repeated."),
    ] = None,
    answers: Annotated[
        Answers, typer.Option(help="What counts; another kind than auto takes costs a bit.")
    ] = Answers.auto,
    rows: Annotated[
        Path | None,
        typer.Option(help="Your own rows, to train models on.", rich_help_panel=_SECOND),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Their label column.", rich_help_panel=_SECOND)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write an evidence pack: a folder, or NAME.zip.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="The other party's evidence.", rich_help_panel=_DISPUTE)
    ] = None,
    against_claim: Annotated[
        Path | None, typer.Option(help="The other party's claim.", rich_help_panel=_DISPUTE)
    ] = None,
    unmarked: Annotated[
        Path | None, typer.Option(help="The model before marking.", rich_help_panel=_DISPUTE)
    ] = None,
    marked: Annotated[
        Path | None, typer.Option(help="The marked model.", rich_help_panel=_DISPUTE)
    ] = None,
    against_unmarked: Annotated[
        Path | None, typer.Option(help="The other party's.", rich_help_panel=_DISPUTE)
    ] = None,
    against_marked: Annotated[
        Path | None, typer.Option(help="The other party's.", rich_help_panel=_DISPUTE)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check a claim, an opening and a suspect, trusting nobody; all is derived again.

    Exit codes: 0 conclusive, 3 indicative, 1 none, 2 evidence that does not hold or bad input.
    With --against: 0 the first party was first, 1 the other, 3 undecided.
    """
    trusted = [path.read_bytes() for path in roots or ()]
    disputed = {
        "--against-claim": against_claim,
        "--unmarked": unmarked,
        "--marked": marked,
        "--against-unmarked": against_unmarked,
        "--against-marked": against_marked,
    }
    if against is None:
        _refuse_without(disputed, "--against")
        if label is not None and rows is None:
            raise InputError("--label is given without --rows.", hint="give the rows, too.")
        _judge_one(
            evidence, claim, suspect, name, trusted, answers, rows, label, out, force, as_json
        )
        return
    _refuse_without({"--rows": rows, "--out": out}, "", "--against")
    from timbermark.verification.disputes import Party, judge_dispute

    found = judge_dispute(
        Party(evidence, claim, unmarked, marked),
        Party(against, against_claim, against_unmarked, against_marked),
        suspect=suspect or None,
        judge_name=name,
        roots=trusted,
    )
    show_json(found.to_dict()) if as_json else show(str(found))
    raise typer.Exit({"first": DONE, "second": NONE, "undecided": INDICATIVE}[found.winner])


def _judge_one(
    evidence: Path,
    claim: Path | None,
    suspect: str,
    name: str | None,
    roots: list[bytes],
    answers: Answers,
    rows: Path | None,
    label: str | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    from timbermark.verification.judging import judge as weigh
    from timbermark.verification.packs import check_target, read_pack

    if out is not None:
        check_target(out, force)
    pack = read_pack(evidence)
    judgment: Judgment = weigh(
        pack,
        claim=claim,
        suspect=suspect or None,
        judge_name=name,
        roots=roots,
        answers=answers.value,
        rows=None if rows is None else _read_rows(rows, label, pack),
        verbose=1,
    )
    if out is not None:
        judgment.save(out, force=force)
    show_json(judgment.to_dict()) if as_json else show(str(judgment))
    raise typer.Exit(exit_code(judgment.level))


def _read_rows(path: Path, label: str | None, pack: Any) -> tuple[Any, Any]:
    from timbermark.cli.tables import read_table

    if label is None:
        raise InputError("--rows is given without --label.", hint="name their label column.")
    head = None if pack.opening is None else pack.opening.head
    table = read_table(path, None if head is None else head.feature_names, label)
    if table.labels is None:
        raise InputError(f"{path} has no column '{label}'.", hint="check the name after --label.")
    return table.X, table.labels


def _refuse_without(flags: dict[str, Any], needed: str, excluded: str = "") -> None:
    for flag, value in flags.items():
        if value is not None and needed:
            raise InputError(f"{flag} is given without {needed}.", hint=f"give {needed}, too.")
        if value is not None:
            raise InputError(f"{flag} and {excluded} exclude each other.", hint="leave one out.")
