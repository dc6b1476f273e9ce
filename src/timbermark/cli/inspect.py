"""`timbermark inspect` and `timbermark marks`: files and folders, without their secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli.app import app
from timbermark.cli.options import VARIABLE, Json, argument, command, load_mark, try_to_unlock
from timbermark.cli.outputs import show, show_facts, show_json, tell
from timbermark.errors import FileFormatError, InputError
from timbermark.files import container_kind

if TYPE_CHECKING:
    from timbermark.ownership.claim import Claim
    from timbermark.ownership.mark import Mark
    from timbermark.tracing.showing import RollClaim
    from timbermark.verification.records import LedgerEntry

_SQLITE = b"SQLite format 3\0"
_LOCKED = f"set {VARIABLE} to see more"


@command(app)
def inspect(
    path: Annotated[
        Path,
        argument("A model, a mark, a claim, an opening, a pack, a key, a journal, a roll …"),
    ],
    as_json: Json = False,
) -> None:
    """Show what a file holds; nothing that is shown is secret.

    For a model: library, classes, trees, features, digest. For a mark: whose it is, when it was
    made, for which model, how strong, and what is left of it after openings. For a claim: what it
    states. For an evidence pack: what it holds; what that is worth is for `timbermark judge`. For
    an owner key: its fingerprint, and the public key that its claims are signed with. For a
    journal: whose mark asked which suspect, how far it came, what it proved. For a roll, its claim
    and its openings: whose, when, how many customers. For a guard, its ledger and its chain: whose,
    of which model, how many questions.
    """
    kind = _kind(path)
    if kind and kind not in _DESCRIBE:
        raise FileFormatError(
            f"{path} holds a {kind} of timbermark, which inspect does not know.",
            hint="a newer version of timbermark may have written it.",
            code="file.kind",
        )
    facts = {"file": str(path), **_DESCRIBE.get(kind, _describe_model)(path)}
    show_json(facts) if as_json else show_facts(facts, _SHOWN_AS.get(kind, {}))


def _kind(path: Path) -> str:
    """Return what a file of timbermark's own says it is, or an evidence pack; else nothing."""
    from timbermark.verification.packs import is_pack

    if is_pack(path):
        return "evidence"
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return "ledger"
    return container_kind(path)


def _take(found: Any, names: str) -> dict[str, Any]:
    """Return facts by attributes, ready for JSON: ``names`` are words like ``owner=head.owner``.

    What is missing on the way is None. Anybody can write a file, so that its texts are not trusted
    with a terminal.
    """
    from timbermark.verification.verdict import printable

    facts: dict[str, Any] = {}
    for word in names.split():
        name, _, path = word.partition("=")
        value = found
        for step in (path or name).split("."):
            known = isinstance(value, Mapping)
            value = value.get(step) if known else getattr(value, step, None)
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, str):
            value = printable(value[:300])
        elif isinstance(value, float) and name.startswith("bits"):
            value = round(value, 3)
        facts[name] = list(value) if isinstance(value, tuple) else value
    return facts


