"""Copies: one marked model for each customer, alike but for where some thresholds lie.

The model is marked once for its owner. Boundaries that the owner's mark leaves over carry other
symbols in every copy: no training row and hardly any other row can tell copies apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel
from timbermark.marking import sealing
from timbermark.marking.budget import Budget
from timbermark.marking.models import close_model, open_model
from timbermark.marking.sealing import Choices, Draft, Outcome, Say
from timbermark.marking.splits import SplitLimits, SplitTriggers, set_thresholds
from timbermark.marking.words import Note
from timbermark.ownership.encoding import check_count, check_name
from timbermark.ownership.evidence import CONCLUSIVE_BITS
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import clean_name
from timbermark.tracing.codes import MOST_COLLUDERS, count_traceable, expected_bits
from timbermark.tracing.roll import EDGES, Roll
from timbermark.trees.ensemble import digest

MOST_BOUNDARIES = 1000
"""The most boundaries that tell copies apart."""
OWNERS_FREE = 96
OWNERS_SHARE = {"splits": (2, 3), "both": (8, 8)}
"""The owner's mark keeps one in so many wide and one in so many free boundaries, at most as many
free ones as the first number says. It keeps more where it is in splits alone."""
WIDE_PRICE = 5e-4
"""What all wide boundaries may cost: an eighth of what they may in a mark, so that copies stay
alike. (XGBoost, spambase and wine, three seeds each: 0.03 and 0.18 % of labels changed against the
unmarked model; with the price of marks 0.31 and 0.39 %.)"""
ENOUGH_BITS = 2.0 * CONCLUSIVE_BITS
"""Bits of a single leaker, twice what is conclusive, below which thresholds also lie
between values of a column's grid: a leaker who keeps half of the trees keeps 50 to 87 % of them."""
ENOUGH_TRIGGERS = 80
"""Triggers in splits with which the owner's mark needs none in leaves."""


def count_copies(n: int) -> str:
    """Return a number of copies in words.

    >>> count_copies(1), count_copies(2)
    ('1 copy', '2 copies')
    """
    return f"{n} copy" if n == 1 else f"{n} copies"


@dataclass(frozen=True, slots=True, eq=False)
class CopiesOf(Mapping[str, Any]):
    """The copy of each customer by name, made when it is asked for.

    The same name always gives the same model, and no more than one copy need be in memory.
    """

    base: ForeignModel
    roll: Roll
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        symbols = self.roll.symbols([name])[0]
        return close_model(self.base, self.roll.place(self.base.ensemble, symbols))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"{count_copies(len(self))} of a {self.base.kind}"


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """A copy for each customer, the secret roll, and what marking cost.

    ``copies``: models of the type that was given, by customer; ``roll``: save it; ``traces``: how
    many colluders, each of whom gives a part of the thresholds, are traced to one of them; a single
    leaker is 1. ``bits``: expected of a single leaker's untouched copy. ``outcome``: the owner's
    mark and its cost, with symbols like a customer's; None where customers were added to a roll.
    """

    copies: Mapping[str, Any]
    roll: Roll
    traces: int
    bits: float
    outcome: Outcome | None = None

    @property
    def mark(self) -> Mark:
        """Return the owner's mark, which every copy carries."""
        return self.roll.mark

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return what to tell the user about the owner's mark and the copies, warnings first."""
        return () if self.outcome is None else self.outcome.notes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it is secret but the customers' names."""
        return {
            "customers": list(self.copies),
            "customers_in_roll": len(self.roll.customers),
            "boundaries": self.roll.n_boundaries,
            "bits": round(self.bits, 1),
            "traces": self.traces,
            "mark": None if self.outcome is None else self.outcome.to_dict(),
        }

    def __str__(self) -> str:
        told = (
            f"{count_copies(len(self.copies))}, told apart by {self.roll.n_boundaries} boundaries: "
            f"about {self.bits:.0f} bits against a single leaker, "
        )
        told += (
            "too few to be conclusive"
            if not self.traces
            else "and coalitions are not traced to a single one"
            if self.traces == 1
            else f"coalitions of up to {self.traces} are traced"
        )
        return told if self.outcome is None else f"{told}\n{self.outcome}"

    def __repr__(self) -> str:
        return f"Copies({self.copies!r}, {self.roll!r})"


