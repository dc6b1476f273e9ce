"""`timbermark copies`, `trace` and `roll`: a copy for each customer, and whose copy leaked."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.claims import show_claim
from timbermark.cli.exit_codes import exit_code
from timbermark.cli.marking import Rows
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, check_ending, check_folder, use_flags
from timbermark.errors import InputError
from timbermark.files import will_write

if TYPE_CHECKING:
    from timbermark.tracing.making import Copies
    from timbermark.tracing.roll import Roll


OwnerSeals = StrEnum("OwnerSeals", ["auto", "splits", "both"])
roll_app = typer.Typer(
    help="Claim all copies in public, and show one customer's part to a judge.",
    no_args_is_help=True,
)
app.add_typer(roll_app, name="roll")
_UNSAFE = re.compile(r"[^\w.-]+")


@command(app)
def copies(
    model: options.Model,
    roll: Annotated[Path, option("The secret roll: written, or added to with --add.")],
    out: Annotated[Path, option("The folder where the copies go.")],
    limits: options.Limits,
    output: Output,
    customers: Annotated[
        Path | None, option("A text file with one customer's name on each line.")
    ] = None,
    add: Annotated[
        list[str] | None,
        option("Add this customer to a roll that is there; MODEL is any copy."),
    ] = None,
    key: Annotated[Path | None, option("Your owner key.")] = None,
    owner: Annotated[str, option('Whom the mark speaks for, as "Ann Ltd".')] = "",
    mark: Annotated[
        Path | None, option("Write the owner's mark to a file of its own, too.")
    ] = None,
    train: options.Train = None,
    label: options.Label = None,
    group: options.Group = None,
    validation: options.Validation = None,
    colluders: Annotated[
        int, option("So many customers together must be traced.", min=1, max=8)
    ] = 1,
    seals: Annotated[
        OwnerSeals, option("Where the owner's mark goes; auto: leaves if need be.")
    ] = OwnerSeals.auto,
    weak: Annotated[bool, option("Allow too few boundaries.", "--weak")] = False,
    seed: options.Seed = 0,
    passphrase: options.Passphrase = False,
) -> None:
    """Mark a model and make a copy for each customer, told apart by a secret roll.

    With --add the roll that is there gets more customers: MODEL is one of its copies, and neither
    training rows nor the key are needed. Keep the SHA-256 of each file with the customer's receipt.
    """
    adding = bool(add)
    if adding == (customers is not None):
        raise InputError(
            "Give --customers with a file of names, or --add with a name.",
            hint="--add is for a roll that is there.",
            code="customers.none",
        )
    names = list(add or ()) if customers is None else _read_names(customers)
    _check_folder(out)
    files = {"MODEL": model, "--train": train, "--validation": validation, "--key": key}
    from timbermark.tracing import making

    output.check({"--roll": None if adding else roll, "--mark": mark}, files)
    for path in _targets(out, model, names).values():
        output.check_absent(str(path), path)
    if adding:
        from timbermark.tracing.roll import Roll

        opened_with: list[str | None] = []

        def load(secret: str | None) -> Roll:
            opened_with.append(secret)
            return Roll.load(roll, secret)

        known = options.unlock(load)
        protection = opened_with[-1]
        made = making.copies(model, roll=known, customers=names, colluders=colluders, weak=weak)
    else:
        table = Rows(train=train, label=label, group=group, validation=validation)
        made, protection = _make(
            model, names, table, key, owner, passphrase, colluders=colluders, seals=seals.value,
            weak=weak, random_state=seed, budget=limits.budget(),
        )  # fmt: skip
    beside = out if out.is_dir() else out.parent  # on the same disk as the copies will be
    with tempfile.TemporaryDirectory(prefix=".timbermark-", dir=beside) as folder:
        written = _write(made, Path(folder), model)
        # A copy must never leave without the roll that knows it.
        made.roll.save(roll, protection, force=output.force or adding)
        if mark is not None:
            made.mark.save(mark, protection, force=output.force)
        out.mkdir(exist_ok=True)
        for name, path in _targets(out, model, list(made.copies)).items():
            will_write(path)
            os.replace(written[name]["file"], path)
            written[name]["file"] = str(path)
    n = len(made.roll.customers)
    own = [] if mark is None else [f"{mark}: the secret mark {made.mark.mark_id.hex()}, keep it"]
    places = {"roll": str(roll), "mark_file": None if mark is None else str(mark)}
    output.show(
        {**made.to_dict(), **places, "files": written},
        use_flags(str(made)),
        *(f"{file['file']}: {name}, SHA-256 {file['sha256']}" for name, file in written.items()),
        f"{roll}: the secret roll of {n} customer{'' if n == 1 else 's'}, keep it",
        *own,
    )


def _make(
    model: Path, names: list[str], rows: Rows, key: Path | None, owner: str, passphrase: bool,
    **choices: Any,
) -> tuple[Copies, str | None]:  # fmt: skip
    """Return new copies and the passphrase for their roll."""
    if key is None or rows.train is None:
        raise InputError(
            "New copies need your owner key and the training rows.",
            hint="give --key and --train; or --add for a roll that is there.",
            code="copies.key",
        )
    from timbermark.marking.models import open_model
    from timbermark.ownership.encoding import check_name
    from timbermark.tracing import making

    check_name(owner, "owner")
    owner_key = options.load_key(key)
    opened = open_model(model)
    check_ending(opened, model)
    protection = options.new_passphrase(passphrase)
    given = rows.read(opened)
    given.pop("candidates")
    made = making.copies(
        opened, **given, customers=names, key=owner_key, owner=owner, progress=True, **choices
    )  # fmt: skip
    return made, protection


def _read_names(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _targets(out: Path, model: Path, names: list[str]) -> dict[str, Path]:
    """Return the file of each customer's copy; names that look alike get numbers."""
    found: dict[str, Path] = {}
    taken: set[str] = set()
    for name in names:
        plain = _UNSAFE.sub("-", name.strip()).strip(".-") or "copy"
        word, number = plain, 1
        while word.lower() in taken:
            number += 1
            word = f"{plain}-{number}"
        taken.add(word.lower())
        found[name] = out / f"{word}{model.suffix}"
    return found


