"""What matches are worth: the exact tail of the binomial distribution, in bits.

A suspect that does not depend on the secret matches each symbol with a chance of at most 1/q,
independently. Everything is computed in whole numbers and rounded once, so that 2^-2000 is as exact
as 1/2.
"""

import math
import sys
from typing import Literal, TypeAlias

from timbermark.errors import InputError

Level: TypeAlias = Literal["none", "private", "public"]

PRIVATE_BITS = 20.0
PUBLIC_BITS = 64.0
_LEAST_P = sys.float_info.min


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


def p_value(bits: float) -> float:
    """Return 2^-bits; what is smaller than 2^-1022 is given as that, never as 0.

    >>> p_value(1.0), p_value(2000.0) > 0
    (0.5, True)
    """
    return max(math.exp2(-bits), _LEAST_P)


def show_p_value(bits: float) -> str:
    """Return 2^-bits as text, rounded to a tenth of a bit towards less evidence.

    >>> show_p_value(256.0), show_p_value(1.2599)
    ('2^-256', '2^-1.2')
    """
    # A value just below a whole tenth is that tenth, spoilt by rounding.
    tenths = math.floor(bits * 10 + 1e-6)
    whole, rest = divmod(tenths, 10)
    return f"2^-{whole}.{rest}" if rest else f"2^-{whole}"


def level(bits: float) -> Level:
    """Return whom the evidence convinces: nobody, its owner, or anyone.

    >>> level(19.9), level(20), level(64)
    ('none', 'private', 'public')
    """
    if bits >= PUBLIC_BITS:
        return "public"
    return "private" if bits >= PRIVATE_BITS else "none"


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
    """Of the q^trials equally likely sequences of symbols, count those with enough matches."""
    tail, term = 0, 1
    for i in range(trials, matched - 1, -1):
        tail += term
        term = _next_term(term, i, trials, q)
    return tail


def _next_term(term: int, i: int, trials: int, q: int) -> int:
    """Return the number of sequences with i - 1 matches, given that with i."""
    return term * i * (q - 1) // (trials - i + 1)
