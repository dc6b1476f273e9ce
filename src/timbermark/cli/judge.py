"""`timbermark judge`: check evidence without trusting anyone, and decide disputes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.exit_codes import DISPUTES, exit_code
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, tell
from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.ownership.opening import Opening

_SECOND, _DISPUTE = "Second opinion", "Disputes"


def _party(about: str) -> Any:
    return option(about, panel=_DISPUTE)


@dataclass(frozen=True, kw_only=True)
class Disputed:
    """What was said on the command line about a dispute."""

    against: Annotated[Path | None, _party("The other party's evidence.")] = None
    against_claim: Annotated[Path | None, _party("The other party's claim.")] = None
    unmarked: Annotated[Path | None, _party("The model before marking.")] = None
    marked: Annotated[Path | None, _party("The marked model.")] = None
    against_unmarked: Annotated[Path | None, _party("The other party's.")] = None
    against_marked: Annotated[Path | None, _party("The other party's.")] = None

    @property
    def files(self) -> dict[str, Path | None]:
        """Return the file behind each flag."""
        return {f"--{f.name.replace('_', '-')}": getattr(self, f.name) for f in fields(self)}


@command(app)
def judge(
    evidence: Annotated[Path, argument("The folder or zip that timbermark open or judge wrote.")],
    endpoint: options.EndpointFlags,
    disputed: Disputed,
    output: Output,
    claim: Annotated[
        Path | None, option("The claim as it was published; else the one inside.")
    ] = None,
    suspect: Annotated[str, option("What to ask; else the answers inside are judged again.")] = "",
    name: Annotated[str | None, option("Your name, for whom the mark was opened.", "--for")] = None,
    roots: Annotated[
        list[Path] | None,
        option("PEM file of time-stamping authorities that you trust; may be repeated."),
    ] = None,
    answers: options.AnswersWanted = options.Answers.auto,
    label_map: options.SuspectLabels = None,
    chain: Annotated[
        Path | None, option("For a guard's mark: the chain of its ledger, with stamps.")
    ] = None,
    trust_journal: Annotated[
        bool, option("Take answers from a journal that you wrote.", "--trust-journal")
    ] = False,
    rows: Annotated[
        Path | None, option("Your own rows, to train models on.", panel=_SECOND)
    ] = None,
    label: Annotated[str | None, option("Their label column.", panel=_SECOND)] = None,
    out: Annotated[Path | None, option("Write an evidence pack: a folder, or NAME.zip.")] = None,
    report: Annotated[
        Path | None, option("Write a page to file, HTML; it shows the answers to what was opened.")
    ] = None,
) -> None:
    """Check a claim, an opening and a suspect, trusting nobody; all is derived again.

    Exit codes: 0 conclusive, 3 indicative, 1 none, 2 evidence that does not hold or bad input.
    With --against: 0 the first party was first, 1 the other, 3 undecided.
    """
    output.check_report(
        report,
        {
            "the evidence": evidence, "--claim": claim, "--rows": rows, **disputed.files,
            "--suspect": Path(suspect) if suspect else None, "--out": out,
            "--journal": endpoint.journal,
        },
    )  # fmt: skip
    if not suspect:
        endpoint.refuse("without an endpoint after --suspect")
    asked = endpoint.open(suspect) if suspect else None
    trusted = [path.read_bytes() for path in roots or ()]
    if disputed.against is not None:
        for flag, value in {"--rows": rows, "--out": out, "--label-map": label_map}.items():
            if value is not None:
                raise InputError(f"{flag} and --against exclude each other.", hint="leave one out.")
        endpoint.refuse("with --against, where every model is asked everything", only_asking=True)
        from timbermark.verification.disputes import Party, judge_dispute

        found = judge_dispute(
            Party(evidence, claim, disputed.unmarked, disputed.marked),
            Party(
                disputed.against, disputed.against_claim, disputed.against_unmarked,
                disputed.against_marked,
            ),
            suspect=asked, judge=name, roots=trusted,
        )  # fmt: skip
        output.finish(found, report)
        raise typer.Exit(DISPUTES[found.winner])
    for flag, value in disputed.files.items():
        if value is not None:
            raise InputError(f"{flag} is given without --against.", hint="give --against, too.")
    if label is not None and rows is None:
        raise InputError("--label is given without --rows.", hint="give the rows, too.")
    labels = options.read_label_map(label_map)
    from timbermark.verification.judge import judge as weigh
    from timbermark.verification.packs import check_target, read_pack

    if out is not None:
        check_target(out, output.force)
    pack = read_pack(evidence)
    head = None if pack.opening is None else pack.opening.head
    names, columns = (None, ()) if head is None else (head.feature_names, head.columns)
    judgment = weigh(
        pack, claim=claim, suspect=asked, judge=name, roots=trusted, answers=answers.value,
        rows=None if rows is None else _read_rows(rows, label, names, columns), label_map=labels,
        chain=chain, trust_journal=trust_journal, progress=True,
        **endpoint.asking(names, _columns(pack.opening)),
    )  # fmt: skip
    if out is not None and not judgment.save(out, force=output.force):
        tell(['The pack holds no page: that takes pip install "timbermark[report]".'])
    output.finish(judgment, report)
    raise typer.Exit(exit_code(judgment.level))


def _columns(opening: Opening | None) -> Any:
    """Return the columns of what was opened, to tell numbers from texts."""
    seals = [] if opening is None else [opening.leaves, opening.splits]
    return next((seal.columns for seal in seals if seal is not None), None)


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
