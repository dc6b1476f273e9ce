"""How evidence grew from question to question, for whoever draws it."""

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.ownership.evidence import (
    mean_bits,
    numbers_evidence,
    scores_gains,
    sequential_evidence,
)
from timbermark.ownership.labels import UNANSWERED
from timbermark.ownership.mark import Mark
from timbermark.ownership.numbers import compare_pairs
from timbermark.ownership.statistics import evidence_bits
from timbermark.ownership.transcript import Transcript

MOST_POINTS = 128
_MOST_NUMBER_POINTS = 32
"""How numbers are read depends on all that were asked, so that every point is computed anew."""

Curve = tuple[tuple[int, float], ...]


def evidence_curve(mark: Mark, transcript: Transcript, net_bits: float, price: float) -> Curve:
    """Return pairs of a number of questions and the bits after them, in the order of asking.

    ``price`` is subtracted from each point; the last point is ``net_bits``, the whole evidence
    minus the price. There are at most 128 points.

    >>> from timbermark.ownership import Mark, OwnerKey, verify
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(64.0)[:, None], alphabets=[[0, 1]] * 64,
    ...     reference=np.full((64, 2), 0.5),
    ... )
    >>> verdict = verify(lambda X: np.zeros(len(X), int), mark)
    >>> len(verdict.curve), verdict.curve[-1] == (64, verdict.net_bits)
    (64, True)
    """
    k, order = mark.n_triggers, mark.order
    most = MOST_POINTS if transcript.numbers is None else _MOST_NUMBER_POINTS
    points = min(k, most)
    counts = [-(-k * point // points) for point in range(1, points + 1)]
    if transcript.scores is not None:
        bits = _by_scores(transcript.scores, mark, order, counts)
    elif transcript.numbers is not None:
        pairs = compare_pairs(transcript.numbers, mark.levels, mark.symbols)
        parts = [np.where(np.isin(np.arange(k), order[:n]), pairs.difference, np.nan)
                 for n in counts]  # fmt: skip
        bits = [numbers_evidence(part, mark.levels, mark.symbols) for part in parts]
    else:
        assert transcript.labels is not None
        bits = _by_labels(transcript.labels, mark, order, counts, transcript.one_by_one)
    return (*((n, b - price) for n, b in zip(counts[:-1], bits[:-1], strict=True)), (k, net_bits))


def _by_scores(scores: AnyArray, mark: Mark, order: AnyArray, counts: list[int]) -> list[float]:
    answered = ~np.isnan(scores).any(axis=1)
    found = scores_gains(scores, mark)
    gains = np.zeros((len(found), mark.n_triggers))
    gains[:, answered] = found
    sums = gains[:, order].cumsum(axis=1)
    return [mean_bits(sums[:, n - 1]) for n in counts]


def _by_labels(
    labels: AnyArray, mark: Mark, order: AnyArray, counts: list[int], one_by_one: bool
) -> list[float]:
    matches = (labels == mark.expected_numbers)[order].cumsum().tolist()
    # A label outside its alphabet says nothing about the symbol.
    inside = (labels[:, np.newaxis] == mark.alphabets).any(axis=1)[order].cumsum().tolist()
    missing = (labels == UNANSWERED)[order].cumsum().tolist()
    bits = []
    for n in counts:
        matched, trials = matches[n - 1], inside[n - 1]
        if one_by_one:
            bits.append(sequential_evidence(matched, trials, mark.q))
        else:
            trials += missing[n - 1]
            bits.append(evidence_bits(matched, trials, mark.q) if trials else 0.0)
    return bits
