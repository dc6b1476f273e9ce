"""The forms of score evidence: which symbol a suspect's scores speak for, by several assumptions.

A form gives every trigger a distribution w over the q values of its alphabet. It may depend on the
suspect's scores and on the reference, but never on the symbols: that is all an e-value needs. What
a form assumes about a thief decides how much it finds, not whether it may be used.

The forms share one idea. If trigger i carries symbol a, the marked model's scores are known in
advance: the reference, moved as little as possible so that label a leads (`expected_scores`). A
thief who averages these with a model of their own leaves a share of them in every answer, however
loud the other model is, and what is left after taking that share away must look like scores of a
model: not negative, and mostly near 0.
"""

from collections.abc import Iterator

import numpy as np

from timbermark.dtypes import AnyArray, Reals

SCORE_FLOOR = 1e-6
"""Probabilities below this count as this: the logarithm of 0 would outweigh everything else."""
TEMPERATURES = (0.1, 0.35, 1.0, 4.0, 16.0, 32.0)
"""High ones are for copies that nobody touched: an edit moves a trigger's scores only a little, and
the copy repeats that exactly. Low ones are for copies that were tuned."""
REFERENCE_SHARES = (0.5, 1.0)
LEADS = (0.5, 1.0, 2.0, 4.0)
"""How far the label that a symbol asks for leads in a marked model, in logarithms of scores."""
FOREIGN_SHARES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
"""How much of an averaged suspect is another model."""
TOLERANCES = (0.01, 0.03)
REMAINDERS = (0.2, 0.35, 1.0)
"""How much of the mark's effect on the logarithms of scores is left."""
SPREADS = (0.5, 1.0)
N_FORMS = (
    len(TEMPERATURES) * len(REFERENCE_SHARES)
    + len(LEADS) * len(FOREIGN_SHARES) * len(TOLERANCES)
    + len(LEADS) * len(REMAINDERS) * len(SPREADS)
)


def score_forms(scores: Reals, reference: Reals, alphabets: AnyArray) -> Reals:
    """Return log w_i(a) up to a constant for each trigger, float64 [`N_FORMS`, k, q].

    ``scores`` and ``reference`` [k, K], ``alphabets`` [k, q]; docs/mark-format.md has the formulae.

    >>> score_forms(np.full((3, 2), 0.5), np.full((3, 2), 0.5), np.tile([0, 1], (3, 1))).shape
    (108, 3, 2)
    """
    p = np.clip(np.take_along_axis(scores, alphabets, axis=1), SCORE_FLOOR, 1.0)
    r = np.clip(np.take_along_axis(reference, alphabets, axis=1), SCORE_FLOOR, 1.0)
    expected = [expected_scores(reference, alphabets, lead) for lead in LEADS]
    forms = [*_tempered(p, r)]
    for scores_then in expected:
        forms += _averaged(p, scores_then)
    for scores_then in expected:
        forms += _moved(p, r, scores_then)
    return np.stack(forms)


def expected_scores(reference: Reals, alphabets: AnyArray, lead: float) -> Reals:
    """Return what a marked model answers with: float64 [k, q, q].

    Entry [i, a, b] is the score of label ``alphabets[i, b]`` if trigger i carries symbol a: softmax
    of the logarithms of the reference, changed as `nearest_margins` says.

    >>> expected_scores(np.array([[0.5, 0.5]]), np.array([[0, 1]]), np.log(3.0)).tolist()
    [[[0.75, 0.25], [0.25, 0.75]]]
    """
    margins = np.log(np.clip(reference, SCORE_FLOOR, 1.0))
    found = []
    for a in range(alphabets.shape[1]):
        wanted = nearest_margins(margins, alphabets[:, a], lead)
        powers = np.exp(wanted - wanted.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        found.append(np.take_along_axis(powers, alphabets, axis=1))
    return np.stack(found, axis=1)


def nearest_margins(margins: Reals, target: AnyArray, lead: float | Reals) -> Reals:
    """Return float64 [k, K]: margins in which ``target`` leads all others by ``lead``, or [k].

    Of all such margins these are the nearest: the target rises and those above it sink to one
    common level. Margins that already have the lead stay as they are.

    >>> nearest_margins(np.array([[2.0, 0.0, 1.5]]), np.array([1]), 1.0).tolist()
    [[0.8333333333333334, 1.8333333333333335, 0.8333333333333334]]
    """
    k, n_outputs = margins.shape
    rows = np.arange(k)
    own = margins[rows, target]
    others = margins.copy()
    others[rows, target] = -np.inf
    ranked = -np.sort(-others, axis=1)[:, : n_outputs - 1]
    # With j others brought down to one level, the target's rise pays for their fall.
    j = np.arange(1, n_outputs)
    level = ((own - lead)[:, None] + np.cumsum(ranked, axis=1)) / (j + 1)
    below = np.hstack([ranked[:, 1:], np.full((k, 1), -np.inf)]) <= level
    level = level[rows, below.argmax(axis=1)]
    short = own - ranked[:, 0] < lead
    wanted = np.minimum(margins, np.where(short, level, np.inf)[:, None])
    wanted[rows, target] = np.where(short, level + lead, own)
    return np.asarray(wanted)


def _tempered(p: Reals, r: Reals) -> Iterator[Reals]:
    """Yield scores in which a label counts by how much likelier it is than without the mark."""
    log_p, log_r = np.log(p), np.log(r)
    for temperature in TEMPERATURES:
        for share in REFERENCE_SHARES:
            yield temperature * (log_p - share * log_r)


def _averaged(p: Reals, expected: Reals) -> Iterator[Reals]:
    """Yield log-likelihoods for a suspect that averages the marked model with another one.

    What is left after the marked model's share is the other model's scores, which are mostly near
    0: their density is taken as 1/(tolerance + score), falling off quickly below 0.
    """
    for foreign in FOREIGN_SHARES:
        left = (p[:, np.newaxis] - (1.0 - foreign) * expected) / foreign
        size, below = np.abs(left), np.maximum(-left, 0.0).sum(axis=2)
        for tolerance in TOLERANCES:
            yield -np.log(tolerance + size).sum(axis=2) - below / tolerance


def _moved(p: Reals, r: Reals, expected: Reals) -> Iterator[Reals]:
    """Yield log-likelihoods for a suspect that keeps a part of the mark's change of log-scores."""
    log_r = np.log(r)
    observed = (np.log(p) - log_r)[:, np.newaxis]
    intended = np.log(np.maximum(expected, SCORE_FLOOR)) - log_r[:, np.newaxis]
    for remainder in REMAINDERS:
        off = observed - remainder * intended
        off -= off.mean(axis=2, keepdims=True)
        size = np.abs(off).sum(axis=2)
        for spread in SPREADS:
            yield -size / spread
