"""The exact tail of the binomial distribution for label matches, and what a number of bits means.

A suspect that does not depend on the secret matches each symbol with a chance of at most 1/q,
independently of the others. The tail is computed in whole numbers and rounded once, so that 2^-2000
is as exact as 1/2.
"""

import math
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from typing import Literal, TypeAlias

from timbermark.errors import InputError

Level: TypeAlias = Literal["none", "indicative", "conclusive"]

INDICATIVE_BITS = 20.0
CONCLUSIVE_BITS = 64.0
_PLAIN_COUNT = 1000


def log2_tail(matched: int, trials: int, q: int) -> float:
    """Return log₂ of the chance of at least ``matched`` of ``trials`` matches, each at 1/q.

    Raises InputError unless 0 <= matched <= trials and q >= 2.

    >>> log2_tail(128, 128, 4), log2_tail(0, 128, 4)
    (-256.0, 0.0)
    """
    _check(trials, q)
    if not 0 <= matched <= trials:
        raise InputError(
            f"matched={matched} must be from 0 to {trials}.", hint="count the matches again."
        )
    tail, total = _count_tail(matched, trials, q), q**trials
    if 2 * tail > total:
        # Near 1 the logarithm of the quotient would lose what the difference keeps.
        return math.log1p(-((total - tail) / total)) / math.log(2) + 0.0
    return math.log2(tail) - trials * math.log2(q)


def evidence_bits(matched: int, trials: int, q: int) -> float:
    """Return the evidence, -log₂ p, in bits; never negative. Raises as `log2_tail` does.

    >>> evidence_bits(113, 128, 2) >= 64 > evidence_bits(112, 128, 2)
    True
    """
    return abs(log2_tail(matched, trials, q))


def log2_lower_tail(matched: int, trials: int, q: int) -> float:
    """Return log₂ of the chance of at most ``matched`` of ``trials`` matches, each at 1/q.

    Raises as `log2_tail` does.

    >>> round(log2_lower_tail(0, 96, 4), 1), log2_lower_tail(96, 96, 4)
    (-39.8, 0.0)
    """
    log2_tail(matched, trials, q)  # checks the counts
    if matched == trials:
        return 0.0
    total = q**trials
    return math.log2(total - _count_tail(matched + 1, trials, q)) - trials * math.log2(q)


def round_bits(bits: float) -> float:
    """Return bits in whole thousandths, rounded down: towards less evidence.

    This is the precision in which evidence is reported; independent implementations agree on it
    although their last binary digits differ.

    >>> round_bits(63.9999), round_bits(255.99999999999), round_bits(-0.5)
    (63.999, 256.0, -0.5)
    """
    # What lies a billionth below a thousandth is that thousandth, changed by rounding errors.
    return math.floor(bits * 1000.0 + 1e-6) / 1000.0


def show_chance(bits: float) -> str:
    """Return the chance 2^-bits in words, rounded towards less evidence.

    >>> show_chance(192.0), show_chance(20.0), show_chance(7.5), show_chance(0.0)
    ('1 in 6·10^57', '1 in 1·10^6', '1 in 181', '1 in 1')
    """
    thousandths = round(round_bits(max(bits, 0.0)) * 1000)
    with localcontext(Context(prec=60, rounding=ROUND_FLOOR)):
        count = Decimal(2) ** (Decimal(thousandths) / 1000)
        if count < _PLAIN_COUNT:
            return f"1 in {int(count)}"
        # A power of two that is not whole is irrational; 60 digits settle its first one.
        power = count.adjusted()
        return f"1 in {int(count.scaleb(-power))}·10^{power}"


def level(bits: float) -> Level:
    """Return the level of evidence: none, indicative (convinces the owner) or conclusive.

    >>> level(19.9), level(20), level(64)
    ('none', 'indicative', 'conclusive')
    """
    if bits >= CONCLUSIVE_BITS:
        return "conclusive"
    return "indicative" if bits >= INDICATIVE_BITS else "none"


def matches_needed(trials: int, q: int, bits: int) -> int | None:
    """Return the fewest matches that are worth ``bits`` whole bits; None if all are not enough.

    Raises InputError unless trials >= 1, q >= 2 and bits >= 0.

    >>> matches_needed(128, 4, 64), matches_needed(32, 2, 64)
    (82, None)
    """
    _check(trials, q)
    if bits < 0:
        raise InputError(f"bits={bits} must be at least 0.", hint="64 convinces anyone.")
    allowed = q**trials >> bits
    tail, term, found = 0, 1, None
    for matched in range(trials, -1, -1):
        tail += term
        if tail > allowed:
            break
        found = matched
        term = _next_term(term, matched, trials, q)
    return found


def _check(trials: int, q: int) -> None:
    if trials < 1:
        raise InputError(f"trials={trials} must be at least 1.", hint="a mark has triggers.")
    if q < 2:
        raise InputError(f"q={q} must be at least 2.", hint="an alphabet has 2 or 4 labels.")


def _count_tail(matched: int, trials: int, q: int) -> int:
    """Count those of the q^trials equally likely sequences of symbols with enough matches."""
    tail, term = 0, 1
    for i in range(trials, matched - 1, -1):
        tail += term
        term = _next_term(term, i, trials, q)
    return tail


def _next_term(term: int, i: int, trials: int, q: int) -> int:
    """Return the number of sequences with i - 1 matches, given that with i."""
    return term * i * (q - 1) // (trials - i + 1)
