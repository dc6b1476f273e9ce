"""The code of a roll: biases, the symbols of each customer, and the evidence against customers.

Every boundary i has a bias p_i near one half, and every customer a random symbol there, which is 1
with chance p_i (Tardos). A suspect answers by the symbol of its copy, or by some mixture of the
symbols of several. Let f(a | x) be the chance of its answer in a model of what colluders do, given
that a customer among them has the symbol x. Then f(a_i | x_i) / Σ p_i(x) f(a_i | x) has the mean 1
if the suspect does not depend on this customer's symbols, and so has the product over all
boundaries: an e-value, in which models of single leakers and of two to eight colluders are mixed.
The same holds for the symbols of several customers together: the evidence that at least one of
them took part. docs/copies.md states every constant.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from timbermark.dtypes import SMALL_KIND, AnyArray, Reals, SmallKinds
from timbermark.ownership.encoding import encode
from timbermark.ownership.evidence import CONCLUSIVE_BITS, split_gains, split_sides

MOST_COLLUDERS = 8
BIASES = (55, 64, 73, 83, 92, 102, 113, 123, 133, 143, 154, 164, 173, 183, 192, 201)
"""Biases in 256ths, all equally likely: the arcsine density between 0.2 and 0.8. (Wider ones, as
Tardos has for large coalitions, tell less of one and two leakers: 0.60 and 0.13 bits for each
boundary with 0.05, 0.75 and 0.16 with 0.2.)"""
SEED_N, SEED_R = 1 << 13, 8
"""scrypt for the seed of a customer: 8 MiB, some hundredths of a second."""
_BIAS_DOMAIN = b"timbermark/biases/1"
_CUSTOMER_DOMAIN = b"timbermark/customer/1"
_SEED_DOMAIN = b"timbermark/customer-seed/1"
_SYMBOL_DOMAIN = b"timbermark/customer-symbols/1"
_PICK, _MAJORITY, _MINORITY = range(3)
_WIDTHS = (0.1, 0.03, 0.01)
"""How far a mean of copies' answers is from where it should be, in models of averaging."""
_GROUP_FORMS = slice(1, None, 4)
_FARTHER = 2
"""Of groups, some forms and coalitions with so many unknown members are enough."""
_MIXING = math.log2(MOST_COLLUDERS)
"""The bits that mixing models of one to eight colluders loses."""


def derive_biases(seed: bytes, n: int) -> AnyArray:
    """Return the bias of each of n boundaries in 256ths, int64 [n]; ``seed`` is the mark's.

    >>> set(derive_biases(bytes(32), 100).tolist()) <= set(BIASES)
    True
    """
    stream = hashlib.shake_256(_BIAS_DOMAIN + seed).digest(n)
    return np.asarray(np.array(BIASES)[np.frombuffer(stream, np.uint8) & (len(BIASES) - 1)])


def derive_customer_seed(mark_digest: bytes, name: str, token: bytes) -> bytes:
    """Return the 32 bytes that a customer's symbols derive from: scrypt of name and token.

    Whoever searches for a token that suits a suspect pays scrypt for each trial.

    >>> len(derive_customer_seed(bytes(32), "Bob Ltd", bytes(32)))
    32
    """
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    named = _CUSTOMER_DOMAIN + encode({"mark": mark_digest, "name": name, "token": token})
    scrypt = Scrypt(salt=_SEED_DOMAIN, length=32, n=SEED_N, r=SEED_R, p=1)
    return bytes(scrypt.derive(hashlib.sha256(named).digest()))


def derive_customer_symbols(seed: bytes, biases: AnyArray) -> SmallKinds:
    """Return a customer's symbols, uint8 [n]: 1 where a byte of the stream is below the bias.

    >>> derive_customer_symbols(bytes(32), np.array([0, 256])).tolist()
    [0, 1]
    """
    stream = hashlib.shake_256(_SYMBOL_DOMAIN + seed).digest(len(biases))
    return np.asarray(np.frombuffer(stream, np.uint8) < biases, SMALL_KIND)


def group_gains(
    rows: AnyArray, reference: Reals, biases: AnyArray, kind: str, size: int = 1
) -> tuple[Reals, Reals]:
    """Return log f(a | s) / Σ P(s) f(a | s), float64 [models, n, size + 1], and models' weights.

    ``rows`` and ``reference`` are those of `split_gains`; s is the number of ones among the symbols
    of ``size`` customers. Each line, weighted with the chances of s, has the mean 1.

    >>> rows, reference = np.array([[1.0, 2.0, 2.0]]), np.array([[[1.0], [2.0]]])
    >>> gains, weights = group_gains(rows, reference, np.array([128]), "numbers")
    >>> bool(np.allclose(np.exp(gains).mean(axis=2), 1.0)), round(float(weights.sum()), 9)
    (True, 1.0)
    """
    p = np.asarray(biases) / 256.0
    chance = np.stack([_binomial(size, s, p) for s in range(size + 1)], axis=-1)
    high = np.exp(split_gains(rows, reference, np.ones(len(p), int), kind)) / 2.0
    sides = [split_sides(rows, kind)]
    if kind == "scores":
        sides.append(split_sides(np.asarray(rows, np.float64), "numbers"))
    largest = MOST_COLLUDERS
    if size > 1:
        high, largest = high[_GROUP_FORMS], size + _FARTHER
    found, weights = [], []
    for k in range(size, largest + 1):
        ways = list(_mixtures(high, sides, p, size, k))
        for likelihood in ways:
            found.append(np.log(likelihood / (chance * likelihood).sum(-1, keepdims=True)))
            weights.append(np.full(len(likelihood), 1.0 / len(likelihood) / len(ways)))
    together = np.concatenate(weights)
    return np.concatenate(found), together / together.sum()


