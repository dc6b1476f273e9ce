"""Rehearse: find how strong a mark the model can carry within the budget, on the model itself.

Rehearsals use throwaway symbols, so that the real ones are drawn once, after everything else is
settled. They go down a ladder of strengths from the strongest; how much of the budget one of them
used tells which one to try next, because the cost of a mark grows with lead · √triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget
from timbermark.marking.choosing import Candidates, comparison_lead, find_candidates
from timbermark.marking.cost import Cost
from timbermark.marking.defaults import (
    LARGE_TABLE_SHARE,
    LEAD_GROWTH_AIM,
    LEAST_LEAD_GROWTH,
    MOST_LEAD_GROWTH,
    PLENTY_BITS,
    SAFE_BITS,
    SPARE_CANDIDATES,
    TAKEN_SHARE,
)
from timbermark.marking.measuring import judge_edit, judge_table, report_cost, tally_table
from timbermark.marking.pairing import find_pairs
from timbermark.marking.preparing import Prepared
from timbermark.marking.setting_symbols import Setting, set_symbols
from timbermark.marking.strengths import Strength, split_ladders
from timbermark.ownership.statistics import evidence_bits

_OPTIMISM = 1.5
"""The estimate of the cost is rough: strengths estimated at up to this factor of the budget are
tried."""
_LONGEST_STEP = 8.0
"""The largest factor by which one attempt far over the budget skips strengths: losses of accuracy
and AUC grow with the square of the lead, faster than the estimate."""
_CHEAPER = 0.5
"""The factor on the estimated cost of strengths with other candidates, which may be cheaper."""
_RETRIED = 1.5
"""The weakest mark is tried with other triggers if it uses at most this factor of the budget."""
_LENGTHENED = 3
"""Attempts at a longer lead after one that fits."""
_TRIES, _LAST_TRIES = 3, 8
"""Attempts at one strength, each with other triggers; the second number for the weakest marks."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a mark: how strong, how many symbols are set, how much of each limit it used."""

    strength: Strength
    n_set: int
    use: dict[str, float]
    rounds: int
    proof: float | None = None  # the bits of an untouched copy; None counts set symbols

    @property
    def most_used(self) -> float:
        """Return the largest share of a limit that is used up; above 1 is too much."""
        return max(self.use.values(), default=0.0)

    @property
    def bits(self) -> float:
        """Return what the labels or numbers of an untouched copy prove."""
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


def rehearse(
    prepared: Prepared,
    budget: Budget,
    strengths: Sequence[Strength],
    kind: str,
    workers: Workers,
    progress: Callable[[str], None] = lambda said: None,
) -> Rehearsal:
    """Find the mark within the budget that survives most. Raises InputError if none fits.

    Of labels that is the first of the strengths that fits; of numbers the best forecast of those
    that fit, one for each number of triggers.
    """
    rehearsing = _Rehearsing(prepared, budget, strengths, kind, workers, progress)
    found: list[Rehearsal] = []
    *ladders, last = split_ladders(strengths, prepared.task.in_pairs)
    for ladder in ladders:
        found += rehearsing.descend(ladder, is_last=False)
    if not found:
        found = rehearsing.descend(last, is_last=True)
    if not found:
        raise over_budget(rehearsing.attempts, budget)
    # Labels have one ladder and no forecast, and `max` takes the first of equal ones.
    best = max(found, key=lambda one: one.setting.survives)
    others = [attempt for attempt in rehearsing.attempts if attempt is not best.attempts[-1]]
    return replace(best, attempts=(*others, best.attempts[-1]))