def _check_folder(out: Path) -> None:
    """Raise InputError unless ``out`` is a folder or one can be made."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file.", hint="give a folder.", code="folder.file")
    check_folder(out if out.exists() else out.parent, "--out")


def _write(made: Copies, folder: Path, model: Path) -> dict[str, dict[str, str]]:
    """Write all copies into a folder, and return the file of each and its SHA-256."""
    from timbermark.marking.models import save

    written = {}
    for name, path in _targets(folder, model, list(made.copies)).items():
        save(made.copies[name], path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        written[name] = {"file": str(path), "sha256": digest}
    return written


@command(app)
def trace(
    suspect: options.Suspect,
    roll: Annotated[Path, argument("Your secret roll, or an opening made for you.")],
    endpoint: options.EndpointFlags,
    output: Output,
    claim: Annotated[Path | None, option("For an opening: the claim that was published.")] = None,
    judge: Annotated[str | None, option("For an opening: your name.", "--for")] = None,
    roots: Annotated[
        Path | None, option("For an opening: roots of time-stamping authorities, PEM.")
    ] = None,
    answers: options.AnswersWanted = options.Answers.auto,
    label_map: options.SuspectLabels = None,
    report: Annotated[Path | None, option("Write a page to file, HTML.")] = None,
) -> None:
    """Ask a suspect the boundaries of a roll and say whose copy it comes from.

    Exit codes: 0 conclusive (64 bits and more), 3 indicative (from 20 bits), 1 none, 2 bad input, 4
    anything unexpected.
    """
    from timbermark.tracing import tracing
    from timbermark.tracing.showing import RollOpening

    labels = options.read_label_map(label_map)
    asked = endpoint.open(suspect)
    files: Mapping[str, Path | None] = {
        "the suspect": Path(suspect), "the roll": roll, "--claim": claim,
        "--journal": endpoint.journal,
    }  # fmt: skip
    output.check_report(report, files)
    opened: Any
    if RollOpening.is_file(roll):
        opened = RollOpening.load(roll)
        grid = opened.boundaries
        names, columns = grid.head.feature_names, grid.splits.columns
    else:
        opened = options.load_roll(roll)
        names, columns = opened.grid.feature_names, opened.grid.columns
    found = tracing.trace(
        asked, opened, claim=claim, judge=judge, answers=answers.value, label_map=labels,
        roots=() if roots is None else [roots.read_bytes()],
        **endpoint.asking(names, columns), progress=True,
    )  # fmt: skip
    output.finish(found, report)
    raise typer.Exit(exit_code(found.level))


@command(roll_app, "claim")
def claim_command(
    roll: options.SecretRoll,
    key: options.Signer,
    out: Annotated[Path, option("Where the claim goes; publish it.")],
    output: Output,
    tsa: options.Authority = "",
) -> None:
    """Claim all copies of a roll in public, before they leave; reveals no customer."""
    output.check({"--out": out}, {"ROLL": roll, "--key": key})
    from timbermark.tracing.showing import RollClaim
    from timbermark.verification import stamps

    made = RollClaim.make(options.load_roll(roll), options.load_key(key))
    made.save(out, force=output.force)
    if tsa:
        # The claim is on the disk by now, so that nothing is lost if the authority is not there.
        made = stamps.add_stamp(made, stamps.fetch_stamp(stamps.make_query(made), tsa))
        made.save(out, force=True)
    owner, digest = made.claim.owner, made.digest.hex()
    facts = {
        "claim": str(out), "claim_digest": digest, "owner": owner, "customers": made.n_customers,
        "stamps": len(made.stamps),
    }  # fmt: skip
    said = f"the claim of {owner} about {made.n_customers} copies, SHA-256 {digest}; publish it"
    show_claim(output, facts, [f"{out}: {said}"], stamps.check_stamps(made))


@command(roll_app, "open")
def open_command(
    roll: options.SecretRoll,
    claim: options.Claimed,
    customer: Annotated[str, option("The customer whose part is shown.")],
    judge: options.Judge,
    out: Annotated[Path, option("Where the opening goes, for the judge alone.")],
    output: Output,
    share: Annotated[
        float | None, option("Share of the boundaries to show.  [the smallest that suffices]")
    ] = None,
) -> None:
    """Show one customer's part to a judge; the symbols of all others stay secret."""
    output.check({"--out": out}, {"ROLL": roll, "--claim": claim})
    from timbermark.tracing.showing import RollClaim, open_roll

    published = RollClaim.load(claim)
    opened = options.load_roll(roll)
    made = open_roll(opened, published, customer=customer, judge=judge, share=share)
    made.save(out, force=output.force)
    output.show(
        {"evidence": str(out), "customer": made.customer, **made.boundaries.to_dict()},
        f"{out}: the part of {made.customer} for {made.judge}, {made.boundaries.n_opened} of "
        f"{opened.n_boundaries} boundaries",
    )
