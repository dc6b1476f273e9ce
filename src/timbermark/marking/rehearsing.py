"""Rehearse: how strong a mark the model can carry within the budget, tried on the model itself.

Rehearsals use throwaway symbols, so that the real ones are drawn once, after everything else is
settled. Each tries a strength, the highest first; how much of the budget it used tells which one
to try next, for what a mark costs grows with lead · √triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget
from timbermark.marking.choosing import Candidates, find_candidates
from timbermark.marking.pairing import find_pairs
from timbermark.marking.preparing import Prepared
from timbermark.marking.setting import Setting, answers_after, set_symbols
from timbermark.ownership.statistics import evidence_bits

ENOUGH_BITS = 64.0
"""What convinces anyone: a mark that is worth less is made only when asked for by name."""
_SLACK = 1.5
"""What a mark costs is not quite as the rule says: a little more than it allows is tried."""
_FARTHEST = 8.0
"""Accuracy and AUC fall with the square of the lead: no more than this is gone down at once."""
_SPARE, _TRIES, _LAST_TRIES = 3.0, 3, 8
"""Candidates per trigger that are looked for: some do not take, and others stand in for them, in up
to so many tries, more of them for the weakest marks."""
_NEARLY, _LEAST_LONGER, _MOST_LONGER = 0.92, 1.15, 1.6
"""A mark that fits gets a longer lead, to use so much of what it may; if that is so much longer."""
_TOOK = 0.3
"""A trigger took if its label leads by this share of the lead asked for."""
_PLENTY = 160.0
"""Triggers that did not take are left out where the others make so many bits."""
_SAFE = 68.0
"""What a mark must be worth where not all took."""


@dataclass(frozen=True, slots=True, order=True)
class Strength:
    """How strong a mark is: ``k`` triggers, alphabets of ``q`` answers, and the ``lead``.

    ``hidden``: splits keep their gains where the file shows them.
    """

    k: int
    q: int
    lead: float
    hidden: bool = True

    @property
    def bits(self) -> float:
        """The evidence while every symbol is there."""
        return self.k * float(np.log2(self.q))

    @property
    def expense(self) -> float:
        """What the cost grows with."""
        return self.lead * float(np.sqrt(self.k * (self.q - 1) / self.q))


# Tried in turn. More triggers and a longer lead survive more and cost more.
_TWO = (
    Strength(384, 2, 3.0), Strength(384, 2, 2.0), Strength(320, 2, 1.5), Strength(256, 2, 1.0),
    Strength(192, 2, 0.75), Strength(144, 2, 0.5), Strength(112, 2, 0.35), Strength(96, 2, 0.35),
    Strength(96, 2, 0.2), Strength(88, 2, 0.15), Strength(88, 2, 0.1),
    # Small models cannot always be edited so that nothing in the file tells.
    Strength(120, 2, 0.2, False), Strength(120, 2, 0.15, False), Strength(120, 2, 0.1, False),
    Strength(96, 2, 0.1, False), Strength(88, 2, 0.1, False), Strength(88, 2, 0.05, False),
)  # fmt: skip
_FOUR = (
    Strength(320, 4, 3.0), Strength(320, 4, 2.0), Strength(256, 4, 1.5), Strength(192, 4, 1.0),
    Strength(128, 4, 0.75), Strength(96, 4, 0.5), Strength(64, 4, 0.5), Strength(48, 4, 0.35),
    Strength(96, 2, 0.35), Strength(48, 4, 0.2), *_TWO[-9:],
)  # fmt: skip
# Numbers: the lead is the distance of levels in units of how far other models differ there. How
# many triggers survive most depends on the model: a ladder for each number is climbed, and the
# best forecast decides. With the same cost a quarter of the triggers can survive ten times as much
# (`./dev bench models`: diamonds, LightGBM, averaged: 64 pairs 18 bits, 224 pairs 2).
_FAR = (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08)
_LEVELS = (
    *(Strength(k, 4, lead) for k in (192, 128, 72) for lead in _FAR),
    Strength(96, 4, 0.12, False), Strength(72, 4, 0.12, False), Strength(64, 4, 0.06, False),
    Strength(56, 4, 0.03, False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a mark: how strong, how many symbols took, and how much of each limit it used."""

    strength: Strength
    n_set: int
    use: dict[str, float]
    rounds: int
    proof: float | None = None  # the bits of an untouched copy where it is not labels that prove

    @property
    def most_used(self) -> float:
        """The largest share of a limit that is used up; above 1 is too much."""
        return max(self.use.values(), default=0.0)

    @property
    def bits(self) -> float:
        """What the labels or numbers of an untouched copy prove."""
        if self.proof is not None:
            return self.proof
        return evidence_bits(self.n_set, self.strength.k, self.strength.q)


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """The strength that fits, the triggers for it, and the attempts, the one that fits last."""

    strength: Strength
    triggers: Candidates
    attempts: tuple[Attempt, ...]
    setting: Setting  # of the attempt that fits


