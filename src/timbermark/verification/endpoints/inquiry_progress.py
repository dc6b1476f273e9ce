"""How far an inquiry has come: answers, evidence and prices so far, and whether it has ended."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from timbermark.errors import InputError
from timbermark.ownership.evidence import (
    labels_gains,
    scores_evidence,
    scores_gains,
    sequential_evidence,
)
from timbermark.ownership.judging_answers import FEW_MATCHES_BITS, lack_of_matches
from timbermark.ownership.mark import Mark
from timbermark.ownership.statistics import CONCLUSIVE_BITS, round_bits
from timbermark.ownership.verdict import Price
from timbermark.verification.endpoints.columns import WireColumns
from timbermark.verification.endpoints.endpoint import Endpoint
from timbermark.verification.endpoints.reading import Reading, place_labels, place_scores
from timbermark.verification.endpoints.request_prices import price_request
from timbermark.verification.endpoints.stopping import is_hopeless
from timbermark.verification.questions import Questions

InDoubt: TypeAlias = Literal["ask", "skip"]
Ending: TypeAlias = Literal["enough", "hopeless", "all", "misread"]

DEFAULT_DECOYS = 1
_ENOUGH_UNKNOWN = 8
_SUSPICIOUS_BITS = 7.0
"""So few matches that the reading may be wrong; of innocent suspects one in 128 has so few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InquiryOptions:
    """How an endpoint is asked, beside what the endpoint itself says."""

    journal: str | os.PathLike[str] | None = None  # keeps every answer; an old one is resumed
    decoys: int = DEFAULT_DECOYS  # for each trigger
    decoys_from: Any = None  # rows whose values decoys take
    stop_at: float | Literal["auto", "off"] = "auto"  # bits; auto: 64 if the mark can reach that
    in_doubt: InDoubt = "ask"  # what becomes of questions that may have been asked before a crash
    progress: Callable[[int, int, float], None] | None = None  # of questions, of all, bits


@dataclass(slots=True)
class Progress:
    """An inquiry under way."""

    mark: Mark
    endpoint: Endpoint
    options: InquiryOptions
    questions: Questions
    columns: WireColumns
    reading: Reading | None = None
    asked: int = 0  # questions, answered or not
    answers: dict[int, Any] = field(default_factory=dict)  # by trigger; None: asked, no answer
    refused: int = 0
    bits: float = 0.0  # the evidence so far, before prices


def list_answered(run: Progress) -> dict[int, Any]:
    """Return the answers that there are, by trigger."""
    return {trigger: answer for trigger, answer in run.answers.items() if answer is not None}


@dataclass(frozen=True, slots=True)
class _Labels:
    matched: int
    inside: int  # of their alphabets: others say nothing about symbols
    known: int  # classes of the mark
    answered: int


def _count(run: Progress) -> _Labels:
    assert run.reading is not None
    placed, _ = place_labels(list_answered(run), run.reading, run.mark)
    return _Labels(
        matched=int((placed == run.mark.expected_numbers).sum()),
        inside=int((placed[:, np.newaxis] == run.mark.alphabets).any(axis=1).sum()),
        known=int((placed >= 0).sum()),
        answered=int((placed >= -1).sum()),
    )


def _count_matches(run: Progress) -> tuple[int, int]:
    """Return how many of the answers, or of the highest scores, match, and how many there are."""
    assert run.reading is not None
    if run.reading.kind == "labels":
        labels = _count(run)
        return labels.matched, labels.answered
    scores = place_scores(list_answered(run), run.reading, run.mark)
    answered = ~np.isnan(scores).any(axis=1)
    wanted = run.mark.expected_numbers[answered]
    return int((scores[answered].argmax(axis=1) == wanted).sum()), int(answered.sum())


def measure_evidence(run: Progress) -> float:
    """Return the evidence of the answers so far in bits, before prices."""
    assert run.reading is not None
    if run.reading.kind == "scores":
        return scores_evidence(place_scores(list_answered(run), run.reading, run.mark), run.mark)
    labels = _count(run)
    return sequential_evidence(labels.matched, labels.inside, run.mark.q)


def _gains(run: Progress) -> np.ndarray:
    """Return the bits that each form of evidence took from each answer, [m, n]."""
    assert run.reading is not None
    if run.reading.kind == "scores":
        scores = place_scores(list_answered(run), run.reading, run.mark)
        return np.asarray(scores_gains(scores, run.mark)) / math.log(2)
    labels = _count(run)
    gain, loss = labels_gains(run.mark.q)
    counts = [labels.matched, labels.inside - labels.matched, labels.answered - labels.inside]
    gains = np.column_stack([gain, loss, np.zeros_like(gain)])
    return np.repeat(gains, counts, axis=1) / math.log(2)


def list_prices(run: Progress) -> tuple[Price, ...]:
    """Return the prices of what was chosen by hand."""
    read = () if run.reading is None else run.reading.prices_for(run.answers.values(), run.mark)
    return (*run.columns.prices, *price_request(run.endpoint), *read)


def sum_prices(run: Progress) -> float:
    """Return all prices in bits, those of the mark included."""
    assert run.reading is not None
    prices = [*run.mark.prices, *list_prices(run)]
    return math.fsum(price.bits for price in prices)


def find_limit(run: Progress) -> float | None:
    """Return the bits, after prices, at which asking stops; None if all is asked."""
    stop = run.options.stop_at
    if not isinstance(stop, str):
        return float(stop)
    return CONCLUSIVE_BITS if stop == "auto" else None


def _within_reach(run: Progress, target: float) -> bool:
    mark = run.mark
    assert run.reading is not None
    if run.reading.kind == "labels":
        return sequential_evidence(mark.n_triggers, mark.n_triggers, mark.q) >= target
    return mark.n_triggers * math.log2(mark.q) >= target


def find_ending(run: Progress) -> Ending | None:
    """Return why there is no further question, None if there is one."""
    if run.asked == len(run.questions):
        return "all"
    if run.reading is None:
        return None
    if run.reading.kind == "labels":
        labels = _count(run)
        if labels.answered >= _ENOUGH_UNKNOWN and not labels.known:
            return "misread"
    stop = find_limit(run)
    if stop is None:
        return None
    price = sum_prices(run)
    if not _within_reach(run, stop + price):
        if run.options.stop_at == "auto":
            return None
        raise InputError(
            f"stop_at={stop:g} is more than the {run.mark.n_triggers} triggers of this mark can "
            "reach" + (f", with {price:.1f} bits of prices." if price else "."),
            hint='ask for less, or for everything with stop_at="off".',
        )
    if round_bits(run.bits - price) >= stop:
        return "enough"
    silent = len(run.answers) - len(list_answered(run))
    open_to = run.mark.n_triggers - silent
    if not is_hopeless(_gains(run), stop + price, open_to, run.mark.q):
        return None
    # A model whose labels or columns are misread is soon hopeless, too. Where that begins to show,
    # a few more questions tell, and the verdict then warns.
    lack = lack_of_matches(*_count_matches(run), run.mark.q)
    return None if _SUSPICIOUS_BITS <= lack < FEW_MATCHES_BITS else "hopeless"
