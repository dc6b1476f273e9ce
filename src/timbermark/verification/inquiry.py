"""An inquiry: the questions to one suspect, what it has answered so far, and when that is enough.

Suspects of every kind are asked through an `Inquiry`. It knows which rows to ask next, takes in
answers as they come, whatever they are, and makes the verdict. Evidence that grows question by
question is valid whenever one stops (Ville's inequality), so the rules for stopping may look at
every answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.ownership.columns import plain_rows, take_rows
from timbermark.ownership.evidence import (
    CONCLUSIVE_BITS,
    AnswerKind,
    Answers,
    Price,
    SealEvidence,
    full_bits,
    round_bits,
    split_rows,
    sum_prices,
    total_bits,
    weigh,
)
from timbermark.ownership.mark import Mark
from timbermark.verification.answers import (
    AnswersWanted,
    Reading,
    ReadingRules,
    check_label_map,
    choose_kind,
    is_missing,
    read,
    settle,
    settle_classes,
)
from timbermark.verification.columns import Columns, match_columns
from timbermark.verification.journal import History
from timbermark.verification.questions import (
    DECOY,
    Question,
    Questions,
    list_questions,
    make_questions,
    whole_columns,
    wire_row,
)
from timbermark.verification.refusals import refusal
from timbermark.verification.transcript import Context, Note
from timbermark.verification.verdict import (
    FEW_MATCHES_BITS,
    Verdict,
    judge,
    lack_of_matches,
    price_missing,
    printable,
)

Ending: TypeAlias = Literal["enough", "hopeless", "misread"]
StopAt: TypeAlias = float | Literal["auto", "off"]

GIVE_UP_BITS = 10.0
"""A suspect whose answers add, on average, what is needed in each question is given up with a
chance of at most 2^-10."""
_ENOUGH_UNKNOWN = 8
_SUSPICIOUS_BITS = 7.0
"""So few matches that the reading may be wrong; of innocent suspects one in 128 has so few."""
_BETS = np.arange(1, 8) / 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a suspect before it is asked."""

    context: Context  # what it is, and what is chosen by hand about asking it
    names: tuple[str, ...] | None = None  # of its columns, in its order
    n_features: int | None = None
    takes_frames: bool = False  # complains about columns without names
    server_columns: tuple[str, ...] | None = None  # names that an endpoint is said to have
    sends_names: bool = True
    offers: tuple[str, ...] = ()  # kinds of answers it can be asked for, best first; (): unknown
    stores_labels: bool = True  # otherwise its classes are numbers from 0, whatever labels were
    reading: ReadingRules = field(default_factory=ReadingRules)  # as far as it decides that


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the answers so far; all of it is None before the first one."""

    reading: Reading | None
    answers: Answers | None
    shown: list[Any] | None  # labels as they came
    seals: tuple[SealEvidence, ...]


class Suspect(Protocol):
    """What can be asked: a model, an endpoint, a table of answers, or a kind of yours."""

    @property
    def facts(self) -> Facts:
        """Return what is known of it before it is asked."""

    def ask(self, inquiry: Inquiry) -> Iterator[Mapping[int, Any]]:
        """Yield answers as they come, from the numbers of the mark's rows to what was said."""


