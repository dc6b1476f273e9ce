"""The verdict: what a suspect's answers prove, in bits and in words that need no statistics."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from timbermark.ownership.labels import Label
from timbermark.ownership.statistics import Level, level, round_bits, show_chance
from timbermark.reportable import Reportable

if TYPE_CHECKING:
    from timbermark.ownership.transcript import Transcript

EvidenceKind: TypeAlias = Literal["scores", "labels", "labels one by one", "numbers"]

_EXACT_FACTORIAL = 1000
_FINDINGS: dict[Level, str] = {
    "none": "no evidence that the suspect carries the mark of {owner}",
    "indicative": "signs of the mark of {owner}, enough to convince its owner only",
    "conclusive": "the suspect carries the mark of {owner}",
}
_MEANINGS: dict[Level, str] = {
    "none": (
        "A model that has nothing to do with the marked one could answer like this by chance; it "
        "may still be a copy whose mark was damaged."
    ),
    "indicative": (
        "A model that has nothing to do with the marked one hardly answers like this by chance, "
        "but a dishonest claimant could have searched for a mark that fits: it convinces only the "
        "owner."
    ),
    "conclusive": (
        "Neither chance nor a search for a mark that fits explains these answers: the suspect "
        "comes from the marked model, or its maker knew the secret of the mark."
    ),
}


@dataclass(frozen=True, slots=True)
class Price:
    """Bits that are subtracted from the evidence, because something was chosen among several.

    >>> Price("4 draws of symbols", 2.0)
    Price(reason='4 draws of symbols', bits=2.0)
    """

    reason: str
    bits: float


def price_of_draws(draws: int) -> Price:
    """Return the price of keeping one of several sets of symbols: log₂ of their number.

    >>> price_of_draws(4)
    Price(reason='the best of 4 draws of symbols', bits=2.0)
    """
    return Price(f"the best of {draws} draws of symbols", math.log2(draws))


def price_of_columns(n_features: int) -> Price:
    """Return the price of an order of columns given by hand: log₂ of the number of orders.

    >>> price_of_columns(4).bits == math.log2(24)
    True
    """
    return Price(f"an order of {n_features} columns given by hand", _log2_factorial(n_features))


def price_of_label_map(n_classes: int) -> Price:
    """Return the price of a label map given by hand: log₂ of the number of such maps.

    >>> price_of_label_map(2)
    Price(reason='a map of 2 labels given by hand', bits=1.0)
    """
    return Price(f"a map of {n_classes} labels given by hand", _log2_factorial(n_classes))


def price_of_assignment(n_given: int, n_classes: int) -> Price:
    """Return the price of saying by hand which of n scores or labels is which class, if any.

    Each may be any class that no other is, or none: log₂ of the number of such assignments.

    >>> price_of_assignment(2, 1).bits == math.log2(3)
    True
    """
    most = min(n_given, n_classes)
    ways = sum(math.comb(n_given, k) * math.perm(n_classes, k) for k in range(most + 1))
    reason = f"saying by hand which of {n_given} are which of {n_classes} classes"
    return Price(reason, math.log2(ways))


def price_of_kind() -> Price:
    """Return the price of asking for another kind of answers than the rule says: 1 of 2 kinds.

    >>> price_of_kind().bits
    1.0
    """
    return Price("a kind of answers chosen by hand", 1.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """One trigger and the label, or the difference of numbers, that the suspect gave it."""

    trigger: int
    expected: Label
    response: Label | None
    matched: bool


_ADAPTERS = {
    "function": (
        "A function can be written to give any answers: the evidence holds only if whoever wrote "
        "it did not know the secret of the mark."
    ),
    "object": (
        "An object runs code of its own: the evidence holds only if whoever made it did not know "
        "the secret of the mark. A model file is read and never runs."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Reportable):
    """What the answers of one suspect to one mark prove.

    >>> verdict = Verdict(
    ...     owner="Ann", mark_id="00", created="2030-01-02T03:04:05Z", mark_digest="11",
    ...     model_digest="22", suspect="file a.timber", suspect_digest=None, asked_through="file",
    ...     kind="scores", raw_bits=193.99, prices=(price_of_draws(4),), trials=96, answered=96,
    ...     q=4, matched=96, columns="by name", version="0.1.0",
    ... )
    >>> verdict.level, verdict.bits, verdict.chance
    ('conclusive', 191.99, '1 in 6·10^57')
    """

    owner: str  # of the mark
    mark_id: str  # in hexadecimal digits
    created: str  # when the mark was made, by its own word
    mark_digest: str  # SHA-256 of everything in the mark but its secret
    model_digest: str  # SHA-256 of the unmarked model
    suspect: str  # a description of what was asked
    suspect_digest: str | None  # SHA-256 of the suspect's file, if it is one
    asked_through: str  # "file", "object", "function" or what a caller says
    kind: EvidenceKind
    raw_bits: float  # before prices; negative where the answers speak against the mark
    prices: tuple[Price, ...] = ()
    trials: int  # triggers
    answered: int  # triggers that the suspect answered
    q: int  # labels in each alphabet
    matched: int | None  # answers that are the label their symbol asks for, if labels are known
    outside: int = 0  # labels outside their alphabet, which do not count
    unknown: int = 0  # of these, answers that are no class of the mark at all
    columns: str  # how columns were matched: "by name", "by place" or "by hand"
    # Of the suspect, in its order; empty if they have none, None if it was not written down.
    column_names: tuple[str, ...] | None = None
    reading: str = ""  # how answers were read
    warnings: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()  # what was chosen by hand and has no price
    version: str  # of timbermark
    answers: tuple[Answer, ...] = field(default=(), repr=False)
    # What it was judged by; equal verdicts may rest on it in another way.
    transcript: "Transcript | None" = field(default=None, repr=False, compare=False)
    # Numbers of questions and the bits after them, minus prices, in the order of asking. Whoever
    # sees both it and the suspect's own record of answers may guess which questions counted.
    curve: tuple[tuple[int, float], ...] = field(default=(), repr=False, compare=False)

    @property
    def net_bits(self) -> float:
        """Return the evidence minus all prices, in bits; may be negative."""
        return self.raw_bits - math.fsum(price.bits for price in self.prices)

    @property
    def bits(self) -> float:
        """Return the evidence minus all prices, at least 0, rounded down to 0.001 bits."""
        return max(0.0, round_bits(self.net_bits))

    @property
    def level(self) -> Level:
        """Return ``none`` below 20 bits, ``conclusive`` from 64 bits on, else ``indicative``."""
        return level(self.bits)

    @property
    def chance(self) -> str:
        """Return how often a suspect without the mark answers like this: "1 in 6·10^57"."""
        return show_chance(self.bits)

    @property
    def finding(self) -> str:
        """Return what was found, in half a sentence without a full stop."""
        return _FINDINGS[self.level].format(owner=self.owner)

    @property
    def meaning(self) -> str:
        """Return what the level means, in one sentence."""
        return _MEANINGS[self.level]

    @property
    def condition(self) -> str:
        """Return what the evidence depends on, given how the suspect was asked; may be empty.

        A suspect that is code can be an adapter, written after the secret was known. That has no
        price in bits, nor has everything that can be chosen about requests to a server.
        """
        return " ".join(self._provisos)

    @property
    def _provisos(self) -> tuple[str, ...]:
        """Return the sentences of the condition."""
        adapter = _ADAPTERS.get(self.asked_through)
        return self.conditions if adapter is None else (adapter, *self.conditions)

    @property
    def unanswered(self) -> int:
        """Return the number of triggers that the suspect did not answer."""
        return self.trials - self.answered

    def table(self) -> list[Answer]:
        """Return one row for each trigger, in the order of the mark.

        It reveals the mark: whoever sees it can make a model answer otherwise on these triggers.
        """
        return list(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return what may be shown to anyone, ready for JSON; nothing in it is secret.

        >>> Verdict(
        ...     owner="Ann", mark_id="00", created="", mark_digest="", model_digest="", suspect="f",
        ...     suspect_digest=None, asked_through="function", kind="labels", raw_bits=64.0,
        ...     trials=64, answered=64, q=2, matched=64, columns="by place", version="",
        ... ).to_dict()["level"]
        'conclusive'
        """
        # A transcript that was written before names were gives the same dictionary as then.
        names = {} if self.column_names is None else {"column_names": list(self.column_names)}
        return {
            "level": self.level,
            "meaning": self.meaning,
            "condition": self.condition,
            "bits": self.bits,
            "chance": self.chance,
            "kind": self.kind,
            "raw_bits": round_bits(self.raw_bits),
            "prices": [{"reason": price.reason, "bits": price.bits} for price in self.prices],
            "matched": self.matched,
            "trials": self.trials,
            "answered": self.answered,
            "outside": self.outside,
            "unknown": self.unknown,
            "q": self.q,
            "owner": self.owner,
            "mark_id": self.mark_id,
            "created": self.created,
            "mark_digest": self.mark_digest,
            "model_digest": self.model_digest,
            "suspect": self.suspect,
            "suspect_digest": self.suspect_digest,
            "asked_through": self.asked_through,
            "columns": self.columns,
            **names,
            "reading": self.reading,
            "warnings": list(self.warnings),
            "timbermark": self.version,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.level}: {self.finding}",
            f"  evidence: {self.bits:.1f} bits from {self.kind}, the chance of coincidence is "
            f"{self.chance}",
        ]
        if self.matched is not None:
            # Where asking may stop at any moment, triggers without an answer do not count.
            trials = self.trials if self.kind in ("labels", "numbers") else self.answered
            what = "levels" if self.kind == "numbers" else "labels"
            lines.append(
                f"  matches:  {self.matched} of {trials} {what}, chance gives about "
                f"{trials / self.q:.0f}"
            )
        lines += [f"  minus:    {price.bits:.1f} bits for {price.reason}" for price in self.prices]
        lines.append(f"  meaning:  {self.meaning}")
        if self.level != "none":
            lines += [f"  provided: {proviso}" for proviso in self._provisos]
        lines += [
            f"  mark:     {self.mark_id} of {self.owner}, made {self.created}",
            f"            SHA-256 {self.mark_digest}",
            f"  unmarked: SHA-256 {self.model_digest}",
            f"  suspect:  {self.suspect}, asked through {self.asked_through}, columns "
            f"{self.columns}",
        ]
        if self.suspect_digest is not None:
            lines.append(f"            SHA-256 {self.suspect_digest}")
        if self.reading:
            lines.append(f"  reading:  {self.reading}")
        lines += [f"  warning:  {warning}" for warning in self.warnings]
        return "\n".join([*lines, f"  timbermark {self.version}"])


def _log2_factorial(n: int) -> float:
    if n <= _EXACT_FACTORIAL:
        return math.log2(math.factorial(n))
    return math.lgamma(n + 1.0) / math.log(2.0)