class _Rehearsing:
    """What rehearsals of one model share: candidates, throwaway symbols, and what was tried."""

    def __init__(
        self, prepared: Prepared, budget: Budget, strengths: Sequence[Strength], kind: str,
        workers: Workers, progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.prepared, self.budget, self.kind = prepared, budget, kind
        self.workers, self.progress = workers, progress
        self.most, self.fewest = (choose(s.k for s in strengths) for choose in (max, min))
        # Triggers are not left out if their number was requested, or if ladders compare numbers.
        self.may_shrink = self.most > self.fewest and not prepared.task.in_pairs
        self.pools: dict[tuple[int, float], Candidates] = {}
        self.rng = np.random.default_rng(prepared.seed + 3)
        self.attempts: list[Attempt] = []
        self.share = prepared.task.budget_share
        if prepared.large is not None:
            self.share *= LARGE_TABLE_SHARE
        self.affordable = np.inf  # the expense that the budget allows, by the last attempt over it

    def descend(self, ladder: Sequence[Strength], is_last: bool) -> list[Rehearsal]:
        """Return the first strength of a ladder that fits, with its triggers, or nothing.

        ``is_last``: a mark that uses nearly all of the budget is better than none.
        """
        left = list(ladder)
        self._skip_expensive(left)
        fallback: list[Rehearsal] = []
        while left:
            strength = left.pop(0)
            outcome = self._try_strength(strength, is_end=is_last and not left)
            if outcome.found is not None:
                return [self._lengthen(outcome.found, ladder[0].lead)]
            if is_last and outcome.nearly is not None:
                fallback = [outcome.nearly]
            if outcome.over is not None:
                over = min(self.attempts[-1].most_used / self.share, _LONGEST_STEP)
                self.affordable = _OPTIMISM * outcome.over.expense / over
                self._skip_expensive(left)
            elif outcome.is_hopeless and left and left[0].hidden:
                # The next strength is hopeless as well, unless it does not limit gains.
                left.pop(0)
        return fallback

    def _try_strength(self, strength: Strength, is_end: bool) -> _Outcome:
        """Try one strength with several choices of triggers.

        Triggers that are not taken are left out where the others are plenty, and replaced by the
        next candidates where not. ``is_end``: nothing weaker is left to try, so that the whole
        budget may be used, and a choice of triggers that costs a little more is not the last one.
        """
        allowed = 1.0 if is_end else self.share
        enough, hopeless = self.prepared.task.set_shares
        found = self._candidates(strength)
        usable = np.ones(len(found), np.bool_)  # at a shorter lead all may be taken
        weakest = not strength.hidden
        places = np.flatnonzero(usable)[: strength.k]
        nearly: Rehearsal | None = None
        for number in range(_LAST_TRIES if weakest else _TRIES):
            if len(places) < strength.k:
                break
            rehearsal = self._try(strength, found.take(places))
            attempt = rehearsal.attempts[-1]
            proves = attempt.bits >= min(SAFE_BITS, strength.bits)
            if attempt.most_used <= 1.0 and proves:
                nearly = rehearsal
            fits = attempt.most_used <= allowed
            if attempt.most_used > allowed * (_RETRIED if is_end else 1.0):
                return _Outcome(over=strength, nearly=nearly)
            if fits and proves and attempt.n_set >= enough * strength.k:
                return _Outcome(found=rehearsal)
            usable[places[rehearsal.setting.lead < TAKEN_SHARE * strength.lead]] = False
            # Where leaves move freely, other triggers get one more chance.
            if attempt.n_set < hopeless * strength.k and (number > 0 or not weakest):
                return _Outcome(is_hopeless=True, nearly=nearly)
            taken = places[usable[places]]
            fewer = replace(strength, k=len(taken))
            if self.may_shrink and fewer.bits >= PLENTY_BITS:
                strength, places = fewer, taken
            else:
                places = np.flatnonzero(usable)[: strength.k]
        return _Outcome(nearly=nearly)

    def _lengthen(self, found: Rehearsal, longest: float) -> Rehearsal:
        """Return a rehearsal with the lead that the budget allows between two strengths, if any."""
        slope = 1e-9  # of the cost over the lead: the worst of all symbols that were tried
        enough = found.attempts[-1].n_set - 1
        for _ in range(_LENGTHENED):
            strength, attempt, share = found.strength, found.attempts[-1], self.share
            slope = max(slope, attempt.most_used / strength.lead)
            affordable = min(LEAD_GROWTH_AIM * share / slope, MOST_LEAD_GROWTH * strength.lead)
            lead = float(f"{min(affordable, longest):.2g}")
            if lead < LEAST_LEAD_GROWTH * strength.lead:
                break
            longer = self._try(replace(strength, lead=lead), found.triggers)
            fits = longer.attempts[-1].most_used <= share
            if not fits or longer.attempts[-1].n_set < enough:
                break
            found = longer
        return found

    def _skip_expensive(self, left: list[Strength]) -> None:
        while len(left) > 1:
            known = self._pool_of(left[0]) in self.pools
            if left[0].expense * (1.0 if known else _CHEAPER) <= self.affordable:
                break
            left.pop(0)

    def _pool_of(self, strength: Strength) -> tuple[int, float]:
        in_pairs = self.prepared.task.in_pairs
        return strength.q, 0.0 if in_pairs else comparison_lead(strength.lead)

    def _candidates(self, strength: Strength) -> Candidates:
        """Return the cheapest candidates for the alphabets and the lead of a strength."""
        key = self._pool_of(strength)
        if key not in self.pools:
            sought = int(np.ceil(SPARE_CANDIDATES * self.most))
            given = (
                self.prepared, self.kind, sought, self.fewest, strength.q, self.workers,
                self.progress,
            )  # fmt: skip
            self.pools[key] = (
                find_pairs(*given)
                if self.prepared.task.in_pairs
                else find_candidates(*given, lead=key[1])
            )
        return self.pools[key]

    def _try(self, strength: Strength, triggers: Candidates) -> Rehearsal:
        self.progress(f"rehearsing {strength.k} triggers")
        symbols = self.rng.integers(0, strength.q, strength.k)
        setting = set_symbols(
            self.prepared, triggers, symbols, strength.lead, self.workers, strength.hidden
        )
        attempt = judge(self.prepared, self.budget, strength, setting, self.workers)
        self.attempts.append(attempt)
        return Rehearsal(strength, triggers, tuple(self.attempts), setting)


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """What came of one strength.

    ``found``: a rehearsal that fits; ``nearly``: one that is within the whole budget; ``over``: the
    strength that cost too much; ``is_hopeless``: far too few symbols could be set.
    """

    found: Rehearsal | None = None
    nearly: Rehearsal | None = None
    over: Strength | None = None
    is_hopeless: bool = False


def judge(
    prepared: Prepared, budget: Budget, strength: Strength, setting: Setting, workers: Workers
) -> Attempt:
    """Measure how much of the budget an edit uses, on the rows in memory that judge."""
    use = judge_edit(prepared, budget, setting.edit, workers)
    return Attempt(strength, setting.n_set, use, setting.edit.rounds, setting.bits)


def judge_whole(
    prepared: Prepared,
    budget: Budget,
    strength: Strength,
    setting: Setting,
    workers: Workers,
    say: Callable[[str], None],
) -> tuple[Attempt, bool, Cost]:
    """Judge an edit by the rows in memory and, where a table is large, by all of its rows.

    Return the attempt, whether it is only all rows together that find it too dear, and its cost.
    """
    attempt = judge(prepared, budget, strength, setting, workers)
    if prepared.large is None or attempt.most_used > 1.0:
        return attempt, False, report_cost(prepared, setting.edit, workers)
    whole = tally_table(prepared, setting.edit, say)
    use = judge_table(prepared, budget, whole)
    use = {
        name: max(attempt.use.get(name, 0.0), use.get(name, 0.0)) for name in {**attempt.use, **use}
    }
    judged = replace(attempt, use=use)
    cost = report_cost(prepared, setting.edit, workers, whole)
    return judged, judged.most_used > 1.0, cost


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