@dataclass(slots=True)
class Inquiry:
    """The questions to one suspect and its answers so far.

    ``decoys``, ``decoys_from``: those of `make_questions`. ``limit``: the bits at which asking
    stops, None to ask everything.
    """

    mark: Mark
    facts: Facts
    context: Context
    columns: Columns
    rules: ReadingRules
    decoys: int = 0
    decoys_from: Any = None
    limit: float | None = None
    progress: Callable[[int, int, float], None] | None = None  # of questions, of all, bits
    answers: dict[int, Any] = field(default_factory=dict)  # by row; None: asked, no answer
    journal: History = field(default_factory=History)  # by question, decoys included
    n_asked: int = 0  # questions, decoys included
    _questions: dict[str, Questions] | None = None
    _spent: set[str] = field(default_factory=set)  # seals that are asked last
    _next: dict[str, int] = field(default_factory=dict)  # blocks that were asked, by seal
    _ends: list[Question] = field(default_factory=list)  # rows at b of the last blocks
    _known: Known | None = None  # what the answers so far give

    @classmethod
    def begin(
        cls,
        suspect: Suspect,
        mark: Mark,
        *,
        answers: AnswersWanted = "auto",
        feature_names: Sequence[str] | None = None,
        label_map: Mapping[Any, Any] | None = None,
        **more: Any,
    ) -> Self:
        """Return an inquiry, after everything that can be refused before asking was checked.

        ``more`` are further fields. Raises InputError if the suspect does not fit.
        """
        facts = suspect.facts
        kind, prices = choose_kind(answers, facts.offers, mark, facts.context.suspect)
        columns = match_columns(
            mark,
            own=facts.names,
            count=facts.n_features,
            by_hand=feature_names,
            server=facts.server_columns,
            sends_names=facts.sends_names,
        )
        translation = check_label_map(label_map, mark)
        rules = replace(facts.reading, wanted=kind, label_map=translation, prices=prices)
        if mark.answers == "numbers":
            rules = replace(rules, classes=None)
        elif rules.classes is not None and not rules.by_hand and translation is None:
            classes = settle_classes(rules.classes, mark, facts.stores_labels)
            rules = replace(rules, classes=classes, class_numbers=classes is None)
        return cls(mark, facts, facts.context, columns, rules, **more)

    def add(self, *choices: Price | Note, **request: Any) -> None:
        """Add prices and conditions of how the suspect is asked, and facts of the request."""
        self.context = self.context.choosing(*choices, **request)

    @property
    def questions(self) -> dict[str, Questions]:
        """Return all questions, by seal."""
        if self._questions is None:
            self._questions = make_questions(self.mark, self.decoys, self.decoys_from)
        return self._questions

    @property
    def n_questions(self) -> int:
        """Return the number of all questions, decoys included."""
        return sum(map(len, self.questions.values()))

    def everything(self) -> tuple[Any, list[int]]:
        """Return all rows of the mark in keyed order, as the suspect takes them; their numbers.

        Rows are a matrix, or a data frame for a suspect that wants names.
        """
        order = [q.row for q in list_questions(self.questions) if q.row != DECOY]
        columns = [self.mark.columns[place] for place in self.columns.places]
        names = self.columns.names if self.facts.takes_frames else None
        return plain_rows(take_rows(columns, order), names), order

    def wire(self, questions: Sequence[Question]) -> list[list[Any]]:
        """Return questions as rows of JSON values in the suspect's columns."""
        whole = whole_columns(self.mark)
        return [wire_row(q.values, self.columns.places, whole) for q in questions]

    def following(self, room: int = 1) -> list[Question]:
        """Return the questions to ask next; none once enough is known.

        These are whole blocks, as many as fit into ``room`` questions and at least one, without
        their rows at b; or those rows at b that the answers to the last blocks have not settled.
        Take in their answers before asking for more.
        """
        ends, self._ends = [q for q in self._ends if self._is_needed(q)], []
        if ends or self.ending() is not None:
            return ends
        found: list[Question] = []
        for seal in self._by_promise():
            at = self._next.get(seal, 0)
            for block in self.questions[seal].blocks[at:]:
                begun = [q for q in block if not q.pair]
                if found and len(found) + len(begun) > room:
                    return found
                found += begun
                self._ends += [q for q in block if q.pair]
                self._next[seal] = at = at + 1
        return found

    def _is_needed(self, end: Question) -> bool:
        """Return whether a row at b is to be asked, given the answers at a and in the middle."""
        if end.row == DECOY:  # as for a trigger of a copy, one way or the other
            low, middle = (self.journal.answers.get(name) for name in end.pair)
            return bool(low == middle)
        answers = self.known.answers
        if answers is None or None in map(self.answers.get, (end.row - 2, end.row - 1)):
            return False
        whole = split_rows(self.mark, answers)[1]
        return not whole[self._trigger_of(end.row)[1]]

    def _by_promise(self) -> list[str]:
        """Return the seals to ask from, first the one that promises most for each row.

        A seal that could do what is left alone, but by its answers will not, comes last from then.
        """
        seals, needed = self.known.seals, self._needed()
        if not seals:
            return list(self.questions)
        for seal in seals:
            left = needed - sum(max(0.0, s.bits) for s in seals if s is not seal)
            can = left <= seal.triggers * math.log2(seal.q)
            if can and is_hopeless([self._gains(seal)], left):
                self._spent.add(seal.seal)
        order = sorted(seals, key=lambda s: (s.seal in self._spent, -s.promise(s.answered)))
        return [seal.seal for seal in order]

    def take(self, answers: Mapping[int, Any]) -> None:
        """Take in answers to rows of the mark; rows of decoys are left out."""
        self.answers.update(answers)
        self._known = None
        if self.progress is not None:
            self.progress(self.n_asked, self.n_questions, max(0.0, self.net_bits()))

    @property
    def known(self) -> Known:
        """Return how the answers so far are read and what they prove."""
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> Known:
        # The same answers are read in the same way, in whatever order they came.
        ordered = {row: self.answers[row] for row in _reading_order(self.mark, self.answers)}
        reading = settle(list(ordered.values()), self.mark, self.rules)
        if reading is None:
            return Known(None, None, None, ())
        answers, shown = read(ordered, reading, self.mark)
        return Known(reading, answers, shown, weigh(self.mark, answers))

    def prices(self) -> tuple[Price, ...]:
        """Return all prices so far, those of the mark included."""
        missing = price_missing(self.mark, self.known.seals)
        return (*self.mark.prices, *self._by_hand(), *missing)

    def _by_hand(self) -> tuple[Price, ...]:
        reading = self.known.reading
        read_prices = () if reading is None else reading.prices
        return (*self.columns.prices, *self.context.prices, *read_prices)

    def net_bits(self) -> float:
        """Return the evidence so far after prices."""
        return self._bits() - sum_prices(self.prices())

    def _bits(self) -> float:
        return total_bits([seal.bits for seal in self.known.seals], len(self.mark.seals))

    def ending(self) -> Ending | None:
        """Return why asking ends before all questions are asked, None if it does not."""
        answers = self.known.answers
        if answers is None:
            return None
        if self.is_misread(answers):
            return "misread"
        needed = self._needed()
        if needed == 0.0 or self._most_bits() < needed:
            return None
        if round_bits(self.net_bits()) >= (self.limit or 0.0):
            return "enough"
        return "hopeless" if self._is_hopeless(needed) else None

    def _needed(self) -> float:
        """Return the bits before prices at which asking stops, 0 where it does not."""
        return 0.0 if self.limit is None else self.limit + sum_prices(self.prices())

    def is_misread(self, answers: Answers) -> bool:
        """Return whether so many labels are no class of the mark that asking on is useless."""
        if answers.kind != "labels":
            return False
        told = answers.values[answers.answered]
        return len(told) >= _ENOUGH_UNKNOWN and bool((told < 0).all())

    def _gains(self, seal: SealEvidence) -> tuple[AnyArray, int, int]:
        """Return what `is_hopeless` takes of a seal, without the triggers that gave no answer."""
        silent = [row for row, answer in self.answers.items() if answer is None]
        n_silent = sum(self._trigger_of(row)[0] == seal.seal for row in silent)
        rows = 3 if seal.seal == "splits" else 1
        return seal.gains / math.log(2), seal.triggers - -(-n_silent // rows), seal.q

    def _is_hopeless(self, needed: float) -> bool:
        seals = self.known.seals
        found = [self._gains(seal) for seal in seals]
        answers = self.known.answers
        if self.mark.is_guard and answers is not None and answers.kind == "scores":
            # Forms that learn from earlier symbols show little at first: their gains grow.
            gains, n_triggers, q = found[0]
            return bool(self._bits() + (n_triggers - gains.shape[1]) * math.log2(q) < needed)
        # Answers tell nothing about a seal that was hardly asked, so each must fail by itself, too.
        if not all(is_hopeless(part, needed) for part in ([found[0]], [found[-1]], found)):
            return False
        # A model whose labels or columns are misread is soon hopeless, too. Where that begins to
        # show, a few more questions tell, and the verdict then warns.
        lacks = [lack_of_matches(seal.matched, seal.counted, seal.q) for seal in seals]
        return not any(_SUSPICIOUS_BITS <= lack < FEW_MATCHES_BITS for lack in lacks)

    def _trigger_of(self, row: int) -> tuple[str, int]:
        """Return the seal of a row of the mark, and its trigger in that."""
        behind = row - self.mark.n_leaves
        return ("leaves", row) if behind < 0 else ("splits", behind // 3)

    def check_limit(self) -> None:
        """Raise InputError if the evidence can never reach the limit, before anything is asked.

        Prices may grow later, by rows that are refused; then asking just goes on to the end.
        """
        if self._most_bits() < self._needed():
            raise refusal(
                "stop-at.out-of-reach",
                stop=self.limit,
                triggers=self.mark.n_triggers,
                most=self._most_bits() - sum_prices(self.prices()),
            )

    def _most_bits(self) -> float:
        return full_bits(self.mark.n_leaves, self.mark.q, self.mark.n_splits)

    def finish(self, early: bool) -> Any:
        """Return what asking was for; a journal notes its bits, level, kind and answers."""
        return self.verdict(early)

    def verdict(self, early: bool = False) -> Verdict:
        """Return the verdict on the answers; ``early``: asking may have stopped before the end.

        Raises InputError if nothing was answered that can be read.
        """
        reading = self.known.reading
        warnings = [*self.context.warnings]
        begun = len(set(map(self._trigger_of, self.answers))) if early else None
        if self.ending() == "hopeless":
            facts = {"asked": begun, "of": self.mark.n_triggers, "limit": self.limit}
            warnings.append(Note("hopeless", facts))
        answers, shown = self.known.answers, self.known.shown
        odd = [] if answers is None else self._list_odd(answers)
        if odd:
            warnings.append(Note("odd-answers", {"count": len(odd)}))
        if reading is not None and reading.strange:
            warnings.append(Note("strange-classes", {"classes": list(reading.strange[:5])}))
        context = replace(
            self.context,
            suspect=printable(self.context.suspect),
            columns=self.columns.how,
            column_names=tuple(map(printable, self.columns.names or ())),
            reading={} if reading is None else reading.facts,
            prices=self._by_hand(),
            warnings=tuple(warnings),
            conditions=(*self.context.conditions, *([Note("guard")] if self.mark.is_guard else [])),
        )
        if answers is None:
            kind: AnswerKind = "numbers" if self.mark.answers == "numbers" else "labels"
            answers, shown = read({}, Reading(kind), self.mark)
        return judge(self.mark, context, answers, shown, begun)

    def _list_odd(self, answers: Answers) -> list[int]:
        """Return the rows that said something which is none of the answers that are read."""
        said = [row for row, answer in self.answers.items() if not is_missing(answer, self.mark)]
        return [row for row in said if not answers.answered[row]]


def _reading_order(mark: Mark, rows: Collection[int]) -> list[int]:
    """Return rows in the order of a mark, which the answers do not depend on."""
    leaves = mark.order("leaves").tolist() if mark.n_leaves else []
    splits = mark.order("splits").tolist() if mark.n_splits else []
    behind = [mark.n_leaves + 3 * place + part for place in splits for part in range(3)]
    return [row for row in (*leaves, *behind) if row in rows]


def is_hopeless(seals: Sequence[tuple[AnyArray, int, int]], needed: float) -> bool:
    """Return whether ``needed`` bits are out of reach of all seals together, or as good as that.

    A seal is given by its gains [m, n], the bits that each of m forms of evidence took from each of
    n answers, the number of all triggers that may be answered, and q. The evidence is a mean of
    products of one form of each seal, so at least one such product must reach what is needed.

    For a product, let Y = log₂ q − gain for each answer, which is never negative, and c the largest
    mean of Y over all triggers that suffices. While the mean is at most c, the product of
    1 + λ(Y/c − 1) over the answers is a supermartingale that begins at 1, for each λ from 0 to 1,
    and so is the mean over several λ. Where it passes 2^10 for every product of forms, the inquiry
    is given up.

    >>> is_hopeless([(np.full((1, 30), -1.0), 128, 4)], 64.0)
    True
    >>> is_hopeless([(np.full((1, 30), 1.0), 128, 4)], 64.0)
    False
    """
    most = [n_triggers * math.log2(q) for _, n_triggers, q in seals]
    lost = [math.log2(q) - gains for gains, _, q in seals]
    if sum(most) - sum(y.sum(axis=1).min() for y in lost) < needed:
        return True
    n_triggers = sum(n for _, n, _ in seals)
    mean = (sum(most) - needed) / max(n_triggers, 1)
    if mean <= 0.0 or not any(y.shape[1] for y in lost):
        return False
    products = np.zeros((len(_BETS), 1))
    for y in lost:
        excess = np.maximum(y, 0.0) / mean - 1.0
        own = np.log2(1.0 + _BETS[:, np.newaxis, np.newaxis] * excess).sum(axis=2)
        products = (products[:, :, np.newaxis] + own[:, np.newaxis]).reshape(len(_BETS), -1)
    top = products.max(axis=0)
    return bool((top + np.log2(np.exp2(products - top).mean(axis=0)) >= GIVE_UP_BITS).all())


def read_stop_at(stop: Any) -> float | None:
    """Return the bits at which asking stops: 64 for "auto", None for "off".

    Raises InputError for anything else but a number above 0.

    >>> read_stop_at("auto"), read_stop_at("off"), read_stop_at(20)
    (64.0, None, 20.0)
    """
    if isinstance(stop, str) and stop in ("auto", "off"):
        return CONCLUSIVE_BITS if stop == "auto" else None
    is_number = isinstance(stop, int | float) and not isinstance(stop, bool)
    if not is_number or not math.isfinite(stop) or stop <= 0:
        raise refusal("stop-at", stop=stop)
    return float(stop)
