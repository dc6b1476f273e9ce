"""The verdict: what a suspect's answers prove, in codes and numbers.

Sentences about it are made in `timbermark.verification.words`, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING, Any

from timbermark.ownership.evidence import (
    AnswerKind,
    Level,
    Price,
    level,
    round_bits,
    sum_prices,
)
from timbermark.reportable import Reportable

if TYPE_CHECKING:
    from timbermark.verification.transcript import Transcript

_PLAIN_COUNT = 1000
_EXACT_FACTORIAL = 1000


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a reader should know: a code, and the facts of this case."""

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the note, ready for JSON."""
        return {"code": self.code, **self.facts}


@dataclass(frozen=True, slots=True)
class Context:
    """How a suspect was asked and how its answers were read; everything stands in the verdict."""

    suspect: str  # a description of the suspect, from outside
    through: str  # "file", "object", "function", "table" or "http"
    suspect_digest: str | None = None  # SHA-256 of the suspect's file, if it is one
    columns: str = "by-place"  # how columns were matched: "by-name", "by-place" or "by-hand"
    column_names: tuple[str, ...] = ()  # of the suspect, in its order; empty if they have none
    reading: Mapping[str, Any] = field(default_factory=dict)  # how answers were read
    request: Mapping[str, Any] = field(default_factory=dict)  # what an endpoint was sent
    prices: tuple[Price, ...] = ()  # of what was chosen by hand; those of the mark come first
    warnings: tuple[Note, ...] = ()
    conditions: tuple[Note, ...] = ()  # what the evidence depends on and has no price


@dataclass(frozen=True, slots=True)
class SealFinding:
    """What the answers to one seal of the mark prove."""

    seal: str  # "leaves" or "splits"
    bits: float  # before prices; negative where the answers speak against the mark
    triggers: int
    answered: int
    counted: int  # answers that speak for one symbol or another
    matched: int  # of these, those that speak for the symbol of the mark
    q: int  # symbols in each alphabet


@dataclass(frozen=True, slots=True)
class Answer:
    """One trigger, the symbol it carries in the mark, and what the suspect's answer says."""

    seal: str
    trigger: int  # place in the mark
    expected: Any  # a label; "low" or "high" for a trigger in splits
    response: Any  # likewise; None without an answer
    matched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Reportable):
    """What the answers of one suspect to one mark prove."""

    owner: str  # of the mark
    mark_id: str  # in hexadecimal digits
    created: str  # when the mark was made, by its own word
    mark_digest: str  # SHA-256 of everything in the mark but its secret
    model_digest: str  # SHA-256 of the unmarked model
    kind: AnswerKind  # what the suspect answered with
    seals: tuple[SealFinding, ...]
    raw_bits: float  # of both seals together, before prices
    prices: tuple[Price, ...] = ()
    unknown: int = 0  # answers that are no class of the mark
    context: Context
    warnings: tuple[Note, ...] = ()
    version: str  # of timbermark
    answers: tuple[Answer, ...] = field(default=(), repr=False)
    # What it was judged by; equal verdicts may rest on it in another way.
    transcript: Transcript | None = field(default=None, repr=False, compare=False)
    # Numbers of triggers and the bits after them, minus prices, in the order of asking. Whoever
    # sees both it and the suspect's own record of answers may guess which questions counted.
    curve: tuple[tuple[int, float], ...] = field(default=(), repr=False, compare=False)

    @property
    def net_bits(self) -> float:
        """Return the evidence minus all prices, in bits; may be negative."""
        return self.raw_bits - sum_prices(self.prices)

    @property
    def bits(self) -> float:
        """Return the evidence minus all prices, at least 0, rounded down to 0.001 bits."""
        return max(0.0, round_bits(self.net_bits))

    @property
    def level(self) -> Level:
        """Return ``none`` below 20 bits, ``conclusive`` from 64 bits on, else ``indicative``.

        While the context has a condition that caps it, conclusive evidence counts as indicative.
        """
        found = level(self.bits)
        capped = any(note.facts.get("caps") for note in self.context.conditions)
        return "indicative" if capped and found == "conclusive" else found

    @property
    def chance(self) -> str:
        """Return how often a suspect without the mark answers like this: "1 in 6·10^57"."""
        return show_chance(self.bits)

    @property
    def suspect(self) -> str:
        """Return the description of the suspect."""
        return self.context.suspect

    @property
    def suspect_digest(self) -> str | None:
        """Return the SHA-256 of the suspect's file, if it is one."""
        return self.context.suspect_digest

    @property
    def trials(self) -> int:
        """Return the number of triggers of both seals."""
        return sum(seal.triggers for seal in self.seals)

    @property
    def answered(self) -> int:
        """Return the number of triggers that the suspect answered."""
        return sum(seal.answered for seal in self.seals)

    @property
    def matched(self) -> int:
        """Return the number of answers that speak for the symbols of the mark."""
        return sum(seal.matched for seal in self.seals)

    def seal(self, name: str) -> SealFinding | None:
        """Return what was found about one seal, "leaves" or "splits"; None without that seal."""
        return next((seal for seal in self.seals if seal.seal == name), None)

    def table(self) -> list[Answer]:
        """Return one row for each trigger, in the order of the mark.

        It reveals the mark: whoever sees it can make a model answer otherwise on these triggers.
        """
        return list(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return what may be shown to anyone, ready for JSON; nothing in it is secret.

        ``words`` are sentences for people; everything else is codes and numbers.
        """
        from timbermark.verification import words

        return {**self.facts(), "words": words.verdict_words(self)}

    def facts(self) -> dict[str, Any]:
        """Return the codes and numbers of the verdict, by which two verdicts are compared."""
        context = self.context
        return {
            "level": self.level,
            "bits": self.bits,
            "chance": self.chance,
            "kind": self.kind,
            "raw_bits": round_bits(self.raw_bits),
            "seals": [
                {
                    "seal": seal.seal,
                    "bits": round_bits(seal.bits),
                    "triggers": seal.triggers,
                    "answered": seal.answered,
                    "counted": seal.counted,
                    "matched": seal.matched,
                    "q": seal.q,
                }
                for seal in self.seals
            ],
            "prices": [
                {"code": price.code, "bits": round_bits(price.bits), **price.facts}
                for price in self.prices
            ],
            "unknown": self.unknown,
            "owner": self.owner,
            "mark_id": self.mark_id,
            "created": self.created,
            "mark_digest": self.mark_digest,
            "model_digest": self.model_digest,
            "suspect": context.suspect,
            "suspect_digest": context.suspect_digest,
            "asked_through": context.through,
            "columns": context.columns,
            "column_names": list(context.column_names),
            "reading": dict(context.reading),
            "request": dict(context.request),
            "warnings": [note.to_dict() for note in self.warnings],
            "conditions": [note.to_dict() for note in context.conditions],
            "timbermark": self.version,
        }

    def __str__(self) -> str:
        from timbermark.verification import words

        return words.show_verdict(self)

    def __repr__(self) -> str:
        seals = ", ".join(f"{seal.seal} {seal.bits:.1f}" for seal in self.seals)
        return f"Verdict({self.level}, {self.bits:.1f} bits from {self.kind}: {seals})"


def printable(text: str) -> str:
    """Return a text from outside, such as the name of a file, fit for any terminal.

    >>> printable("a\\x1b[31m")
    'a�[31m'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def price_of_holes(left_out: int, of: int) -> Price:
    """Return the price of answers that are missing among others.

    It is log₂ of the number of ways to leave out so many, times the numbers that could be left out.

    >>> price_of_holes(1, 4).bits == math.log2(4 * 5)
    True
    """
    ways = math.comb(of, left_out) * (of + 1)
    return Price("holes", math.log2(ways), {"left_out": left_out, "of": of})


def log2_factorial(n: int) -> float:
    """Return log₂ n!.

    >>> log2_factorial(4) == math.log2(24)
    True
    """
    if n <= _EXACT_FACTORIAL:
        return math.log2(math.factorial(n))
    return math.lgamma(n + 1.0) / math.log(2.0)


def show_chance(bits: float) -> str:
    """Return the chance 2^-bits as text, rounded towards less evidence.

    >>> show_chance(192.0), show_chance(20.0), show_chance(7.5), show_chance(0.0)
    ('1 in 6·10^57', '1 in 1·10^6', '1 in 181', '1 in 1')
    """
    thousandths = round(round_bits(max(bits, 0.0)) * 1000)
    with localcontext(prec=60, rounding=ROUND_FLOOR):
        count = Decimal(2) ** (Decimal(thousandths) / 1000)
        if count < _PLAIN_COUNT:
            return f"1 in {int(count)}"
        # A power of two that is not whole is irrational; 60 digits settle its first one.
        power = count.adjusted()
        return f"1 in {int(count.scaleb(-power))}·10^{power}"
