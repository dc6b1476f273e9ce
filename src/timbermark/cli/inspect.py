"""`timbermark inspect` and `timbermark marks`: files and folders, without their secrets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli.app import app
from timbermark.cli.options import VARIABLE, Json, argument, command, load_mark, try_to_unlock
from timbermark.cli.outputs import show, show_facts, show_json, tell
from timbermark.errors import FileFormatError, InputError
from timbermark.files import container_kind

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark
    from timbermark.verification.stamps import StampCheck

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


def _describe_mark_file(path: Path) -> dict[str, Any]:
    from timbermark.ownership.mark import Mark

    mark, encrypted = try_to_unlock(lambda secret: Mark.load(path, secret))
    facts: dict[str, Any] = {"kind": "mark", "encrypted": encrypted}
    if mark is None:
        return {**facts, "more": _LOCKED}
    return {**facts, **_describe_mark(mark), **_describe_openings(path, mark)}


def _describe_openings(path: Path, mark: Mark) -> dict[str, Any]:
    from timbermark.verification.records import read_ledger, what_is_left

    left = what_is_left(mark, read_ledger(path))
    return {
        "openings": [
            f"{entry.judge} ({len(entry.places)} triggers, {entry.opened})"
            for entry in left.openings
        ],
        "unopened": left.left,
        "bits_left": round(left.bits, 3),
        "can_convince": left.can_convince,
        "next_share": left.next_share,
    }


def _describe_claim(path: Path) -> dict[str, Any]:
    from timbermark.ownership.claim import Claim
    from timbermark.verification.stamps import check_stamps

    claim = Claim.load(path)
    return {
        "kind": "claim",
        "claim_digest": claim.digest.hex(),
        **claim.to_dict()["statement"],
        "stamps": _list_stamps(check_stamps(claim)),
    }


def _list_stamps(checks: Iterable[StampCheck]) -> list[str]:
    return [" ".join(filter(None, (check.status, check.time, check.authority))) for check in checks]


def _describe_pack(path: Path) -> dict[str, Any]:
    from timbermark.verification.packs import read_pack

    pack = read_pack(path)
    claim, opening = pack.claim, pack.opening
    parts = ("claim", "opening", "transcript", "verdict", "page")
    return {
        "kind": "evidence pack",
        "holds": [part for part in parts if getattr(pack, part) is not None],
        "owner": None if claim is None else claim.owner,
        "claim_digest": None if claim is None else claim.digest.hex(),
        "for": None if opening is None else opening.judge,
        "opened": None if opening is None else opening.n_opened,
        "triggers": None if claim is None else claim.n_triggers,
    }


def _describe_opening(path: Path) -> dict[str, Any]:
    from timbermark.ownership.opening import Opening

    opening = Opening.load(path)
    return {
        "kind": "opening",
        "for": opening.judge,
        "claim_digest": opening.claim_digest.hex(),
        "owner": opening.head.owner,
        "mark_id": opening.head.mark_id.hex(),
        "opened": opening.n_opened,
        "triggers": opening.head.n_triggers,
        "bits": round(opening.full_bits, 3),
    }


def _describe_mark(mark: Mark) -> dict[str, Any]:
    about = {name: mark.about.get(name) for name in ("library", "kind", "lead")}
    return {
        "owner": mark.owner,
        "created": mark.created,
        "mark_id": mark.mark_id.hex(),
        "mark_digest": mark.digest.hex(),
        "model_digest": mark.model_digest,
        "model_library": about["library"],
        "model_kind": about["kind"],
        "triggers": mark.n_triggers,
        "leaves": mark.n_leaves,
        "splits": mark.n_splits,
        "alphabet": mark.q,
        "lead": about["lead"],
        "draws": mark.draws,
        # While every symbol is there.
        "bits": round(mark.full_bits, 3),
        "features": mark.n_features,
        "answers": mark.answers,
        "classes": len(mark.classes) or None,
        "protocol": mark.protocol,
    }


def _describe_key(path: Path) -> dict[str, Any]:
    from timbermark.ownership.keys import OwnerKey

    key, encrypted = try_to_unlock(lambda secret: OwnerKey.load(path, secret))
    facts: dict[str, Any] = {"kind": "owner key", "encrypted": encrypted}
    if key is None:
        return {**facts, "more": _LOCKED}
    return {**facts, "fingerprint": key.fingerprint, "claim_key": key.claim_key.hex()}


def _describe_journal(path: Path) -> dict[str, Any]:
    from timbermark.verification.journal import read_journal
    from timbermark.verification.verdict import printable

    history = read_journal(path)
    start, ended = history.start, history.ended or {}
    answered = sum(answer is not None for answer in history.answers.values())
    names = ("owner", "mark_id", "mark_digest", "model_digest", "suspect", "protocol", "created")
    return {
        "kind": "journal",
        # Anybody can write a journal, so its texts are not trusted with a terminal.
        **{name: printable(str(start.get(name, ""))[:300]) for name in names},
        "questions": start.get("n_questions"),
        "triggers": start.get("n_triggers"),
        "asked": len(history.answers),
        "answered": answered,
        "under_way": len(history.under_way),
        "level": ended.get("level"),
        "bits": ended.get("bits"),
        "evidence": ended.get("kind"),
        "triggers_asked": ended.get("triggers"),
    }


def _describe_roll(path: Path) -> dict[str, Any]:
    from timbermark.tracing.roll import Roll

    roll, encrypted = try_to_unlock(lambda secret: Roll.load(path, secret))
    facts: dict[str, Any] = {"kind": "roll", "encrypted": encrypted}
    if roll is None:
        return {**facts, "more": _LOCKED}
    return {
        **facts,
        "owner": roll.mark.owner,
        "created": roll.mark.created,
        "mark_id": roll.mark.mark_id.hex(),
        "model_digest": roll.mark.model_digest,
        "customers": len(roll.customers),
        "boundaries": roll.n_boundaries,
    }


def _describe_roll_claim(path: Path) -> dict[str, Any]:
    from timbermark.tracing.showing import RollClaim
    from timbermark.verification.stamps import check_stamps

    claim = RollClaim.load(path)
    return {
        "kind": "claim of a roll",
        "claim_digest": claim.digest.hex(),
        "owner": claim.claim.owner,
        "key": claim.claim.key.hex(),
        "claimed": claim.claimed,
        "model_digest": claim.claim.model_digest,
        "customers": claim.n_customers,
        "boundaries": claim.claim.n_triggers,
        "stamps": _list_stamps(check_stamps(claim)),
    }


def _describe_roll_opening(path: Path) -> dict[str, Any]:
    from timbermark.tracing.showing import RollOpening

    opening = RollOpening.load(path)
    return {
        "kind": "opening of a roll",
        "for": opening.judge,
        "claim_digest": opening.claim_digest.hex(),
        "owner": opening.boundaries.head.owner,
        "opened": opening.boundaries.n_opened,
        "boundaries": opening.boundaries.head.n_triggers,
    }


def _describe_record(path: Path) -> dict[str, Any]:
    from timbermark.verification.records import read_openings
    from timbermark.verification.verdict import printable

    entries = read_openings(path)
    return {
        "kind": "record of openings",
        "marks": [printable(mark) for mark in dict.fromkeys(entry.mark for entry in entries)],
        "openings": [
            f"{printable(entry.judge)} ({len(entry.places)} triggers, {printable(entry.opened)})"
            for entry in entries
        ],
    }


def _describe_guard(path: Path) -> dict[str, Any]:
    from timbermark.files.encrypting import unseal
    from timbermark.guard.guarding import FORMAT_VERSION, KIND

    _, meta, _ = unseal(path, KIND, FORMAT_VERSION, None)
    return {"kind": "secret of a guard", **_describe_statement(meta.get("statement"))}


def _describe_ledger(path: Path) -> dict[str, Any]:
    from timbermark.guard.ledger_file import read_summary

    found = read_summary(path)
    return {
        "kind": "ledger of a guard",
        **_describe_statement(found.statement),
        "clients": len(found.clients),
        "questions": sum(client.asked for client in found.clients),
        "drawn": sum(client.drawn for client in found.clients),
        "entries": found.entries,
        "stamped": found.stamped,
    }


def _describe_statement(given: Any) -> dict[str, Any]:
    """Return what a guard says of itself in public; anybody can write such a file."""
    from timbermark.verification.verdict import printable

    stated = given if isinstance(given, dict) else {}
    settings = stated.get("settings")
    return {
        **{
            shown: printable(str(stated.get(name, ""))[:300])
            for shown, name in (("owner", "owner"), ("key", "claim_key"), ("model_digest", "model"))
        },
        "share": settings.get("share") if isinstance(settings, dict) else None,
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
        "library": model.library,
        "type": model.kind,
        "task": model.task,
        "objective": trees.objective,
        "classes": model.classes.tolist(),
        "iterations": trees.n_trees // per_iteration,
        "trees": trees.n_trees,
        "leaves": trees.n_leaves,
        "features": trees.n_features,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "digest": digest(trees),
        "notes": list(model.notes),
    }


_DESCRIBE = {
    "mark": _describe_mark_file,
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
