"""The verdict: what a suspect's answers prove, in codes and numbers, and how it is reached.

Sentences about it are made in `timbermark.verification.words`, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_FLOOR, Decimal, localcontext
from importlib import import_module
from typing import Any

import numpy as np

from timbermark.ownership.evidence import (
    UNANSWERED,
    UNKNOWN,
    AnswerKind,
    Answers,
    Level,
    Price,
    SealEvidence,
    level,
    number_sides,
    round_bits,
    split_rows,
    split_sides,
    sum_prices,
    total_bits,
    weigh,
)
from timbermark.ownership.mark import Mark
from timbermark.reportable import Reportable
from timbermark.verification.refusals import refusal
from timbermark.verification.transcript import Context, Note, Transcript

_PLAIN_COUNT = 1000
_EXACT_FACTORIAL = 1000
FEW_MATCHES_BITS = 20.0
"""So few matches happen by chance once in a million times: something is wrong with the reading."""
MOST_POINTS = 128
_FEWEST_TOLD, _UNLIKE = 40, 0.3
"""Numbers of rows below which a rank correlation says nothing, and the lowest that models of one
task have."""


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
            "seals": [{**asdict(seal), "bits": round_bits(seal.bits)} for seal in self.seals],
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


def judge(
    mark: Mark,
    context: Context,
    answers: Answers,
    shown: Sequence[Any] | None = None,
    begun: int | None = None,
) -> Verdict:
    """Return the verdict on answers that are already there.

    ``shown`` [rows] are labels as the suspect gave them, for the table. ``begun``: the number of
    triggers that were asked, where asking stopped early; it only decides which warnings are due.

    Evidence counts what was answered. Within each seal, answers that are missing before the last
    one that is there cost log₂ of the number of ways to leave out so many, whoever left them out;
    those after it do not, because stopping early is fair.

    Raises InputError if nothing was answered or no answer is a class of the mark.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> context = Context("their server", "http")
    >>> verdict = judge(mark, context, Answers("labels", mark.expected_numbers))
    >>> verdict.level, verdict.matched, verdict.bits > 90
    ('conclusive', 100, True)
    """
    answers.check(mark)
    _refuse_misread(answers, shown, mark)
    seals = weigh(mark, answers)
    bits = total_bits([seal.bits for seal in seals], len(mark.seals))
    prices = (*mark.prices, *context.prices, *price_missing(mark, seals))
    transcript = Transcript(context, answers, None if shown is None else tuple(shown), begun)
    verdict = Verdict(
        owner=mark.owner,
        mark_id=mark.mark_id.hex(),
        created=mark.created,
        mark_digest=mark.digest.hex(),
        model_digest=mark.model_digest,
        kind=answers.kind,
        seals=tuple(
            SealFinding(s.seal, s.bits, s.triggers, s.answered, s.counted, s.matched, s.q)
            for s in seals
        ),
        raw_bits=bits,
        prices=prices,
        unknown=int((answers.values == UNKNOWN).sum()) if answers.kind == "labels" else 0,
        context=context,
        warnings=(*context.warnings, *_find_warnings(mark, answers, seals, begun)),
        # By name, because an import of the package itself would bind this one to the engine.
        version=import_module("timbermark").__version__,
        answers=_table(mark, answers, shown),
        transcript=transcript,
        curve=_curve(seals, len(mark.seals), sum_prices(prices)),
    )
    return verdict


def judge_again(mark: Mark, transcript: Transcript) -> Verdict:
    """Return the verdict on the answers in a transcript, without asking anybody.

    Raises InputError as `judge` does.
    """
    return judge(mark, transcript.context, transcript.answers, transcript.shown, transcript.begun)


def price_missing(mark: Mark, seals: Sequence[SealEvidence]) -> tuple[Price, ...]:
    """Return the price of answers that are missing among others, for each seal."""
    found = []
    for seal in seals:
        if not seal.answered:
            continue
        order = mark.order(seal.seal).tolist()
        last = order.index(int(seal.places[-1])) + 1
        if seal.answered < last:
            found.append(price_of_holes(last - seal.answered, last))
    return tuple(found)


def _refuse_misread(answers: Answers, shown: Sequence[Any] | None, mark: Mark) -> None:
    if not answers.answered.any():
        raise refusal("answers.none")
    if answers.kind == "labels" and (answers.values < 0).all():
        examples = dict.fromkeys(f"{answer!s:.30}" for answer in shown or () if answer is not None)
        said = f": it says {', '.join(map(repr, list(examples)[:5]))}" if examples else ""
        raise refusal("answers.no-class", said=said, classes=mark.classes)


def _find_warnings(
    mark: Mark, answers: Answers, seals: Sequence[SealEvidence], begun: int | None
) -> list[Note]:
    found = []
    for seal in seals:
        if lack_of_matches(seal.matched, seal.counted, seal.q) >= FEW_MATCHES_BITS:
            names = ("seal", "matched", "counted", "q")
            found.append(Note("few-matches", {name: getattr(seal, name) for name in names}))
    if answers.kind == "numbers" and _are_unlike(mark, answers):
        found.append(Note("unlike-numbers"))
    unknown = int((answers.values == UNKNOWN).sum()) if answers.kind == "labels" else 0
    if unknown:
        found.append(Note("unknown-labels", {"count": unknown}))
    expected = mark.n_triggers if begun is None else begun
    answered = sum(seal.answered for seal in seals)
    if answered < expected:
        found.append(Note("unanswered", {"count": expected - answered, "of": expected}))
    return found


def _are_unlike(mark: Mark, answers: Answers) -> bool:
    """Return whether numbers hardly rise and fall with the unmarked model's: probably misread."""
    if mark.splits is not None:
        ends = answers.values[mark.n_leaves :].reshape(-1, 3)[:, [0, 2]].reshape(-1)
        known = mark.splits.reference.reshape(-1)
    else:
        assert mark.leaves is not None
        ends, known = answers.values, mark.leaves.reference.mean(axis=1)
    told = np.isfinite(ends)
    if told.sum() < _FEWEST_TOLD or any(len(set(v[told].tolist())) < 2 for v in (ends, known)):
        return False
    ranks = [values[told].argsort().argsort() for values in (ends, known)]
    return bool(np.corrcoef(ranks[0], ranks[1])[0, 1] < _UNLIKE)


