"""The judgment that a pack records: what can be derived again must be the same.

What cannot, because it depends on the roots and the rows that the judge had then, is shown as
recorded and not repeated. It never becomes part of the new judgment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from timbermark.errors import EvidenceError
from timbermark.ownership.judging_answers import printable
from timbermark.ownership.stamps import StampCheck, first_time
from timbermark.verification.judgment_notes import is_ignored_note, list_checks, list_notes
from timbermark.verification.judgments import Judgment, ReferenceModel

RECORDED = "Recorded, not repeated: "
_DERIVED = (
    *("format", "claim", "claim_digest", "opening_digest", "opened_for", "opened", "triggers"),
    *("asked", "is_marked_model", "curve"),
)
_MOST_REFERENCES = 100


def check_recorded(
    recorded: bytes, judgment: Judgment, stamps: Sequence[StampCheck]
) -> tuple[str, ...]:
    """Return notes about what a recorded judgment says that was not derived again.

    ``judgment`` is what was derived now, ``stamps`` what the stamps of the claim in the pack are
    worth now.

    Raises EvidenceError if anything that can be derived again is recorded otherwise.
    """
    try:
        then = json.loads(recorded)
        _compare_derived(then, json.loads(json.dumps(judgment.to_dict())))
        stated = _read_stamps(then["stamps"], stamps)
        _require(then["first_seen"] == first_time(stated))
        _compare_sentences(then, judgment, stated)
        references = _read_references(then["references"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise EvidenceError(
            "The verdict in the pack is not what its answers give.",
            hint="somebody changed the pack; ask the suspect again.",
        ) from None
    return (
        *_note_stamps(stated, stamps),
        *_note_references(references),
        *(note for note in then["notes"] if note.startswith(RECORDED)),
    )


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("recorded otherwise")


def _compare_derived(then: dict[str, Any], now: dict[str, Any]) -> None:
    _require(then.keys() == now.keys())
    _require(all(then[name] == now[name] for name in _DERIVED))
    # The version is that of whoever judged.
    _require(isinstance(then["verdict"].pop("timbermark"), str))
    now["verdict"].pop("timbermark")
    _require(then["verdict"] == now["verdict"])


def _read_stamps(recorded: Any, now: Sequence[StampCheck]) -> tuple[StampCheck, ...]:
    """Return the recorded stamps, which say the same as those of the claim but for their status."""
    _require(isinstance(recorded, list) and len(recorded) == len(now))
    stated = []
    for record, stamp in zip(recorded, now, strict=True):
        found = StampCheck(**record)
        verified = found.status == "verified"
        _require(found.status in ("verified", "not checked") and isinstance(found.reason, str))
        _require(verified == (found.reason == ""))
        unread = found.time is None and not verified and found.authority == ""
        # Without the library for stamps nobody can tell what they say.
        unreadable = stamp.time is None and stamp.authority == ""
        same = (found.time, found.authority) == (stamp.time, stamp.authority)
        _require(same or unread or unreadable)
        stated.append(found)
    return tuple(stated)


def _compare_sentences(
    then: dict[str, Any], judgment: Judgment, stated: Sequence[StampCheck]
) -> None:
    """Check that the recorded sentences are some that a judge writes about this pack."""
    opening = judgment.opening
    allowed = [list(list_checks(opening, stated, named=named)) for named in (True, False)]
    _require(then["checks"] in allowed)
    notes = [
        note
        for note in then["notes"]
        if not note.startswith(RECORDED) and not is_ignored_note(note)
    ]
    allowed = [list(list_notes(opening, stated, was_published=known)) for known in (True, False)]
    _require(notes in allowed)


def _read_references(recorded: Any) -> list[ReferenceModel]:
    _require(isinstance(recorded, list) and len(recorded) <= _MOST_REFERENCES)
    found = [ReferenceModel(**record) for record in recorded]
    for model in found:
        _require(isinstance(model.kind, str) and isinstance(model.bits, int | float))
        _require(math.isfinite(model.bits))
    return found


def _note_stamps(stated: Sequence[StampCheck], now: Sequence[StampCheck]) -> list[str]:
    return [
        f"{RECORDED}the time stamp of {then.time} was verified, under roots that were given then."
        for then, again in zip(stated, now, strict=True)
        if then.counts and not again.counts
    ]


def _note_references(references: Sequence[ReferenceModel]) -> list[str]:
    if not references:
        return []
    shown = ", ".join(f"{printable(model.kind)[:40]} {model.bits:.1f} bits" for model in references)
    return [f"{RECORDED}a second opinion on rows of the judge, {shown}."]
