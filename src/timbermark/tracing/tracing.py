"""Trace: ask a suspect the boundaries of a roll, and say whose copy it comes from.

The road is that of `timbermark.verify`; only what the answers are held to differs: the symbols of
every customer, and of groups of two and three.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np

from timbermark.dtypes import AnyArray, Reals, SmallKinds
from timbermark.errors import InputError
from timbermark.ownership.evidence import (
    Answers,
    Level,
    Price,
    level,
    round_bits,
    split_rows,
    split_sides,
    sum_prices,
)
from timbermark.ownership.mark import Mark
from timbermark.reportable import Reportable
from timbermark.tracing.codes import group_bits, group_gains
from timbermark.tracing.roll import Roll, find_biases
from timbermark.tracing.showing import RollClaim, RollOpening
from timbermark.verification.answers import AnswersWanted
from timbermark.verification.inquiry import Ending, Inquiry, StopAt
from timbermark.verification.stamps import StampCheck, check_stamps, first_time
from timbermark.verification.transcript import Context
from timbermark.verification.verdict import Verdict, show_chance
from timbermark.verification.verifying import ask_suspect

LARGEST_GROUP = 3
MOST_JOINED = {2: 100, 3: 12}
"""Pairs are tried of so many customers, those with most evidence, and groups of three of so many
that are in the best pairs. The price is that of all groups."""
_STEP = 16
"""Boundaries after which evidence is weighed again while an endpoint is asked."""
FINDINGS = {
    "none": "no evidence that the suspect comes from a customer's copy",
    "indicative": "signs of the copy of {names}, enough to convince the owner only",
    "conclusive": "the suspect comes from the copy of {names}",
    "group": "at least one of these took part: {names}",
}
MEANINGS = {
    "none": (
        "A model that has nothing to do with any customer's copy could answer like this by chance; "
        "it may still come from one whose thresholds were moved."
    ),
    "indicative": (
        "A model that has nothing to do with this customer's copy hardly answers like this by "
        "chance, but it is too little to accuse anybody."
    ),
    "conclusive": (
        "Chance does not explain these answers: whoever made the suspect had this copy, or knew "
        "the secrets of the roll."
    ),
    "group": (
        "Whoever made the suspect had the copy of at least one of these customers; of none of them "
        "alone is it certain."
    ),
}
_AS_ASKED = (
    *("model_digest", "created", "suspect", "suspect_digest", "asked_through"),
    *("warnings", "conditions", "timbermark"),
)
"""Facts of a trace that are those of the verdict on the grid."""
LIMITS = (
    "It does not say who passed the copy on: a thief may have stolen it from the customer, and the "
    "owner, who made it, had it too. That this copy was handed to this customer must be shown by "
    "other means, such as a signed receipt with the SHA-256 of the file.",
    "It does not clear anybody: where several customers mixed their copies, those without evidence "
    "may have taken part.",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The evidence against one customer, or that at least one of several took part."""

    names: tuple[str, ...]
    bits: float  # after all prices, at least 0
    level: Level
    matched: int | None = None  # boundaries that are answered by this customer's symbol
    counted: int | None = None  # of those that tell a symbol

    def to_dict(self) -> dict[str, Any]:
        """Return the finding, ready for JSON."""
        found: dict[str, Any] = {"names": list(self.names), "bits": self.bits, "level": self.level}
        return found | ({} if self.matched is None else {
            "matched": self.matched, "counted": self.counted,
        })  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace(Reportable):
    """What the answers of a suspect prove against the customers of a roll.

    ``customers``: all of them, or the one who is accused before a judge, most evidence first;
    ``group``: the best group of two or three, None where single customers explain the answers;
    ``asked``: how the suspect was asked; its own level is about symbols that no copy carries.
    """

    owner: str
    customers: tuple[Finding, ...]
    group: Finding | None
    n_customers: int  # that the evidence pays for
    n_boundaries: int
    prices: tuple[Price, ...]
    asked: Verdict = field(repr=False)
    accused: str | None = None  # where a judge traces with an opening
    judge: str | None = None
    stamps: tuple[StampCheck, ...] = ()  # of the claim that the opening was held to

    @property
    def best(self) -> Finding:
        """Return the finding with most evidence; a single customer before a group."""
        first = self.customers[0]
        if self.group is not None and first.level != "conclusive":
            return max((first, self.group), key=lambda finding: finding.bits)
        return first

    @property
    def level(self) -> Level:
        """Return the level of the best finding: none, indicative or conclusive."""
        return self.best.level

    @property
    def bits(self) -> float:
        """Return the bits of the best finding, after all prices."""
        return self.best.bits

    @property
    def chance(self) -> str:
        """Return how often a model without any customer's symbols answers like this."""
        return show_chance(self.bits)

    @property
    def leakers(self) -> tuple[str, ...]:
        """Return the customers with conclusive evidence, each by itself."""
        return tuple(f.names[0] for f in self.customers if f.level == "conclusive")

    @property
    def kind(self) -> str:
        """Return what the suspect answered with."""
        return self.asked.kind

    @property
    def answered(self) -> int:
        """Return the number of boundaries that were answered."""
        return self.asked.answered

    @property
    def context(self) -> Context:
        """Return how the suspect was asked."""
        return self.asked.context

    @property
    def finding(self) -> str:
        """Return what was found, in half a sentence."""
        names = self.best.names if len(self.best.names) > 1 else self.leakers or self.best.names
        return FINDINGS[self._said].format(names=", ".join(names))

    @property
    def meaning(self) -> str:
        """Return what that means, in one sentence."""
        return MEANINGS[self._said]

    @property
    def _said(self) -> str:
        return "group" if len(self.best.names) > 1 else self.level

    def to_dict(self) -> dict[str, Any]:
        """Return codes, numbers and sentences, ready for JSON; secret are only the names."""
        from timbermark.verification import words

        asked = self.asked.facts()
        return {
            "level": self.level,
            "bits": self.bits,
            "chance": self.chance,
            "leakers": list(self.leakers),
            "customers": [finding.to_dict() for finding in self.customers],
            "group": None if self.group is None else self.group.to_dict(),
            "n_customers": self.n_customers,
            "accused": self.accused,
            "judge": self.judge,
            "claimed_before": first_time(self.stamps),
            "kind": self.kind,
            "boundaries": self.n_boundaries,
            "answered": self.answered,
            "prices": [
                {"code": price.code, "bits": round_bits(price.bits), **price.facts}
                for price in self.prices
            ],
            "owner": self.owner,
            "roll_id": self.asked.mark_id,
            "roll_digest": self.asked.mark_digest,
            **{name: asked[name] for name in _AS_ASKED},
            "words": {
                "finding": self.finding,
                "meaning": self.meaning,
                "limits": list(LIMITS),
                "conditions": words.list_conditions(self.asked),
                "prices": [words.say_price(price) for price in self.prices],
                "warnings": [words.say(words.WARNINGS, note) for note in self.asked.warnings],
            },
        }

    def __str__(self) -> str:
        from timbermark.verification import words

        lines = [
            f"{self.level}: {self.finding}",
            f"  evidence: {self.bits:.1f} bits from {self.kind} of {self.answered} of "
            f"{self.n_boundaries} boundaries, the chance of coincidence is {self.chance}",
        ]
        for rank, found in enumerate(self.customers[:5], 1):
            told = f"{found.matched} of {found.counted} boundaries"
            lines.append(f"  {rank:2}. {found.names[0]}: {found.bits:.1f} bits, {told}")
        if len(self.customers) > 5:
            lines.append(f"      and {len(self.customers) - 5} more with less")
        if self.group is not None:
            names = ", ".join(self.group.names)
            lines.append(f"  at least one of {names}: {self.group.bits:.1f} bits")
        lines += [f"  minus:    {p.bits:.1f} bits for {words.say_price(p)}" for p in self.prices]
        lines.append(f"  meaning:  {self.meaning}")
        if self.level != "none":
            lines += [f"  limits:   {limit}" for limit in LIMITS]
            lines += [f"  provided: {said}" for said in words.list_conditions(self.asked)]
        if self.accused is not None:
            lines.append(f"  opened:   the part of {self.accused}, held to the claim")
            lines += [f"  stamp:    {words.say_stamp(stamp)}" for stamp in self.stamps]
        lines.append(f"  suspect:  {self.context.suspect}")
        if self.context.suspect_digest is not None:
            lines.append(f"            SHA-256 {self.context.suspect_digest}")
        lines += [f"  warning:  {words.say(words.WARNINGS, n)}" for n in self.asked.warnings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Trace({self.level}, {self.bits:.1f} bits: {', '.join(self.best.names)})"


@dataclass(frozen=True, slots=True, eq=False)
class Accusation:
    """Whom the answers are held against: symbols [c, n] of customers at boundaries.

    ``n_customers``: how many there are altogether, for which the evidence pays.
    """

    names: tuple[str, ...]
    symbols: SmallKinds
    biases: AnyArray
    n_customers: int

    @property
    def price(self) -> Price:
        """Return the price of accusing one of all customers."""
        n = self.n_customers
        return Price("customers", math.log2(n), {"customers": n})


@dataclass(slots=True)
class TracingInquiry(Inquiry):
    """An inquiry that ends when a customer is found, not when the grid's own symbols are."""

    accusation: Accusation | None = None
    shown: Mapping[str, Any] = field(default_factory=dict)  # what a judge checked
    _weighed: tuple[int, float] = (0, 0.0)  # boundaries and the best bits after them

    def net_bits(self) -> float:
        """Return the evidence so far against the best customer, after prices."""
        answers = self.known.answers
        if answers is None or self.accusation is None:
            return 0.0
        done = int(split_rows(self.mark, answers)[1].sum())
        if done >= self._weighed[0] + _STEP:
            found = weigh_customers(self.mark, answers, self.accusation)
            self._weighed = done, float(found.max())
        if not self._weighed[0]:
            return 0.0
        return self._weighed[1] - sum_prices(self.prices()) - self.accusation.price.bits

    def ending(self) -> Ending | None:
        """Return why asking ends before all questions are asked, None if it does not."""
        answers = self.known.answers
        if answers is None:
            return None
        if self.is_misread(answers):
            return "misread"
        return "enough" if self.limit is not None and self.net_bits() >= self.limit else None

    def check_limit(self) -> None:
        """Do nothing: a limit out of reach means that everything is asked."""

    def finish(self, early: bool) -> Trace:
        """Return whose copy the answers speak of."""
        assert self.accusation is not None
        return conclude(self.mark, self.verdict(early), self.accusation, self.shown)


def trace(
    suspect: Any,
    roll: Roll | RollOpening | str | os.PathLike[str],
    *,
    claim: RollClaim | str | os.PathLike[str] | None = None,
    judge: str | None = None,
    roots: Sequence[bytes] = (),
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
    journal: str | os.PathLike[str] | None = None,
    decoys: int | None = None,
    decoys_from: Any = None,
    stop_at: StopAt | None = None,
    in_doubt: Literal["ask", "skip"] | None = None,
    progress: bool = False,
) -> Trace:
    """Ask a suspect the boundaries of a roll and return whose copy its answers speak of.

    ``suspect`` and the arguments for asking it are those of :func:`timbermark.verify`: objects,
    functions, files, endpoints and tables of answers. ``roll``: a roll or its file. Evidence is in
    bits, after the price of accusing one among all customers; each level means what it means for
    marks. Where customers mixed their copies there may be evidence only that at least one of two or
    three took part.

    A judge gives the opening that the owner made for him in place of the roll, the ``claim`` that
    was published, and his own name as ``judge``; only the customer who is accused is traced.
    ``roots``: certificates (PEM) of authorities by which time stamps of the claim are checked.

    Raises InputError where the suspect cannot be asked, or answers with labels where no boundary
    shows in labels; EvidenceError where an opening does not hold.

    >>> from timbermark import trace
    >>> trace.__name__  # see `timbermark.copies` for an example
    'trace'
    """
    grid, accusation, shown = _accuse(roll, claim, judge, roots)
    inquiries = partial(
        _begin, grid=grid, accusation=accusation, shown=shown,
        options={"answers": answers, "feature_names": feature_names, "label_map": label_map},
    )  # fmt: skip

    asking = {
        "journal": journal,
        "decoys": decoys,
        "decoys_from": decoys_from,
        "stop_at": stop_at,
        "in_doubt": in_doubt,
    }
    found: Trace = ask_suspect(suspect, inquiries, asking, progress)
    return found


def _accuse(
    roll: Any,
    claim: RollClaim | str | os.PathLike[str] | None,
    judge: str | None,
    roots: Sequence[bytes],
) -> tuple[Mark, Accusation, dict[str, Any]]:
    """Return the boundaries to ask, whose symbols answers are held to, and what a judge checked."""
    if isinstance(roll, str | os.PathLike):
        roll = RollOpening.load(roll) if RollOpening.is_file(roll) else Roll.load(roll)
    if isinstance(roll, RollOpening):
        if claim is None:
            raise InputError(
                "An opening is judged by the claim that was published.",
                hint="give claim=….",
                code="trace.claim",
                parameter="claim",
            )
        published = claim if isinstance(claim, RollClaim) else RollClaim.load(claim)
        part, symbols = roll.check(published, judge)
        accused = Accusation(
            (roll.customer,), symbols[None], find_biases(part), published.n_customers
        )
        shown = {"accused": roll.customer, "judge": roll.judge}
        return part, accused, {**shown, "stamps": check_stamps(published, roots)}
    for name, given in (("claim", claim), ("judge", judge), ("roots", roots or None)):
        if given is not None:
            raise InputError(
                f"{name} goes with an opening, and this is a roll.",
                hint="leave it out.",
                code="trace.opening-only",
                parameter=name,
            )
    if not isinstance(roll, Roll):
        raise InputError(
            f"{type(roll).__name__} is not a roll.",
            hint="load one with Roll.load(path), or give its file.",
            code="roll.type",
            parameter="roll",
        )
    if not roll.customers:
        raise InputError(
            "The roll has no customers.", hint="make copies first.", code="roll.customers"
        )
    everybody = Accusation(
        roll.customers, roll.symbols(), find_biases(roll.grid), len(roll.customers)
    )
    return roll.grid, everybody, {}


def _begin(
    asked: Any, *, grid: Mark, accusation: Accusation, shown: Mapping[str, Any],
    options: Mapping[str, Any], **more: Any,
) -> Inquiry:  # fmt: skip
    inquiry = TracingInquiry.begin(
        asked, grid, **options, accusation=accusation, shown=shown, **more
    )
    if inquiry.rules.wanted == "labels":
        _check_labels(grid)
    return inquiry


def _check_labels(grid: Mark) -> None:
    assert grid.splits is not None
    if not grid.splits.shows_in_labels.any():
        raise InputError(
            "The suspect answers with labels, and no boundary of the roll shows in labels.",
            hint="ask for scores, if it gives any.",
            code="trace.no-labels",
            parameter="answers",
        )


def _answered_rows(grid: Mark, answers: Answers) -> tuple[AnyArray, AnyArray, Reals]:
    """Return the places of the answered boundaries, their answers, and their references."""
    assert grid.splits is not None
    rows, whole = split_rows(grid, answers)
    places = np.flatnonzero(whole)
    return places, rows[places], grid.splits.reference[places]


def weigh_customers(grid: Mark, answers: Answers, accusation: Accusation) -> Reals:
    """Return the evidence against each customer in bits, float64 [c], before all prices."""
    places, rows, reference = _answered_rows(grid, answers)
    gains = group_gains(rows, reference, accusation.biases[places], answers.kind)
    return group_bits(*gains, accusation.symbols[:, places])


def conclude(grid: Mark, asked: Verdict, accusation: Accusation, shown: Mapping[str, Any]) -> Trace:
    """Return what the answers in a verdict on the grid prove against customers.

    ``shown``: further fields of the trace, where a judge checked an opening.
    """
    transcript = asked.transcript
    assert transcript is not None
    answers = transcript.answers
    if answers.kind == "labels":
        _check_labels(grid)
    # Prices of the grid's own symbols, of holes and of choices by hand are the same.
    prices = (*asked.prices, accusation.price)
    places, rows, _ = _answered_rows(grid, answers)
    raw = weigh_customers(grid, answers, accusation)
    sides = split_sides(rows, answers.kind)
    tells = ~np.isnan(sides)
    matches = (((sides > 0.5) == (accusation.symbols[:, places] == 1)) & tells).sum(axis=1)
    capped = any(note.facts.get("caps") for note in asked.context.conditions)

    def find(names: tuple[str, ...], bits: float, matched: int | None = None) -> Finding:
        net = max(0.0, round_bits(bits))
        found = level(net)
        if capped and found == "conclusive":
            found = "indicative"
        return Finding(names, net, found, matched, None if matched is None else int(tells.sum()))

    paid = sum_prices(prices)
    order = np.argsort(-raw, kind="stable").tolist()
    customers = tuple(
        find((accusation.names[c],), float(raw[c]) - paid, int(matches[c])) for c in order
    )
    group = None
    if len(order) > 1 and customers[0].level != "conclusive":
        names, bits = _best_group(grid, answers, accusation, order)
        found = find(names, bits - sum_prices(asked.prices))
        if found.level != "none" and found.bits > customers[0].bits:
            group = found
    return Trace(
        owner=grid.owner,
        customers=customers,
        group=group,
        n_customers=accusation.n_customers,
        n_boundaries=grid.n_splits,
        prices=prices,
        asked=asked,
        **shown,
    )


def _best_group(
    grid: Mark, answers: Answers, accusation: Accusation, order: Sequence[int]
) -> tuple[tuple[str, ...], float]:
    """Return the group of two or three with most evidence, and that in bits after its price."""
    places, rows, reference = _answered_rows(grid, answers)
    biases, n = accusation.biases[places], accusation.n_customers
    price = math.log2(sum(math.comb(n, size) for size in range(2, LARGEST_GROUP + 1)))
    best: tuple[int, ...] = ()
    most, joined = -math.inf, list(order)
    for size in range(2, LARGEST_GROUP + 1):
        groups = np.array(list(combinations(joined[: MOST_JOINED[size]], size)), int)
        if not len(groups):
            break
        counts = sum(accusation.symbols[member][:, places] for member in groups.T)
        bits = group_bits(*group_gains(rows, reference, biases, answers.kind, size), counts)
        ranked = np.argsort(-bits, kind="stable")
        if bits[ranked[0]] > most:
            best, most = tuple(groups[ranked[0]].tolist()), float(bits[ranked[0]])
        # Those in the best pairs may have had a third with them.
        joined = list(dict.fromkeys(groups[ranked].ravel().tolist()))
    return tuple(accusation.names[c] for c in best), most - price
