"""`timbermark check`: a served model in a pipeline, with an exit code and JUnit XML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timbermark.cli.app import app
from timbermark.cli.options import EndpointFlags, read_rows, takes_endpoints
from timbermark.cli.outputs import check_outputs
from timbermark.cli.printing import DONE, NONE, show, show_json, tell
from timbermark.cli.secrets import unlock
from timbermark.files import atomic_write


@app.command()
@takes_endpoints
def check(
    served: Annotated[str, typer.Argument(help="The served model's file, or its address.")],
    mark: Annotated[Path, typer.Argument(help="Your secret mark.")],
    endpoint: EndpointFlags,
    at_least: Annotated[float, typer.Option(help="Bits of evidence that are wanted.")] = 64.0,
    unmarked: Annotated[
        Path | None,
        typer.Option(
            "--max-changed-from",
            help="The model before marking: only thresholds and leaf values may differ.",
        ),
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Rows whose answers are compared with that model's.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of these rows that is no feature.")
    ] = None,
    max_changed: Annotated[
        float, typer.Option(help="The share of these answers that may differ.")
    ] = 0.01,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML; replaces a file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check in a pipeline that the model that is served carries your mark.

    Exit codes: 0 everything passed, 1 something failed, 2 bad input, 4 anything unexpected.
    """
    from timbermark.ownership.mark import Mark
    from timbermark.verification.checking import check as run_check
    from timbermark.verification.suspects import is_url

    asked = endpoint.open(served)
    given = {"SERVED": Path(served), "MARK": mark, "--max-changed-from": unmarked, "--rows": rows}
    if junit is not None:
        check_outputs({"--junit": junit}, given, force=True)
    secret = unlock(lambda passphrase: Mark.load(mark, passphrase))
    asking = endpoint.asking(secret.feature_names, secret.columns)
    if is_url(served) and asking["stop_at"] is None:
        asking["stop_at"] = at_least
    found = run_check(
        asked,
        secret,
        at_least=at_least,
        unmarked=unmarked,
        rows=read_rows(secret.feature_names, rows, secret.columns, label=label),
        max_changed=max_changed,
        **asking,
        progress=True,
    )
    if junit is not None:
        atomic_write(junit, found.to_junit())
    if as_json:
        show_json(found.to_dict())
    else:
        for finding in found.findings:
            show(f"{'ok    ' if finding.passed else 'FAILED'}  {finding.name}: {finding.said}")
        if unmarked is not None and rows is None:
            tell(["Answers were not compared: --rows names rows to compare them on."])
    raise typer.Exit(DONE if found.passed else NONE)
