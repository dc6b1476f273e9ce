"""When an inquiry has asked enough: the evidence suffices, or it hardly ever will.

Evidence that grows question by question is valid whenever one stops (Ville's inequality), so both
rules may look at every answer. The second one is a test of its own: a suspect whose answers add, on
average, what is needed in each question is given up with a chance of at most 2^-10.
"""

from __future__ import annotations

import math

import numpy as np

from timbermark.dtypes import AnyArray, Reals

GIVE_UP_BITS = 10.0
_BETS = np.arange(1, 8) / 8.0


def is_hopeless(gains: AnyArray, needed: float, n_triggers: int, q: int) -> bool:
    """Return whether ``needed`` bits are out of reach, or as good as out of reach.

    ``gains`` [m, n] are the bits that each of m forms of evidence took from each of n answers;
    ``n_triggers`` counts all that may be answered. The evidence is a mean of the forms, so at
    least one of them must reach what is needed.

    For a form, let Y = log₂ q − gain, which is never negative, and c = log₂ q − needed / n_triggers
    its largest mean that suffices. While the mean is at most c, the product of 1 + λ(Y/c − 1) over
    the answers is a supermartingale that begins at 1, for each λ from 0 to 1, and so is the mean
    over several λ. Where it passes 2^10 for every form, the inquiry is given up.

    >>> is_hopeless(np.full((1, 30), -1.0), 64.0, 128, 4)
    True
    >>> is_hopeless(np.full((1, 30), 1.0), 64.0, 128, 4)
    False
    """
    n = gains.shape[1]
    most = math.log2(q)
    if (gains.sum(axis=1) + (n_triggers - n) * most < needed).all():
        return True
    mean = most - needed / n_triggers
    if mean <= 0.0 or not n:
        return False
    excess = np.maximum(most - gains, 0.0) / mean - 1.0
    return bool((_log2_means(excess) >= GIVE_UP_BITS).all())


def _log2_means(excess: AnyArray) -> Reals:
    """Return, for each form, log₂ of the mean over all bets of the product over the answers."""
    products = np.log2(1.0 + _BETS[:, np.newaxis, np.newaxis] * excess).sum(axis=2)
    top = products.max(axis=0)
    return np.asarray(top + np.log2(np.exp2(products - top).mean(axis=0)))
