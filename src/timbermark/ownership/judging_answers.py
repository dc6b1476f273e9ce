"""Judge answers: from scores, labels or numbers on the triggers to a verdict, without asking.

Whoever asks a suspect (a model in this process, a file, a server, a table that came by mail) hands
over its answers in the mark's order, and says how they were asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import CLASS_INDEX, ClassIndices
from timbermark.errors import InputError
from timbermark.ownership.curves import evidence_curve
from timbermark.ownership.evidence import (
    numbers_evidence,
    scores_evidence,
    sequential_evidence,
)
from timbermark.ownership.labels import UNANSWERED, UNKNOWN, Label
from timbermark.ownership.mark import Mark
from timbermark.ownership.numbers import are_unlike, compare_pairs
from timbermark.ownership.statistics import evidence_bits, log2_lower_tail
from timbermark.ownership.transcript import Inquiry, Transcript
from timbermark.ownership.verdict import Answer, EvidenceKind, Verdict

__all__ = ["FEW_MATCHES_BITS", "Inquiry", "judge", "judge_again", "lack_of_matches"]

FEW_MATCHES_BITS = 20.0
"""So few matches happen by chance once in a million times: something is wrong with the reading."""


def judge(
    mark: Mark,
    inquiry: Inquiry,
    *,
    scores: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    numbers: ArrayLike | None = None,
    one_by_one: bool = False,
    shown: Sequence[Any] | None = None,
) -> Verdict:
    """Return the verdict on answers that are already there; exactly one kind of them is given.

    ``scores`` [k, K] are probabilities in the mark's order of triggers and classes, with NaN in the
    rows that were not answered. ``labels`` [k] are class numbers, UNKNOWN for an answer that is no
    class, UNANSWERED for none; ``one_by_one`` says that asking could stop at any moment, and takes
    the evidence that allows for it. ``numbers`` [2k] are answers to the rows of a mark of numbers,
    in the mark's order, NaN where there is none. ``shown`` [k] are the answers as the suspect gave
    them, for the table.

    A label outside the trigger's alphabet does not count: it speaks for no symbol. A trigger
    without an answer counts as a trial without a match where labels were asked for all at once,
    because whoever asks could leave answers out, and not at all otherwise.

    Raises InputError if no trigger was answered or no answer is a class of the mark.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> verdict = judge(mark, Inquiry("their server"), labels=mark.expected_numbers)
    >>> verdict.bits, verdict.level, verdict.matched
    (100.0, 'conclusive', 100)
    """
    if sum(given is not None for given in (scores, labels, numbers)) != 1:
        raise InputError(
            "Either scores, labels or numbers must be given.", hint="give one of them."
        )
    if (numbers is not None) != mark.in_pairs:
        raise InputError(
            f"The mark is one of {mark.answers}, the answers are not.",
            hint="give the kind of answers that the marked model gives.",
        )
    kind: EvidenceKind
    transcript = Transcript(
        inquiry=inquiry,
        scores=None if scores is None else np.asarray(scores, dtype=np.float64),
        labels=None if labels is None else _check_numbers(labels, mark),
        numbers=None if numbers is None else np.asarray(numbers, dtype=np.float64),
        shown=None if shown is None else tuple(shown),
        one_by_one=one_by_one,
    )
    if numbers is not None:
        return _with_transcript(_judge_numbers(mark, inquiry, numbers), mark, transcript)
    if scores is not None:
        kind, raw_bits = "scores", scores_evidence(scores, mark)
        found = _most_likely(np.asarray(scores, dtype=np.float64))
    else:
        kind, raw_bits = "labels", 0.0
        found = _check_numbers(labels, mark)
    _refuse_misread(found, shown, mark)
    counts = _count(found, mark)
    if labels is not None:
        if one_by_one:
            kind = "labels one by one"
            raw_bits = sequential_evidence(counts.matched, counts.inside, mark.q)
        else:
            trials = counts.inside + mark.n_triggers - counts.answered
            raw_bits = evidence_bits(counts.matched, trials, mark.q) if trials else 0.0
    warnings = _warnings(counts, mark, inquiry.asked)
    table = _table(found, shown, mark)
    verdict = _verdict(mark, inquiry, kind, raw_bits, counts, warnings, table)
    return _with_transcript(verdict, mark, transcript)


def _with_transcript(verdict: Verdict, mark: Mark, transcript: Transcript) -> Verdict:
    price = math.fsum(price.bits for price in verdict.prices)
    curve = evidence_curve(mark, transcript, verdict.net_bits, price)
    return replace(verdict, transcript=transcript, curve=curve)


def _judge_numbers(mark: Mark, inquiry: Inquiry, numbers: ArrayLike) -> Verdict:
    pairs = compare_pairs(numbers, mark.levels, mark.symbols)
    answered = int(pairs.answered.sum())
    if not answered:
        raise InputError(
            "The suspect answered none of the triggers with numbers.",
            hint="call it with a few rows of your own and see what it answers.",
        )
    warnings = []
    if are_unlike(numbers, mark.reference):
        warnings.append(
            "The suspect's numbers do not rise and fall with those of the unmarked model: the "
            "columns are probably misread, or it is a model of something else."
        )
    if answered < mark.n_triggers:
        warnings.append(f"{mark.n_triggers - answered} of {mark.n_triggers} pairs got no answer.")
    expected = mark.expected_levels.tolist()
    table = tuple(
        Answer(
            trigger=trigger,
            expected=expected[trigger],
            response=None if np.isnan(said) else float(said),
            matched=bool(pairs.matched[trigger]),
        )
        for trigger, said in enumerate(pairs.difference.tolist())
    )
    bits = numbers_evidence(pairs.difference, mark.levels, mark.symbols)
    counts = _Counts(answered, int(pairs.matched.sum()), answered, 0)
    return _verdict(mark, inquiry, "numbers", bits, counts, warnings, table)


def _verdict(
    mark: Mark,
    inquiry: Inquiry,
    kind: EvidenceKind,
    raw_bits: float,
    counts: "_Counts",
    warnings: Sequence[str],
    table: tuple[Answer, ...],
) -> Verdict:
    return Verdict(
        owner=mark.owner,
        mark_id=mark.mark_id.hex(),
        created=mark.created,
        mark_digest=mark.digest.hex(),
        model_digest=mark.model_digest,
        suspect=printable(inquiry.suspect),
        suspect_digest=inquiry.suspect_digest,
        asked_through=printable(inquiry.asked_through),
        kind=kind,
        raw_bits=raw_bits,
        prices=(*mark.prices, *inquiry.prices),
        trials=mark.n_triggers,
        answered=counts.answered,
        q=mark.q,
        matched=counts.matched,
        outside=counts.answered - counts.inside,
        unknown=counts.unknown,
        columns=inquiry.columns,
        column_names=inquiry.column_names,
        reading=inquiry.reading,
        warnings=(*inquiry.warnings, *warnings),
        conditions=tuple(map(printable, inquiry.conditions)),
        # By name, because an import of the package itself would bind this one to the engine.
        version=import_module("timbermark").__version__,
        answers=table,
    )


def judge_again(mark: Mark, transcript: Transcript) -> Verdict:
    """Return the verdict on the answers in a transcript, without asking anybody.

    Raises InputError as `judge` does.
    """
    return judge(
        mark,
        transcript.inquiry,
        scores=transcript.scores,
        labels=transcript.labels,
        numbers=transcript.numbers,
        one_by_one=transcript.one_by_one,
        shown=transcript.shown,
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    answered: int
    matched: int
    inside: int
    unknown: int


def _count(numbers: ClassIndices, mark: Mark) -> _Counts:
    answered = numbers != UNANSWERED
    inside = (numbers[:, np.newaxis] == mark.alphabets).any(axis=1)
    return _Counts(
        answered=int(answered.sum()),
        matched=int((numbers == mark.expected_numbers).sum()),
        inside=int(inside.sum()),
        unknown=int((numbers == UNKNOWN).sum()),
    )


def _most_likely(scores: Any) -> ClassIndices:
    answered = ~np.isnan(scores).any(axis=1)
    numbers = np.full(len(scores), UNANSWERED, dtype=CLASS_INDEX)
    numbers[answered] = scores[answered].argmax(axis=1)
    return numbers


def _check_numbers(labels: Any, mark: Mark) -> ClassIndices:
    numbers = np.asarray(labels)
    if numbers.dtype.kind not in "iu" or numbers.shape != (mark.n_triggers,):
        raise InputError(
            f"The labels have the type {numbers.dtype} and the shape {numbers.shape}, not those of "
            f"{mark.n_triggers} class numbers.",
            hint="read answers with read_answers first.",
        )
    known = (numbers >= UNANSWERED) & (numbers < len(mark.classes))
    if not known.all():
        raise InputError(
            f"A class number is not from 0 to {len(mark.classes) - 1}.",
            hint="read answers with read_answers first.",
        )
    return numbers.astype(CLASS_INDEX)


def _refuse_misread(numbers: ClassIndices, shown: Sequence[Any] | None, mark: Mark) -> None:
    if (numbers == UNANSWERED).all():
        raise InputError(
            "The suspect answered none of the triggers.",
            hint="call it with a few rows of your own and see what it answers.",
        )
    if (numbers < 0).all():
        examples = dict.fromkeys(f"{answer!s:.30}" for answer in shown or ())
        known = ", ".join(map(repr, mark.classes[:5]))
        raise InputError(
            "No answer of the suspect is a class of the mark"
            + (f": it says {', '.join(map(repr, list(examples)[:5]))}." if examples else "."),
            hint=f"the mark's classes are {known}{', …' if len(mark.classes) > 5 else ''}; "
            "give label_map={theirs: yours} to translate the suspect's labels to these.",
        )


def _warnings(counts: _Counts, mark: Mark, asked: int | None) -> list[str]:
    found = []
    trials = counts.answered
    if lack_of_matches(counts.matched, trials, mark.q) >= FEW_MATCHES_BITS:
        found.append(
            f"Only {counts.matched} of {trials} answers match, where chance gives about "
            f"{trials / mark.q:.0f}: the columns or the labels are probably misread, which is a "
            "problem of the input and says nothing about the model."
        )
    if counts.unknown:
        found.append(
            f"{counts.unknown} answers are no class of the mark: check what the labels mean."
        )
    asked = mark.n_triggers if asked is None else asked
    if trials < asked:
        found.append(f"{asked - trials} of {asked} triggers got no answer.")
    return found


def lack_of_matches(matched: int, answered: int, q: int) -> float:
    """Return how unlikely so few matches are by chance, in bits; 0 if there are enough.

    From `FEW_MATCHES_BITS` on the verdict warns that answers are probably misread.

    >>> round(lack_of_matches(0, 96, 4), 1), lack_of_matches(24, 96, 4)
    (39.8, 0.0)
    """
    if matched * q >= answered:
        return 0.0
    return -log2_lower_tail(matched, answered, q)


def printable(text: str) -> str:
    """Return a text from outside, such as the name of a file, fit for any terminal.

    >>> printable("a\\x1b[31m")
    'a�[31m'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _table(numbers: ClassIndices, shown: Sequence[Any] | None, mark: Mark) -> tuple[Answer, ...]:
    expected = mark.expected_numbers.tolist()
    return tuple(
        Answer(
            trigger=trigger,
            expected=mark.classes[expected[trigger]],
            response=_response(number, None if shown is None else shown[trigger], mark),
            matched=number == expected[trigger],
        )
        for trigger, number in enumerate(numbers.tolist())
    )


def _response(number: int, answer: Any, mark: Mark) -> Label | None:
    if number >= 0:
        return mark.classes[number]
    return None if number == UNANSWERED else f"{answer!s:.80}"
