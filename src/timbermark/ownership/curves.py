"""How evidence grew from question to question, for whoever draws it."""

import math

import numpy as np

from timbermark.ownership.evidence import numbers_evidence, scores_evidence, sequential_evidence
from timbermark.ownership.labels import UNANSWERED
from timbermark.ownership.mark import Mark
from timbermark.ownership.numbers import compare_pairs
from timbermark.ownership.statistics import evidence_bits
from timbermark.ownership.verdict import Verdict

MOST_POINTS = 128


def evidence_curve(mark: Mark, verdict: Verdict) -> tuple[tuple[int, float], ...]:
    """Return pairs of a number of questions and the bits after them, in the order of asking.

    Prices are subtracted from each, so that the last point is the verdict's ``net_bits``. There are
    at most 128 points. A verdict without a transcript has none.

    >>> from timbermark.ownership import Mark, OwnerKey, verify
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(64.0)[:, None], alphabets=[[0, 1]] * 64,
    ...     reference=np.full((64, 2), 0.5),
    ... )
    >>> verdict = verify(lambda X: np.zeros(len(X), int), mark)
    >>> evidence_curve(mark, verdict)[-1] == (64, verdict.net_bits)
    True
    """
    transcript = verdict.transcript
    if transcript is None:
        return ()
    k, order = mark.n_triggers, mark.order
    counts = np.unique(np.linspace(1, k, min(k, MOST_POINTS)).round().astype(int)).tolist()
    price = math.fsum(price.bits for price in verdict.prices)
    points = []
    for n in counts:
        asked = order[:n]
        if transcript.scores is not None:
            part = np.full_like(transcript.scores, np.nan)
            part[asked] = transcript.scores[asked]
            bits = scores_evidence(part, mark)
        elif transcript.numbers is not None:
            pairs = compare_pairs(transcript.numbers, mark.levels, mark.symbols)
            part = np.full(k, np.nan)
            part[asked] = pairs.difference[asked]
            bits = numbers_evidence(part, mark.levels, mark.symbols)
        else:
            assert transcript.labels is not None
            labels = transcript.labels[asked]
            matched = int((labels == mark.expected_numbers[asked]).sum())
            # A label outside its alphabet says nothing about the symbol.
            inside = int((labels[:, np.newaxis] == mark.alphabets[asked]).any(axis=1).sum())
            if transcript.one_by_one:
                bits = sequential_evidence(matched, inside, mark.q)
            else:
                trials = inside + int((labels == UNANSWERED).sum())
                bits = evidence_bits(matched, trials, mark.q) if trials else 0.0
        points.append((int(n), bits - price))
    return tuple(points)