def list_strengths(
    n_classes: int,
    n_triggers: int | str,
    alphabet: int | str,
    lead: float | str,
    weak: bool = False,
) -> tuple[Strength, ...]:
    """Return what may be tried, the strongest first; what is not "auto" is held to its value.

    ``n_classes``: 0 for a model that answers with numbers.

    Raises InputError for values that cannot be, and for marks that are worth less than 64 bits
    unless they may be ``weak``.

    >>> list_strengths(2, "auto", "auto", "auto")[0]
    Strength(k=384, q=2, lead=3.0, hidden=True)
    """
    _check(n_classes, n_triggers, alphabet, lead)
    ladder: Sequence[Strength] = _FOUR if n_classes >= 4 and alphabet != 2 else _TWO
    if n_classes == 0:
        # Two levels carry half as much, and so there are twice as many triggers.
        two = [replace(rung, k=2 * rung.k, q=2) for rung in _LEVELS]
        ladder = two if alphabet == 2 else _LEVELS
    tried = []
    for rung in ladder:
        if alphabet != "auto" and rung.q != alphabet:
            continue
        k = rung.k if n_triggers == "auto" else int(n_triggers)
        far = rung.lead if lead == "auto" else float(lead)
        tried.append(Strength(k, rung.q, far, rung.hidden))
    if all(strength.hidden for strength in tried):
        tried.append(replace(tried[-1], hidden=False))
    strong = [strength for strength in tried if strength.bits >= ENOUGH_BITS or weak]
    if not strong:
        raise InputError(
            f"n_triggers={n_triggers} makes a mark of at most {tried[0].bits:.0f} bits, too few to "
            "convince anyone but you.",
            hint="ask for 96 or more, or allow a weak mark.",
        )
    return tuple(dict.fromkeys(strong))


def rehearse(
    prepared: Prepared,
    budget: Budget,
    strengths: Sequence[Strength],
    kind: str,
    workers: Workers,
    progress: Callable[[str], None] = lambda said: None,
) -> Rehearsal:
    """Find the mark within the budget that survives most. Raises InputError if none is.

    Of labels that is the first of the strengths that fits; of numbers the best forecast of those
    that fit, one for each number of triggers.
    """
    rehearsing = _Rehearsing(prepared, budget, strengths, kind, workers, progress)
    found: list[Rehearsal] = []
    *ladders, last = _ladders(strengths, prepared.task.in_pairs)
    for ladder in ladders:
        found += rehearsing.climb(ladder, is_last=False)
    if not found:
        found = rehearsing.climb(last, is_last=True)
    if not found:
        raise over_budget(rehearsing.attempts, budget)
    # The first of equals: labels have one ladder, and no forecast.
    best = max(found, key=lambda one: one.setting.survives)
    others = [attempt for attempt in rehearsing.attempts if attempt is not best.attempts[-1]]
    return replace(best, attempts=(*others, best.attempts[-1]))


