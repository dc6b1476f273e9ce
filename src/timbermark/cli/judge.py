"""`timbermark judge`: check evidence without trusting anyone, and decide disputes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli.app import app
from timbermark.cli.options import Answers, EndpointFlags, read_label_map, takes_endpoints
from timbermark.cli.outputs import (
    DONE,
    INDICATIVE,
    NONE,
    check_report,
    exit_code,
    show,
    show_json,
    tell,
)
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.ownership.opening import Opening
    from timbermark.verification.judge import Judgment

_SECOND, _DISPUTE = "Second opinion", "Disputes"


@app.command()
@takes_endpoints
def judge(
    evidence: Annotated[
        Path, typer.Argument(help="The folder or zip that timbermark open or judge wrote.")
    ],
    endpoint: EndpointFlags,
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
    label_map: Annotated[
        str | None,
        typer.Option(help="Its labels and the mark's, as no=0,yes=1, if they differ; costs bits."),
    ] = None,
    chain: Annotated[
        Path | None,
        typer.Option(help="For a guard's mark: the chain of its ledger, with stamps."),
    ] = None,
    trust_journal: Annotated[
        bool,
        typer.Option("--trust-journal", help="Take answers from a journal that you wrote."),
    ] = False,
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
    report: Annotated[
        Path | None,
        typer.Option(help="Write a page to file, HTML; it shows the answers to what was opened."),
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
    files = {
        "the evidence": evidence, "--claim": claim, "--rows": rows, "--against": against,
        "--against-claim": against_claim, "--unmarked": unmarked, "--marked": marked,
        "--against-unmarked": against_unmarked, "--against-marked": against_marked,
        "--suspect": Path(suspect) if suspect else None, "--out": out,
        "--journal": endpoint.journal,
    }  # fmt: skip
    check_report(report, files, force)
    if not suspect:
        endpoint.refuse("without an endpoint after --suspect")
    asked = endpoint.open(suspect) if suspect else None
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
            evidence, claim, asked, name, trusted, answers, read_label_map(label_map),
            chain, trust_journal, rows, label, out, report, force, as_json, endpoint,
        )  # fmt: skip
        return
    _refuse_without({"--rows": rows, "--out": out, "--label-map": label_map}, "", "--against")
    endpoint.refuse("with --against, where every model is asked everything", only_asking=True)
    from timbermark.verification.disputes import Party, judge_dispute

    found = judge_dispute(
        Party(evidence, claim, unmarked, marked),
        Party(against, against_claim, against_unmarked, against_marked),
        suspect=asked,
        judge=name,
        roots=trusted,
    )
    if report is not None:
        found.report(report, force=force)
    show_json(found.to_dict()) if as_json else show(str(found))
    _name_page(report, as_json)
    raise typer.Exit({"first": DONE, "second": NONE, "undecided": INDICATIVE}[found.winner])


def _judge_one(
    evidence: Path,
    claim: Path | None,
    suspect: Any,
    name: str | None,
    roots: list[bytes],
    answers: Answers,
    labels: dict[str, str] | None,
    chain: Path | None,
    trust_journal: bool,
    rows: Path | None,
    label: str | None,
    out: Path | None,
    report: Path | None,
    force: bool,
    as_json: bool,
    endpoint: EndpointFlags,
) -> None:
    from timbermark.verification.judge import judge as weigh
    from timbermark.verification.packs import check_target, read_pack

    if out is not None:
        check_target(out, force)
    pack = read_pack(evidence)
    head = None if pack.opening is None else pack.opening.head
    names = None if head is None else head.feature_names
    judgment: Judgment = weigh(
        pack,
        claim=claim,
        suspect=suspect,
        judge=name,
        roots=roots,
        answers=answers.value,
        rows=None
        if rows is None
        else _read_rows(rows, label, names, () if head is None else head.columns),
        label_map=labels,
        chain=chain,
        trust_journal=trust_journal,
        progress=True,
        **endpoint.asking(names, _columns(pack.opening)),
    )
    if out is not None and not judgment.save(out, force=force):
        tell(['The pack holds no page: that takes pip install "timbermark[report]".'])
    if report is not None:
        judgment.report(report, force=force)
    show_json(judgment.to_dict()) if as_json else show(str(judgment))
    _name_page(report, as_json)
    raise typer.Exit(exit_code(judgment.level))


def _columns(opening: Opening | None) -> Any:
    """Return the columns of what was opened, to tell numbers from texts."""
    seals = [] if opening is None else [opening.leaves, opening.splits]
    return next((seal.columns for seal in seals if seal is not None), None)


def _name_page(report: Path | None, as_json: bool) -> None:
    if report is not None and not as_json:
        show(f"{report}: the page")


def _read_rows(
    path: Path, label: str | None, names: Sequence[str] | None, columns: Sequence[str]
) -> tuple[Any, Any]:
    from timbermark.cli.tables import read_table

    if label is None:
        raise InputError("--rows is given without --label.", hint="name their label column.")
    texts = frozenset(place for place, kind in enumerate(columns) if kind == "texts")
    table = read_table(path, names, label, texts)
    if table.labels is None:
        raise InputError(f"{path} has no column '{label}'.", hint="check the name after --label.")
    return table.X, table.labels


def _refuse_without(flags: dict[str, Any], needed: str, excluded: str = "") -> None:
    for flag, value in flags.items():
        if value is not None and needed:
            raise InputError(f"{flag} is given without {needed}.", hint=f"give {needed}, too.")
        if value is not None:
            raise InputError(f"{flag} and {excluded} exclude each other.", hint="leave one out.")
