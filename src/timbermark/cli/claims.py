"""`timbermark keygen`, `claim` and `open`: a key, a public claim, a part for a judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli import options
from timbermark.cli.app import app
from timbermark.cli.options import argument, command, option
from timbermark.cli.outputs import Output, tell
from timbermark.errors import EvidenceError, InputError

if TYPE_CHECKING:
    from timbermark.ownership.claim import Claim
    from timbermark.verification.records import Remainder
    from timbermark.verification.stamps import StampCheck


@command(app)
def keygen(
    path: Annotated[Path, argument("Where the key goes; keep it and back it up.")],
    output: Output,
    passphrase: options.Passphrase = False,
) -> None:
    """Make the 32 secret bytes from which all your marks derive."""
    from timbermark.ownership.keys import OwnerKey

    key = OwnerKey.generate()
    key.save(path, options.new_passphrase(passphrase), force=output.force)
    public = key.claim_key.hex()
    facts = {"key": str(path), "fingerprint": key.fingerprint, "claim_key": public}
    told = f"{path}: owner key {key.fingerprint}", f"its claims are signed with the key {public}"
    output.show(facts, *told)


@command(app)
def claim(
    model: options.MarkedModel,
    mark: options.SecretMark,
    key: options.Signer,
    out: Annotated[Path, option("Where the claim goes; publish it.")],
    tsa: options.Authority = "",
    query: Annotated[Path | None, option("Write the query for an authority to this file.")] = None,
    stamp: Annotated[
        Path | None, option("Add an authority's response to the claim at --out.")
    ] = None,
    force: Annotated[
        bool, option("Overwrite existing files, and claim a model without the mark.", "--force")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Claim a marked model in public, before it is deployed; reveals nothing about triggers.

    Without a network: --query writes what a time-stamping authority must be sent; later the same
    command with --stamp adds its response.
    """
    if tsa and stamp is not None:
        raise InputError("--tsa and --stamp exclude each other.", hint="give one of them.")
    if tsa:
        from timbermark.verification.stamps import check_authority

        check_authority(tsa)
    adds = stamp is not None
    given = {"MODEL": model, "MARK": mark, "--key": key, "--stamp": stamp}
    output = Output(force=force, as_json=as_json)
    output.check({"--out": None if adds else out, "--query": query}, given)
    response = None if stamp is None else stamp.read_bytes()
    secret_mark, owner_key = options.load_mark(mark), options.load_key(key)
    from timbermark.ownership.claim import Claim
    from timbermark.verification import stamps
    from timbermark.verification.judge import claim as make_claim

    # A claim that is there was checked when it was made.
    made = make_claim(model, secret_mark, key=owner_key, force=force or adds)
    if adds:
        assert response is not None
        if not out.exists():
            raise InputError(
                f"{out} does not exist, so there is nothing that the stamp could be of.",
                hint="make the claim first and have that stamped.",
            )
        made = stamps.add_stamp(_same_claim(Claim.load(out), made, out), response)
    asked = stamps.make_query(made) if tsa or query is not None else b""
    made.save(out, force=True)
    if query is not None:
        from timbermark.files import atomic_write

        atomic_write(query, asked)
    if tsa:
        # The claim is on the disk by now, so that nothing is lost if the authority is not there.
        made = stamps.add_stamp(made, stamps.fetch_stamp(asked, tsa))
        made.save(out, force=True)
    _report(made, out, query, output)


def _same_claim(old: Claim, now: Claim, out: Path) -> Claim:
    """Return the claim that is there, if it says what a new one would."""
    differ = [
        name
        for name, value in now.statement.items()
        if name != "claimed" and old.statement[name] != value
    ]
    if differ:
        raise EvidenceError(
            f"{out} claims something else: it differs in {', '.join(differ)}.",
            hint="give the model, the mark and the key of that claim.",
        )
    return old


def _report(made: Claim, out: Path, query: Path | None, output: Output) -> None:
    from timbermark.verification.stamps import check_stamps

    checks = check_stamps(made)
    facts = {
        "claim": str(out),
        "claim_digest": made.digest.hex(),
        **made.to_dict()["statement"],
        "stamps": [asdict(check) for check in checks],
    }
    lines = [f"{out}: the claim of {made.owner}, SHA-256 {made.digest.hex()}; publish it"]
    if query is not None:
        lines.append(f"{query}: the query for a time-stamping authority")
    show_claim(output, facts, lines, checks)


def show_claim(
    output: Output, facts: dict[str, Any], lines: Sequence[str], checks: Sequence[StampCheck]
) -> None:
    """Print a claim that was made and its time stamps, or that it has none."""
    named = (f"{check.time} by {check.authority or 'an unnamed authority'}" for check in checks)
    output.show(facts, *lines, *(f"time stamp of {stamp}" for stamp in named))
    if not checks and not output.as_json:
        tell(["The claim has no time stamp: it proves who made it, not when."])


@command(app, "open")
def open_command(
    mark: options.SecretMark,
    claim: options.Claimed,
    judge: options.Judge,
    out: Annotated[Path, option("Where the evidence goes: a folder, or NAME.zip.")],
    share: Annotated[
        float | None,
        option("Share of the triggers to show, up to 1.  [the smallest that suffices]"),
    ] = None,
    force: Annotated[
        bool, option("Overwrite existing files, and show too little to convince.", "--force")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a part of a mark to a judge: drawn from the claim and the name, not chosen.

    The rest stays secret. By default as much is shown as a copy of the marked model needs to be
    conclusive, with a margin; less is refused. What was shown is recorded beside the mark, in
    MARK.openings.
    """
    from timbermark.ownership.claim import Claim
    from timbermark.ownership.opening import is_enough, open_mark
    from timbermark.verification.packs import CLAIM, OPENING, check_target, write_pack
    from timbermark.verification.records import read_ledger, record_opening, what_is_left

    check_target(out, force)
    published = Claim.load(claim)
    read_ledger(mark)  # a damaged ledger is refused before anything is shown
    secret_mark = options.load_mark(mark)
    opening = open_mark(secret_mark, published, judge=judge, share=share, force=force)
    # First the record: a mark must never have been shown without a trace.
    record_opening(mark, published, opening)
    write_pack(out, {CLAIM: published.to_bytes(), OPENING: opening.to_bytes()}, force)
    left = what_is_left(secret_mark, read_ledger(mark))
    Output(as_json=as_json).show(
        {
            "evidence": str(out),
            **opening.to_dict(),
            "opened_so_far": left.opened,
            "unopened": left.left,
            "bits_left": round(left.bits, 3),
            "can_convince": left.can_convince,
            "next_share": left.next_share,
        },
        f"{out}: {opening.n_opened} of {left.n_triggers} triggers for {opening.judge}, worth "
        f"{opening.full_bits:.0f} bits at most",
        say_left(left),
    )
    if not as_json and not is_enough(opening.full_bits):
        tell(["So much may not be conclusive, even for a copy that nobody touched."])


def say_left(left: Remainder) -> str:
    """Return what is left of a mark after its openings, in one line."""
    told = f"{left.left} triggers nobody has seen, worth {left.bits:.0f} bits at most"
    if left.next_share is None:
        return f"{told}: too few to convince another judge by themselves"
    return f"{told}: an opening with --share {left.next_share:g} can convince another judge"