def copies(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    customers: Sequence[str],
    key: OwnerKey | None = None,
    owner: str | None = None,
    roll: Roll | str | os.PathLike[str] | None = None,
    colluders: int = 1,
    seals: str = "auto",
    budget: Budget | None = None,
    validation: Any = None,
    groups: Any = None,
    weak: bool = False,
    random_state: int = 0,
    progress: bool = False,
) -> Copies:
    """Mark ``model`` for its owner and make a copy for each customer; the model stays as it is.

    ``X``, ``y``, ``groups``, ``validation``, ``budget`` and ``random_state`` are those of
    :func:`timbermark.embed`; the budget is what the owner's mark and the symbols of a copy may cost
    together. ``seals``: where the owner's mark goes: "splits", "both", or "auto", which uses leaves
    only where boundaries are few. ``customers``: their names. ``colluders``: how many customers who
    mix their copies must be traced to one of them; fewer boundaries are refused, unless ``weak``.
    Where the columns' own decimals leave too few, thresholds also lie between values of that grid.

    To add customers later give ``roll``, the roll or its file, and as ``model`` any of the copies
    as it was made; nothing else is needed. The roll that is returned replaces the old one.

    Raises InputError for bad input, two customers of one name, a roll of another model, and too few
    boundaries for so many customers.

    >>> from timbermark import OwnerKey, TimberClassifier, trace, verify
    >>> X = np.random.default_rng(0).normal(size=(2000, 6))
    >>> y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    >>> model = TimberClassifier(max_iter=60, random_state=0).fit(X, y)
    >>> made = copies(
    ...     model, X, y, customers=["Bob Ltd", "Eve Inc"], key=OwnerKey.generate(), owner="Ann Ltd"
    ... )
    >>> leaked = made.copies["Eve Inc"]
    >>> trace(leaked, made.roll).leakers
    ('Eve Inc',)
    >>> verify(leaked, made.mark).level
    'conclusive'
    """
    wanted = check_count("colluders", colluders, 1, MOST_COLLUDERS)
    names = _check_customers(customers)
    if roll is not None:
        known = roll if isinstance(roll, Roll) else Roll.load(roll)
        base = open_model(model)
        known.check_model(base.ensemble)
        return _finish(base, known.with_customers(names), names, wanted, weak, None)
    if not isinstance(key, OwnerKey):
        raise InputError(
            "Copies need your owner key.",
            hint="key=timbermark.OwnerKey.load(path); or roll=… to add customers.",
            code="copies.key",
            parameter="key",
        )
    check_name(owner, "owner")
    assert owner is not None
    if seals == "leaves":
        raise InputError(
            "Copies differ in splits, so the owner's mark cannot be in leaves alone.",
            hint="use seals='auto', 'splits' or 'both'.",
            code="copies.seals",
            parameter="seals",
        )
    with Workers(count_threads(None)) as workers, step_bar(progress) as say:
        given = {"X": X, "y": y, "groups": groups, "candidates": None, "validation": validation}
        draft, others = _draft(
            open_model(model), given, (len(names), wanted), seals == "auto",
            Choices("splits" if seals == "auto" else seals, budget or Budget(), weak=weak),
            random_state, workers, say,
        )  # fmt: skip
        _check_enough(len(others), len(names), wanted, weak)
        sealed = sealing.draw_seals(draft, key, owner, workers, say)
        say("making the roll")
        grid = sealing.make_mark(draft.prepared, others, None, None, key, owner, {})
        foreign = draft.prepared.foreign
        # What the library makes of the trees is what later customers' copies are made of.
        blank = set_thresholds(sealed.ensemble, others.boundaries, np.zeros(len(others)))
        base = open_model(close_model(foreign, blank))
        edges = {
            name: np.array(getattr(others.boundaries, name), kind) for name, kind in EDGES.items()
        }
        begun = Roll(grid, sealed.mark, edges, digest(base.ensemble))
        outcome = Outcome(**sealed.shared())
        return _finish(base, begun.with_customers(names), names, wanted, weak, outcome)


