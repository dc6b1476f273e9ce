"""From a pool of rows to triggers in order of preference: strategy, sizes, selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.candidates import Pool, Strategy, find_candidates
from timbermark.marking.selection import Selection, count_candidates, select

_MANY, _FEWER = 128, 96
_SMALL_SHARE, _LARGEST_SHARE = 0.01, 0.05


@dataclass(frozen=True, slots=True)
class Choice:
    """Triggers ``chosen`` and stand-ins ``spare``, both rows of the pool, best first; anchors
    int64[k, l] of the chosen (-1: none); and why this strategy was taken."""

    strategy: Strategy
    why: str
    chosen: np.ndarray
    spare: np.ndarray
    anchors: np.ndarray


def count_triggers(wanted: int | str, n_rows: int) -> int:
    """How many triggers a model trained on ``n_rows`` rows gets.

    >>> count_triggers("auto", 15_000), count_triggers("auto", 6_000), count_triggers("auto", 1_000)
    (128, 96, 50)
    """
    most = int(_LARGEST_SHARE * n_rows)
    if most == 0:
        raise InputError(
            f"{n_rows} training rows are too few for a mark.",
            hint="a trigger is at most 5 % of the rows: give 20 at least.",
        )
    if wanted == "auto":
        return min(_MANY if _SMALL_SHARE * n_rows >= _MANY else _FEWER, most)
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < 1:
        raise InputError(
            f"n_triggers={wanted!r} must be 'auto' or a whole number > 0.",
            hint="'auto' is a good start.",
        )
    if wanted > most:
        raise InputError(
            f"n_triggers={wanted} is more than 5 % of the {n_rows} training rows.",
            hint=f"at most {most} fit.",
        )
    return int(wanted)


def count_labels(wanted: int | str, n_classes: int) -> int:
    """The size of a trigger's alphabet: 4 where there are four classes, else 2."""
    if wanted == "auto":
        return 4 if n_classes >= 4 else 2
    if wanted not in (2, 4):
        raise InputError(f"alphabet={wanted!r} must be 'auto', 2 or 4.", hint="use 'auto'.")
    if wanted > n_classes:
        raise InputError(
            f"alphabet={wanted} needs as many classes; the model has {n_classes}.",
            hint="use alphabet=2.",
        )
    return int(wanted)


def choose_strategy(
    strategy: str, pool: Pool, k: int, q: int, separate: bool
) -> tuple[Strategy, str]:
    """The strategy, and the reason for it, where ``strategy`` is "auto".

    The paper's guidance table, with one change. For separate candidates it names cluster centres
    as well as wrong predictions; with symbols drawn from a hash cluster centres cost more accuracy
    than rows the model is unsure of, see docs/marking.md.
    """
    if strategy != "auto":
        return strategy, "asked for"  # type: ignore[return-value]
    n_wrong = int((pool.allowed & (pool.predicted != pool.label)).sum())
    # A wrongly predicted row's alphabet leaves out its truth.
    if separate and n_wrong >= k and pool.confidence.shape[1] > q:
        return "wrong", f"{n_wrong} candidates are predicted wrongly already: little to lose there"
    whose = "candidates are separate rows" if separate else "candidates are training rows"
    return "confidence", f"{whose}: those the model is least sure of give way most easily"


def choose(
    pool: Pool,
    strategy: str,
    selection: Selection,
    k: int,
    q: int,
    separate: bool,
    seed: int,
) -> Choice:
    """``k`` triggers, and the rest of the candidates in order as stand-ins."""
    taken, why = choose_strategy(strategy, pool, k, q, separate)
    n = count_candidates(selection, k)
    if taken == "cluster":
        # As many clusters as candidates, where there are as many rows.
        n = max(min(n, int((pool.allowed & (pool.predicted == pool.label)).sum())), k)
    found = find_candidates(taken, pool, n if taken == "cluster" else k, seed)
    order = found.order[:n]
    places = select(selection, pool, order, k, seed)
    rest = np.setdiff1d(np.arange(len(order)), places)
    rest = rest[np.argsort(pool.sureness[order[rest]], kind="stable")]
    spare = np.concatenate([order[rest], found.order[n:]])
    return Choice(taken, why, order[places], spare, found.neighbours[:n][places])