def _curve(
    seals: Sequence[SealEvidence], n_seals: int, price: float
) -> tuple[tuple[int, float], ...]:
    """Return numbers of answered triggers and the bits after them, at most 128 points."""
    total = sum(seal.answered for seal in seals)
    points = {-(-total * point // MOST_POINTS) for point in range(1, MOST_POINTS + 1)}
    asked, found = {seal.seal: 0 for seal in seals}, []
    for count in range(1, total + 1):
        left = [seal for seal in seals if asked[seal.seal] < seal.answered]
        asked[max(left, key=lambda seal: seal.promise(asked[seal.seal])).seal] += 1
        if count in points:
            bits = [float(seal.growth[asked[seal.seal]]) for seal in seals]
            found.append((count, total_bits(bits, n_seals) - price))
    return tuple(found)


def _table(mark: Mark, answers: Answers, shown: Sequence[Any] | None) -> tuple[Answer, ...]:
    found = []
    labels = answers.values
    if answers.kind == "scores":
        labels = np.full(mark.n_rows, UNANSWERED)
        told = answers.answered
        labels[told] = answers.values[told].argmax(axis=1)
    expected = mark.expected_numbers.tolist()
    if mark.leaves is not None and answers.kind == "numbers":
        sides = number_sides(answers.values, mark.leaves.reference)
        for i, (side, wanted) in enumerate(zip(sides.tolist(), mark.expected, strict=True)):
            said = None if not side else "higher" if side > 0 else "lower"
            found.append(Answer("leaves", i, wanted, said, said == wanted))
        return tuple(found)
    for i in range(mark.n_leaves):
        number = int(labels[i])
        response: Any = None
        if number >= 0:
            response = mark.classes[number]
        elif number == UNKNOWN:
            response = printable(f"{None if shown is None else shown[i]!s:.80}")
        found.append(
            Answer("leaves", i, mark.classes[expected[i]], response, number == expected[i])
        )
    if mark.n_splits:
        rows, whole = split_rows(mark, answers)
        sides = np.where(whole, split_sides(rows, answers.kind), np.nan)
        for j, (side, symbol) in enumerate(zip(sides, mark.split_symbols, strict=True)):
            said = None if np.isnan(side) or side == 0.5 else ("high" if side > 0.5 else "low")
            wanted = "high" if symbol else "low"
            found.append(Answer("splits", mark.n_leaves + j, wanted, said, said == wanted))
    return tuple(found)


def lack_of_matches(matched: int, counted: int, q: int) -> float:
    """Return how unlikely so few matches are by chance, in bits; 0 if there are enough.

    A suspect that does not depend on the secret matches each symbol with a chance of 1/q. Far too
    few matches say that answers are misread, not that the suspect avoids the mark.

    >>> round(lack_of_matches(0, 96, 4), 1), lack_of_matches(24, 96, 4)
    (39.8, 0.0)
    """
    if matched * q >= counted:
        return 0.0
    # In whole numbers, rounded once, so that 2^-2000 is as exact as 1/2.
    ways = sum(math.comb(counted, i) * (q - 1) ** (counted - i) for i in range(matched + 1))
    return counted * math.log2(q) - math.log2(ways)


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