def _draft(
    foreign: ForeignModel, given: Mapping[str, Any], customers: tuple[int, int], auto: bool,
    choices: Choices, seed: int, workers: Workers, say: Say,
) -> tuple[Draft, SplitTriggers]:  # fmt: skip
    """Return the owner's mark before its symbols, and the triggers that tell copies apart.

    ``customers``: how many there are, and how many together must be traced; ``auto``: leaves are
    used as well where splits are too few for the owner's mark.
    """
    limits = SplitLimits(
        free=MOST_BOUNDARIES + OWNERS_FREE, wide_price=WIDE_PRICE, measured=2 * MOST_BOUNDARIES
    )
    begin = partial(sealing.draft_mark, foreign, **given, seed=seed, workers=workers, say=say)
    try:
        draft = begin(choices=choices, limits=limits)
        n = len(_divide(draft.splits, True)[1])
    except InputError as error:
        if error.code != "splits.too-few":
            raise
        n = 0
    scarce = expected_bits(n, customers[0]) < ENOUGH_BITS
    if scarce or count_traceable(n, customers[0]) < customers[1]:
        limits = replace(limits, off_grid=True)
        draft = begin(choices=choices, limits=limits)
    own, rest = _divide(draft.splits, draft.rehearsal is not None)
    if auto and len(own) < ENOUGH_TRIGGERS and foreign.task == "classification":
        draft = begin(choices=replace(choices, seals="both"), limits=limits)
        own, rest = _divide(draft.splits, draft.rehearsal is not None)
    if draft.splits is None:
        raise _too_few(0, *customers)
    others = draft.splits.take(rest)
    notes = (*draft.notes, Note("off_grid")) if limits.off_grid else draft.notes
    own_splits = draft.splits.take(own)
    return replace(draft, splits=own_splits, beside=others.boundaries, notes=notes), others


def _finish(
    base: ForeignModel,
    roll: Roll,
    names: tuple[str, ...],
    colluders: int,
    weak: bool,
    outcome: Outcome | None,
) -> Copies:
    _check_enough(roll.n_boundaries, len(roll.customers), colluders, weak)
    n, c = roll.n_boundaries, len(roll.customers)
    traces = count_traceable(n, c)
    if outcome is not None and traces == 1:
        alone = Note("single_leaker", {"boundaries": n, "customers": c})
        outcome = replace(outcome, notes=(*outcome.notes, alone))
    return Copies(CopiesOf(base, roll, names), roll, traces, expected_bits(n, c), outcome)


def _divide(splits: SplitTriggers | None, has_leaves: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the owner's triggers, and of those that tell copies apart."""
    if splits is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    wide = np.flatnonzero(splits.boundaries.wide)
    free = np.flatnonzero(~splits.boundaries.wide)
    of_wide, of_free = OWNERS_SHARE["both" if has_leaves else "splits"]
    own = np.sort(np.concatenate([wide[::of_wide], free[::of_free][:OWNERS_FREE]]))
    rest = np.setdiff1d(np.arange(len(splits)), own)
    return own, rest[:MOST_BOUNDARIES]


def _check_customers(customers: Any) -> tuple[str, ...]:
    if isinstance(customers, str) or not isinstance(customers, Iterable):
        raise InputError(
            "customers is not a list of names.",
            hint="customers=['Bob Ltd', 'Eve Inc'].",
            code="customers.list",
            parameter="customers",
        )
    names = tuple(clean_name(name, "customers") for name in customers)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None or not names:
        raise InputError(
            f"There are two customers of the name {twice!r}." if names else "No customer is named.",
            hint="give each customer a name of its own.",
            code="customers.twice" if names else "customers.none",
            parameter="customers",
        )
    return names


def _check_enough(n_boundaries: int, n_customers: int, colluders: int, weak: bool) -> None:
    if count_traceable(n_boundaries, n_customers) < colluders and not weak:
        raise _too_few(n_boundaries, n_customers, colluders)


def _too_few(n_boundaries: int, n_customers: int, colluders: int) -> InputError:
    traced = count_traceable(n_boundaries, n_customers)
    still = (
        "not even a single leaker"
        if not traced
        else "a single leaker"
        if traced == 1
        else f"coalitions of up to {traced}"
    )
    wanted = "a single leaker" if colluders == 1 else f"coalitions of {colluders}"
    return InputError(
        f"{n_boundaries} boundaries are too few to trace {wanted} among {n_customers} customers: "
        f"they trace {still}.",
        hint="give all training rows, a model with more trees, wider limits on the cost, or "
        "weak=True to trace less.",
        code="copies.too-few",
        parameter="colluders",
    )
