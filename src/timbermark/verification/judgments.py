"""What a judge finds: plain results that everything else only shows."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from timbermark.ownership.claim import Claim
from timbermark.ownership.opening import Opening
from timbermark.ownership.stamps import StampCheck, first_time
from timbermark.ownership.statistics import Level, round_bits
from timbermark.ownership.verdict import Verdict
from timbermark.reportable import Reportable, make_page
from timbermark.verification.packs import CLAIM, OPENING, PAGE, TRANSCRIPT, VERDICT, write_pack

FORMAT = "timbermark judgment 1"


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """A model that the judge trained on rows of his own, and what its answers would prove."""

    kind: str
    bits: float
    matched: int | None
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgment(Reportable):
    """What a suspect's answers to the opened triggers of a claimed mark prove.

    All that it states about the claim was derived again and checked; whatever fails is an error
    and leads to no judgment.
    """

    claim: Claim
    opening: Opening = field(repr=False)
    stamps: tuple[StampCheck, ...]
    checks: tuple[str, ...]  # what was checked and held, one sentence each
    verdict: Verdict
    transcript: str = field(repr=False)  # JSON: how the suspect was asked and what it answered
    asked: str  # when the suspect was asked, UTC
    asked_again: bool  # whether the answers were given now, and not taken from a transcript
    is_marked_model: bool | None  # the suspect's file is the one the claim names; None: no file
    references: tuple[ReferenceModel, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """Return the level of the verdict."""
        return self.verdict.level

    @property
    def bits(self) -> float:
        """Return the bits of the verdict."""
        return self.verdict.bits

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Return numbers of questions and the bits after them, in the order of asking."""
        return self.verdict.curve

    @property
    def first_seen(self) -> str | None:
        """Return the earliest verified time of the claim; None if no stamp was verified."""
        return first_time(self.stamps)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but answers and triggers, ready for JSON."""
        return {
            "format": FORMAT,
            "claim": describe_claim(self.claim),
            "claim_digest": self.claim.digest.hex(),
            "opening_digest": self.opening.digest.hex(),
            "opened_for": self.opening.judge,
            "opened": self.opening.n_opened,
            "triggers": self.claim.n_triggers,
            "stamps": [describe_stamp(stamp) for stamp in self.stamps],
            "first_seen": self.first_seen,
            "checks": list(self.checks),
            "verdict": self.verdict.to_dict(),
            "asked": self.asked,
            "is_marked_model": self.is_marked_model,
            "references": [
                {"kind": r.kind, "bits": r.bits, "matched": r.matched, "trials": r.trials}
                for r in self.references
            ],
            "curve": [[n, round_bits(bits)] for n, bits in self.curve],
            "notes": list(self.notes),
        }

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> bool:
        """Write an evidence pack: the claim, the opening, the transcript, this judgment, its page.

        A name that ends in ``.zip`` becomes an archive, any other a folder. `timbermark.judge`
        reads it years later, without a network. Returns whether the page is in it, which it is
        where Jinja2 and Matplotlib are installed.

        Raises InputError if something is there already, unless ``force``.
        """
        verdict = json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"
        parts = {
            CLAIM: self.claim.to_bytes(),
            OPENING: self.opening.to_bytes(),
            TRANSCRIPT: self.transcript.encode(),
            VERDICT: verdict.encode(),
        }
        page = make_page(self, self.asked)
        write_pack(path, parts if page is None else {**parts, PAGE: page.encode()}, force)
        return page is not None

    def __str__(self) -> str:
        lines = [
            str(self.verdict),
            f"claim:      {self.claim.digest.hex()}",
            f"            signed with the key {self.claim.key.hex()}",
            *(f"time stamp: {_show_stamp(stamp)}" for stamp in self.stamps),
        ]
        if not self.stamps:
            lines.append(
                f"time stamp: none; by its own word the claim was made {self.claim.claimed}"
            )
        lines += [
            f"opened:     {self.opening.n_opened} of {self.claim.n_triggers} triggers, for "
            f"{self.opening.judge}",
            f"asked:      {self.asked}"
            + ("" if self.asked_again else ", answers taken from the transcript"),
            *(f"checked:    {check}" for check in self.checks),
        ]
        if self.references:
            what = "levels" if self.verdict.kind == "numbers" else "labels"
            lines.append("second opinion, models trained on the judge's own rows:")
            lines += [
                f"  {r.kind:24} {r.bits:7.1f} bits"
                + ("" if r.matched is None else f", {r.matched} of {r.trials} {what}")
                for r in self.references
            ]
            lines.append(f"  {'the suspect':24} {self.bits:7.1f} bits")
        lines += [f"note:       {note}" for note in self.notes]
        return "\n".join(lines)


def describe_claim(claim: Claim) -> dict[str, Any]:
    """Return a claim's statement, ready for JSON.

    >>> from timbermark.ownership import Mark, OwnerKey
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> describe_claim(Claim.make(mark, key, marked_digest="1" * 64))["owner"]
    'Ann'
    """
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in claim.statement.items()
    }


def describe_stamp(stamp: StampCheck) -> dict[str, Any]:
    """Return what a time stamp is worth, ready for JSON.

    >>> describe_stamp(StampCheck("verified", "2030-01-02T03:04:05Z", "CN=T"))["status"]
    'verified'
    """
    return {
        "status": stamp.status,
        "time": stamp.time,
        "authority": stamp.authority,
        "reason": stamp.reason,
    }


def _show_stamp(stamp: StampCheck) -> str:
    said = " by ".join(part for part in (stamp.time, stamp.authority) if part)
    return f"{stamp.status}: {said}" + (f" ({stamp.reason})" if stamp.reason else "")
