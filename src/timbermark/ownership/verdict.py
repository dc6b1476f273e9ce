"""The verdict: what a suspect's answers prove, in plain words and in bits."""

from dataclasses import dataclass, field
from typing import Any

from timbermark.ownership.labels import Label
from timbermark.ownership.statistics import (
    Level,
    evidence_bits,
    level,
    p_value,
    show_p_value,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One trigger and what the suspect made of it."""

    trigger: int
    expected: Label
    response: Label | None
    matched: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many symbols of a mark a suspect answers as only a marked model would.

    >>> print(Verdict("Ann", "00", "model", matched=128, trials=128, q=4))
    marked: 128 of 128 symbols match, evidence 2^-256 (level public)
    >>> print(Verdict("Ann", "00", "model", matched=35, trials=128, q=4, outside=9))
    not marked: 35 of 128 symbols match, evidence 2^-1.7 (level none)
    """

    owner: str  # of the mark
    mark_id: str  # in hexadecimal digits
    suspect: str  # what was asked
    matched: int  # responses that are the label their symbol asks for
    trials: int  # triggers; an unanswered one is a trial without a match
    q: int  # labels in each alphabet
    outside: int = 0  # responses outside their alphabet
    unknown: int = 0  # of these, responses that are no class of the mark at all
    unanswered: int = 0  # missing responses (None, NaN)
    answers: tuple[Answer, ...] = field(default=(), repr=False)

    @property
    def evidence_bits(self) -> float:
        """-log₂ of the chance that a suspect independent of the secret matches as often."""
        return evidence_bits(self.matched, self.trials, self.q)

    @property
    def p_value(self) -> float:
        """That chance; below 2^-1022 it is given as that, never as 0."""
        return p_value(self.evidence_bits)

    @property
    def p_value_text(self) -> str:
        """That chance as a power of two, such as 2^-256."""
        return show_p_value(self.evidence_bits)

    @property
    def level(self) -> Level:
        """Whom it convinces: ``none`` below 20 bits, ``private``, from 64 bits ``public``."""
        return level(self.evidence_bits)

    @property
    def marked(self) -> bool:
        """Whether the level is more than ``none``."""
        return self.level != "none"

    def table(self) -> list[Answer]:
        """Return one row per trigger, in the order of the mark.

        It reveals the mark: whoever sees it can make a model answer otherwise on these triggers.
        """
        return list(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return what may be shown to anyone, ready for JSON; nothing in it is secret.

        >>> Verdict("Ann", "00", "model", matched=128, trials=128, q=4).to_dict()["p_value_text"]
        '2^-256'
        """
        return {
            "marked": self.marked,
            "level": self.level,
            "evidence_bits": self.evidence_bits,
            "p_value": self.p_value,
            "p_value_text": self.p_value_text,
            "matched": self.matched,
            "trials": self.trials,
            "q": self.q,
            "outside": self.outside,
            "unknown": self.unknown,
            "unanswered": self.unanswered,
            "owner": self.owner,
            "mark_id": self.mark_id,
            "suspect": self.suspect,
        }

    def __str__(self) -> str:
        said = "marked" if self.marked else "not marked"
        notes = ""
        if self.unanswered:
            notes += f"; {self.unanswered} unanswered"
        if self.unknown == self.trials:
            notes += "; no answer is a class of the mark, check what its labels mean"
        return (
            f"{said}: {self.matched} of {self.trials} symbols match, evidence "
            f"{self.p_value_text} (level {self.level}){notes}"
        )
