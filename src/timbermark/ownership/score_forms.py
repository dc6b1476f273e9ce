"""The forms of score evidence: which symbol a suspect's scores speak for, by several assumptions.

A form gives every trigger a distribution w over the q values of its alphabet. It may depend on the
suspect's scores and on the reference, but never on the symbols: that is all an e-value needs. What
a form assumes about a thief decides how much it finds, not whether it may be used.

The forms share one idea. If trigger i carries symbol a, the marked model's scores are known in
advance: the reference, moved as little as possible so that label a leads (`expected_scores`). A
thief who averages these with a model of their own leaves a share of them in every answer, however
loud the other model is, and what is left after taking that share away must look like scores of a
model: not negative, and mostly near 0.

A mark may hold the scores of *alternatives*: models without the mark that resemble what thieves
make of the unmarked one. A suspect is then predicted from them and the reference, trigger after
trigger, by what it answered before (`predict_scores`); what differs from the prediction is mostly
the mark.
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
DAMPING = 1.0
"""What keeps a prediction at the reference until answers say otherwise: the weight of a ridge."""
N_PREDICTED_FORMS = len(TEMPERATURES) + len(LEADS) * len(REMAINDERS) * len(SPREADS)
N_FORMS = (
    len(TEMPERATURES) * len(REFERENCE_SHARES)
    + len(LEADS) * len(FOREIGN_SHARES) * len(TOLERANCES)
    + len(LEADS) * len(REMAINDERS) * len(SPREADS)
)


def score_forms(
    scores: Reals, reference: Reals, alphabets: AnyArray, predicted: Reals | None = None
) -> Reals:
    """Return log w_i(a) up to a constant for each trigger, float64 [`N_FORMS`, k, q].

    ``scores`` and ``reference`` [k, K], ``alphabets`` [k, q]; docs/mark-format.md has the formulae.
    With ``predicted``, as `predict_scores` gives it, there are `N_PREDICTED_FORMS` more.

    >>> score_forms(np.full((3, 2), 0.5), np.full((3, 2), 0.5), np.tile([0, 1], (3, 1))).shape
    (108, 3, 2)
    """
    p, r = (log_scores(given, alphabets) for given in (scores, reference))
    expected = [expected_scores(reference, alphabets, lead) for lead in LEADS]
    intended = [np.log(np.maximum(then, SCORE_FLOOR)) - r[:, np.newaxis] for then in expected]
    forms = [t * (p - share * r) for t in TEMPERATURES for share in REFERENCE_SHARES]
    for scores_then in expected:
        forms += _averaged(np.exp(p), scores_then)
    for change in intended:
        forms += _moved(p - r, change)
    if predicted is not None:
        forms += [t * (p - predicted) for t in TEMPERATURES]
        for change in intended:
            forms += _moved(p - predicted, change)
    return np.stack(forms)


def log_scores(scores: Reals, alphabets: AnyArray) -> Reals:
    """Return the logarithms of the scores of alphabets' labels, float64 [k, q]; see `SCORE_FLOOR`.

    >>> log_scores(np.array([[0.0, 1.0, 0.5]]), np.array([[1, 2]])).round(3).tolist()
    [[0.0, -0.693]]
    """
    found = np.take_along_axis(scores, alphabets, axis=1)
    return np.asarray(np.log(np.clip(found, SCORE_FLOOR, 1.0)))


def predict_scores(scores: Reals, reference: Reals, alternatives: Reals) -> Reals:
    """Return what triggers in the order of asking should be answered with, float64 [n, q].

    ``scores`` and ``reference`` [n, q] and ``alternatives`` [n, R, q] are logarithms. A trigger is
    predicted as a weighted sum of its reference and alternatives, each less its mean over the
    alphabet. The weights fit the answers to all earlier triggers best, by least squares, damped
    towards the reference alone. So no prediction knows the answer that it is for, and what is asked
    later changes nothing: evidence stays valid whenever one stops.

    >>> scores = np.log([[0.5, 0.5], [0.9, 0.1]])
    >>> predict_scores(scores, np.zeros((2, 2)), np.zeros((2, 1, 2))).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    known = np.concatenate([reference[:, np.newaxis], alternatives], axis=1)
    x = (known - known.mean(axis=2, keepdims=True)).transpose(0, 2, 1)
    z = scores - scores.mean(axis=1, keepdims=True)
    start = np.zeros(x.shape[2])
    start[0] = DAMPING
    squares = np.einsum("iaj,iak->ijk", x, x)
    products = np.einsum("iaj,ia->ij", x, z)
    # Sums over the triggers before each one.
    squares = squares.cumsum(axis=0) - squares + np.diag(np.full(len(start), DAMPING))
    products = products.cumsum(axis=0) - products + start
    weights = np.linalg.solve(squares, products[..., np.newaxis])
    return np.asarray((x @ weights)[..., 0])


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


def _moved(observed: Reals, intended: Reals) -> Iterator[Reals]:
    """Yield log-likelihoods for a suspect that keeps a part of the mark's change of log-scores.

    ``observed`` [k, q]: how the suspect differs from what it would say without the mark;
    ``intended`` [k, q, q]: how the mark changes them, for each symbol.
    """
    for remainder in REMAINDERS:
        off = observed[:, np.newaxis] - remainder * intended
        off -= off.mean(axis=2, keepdims=True)
        size = np.abs(off).sum(axis=2)
        for spread in SPREADS:
            yield -size / spread