def _mixtures(
    high: Reals, sides: Sequence[Reals], p: Reals, size: int, k: int
) -> Iterator[AnyArray]:
    """Yield f(a | s), [forms, n, size + 1], for what k colluders can do."""
    for way in (_PICK,) if k <= 2 else (_PICK, _MAJORITY, _MINORITY):
        one = np.stack([_chance_of_one(way, s, size, k, p) for s in range(size + 1)], axis=-1)
        yield high[..., None] * one + (1.0 - high[..., None]) * (1.0 - one)
    if k == 1:
        return
    means = []
    for u in sides:
        for width in _WIDTHS:
            part = np.zeros((len(p), size + 1))
            for s in range(size + 1):
                for j in range(k - size + 1):
                    off = (u - (s + j) / k) / width
                    part[:, s] += _binomial(k - size, j, p) / (1.0 + off * off)
            means.append(np.where(np.isnan(part), 1.0, part))
    yield np.stack(means)


def _chance_of_one(way: int, s: int, size: int, k: int, p: Reals) -> Reals:
    """Return the chance that k colluders, s of ``size`` of whom have ones, show a one."""
    total = np.zeros(len(p))
    for j in range(k - size + 1):
        ones = s + j
        shown = ones / k
        if way != _PICK and 0 < ones < k and 2 * ones != k:
            shown = float((2 * ones > k) == (way == _MAJORITY))
        elif way != _PICK and 2 * ones == k:
            shown = 0.5
        total += _binomial(k - size, j, p) * shown
    return total


def _binomial(n: int, j: int, p: Reals) -> Reals:
    return np.asarray(math.comb(n, j) * p**j * (1.0 - p) ** (n - j))


def group_bits(gains: Reals, weights: Reals, counts: AnyArray) -> Reals:
    """Return log₂ of the e-value of each customer or group, float64 [g].

    ``gains`` and ``weights`` are those of `group_gains`, ``counts`` [g, n] the ones among the
    symbols of each group; of single customers these are their symbols.

    >>> gains = np.log(np.array([[[0.5, 1.5]]]))
    >>> group_bits(gains, np.ones(1), np.array([[1], [0]])).round(3).tolist()
    [0.585, -1.0]
    """
    given = np.asarray(counts)
    sums = gains[..., 0].sum(axis=1) + np.zeros((len(given), 1))
    for s in range(1, gains.shape[2]):
        sums += (given == s).astype(np.float64) @ (gains[..., s] - gains[..., 0]).T
    return _mean_bits(sums, weights)


def _mean_bits(sums: Reals, weights: Reals) -> Reals:
    """Return log₂ of weighted means over the last axis of e-values given as logarithms."""
    top = sums.max(axis=-1, keepdims=True)
    mean = (np.exp(sums - top) * weights).sum(axis=-1)
    return np.asarray((top[..., 0] + np.log(mean)) / math.log(2.0))


@lru_cache(maxsize=1)
def _information() -> tuple[float, ...]:
    """Return the bits that a boundary tells of each of k colluders who pick symbols, k from 1."""
    p = np.asarray(BIASES) / 256.0
    found = []
    for k in range(1, MOST_COLLUDERS + 1):
        one = np.stack([_chance_of_one(_PICK, s, 1, k, p) for s in range(2)])
        mixed = (1.0 - p) * one[0] + p * one[1]
        told = _entropy(mixed) - (1.0 - p) * _entropy(one[0]) - p * _entropy(one[1])
        found.append(float(told.mean()))
    return tuple(found)


def _entropy(q: Reals) -> Reals:
    q = np.clip(q, 1e-12, 1.0 - 1e-12)
    return np.asarray(-(q * np.log2(q) + (1.0 - q) * np.log2(1.0 - q)))


def count_traceable(n_boundaries: int, n_customers: int) -> int:
    """Return how many colluders, who pick thresholds from their copies, are traced: 0 for none.

    Of so many, one is expected to be conclusive after the price of n customers.

    >>> count_traceable(60, 100), count_traceable(300, 100), count_traceable(1000, 100)
    (0, 1, 3)
    """
    enough = [
        k
        for k, bits in enumerate(_information(), 1)
        if expected_bits(n_boundaries, n_customers, bits) >= CONCLUSIVE_BITS
    ]
    return max(enough, default=0)


def expected_bits(n_boundaries: int, n_customers: int, each: float | None = None) -> float:
    """Return the bits expected of a single leaker, or with ``each`` bits from a boundary.

    >>> 100 < expected_bits(300, 100) < 300
    True
    """
    told = _information()[0] if each is None else each
    return n_boundaries * told - _MIXING - math.log2(max(n_customers, 1))