def _ladders(strengths: Sequence[Strength], in_pairs: bool) -> list[list[Strength]]:
    """Return the strengths to try in turn, together or a list for each number of pairs.

    >>> [len(ladder) for ladder in _ladders(_LEVELS, True)]
    [10, 10, 10, 4]
    """
    ladders: dict[int, list[Strength]] = {}
    for strength in strengths:
        apart = strength.k if in_pairs and strength.hidden else 0
        ladders.setdefault(apart, []).append(strength)
    return list(ladders.values())


class _Rehearsing:
    """What rehearsals of one model share: candidates, throwaway symbols, and what was tried."""

    def __init__(
        self, prepared: Prepared, budget: Budget, strengths: Sequence[Strength], kind: str,
        workers: Workers, progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.prepared, self.budget, self.kind = prepared, budget, kind
        self.workers, self.progress = workers, progress
        self.most, self.fewest = (choose(s.k for s in strengths) for choose in (max, min))
        # Not where the number of triggers was asked for, or is what is compared.
        self.may_shrink = self.most > self.fewest and not prepared.task.in_pairs
        self.pools: dict[int, Candidates] = {}
        self.rng = np.random.default_rng(prepared.seed + 3)
        self.attempts: list[Attempt] = []
        self._share = prepared.task.budget_share
        self.afford = np.inf  # the expense that the budget allows, by what was tried last

    def climb(self, ladder: Sequence[Strength], is_last: bool) -> list[Rehearsal]:
        """Return the first of the strengths that fits, or nothing.

        ``is_last``: a mark that uses nearly all of the budget is better than none.
        """
        task = self.prepared.task
        share, (enough_set, hopeless) = self._share, task.set_shares
        left = list(ladder)
        self._skip(left)
        fallback: list[Rehearsal] = []
        while left:
            strength = left.pop(0)
            found = self._candidates(strength.q)
            # Who does not take at one lead may take at a shorter one.
            usable, fits = np.ones(len(found), np.bool_), True
            weakest = not strength.hidden
            took: np.ndarray | None = None
            for _ in range(_LAST_TRIES if weakest else _TRIES):
                places = np.flatnonzero(usable)[: strength.k] if took is None else took
                if len(places) < strength.k:
                    break
                rehearsal = self._try(strength, found.take(places))
                attempt, setting = rehearsal.attempts[-1], rehearsal.setting
                fits = attempt.most_used <= (share if left or not is_last else 1.0)
                proves = attempt.bits >= min(_SAFE, strength.bits)
                if fits and proves and attempt.n_set >= enough_set * strength.k:
                    return [self._lengthen(rehearsal, ladder[0].lead)]
                if is_last and attempt.most_used <= 1.0 and proves:
                    # Within the budget, if not by much: taken if nothing weaker is better.
                    fallback = [rehearsal]
                if not fits:
                    break
                usable[places[setting.lead < _TOOK * strength.lead]] = False
                if attempt.n_set < hopeless * strength.k and not weakest:
                    # So many do not take that the next strength would not do, either, unless
                    # leaves move freely.
                    left = left[1:] if left and left[0].hidden else left
                    break
                took = places[usable[places]] if self.may_shrink else places[:0]
                if replace(strength, k=len(took)).bits < _PLENTY:
                    took = None  # others stand in for those that did not take
                else:
                    strength = replace(strength, k=len(took))
            if not fits:
                over = min(self.attempts[-1].most_used / share, _FARTHEST)
                self.afford = _SLACK * strength.expense / over
                self._skip(left)
        return fallback

    def _lengthen(self, found: Rehearsal, longest: float) -> Rehearsal:
        """Return a rehearsal with the lead that the budget allows between two strengths, if any."""
        strength, attempt, share = found.strength, found.attempts[-1], self._share
        lead = min(_NEARLY * share / max(attempt.most_used, 1e-9), _MOST_LONGER) * strength.lead
        lead = float(f"{min(lead, longest):.2g}")
        if lead < _LEAST_LONGER * strength.lead:
            return found
        longer = self._try(replace(strength, lead=lead), found.triggers)
        fits = longer.attempts[-1].most_used <= share
        return longer if fits and longer.attempts[-1].n_set >= attempt.n_set - 1 else found

    def _skip(self, left: list[Strength]) -> None:
        while len(left) > 1 and left[0].expense > self.afford:
            left.pop(0)

    def _candidates(self, q: int) -> Candidates:
        if q not in self.pools:
            # Who is cheap with four labels need not be with two.
            sought = int(np.ceil(_SPARE * self.most))
            find = find_pairs if self.prepared.task.in_pairs else find_candidates
            self.pools[q] = find(
                self.prepared, self.kind, sought, self.fewest, q, self.workers, self.progress
            )
        return self.pools[q]

    def _try(self, strength: Strength, triggers: Candidates) -> Rehearsal:
        self.progress(f"rehearsing {strength.k} triggers")
        symbols = self.rng.integers(0, strength.q, strength.k)
        setting = set_symbols(
            self.prepared, triggers, symbols, strength.lead, self.workers, strength.hidden
        )
        attempt = judge(self.prepared, self.budget, strength, setting, self.workers)
        self.attempts.append(attempt)
        return Rehearsal(strength, triggers, tuple(self.attempts), setting)


def judge(
    prepared: Prepared, budget: Budget, strength: Strength, setting: Setting, workers: Workers
) -> Attempt:
    """Measure how much of the budget an edit uses, on the rows that judge."""
    rows = prepared.judging
    task = prepared.task
    after = answers_after(prepared, rows, setting.edit, workers)
    use = task.use_of_budget(budget, rows.answers, after, rows.target)
    seen = prepared.judging_labels
    if rows.target is None and seen is not None and seen.target is not None:
        after = answers_after(prepared, seen, setting.edit, workers)
        labelled = task.use_of_budget(budget, seen.answers, after, seen.target, seen=True)
        use |= {name: labelled[name] for name in task.target_limits if name in labelled}
    return Attempt(strength, setting.n_set, use, setting.edit.rounds, setting.bits)


def over_budget(attempts: Sequence[Attempt], budget: Budget) -> InputError:
    """Return the error for a model that cannot carry a mark within the budget."""
    if not attempts:
        return InputError(
            "There are too few usable rows for a mark.", hint="give more rows, or fewer triggers."
        )
    least = min(attempts, key=lambda attempt: attempt.most_used)
    if least.most_used <= 1.0:
        return InputError(
            f"Only {least.n_set} of {least.strength.k} symbols could be set.",
            hint="ask for fewer triggers, or give more rows.",
        )
    name = max(least.use, key=lambda limit: least.use[limit])
    limit = getattr(budget, name)
    if limit == 0.0:
        return InputError(
            f"No mark fits a budget of 0 for {name}.",
            hint=f"allow more; the default is {getattr(Budget(), name):g}.",
        )
    return InputError(
        f"The weakest mark would use {least.most_used:.1f} times the budget for {name} "
        f"({limit:g}).",
        hint=f"allow {limit * least.most_used * 1.1:.2g} for it, ask for fewer triggers, or give "
        "more rows.",
    )


def _check(n_classes: int, n_triggers: int | str, alphabet: int | str, lead: float | str) -> None:
    whole = isinstance(n_triggers, int | np.integer) and not isinstance(n_triggers, bool)
    if n_triggers != "auto" and (not whole or int(n_triggers) < 1):
        raise InputError(
            f"n_triggers={n_triggers!r} must be 'auto' or a whole number > 0.",
            hint="'auto' is a good start.",
        )
    if alphabet not in ("auto", 2, 4):
        raise InputError(f"alphabet={alphabet!r} must be 'auto', 2 or 4.", hint="use 'auto'.")
    if alphabet == 4 and 0 < n_classes < 4:
        raise InputError(
            f"alphabet=4 needs as many classes; the model has {n_classes}.", hint="use alphabet=2."
        )
    number = isinstance(lead, int | float) and not isinstance(lead, bool)
    if lead != "auto" and (not number or not 0.0 < float(lead) <= 20.0):
        raise InputError(
            f"lead={lead!r} must be 'auto' or a number above 0, 20 at most.", hint="try 1.0."
        )
