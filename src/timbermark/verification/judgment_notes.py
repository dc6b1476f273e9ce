"""The sentences of a judgment about what was checked and what to keep in mind."""

from __future__ import annotations

import re
from collections.abc import Sequence

from timbermark.ownership.opening import Opening
from timbermark.ownership.stamps import StampCheck
from timbermark.ownership.statistics import CONCLUSIVE_BITS

_FOR_THE_JUDGE = "the opening is for the judge who asks"
_IGNORED = re.compile(r"[1-9][0-9]* other files in .* were not looked at\.", re.DOTALL)


def list_checks(opening: Opening, stamps: Sequence[StampCheck], *, named: bool) -> tuple[str, ...]:
    """Return what was checked and held; ``named``: whether the judge said for whom to open."""
    found = [
        "the claim is signed with the key that it names",
        "the opened mark is the one that the claim commits to",
        f"the draw for {opening.judge!r} gives exactly these {opening.n_opened} triggers",
        "each opened trigger leads to the Merkle root under the claim",
        "symbols, columns and reading derive from the claim",
    ]
    if named:
        found.append(_FOR_THE_JUDGE)
    verified = sum(stamp.counts for stamp in stamps)
    if verified:
        found.append(f"{verified} time stamps hold under the given roots")
    return tuple(found)


def list_notes(
    opening: Opening, stamps: Sequence[StampCheck], *, was_published: bool
) -> tuple[str, ...]:
    """Return what a reader of the judgment should keep in mind."""
    notes = []
    if not was_published:
        notes.append("The claim comes from the pack itself: compare it with the published one.")
    unchecked = [stamp for stamp in stamps if not stamp.counts]
    if unchecked:
        why = unchecked[0].reason.rstrip(".")
        notes.append(f"{len(unchecked)} of {len(stamps)} time stamps were not checked: {why}.")
    if not any(stamp.counts for stamp in stamps):
        notes.append("No verified time stamp shows when the claim was made.")
    if opening.full_bits < CONCLUSIVE_BITS:
        notes.append(
            f"The opened triggers are worth {opening.full_bits:.0f} bits at most, which is not "
            "conclusive."
        )
    return tuple(notes)


def note_ignored(count: int, name: str) -> str:
    """Return the note about files of a pack that were not looked at.

    >>> is_ignored_note(note_ignored(2, "evidence"))
    True
    """
    return f"{count} other files in {name} were not looked at."


def is_ignored_note(note: str) -> bool:
    """Return whether a note is about files that were not looked at."""
    return _IGNORED.fullmatch(note) is not None