def _unlocked(
    path: Path, kind: str, load: Callable[..., Any], describe: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """Return facts about a file that may be encrypted: few where there is no passphrase."""
    found, encrypted = try_to_unlock(lambda secret: load(path, secret))
    more = {"more": _LOCKED} if found is None else describe(found)
    return {"kind": kind, "encrypted": encrypted, **more}


def _describe_mark(path: Path) -> dict[str, Any]:
    from timbermark.ownership.mark import Mark
    from timbermark.verification.records import read_ledger, what_is_left

    def describe(mark: Mark) -> dict[str, Any]:
        left = what_is_left(mark, read_ledger(path))
        # The bits are those while every symbol is there.
        return {
            **_take(
                mark,
                "owner created mark_id mark_digest=digest model_digest model_library=about.library "
                "model_kind=about.kind triggers=n_triggers leaves=n_leaves splits=n_splits "
                "alphabet=q lead=about.lead draws bits=full_bits features=n_features answers "
                "classes protocol",
            ),
            "classes": len(mark.classes) or None,
            "openings": [_say_opening(entry) for entry in left.openings],
            **_take(left, "unopened=left bits_left=bits can_convince next_share"),
        }

    return _unlocked(path, "mark", Mark.load, describe)


def _say_opening(entry: LedgerEntry) -> str:
    from timbermark.verification.verdict import printable

    return f"{printable(entry.judge)} ({len(entry.places)} triggers, {printable(entry.opened)})"


def _describe_key(path: Path) -> dict[str, Any]:
    from timbermark.ownership.keys import OwnerKey

    return _unlocked(
        path, "owner key", OwnerKey.load, lambda key: _take(key, "fingerprint claim_key")
    )


def _describe_roll(path: Path) -> dict[str, Any]:
    from timbermark.tracing.roll import Roll

    names = "owner=mark.owner created=mark.created mark_id=mark.mark_id "
    names += "model_digest=mark.model_digest customers boundaries=n_boundaries"
    return _unlocked(
        path, "roll", Roll.load,
        lambda roll: {**_take(roll, names), "customers": len(roll.customers)},
    )  # fmt: skip


def _describe_claim(path: Path) -> dict[str, Any]:
    from timbermark.ownership.claim import Claim

    claim = Claim.load(path)
    facts = {"kind": "claim", "claim_digest": claim.digest.hex()}
    return {**facts, **claim.to_dict()["statement"], **_list_stamps(claim)}


def _describe_roll_claim(path: Path) -> dict[str, Any]:
    from timbermark.tracing.showing import RollClaim

    claim = RollClaim.load(path)
    names = "claim_digest=digest owner=claim.owner key=claim.key claimed "
    names += "model_digest=claim.model_digest customers=n_customers boundaries=claim.n_triggers"
    return {"kind": "claim of a roll", **_take(claim, names), **_list_stamps(claim)}


def _list_stamps(claim: Claim | RollClaim) -> dict[str, Any]:
    from timbermark.verification.stamps import check_stamps

    told = ((check.status, check.time, check.authority) for check in check_stamps(claim))
    return {"stamps": [" ".join(filter(None, parts)) for parts in told]}


def _describe_pack(path: Path) -> dict[str, Any]:
    from timbermark.verification.packs import read_pack

    pack = read_pack(path)
    parts = ("claim", "opening", "transcript", "verdict", "page")
    names = "owner=claim.owner claim_digest=claim.digest for=opening.judge "
    names += "opened=opening.n_opened triggers=claim.n_triggers"
    holds = [part for part in parts if getattr(pack, part) is not None]
    return {"kind": "evidence pack", "holds": holds, **_take(pack, names)}


def _describe_opening(path: Path) -> dict[str, Any]:
    from timbermark.ownership.opening import Opening

    names = "for=judge claim_digest owner=head.owner mark_id=head.mark_id opened=n_opened "
    names += "triggers=head.n_triggers bits=full_bits"
    return {"kind": "opening", **_take(Opening.load(path), names)}


def _describe_roll_opening(path: Path) -> dict[str, Any]:
    from timbermark.tracing.showing import RollOpening

    names = "for=judge claim_digest owner=boundaries.head.owner opened=boundaries.n_opened "
    names += "boundaries=boundaries.head.n_triggers"
    return {"kind": "opening of a roll", **_take(RollOpening.load(path), names)}


def _describe_journal(path: Path) -> dict[str, Any]:
    from timbermark.verification.journal import read_journal

    history = read_journal(path)
    return {
        "kind": "journal",
        **_take(
            history.start,
            "owner mark_id mark_digest model_digest suspect protocol created "
            "questions=n_questions triggers=n_triggers",
        ),
        "asked": len(history.answers),
        "answered": sum(answer is not None for answer in history.answers.values()),
        "under_way": len(history.under_way),
        **_take(history.ended, "level bits evidence=kind triggers_asked=triggers"),
    }


def _describe_record(path: Path) -> dict[str, Any]:
    from timbermark.verification.records import read_openings
    from timbermark.verification.verdict import printable

    entries = read_openings(path)
    return {
        "kind": "record of openings",
        "marks": [printable(mark) for mark in dict.fromkeys(entry.mark for entry in entries)],
        "openings": [_say_opening(entry) for entry in entries],
    }


_STATEMENT = "owner key=claim_key model_digest=model share=settings.share"
"""What a guard says of itself in public."""


def _describe_guard(path: Path) -> dict[str, Any]:
    from timbermark.files.encrypting import unseal
    from timbermark.guard.guarding import FORMAT_VERSION, KIND

    _, meta, _ = unseal(path, KIND, FORMAT_VERSION, None)
    return {"kind": "secret of a guard", **_take(meta.get("statement"), _STATEMENT)}


def _describe_ledger(path: Path) -> dict[str, Any]:
    from timbermark.guard.ledger_file import read_summary

    found = read_summary(path)
    return {
        "kind": "ledger of a guard",
        **_take(found.statement, _STATEMENT),
        "clients": len(found.clients),
        "questions": sum(client.asked for client in found.clients),
        "drawn": sum(client.drawn for client in found.clients),
        "entries": found.entries,
        "stamped": found.stamped,
    }


def _describe_chains(path: Path) -> dict[str, Any]:
    from timbermark.verification.chain import load_chains

    chains = load_chains(path)
    return {
        "kind": "chain of a guard",
        "guards": list(dict.fromkeys(chain.commitment.hex() for chain in chains)),
        "chains": len(chains),
        "entries": sum(len(chain.entries) for chain in chains),
        "stamps": sum(len(chain.stamps) for chain in chains),
    }


def _refuse_state(path: Path) -> dict[str, Any]:
    raise InputError(
        f"{path} is a training state, which tells about training rows.",
        hint="inspect the model that it belongs to.",
    )


def _describe_model(path: Path) -> dict[str, Any]:
    from timbermark import libraries
    from timbermark.marking.models import is_ours, open_model
    from timbermark.trees.ensemble import digest

    model = open_model(path) if is_ours(path) else libraries.open_suspect_file(path, whole=True)
    trees = model.ensemble
    per_iteration = 1 if (trees.tree_output < 0).any() else trees.n_outputs
    return {
        "kind": "model",
        **_take(model, "library type=kind task objective=ensemble.objective"),
        "classes": model.classes.tolist(),
        "iterations": trees.n_trees // per_iteration,
        **_take(trees, "trees=n_trees leaves=n_leaves features=n_features"),
        **_take(model, "feature_names"),
        "digest": digest(trees),
        "notes": list(model.notes),
    }


_DESCRIBE = {
    "mark": _describe_mark,
    "owner-key": _describe_key,
    "claim": _describe_claim,
    "opening": _describe_opening,
    "evidence": _describe_pack,
    "journal": _describe_journal,
    "roll": _describe_roll,
    "roll-claim": _describe_roll_claim,
    "roll-opening": _describe_roll_opening,
    "openings": _describe_record,
    "guard": _describe_guard,
    "guard-chain": _describe_chains,
    "ledger": _describe_ledger,
    "state": _refuse_state,
    **dict.fromkeys(("classifier", "regressor", "ensemble"), _describe_model),
}
_TREES = {"digest": "digest of the trees", "model_digest": "digest of the unmarked trees"}
_SHOWN_AS = {
    **dict.fromkeys(_DESCRIBE, _TREES),
    "": _TREES,
    "mark": {**_TREES, "bits": "bits, at most", "bits_left": "bits left, at most"},
    "opening": {"bits": "bits, at most"},
    "claim": {**_TREES, "marked_digest": "digest of the marked trees"},
    "guard": {"model_digest": "digest of the trees"},
    "ledger": {"model_digest": "digest of the trees"},
}
"""What facts are called for people, by the kind of file; machines get their names."""


@command(app)
def marks(
    folder: Annotated[Path, argument("The folder in which your marks are.")] = Path(),
    as_json: Json = False,
) -> None:
    """List the marks of a folder: model, date, strength, openings, claims; nothing secret."""
    from timbermark.verification.records import list_marks

    listed, notes = list_marks(folder, load_mark)
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
        show(f"  {mark.triggers} triggers, at most {mark.bits:.0f} bits")
        if mark.openings:
            show(
                f"  opened for {', '.join(mark.openings)}; {mark.unopened} triggers, "
                f"at most {mark.bits_left:.0f} bits are left"
            )
            can = "can" if mark.can_convince else "can no longer"
            show(f"  what is left {can} convince another judge by itself")
        for claim in mark.claims:
            show(f"  claim {claim.path} of {claim.claimed}, {claim.n_stamps} time stamps")
            named = f"{claim.model}, " if claim.model else ""
            show(f"    on the marked model {named}{claim.marked_digest[:16]}…")
        if not mark.claims:
            show("  no claim")
    if not listed:
        show(f"no marks in {folder}")
    tell(notes)
