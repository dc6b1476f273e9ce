"""From a pool of rows to triggers in order of preference: strategy, sizes, selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.candidates import Pool, Strategy, find_candidates
from timbermark.marking.selection import Selection, select

_MANY, _FEWER = 128, 96
_SMALL_SHARE, _LARGEST_SHARE = 0.01, 0.05
_LOW_RATE = 0.001


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


def choose_strategy(strategy: str, separate: bool, share: float) -> tuple[Strategy, str]:
    """The strategy, and the reason for it, where ``strategy`` is "auto".

    As in the paper's guidance table, but for separate candidates: the table names cluster centres
    there, and that choice is still to be measured with keyed symbols.
    """
    if strategy != "auto":
        return strategy, "asked for"  # type: ignore[return-value]
    if separate:
        return "confidence", "candidates are separate rows: least sure rows give way"
    if share <= _LOW_RATE:
        return "outlier", "few triggers from the training rows themselves: isolated rows suit best"
    return "confidence", "candidates are the training rows themselves: least sure rows give way"


def choose(
    pool: Pool,
    strategy: str,
    selection: Selection,
    k: int,
    separate: bool,
    n_rows: int,
    seed: int,
    raw: bool = False,
    n_candidates: int | None = None,
) -> Choice:
    """``k`` triggers out of ``n_candidates`` (2 k unless given), the rest of the order spare."""
    taken, why = choose_strategy(strategy, separate, k / n_rows)
    n = 2 * k if n_candidates is None else n_candidates
    found = find_candidates(taken, pool, n, seed, raw)
    order = found.order[:n]
    places = select(selection, pool, order, k, seed, raw)
    rest = np.setdiff1d(np.arange(n), places)
    if selection == "confidence":
        rest = rest[np.argsort(pool.sureness[order[rest]], kind="stable")]
    spare = np.concatenate([order[rest], found.order[n:]])
    return Choice(taken, why, order[places], spare, found.neighbours[:n][places])
