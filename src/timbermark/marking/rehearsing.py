"""Rehearse: find how strong a mark the model can carry within the budget, on the model itself.

Rehearsals use throwaway symbols, so that the real ones are drawn once, after everything else is
settled. They begin at a strength that most models can carry, and go up or down a ladder of
strengths; how much of the budget one of them used tells which one to try next, because the cost of
a mark grows with lead · √triggers.

A strength says how many triggers there are, how many answers each has, and how far ahead these are.
A *ladder* is a sequence of strengths, the strongest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget
from timbermark.marking.choosing import (
    Asked,
    Candidates,
    ask_pool,
    comparison_lead,
    find_candidates,
    is_passed,
)
from timbermark.marking.defaults import (
    ENOUGH_BITS,
    LARGE_TABLE_SHARE,
    LEAD_GROWTH_AIM,
    LEAST_LEAD_GROWTH,
    MOST_LEAD_GROWTH,
    PLENTY_BITS,
    SAFE_BITS,
    SPARE_CANDIDATES,
    TAKEN_SHARE,
)
from timbermark.marking.leaves import Setting, set_leaves
from timbermark.marking.measuring import judge_edit
from timbermark.marking.preparing import Prepared
from timbermark.ownership.evidence import label_bits


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
        """Return the bits of evidence if every symbol is matched."""
        return self.k * float(np.log2(self.q))

    @property
    def full_label_bits(self) -> float:
        """Return what labels prove if every symbol is matched."""
        return label_bits(self.k, self.k, self.q)

    @property
    def expense(self) -> float:
        """Return a figure proportional to the cost of a mark: lead · √(triggers that change)."""
        return self.lead * float(np.sqrt(self.k * (self.q - 1) / self.q))


# More triggers and a longer lead survive more and cost more; a step is two thirds to four fifths of
# the expense of the one before. Of four labels, fewer triggers with a longer lead survive more
# (`./dev bench attacks`, pendigits, LightGBM, leaves refitted with 0.2 of the old ones: 320 with a
# lead of 3 leave 5 bits, 128 with a lead of 6 leave 16, at the same cost).
_LADDER_OF_TWO = (
    Strength(384, 2, 3.0), Strength(384, 2, 2.0), Strength(320, 2, 1.5), Strength(256, 2, 1.0),
    Strength(256, 2, 0.75), Strength(224, 2, 0.6), Strength(192, 2, 0.45), Strength(144, 2, 0.35),
    Strength(96, 2, 0.35),
    Strength(96, 2, 0.2), Strength(88, 2, 0.15), Strength(88, 2, 0.1),
    # Small models cannot always be edited without a trace in the gains of their file.
    Strength(120, 2, 0.2, False), Strength(120, 2, 0.15, False), Strength(120, 2, 0.1, False),
    # A million rows of two classes carried no mark with a lead of 0.1 (`./dev bench scale`).
    Strength(96, 2, 0.1, False), Strength(88, 2, 0.1, False), Strength(120, 2, 0.05, False),
    Strength(88, 2, 0.05, False),
)  # fmt: skip
_LADDER_OF_FOUR = (
    Strength(192, 4, 6.0), Strength(192, 4, 4.5), Strength(256, 4, 3.0), Strength(256, 4, 2.0),
    Strength(192, 4, 1.5), Strength(192, 4, 1.0),
    Strength(128, 4, 0.75), Strength(96, 4, 0.5),
    # Models of noisy tables: many triggers of two labels cost less than few of four (wine, XGBoost:
    # 48 of four with a lead of 0.35 change 0.54 % of labels, 144 of two 0.31 %).
    Strength(224, 2, 0.6), Strength(192, 2, 0.45), Strength(144, 2, 0.35), Strength(96, 2, 0.35),
    Strength(48, 4, 0.35), Strength(48, 4, 0.2), *_LADDER_OF_TWO[-10:],
)  # fmt: skip


def list_strengths(
    n_classes: int,
    n_triggers: int | str,
    alphabet: int | str,
    lead: float | str,
    weak: bool = False,
) -> tuple[Strength, ...]:
    """Return the strengths to try, the strongest first; what is not "auto" is held to its value.

    Raises InputError for values that make no mark, and for marks that are worth less than 64 bits
    unless they may be ``weak``.

    >>> list_strengths(2, "auto", "auto", "auto")[0]
    Strength(k=384, q=2, lead=3.0, hidden=True)
    """
    _check(n_classes, n_triggers, alphabet, lead)
    ladder: Sequence[Strength] = (
        _LADDER_OF_FOUR if n_classes >= 4 and alphabet != 2 else _LADDER_OF_TWO
    )
    tried = [
        replace(
            rung,
            k=rung.k if n_triggers == "auto" else int(n_triggers),
            lead=rung.lead if lead == "auto" else float(lead),
        )
        for rung in ladder
        if alphabet in ("auto", rung.q)
    ]
    if all(strength.hidden for strength in tried):
        tried.append(replace(tried[-1], hidden=False))
    strong = [strength for strength in tried if strength.bits >= ENOUGH_BITS or weak]
    if not strong:
        raise InputError(
            f"n_triggers={n_triggers} makes a mark of at most {tried[0].bits:.0f} bits, too few to "
            "convince anyone but you.",
            hint="use n_triggers=96 or more, or allow a weak mark with weak=True.",
            code="mark.weak",
            parameter="n_triggers",
        )
    return tuple(dict.fromkeys(strong))


def _check(n_classes: int, n_triggers: int | str, alphabet: int | str, lead: float | str) -> None:
    whole = isinstance(n_triggers, int | np.integer) and not isinstance(n_triggers, bool)
    if n_triggers != "auto" and (not whole or int(n_triggers) < 1):
        raise InputError(
            f"n_triggers={n_triggers!r} must be auto or a whole number > 0.",
            hint="auto is a good start.",
            parameter="n_triggers",
        )
    if alphabet not in ("auto", 2, 4):
        raise InputError(
            f"alphabet={alphabet!r} must be auto, 2 or 4.", hint="use auto.", parameter="alphabet"
        )
    if alphabet == 4 and 0 < n_classes < 4:
        raise InputError(
            f"alphabet=4 needs as many classes; the model has {n_classes}.", hint="use alphabet=2."
        )
    number = isinstance(lead, int | float) and not isinstance(lead, bool)
    if lead != "auto" and (not number or not 0.0 < float(lead) <= 20.0):
        raise InputError(
            f"lead={lead!r} must be auto or a number above 0, 20 at most.",
            hint="try 1.0.",
            parameter="lead",
        )


_USUAL_EXPENSE = {2: 17.0, 4: 100.0}
"""The expense to begin with, for all of the budget, by the size of alphabets. (spambase, churn and
census, LightGBM and XGBoost: the marks that are found have 2 to 27. With more classes the cost
depends on chance more than on the lead: pendigits, LightGBM, uses 0.46 of the budget with a lead of
6 and 0.76 with one of 4.5.)"""
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
_ALMOST = 0.9
"""The share of what all symbols together would prove that marks of few triggers must prove."""
_TRIES, _LAST_TRIES = 3, 8
"""Attempts at one strength, each with other triggers; the second number for the weakest marks."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a mark: how strong, how many symbols are set, how much of each limit it used."""

    strength: Strength
    n_set: int
    use: dict[str, float]
    rounds: int
    bits: float  # what the labels of an untouched copy prove

    @property
    def most_used(self) -> float:
        """Return the largest share of a limit that is used up; above 1 is too much."""
        return max(self.use.values(), default=0.0)


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
    share: float = 1.0,
) -> Rehearsal:
    """Find the strongest leaf seal within the budget. Raises InputError if none fits.

    ``share``: the part of the budget that it may use, where a split seal uses some as well.
    """
    rehearsing = _Rehearsing(prepared, budget, strengths, kind, workers, progress, share)
    found = rehearsing.search(strengths)
    if found is None:
        raise nothing_fits(rehearsing.attempts, budget)
    others = [attempt for attempt in rehearsing.attempts if attempt is not found.attempts[-1]]
    return replace(found, attempts=(*others, found.attempts[-1]))


class _Rehearsing:
    """What rehearsals of one model share: candidates, throwaway symbols, and what was tried."""

    def __init__(
        self, prepared: Prepared, budget: Budget, strengths: Sequence[Strength], kind: str,
        workers: Workers, progress: Callable[[str], None], share: float,
    ) -> None:  # fmt: skip
        self.prepared, self.budget, self.kind = prepared, budget, kind
        self.workers, self.progress = workers, progress
        self.most, self.fewest = (choose(s.k for s in strengths) for choose in (max, min))
        # Triggers are not left out if their number was requested.
        self.may_shrink = self.most > self.fewest
        self.pools: dict[tuple[int, float], Candidates] = {}
        self.asked: dict[int, Asked] = {}
        self.rng = np.random.default_rng(prepared.seed + 3)
        self.attempts: list[Attempt] = []
        self.share, self.whole = share * prepared.labels.budget_share, share
        if prepared.large is not None:
            self.share *= LARGE_TABLE_SHARE
        self.affordable = np.inf  # the expense that the budget allows, by the last attempt over it

    def search(self, ladder: Sequence[Strength]) -> Rehearsal | None:
        """Return the strongest of a ladder that fits, with its triggers; None if none does.

        A mark that uses nearly all of the budget is better than none.
        """
        usual = _USUAL_EXPENSE[ladder[0].q] * self.share
        place = next((i for i, one in enumerate(ladder) if one.expense <= usual), 0)
        best = fallback = None
        low, high = 0, len(ladder)  # the strengths from low to high are stronger than the best
        while low <= place < high:
            outcome = self._try_strength(ladder[place], is_end=place == len(ladder) - 1)
            used = self.attempts[-1].most_used / self.share if self.attempts else np.inf
            if outcome.found is not None:
                best, high = outcome.found, place
                self.affordable = best.strength.expense / max(used, 1.0 / _LONGEST_STEP)
            else:
                low = place + 1
                fallback = outcome.nearly or fallback
            if outcome.over is not None:
                self.affordable = _OPTIMISM * outcome.over.expense / min(used, _LONGEST_STEP)
            elif outcome.is_hopeless and low < high - 1 and ladder[low].hidden:
                # The next strength is hopeless as well, unless it does not limit gains.
                low += 1
            places = (i for i in range(low, high) if self._is_affordable(ladder[i], best is None))
            place = next(places, high if best is not None else len(ladder) - 1)
        return fallback if best is None else self._lengthen(best, ladder[0].lead)

    def _try_strength(self, strength: Strength, is_end: bool) -> _Outcome:
        """Try one strength with several choices of triggers.

        Triggers that are not taken are left out where the others are plenty, and replaced by the
        next candidates where not. ``is_end``: nothing weaker is left to try, so that the whole
        budget may be used, and a choice of triggers that costs a little more is not the last one.
        """
        allowed = self.whole if is_end else self.share
        enough, hopeless = self.prepared.labels.set_shares
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
            proves = attempt.bits >= min(SAFE_BITS, _ALMOST * strength.full_label_bits)
            if attempt.most_used <= self.whole and proves:
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

    def _is_affordable(self, strength: Strength, descends: bool) -> bool:
        is_new = descends and self._pool_of(strength) not in self.pools
        return strength.expense * (_CHEAPER if is_new else 1.0) <= self.affordable

    def _pool_of(self, strength: Strength) -> tuple[int, float]:
        return strength.q, comparison_lead(strength.lead)

    def _candidates(self, strength: Strength) -> Candidates:
        """Return the cheapest candidates for the alphabets and the lead of a strength."""
        key = self._pool_of(strength)
        if key not in self.pools:
            sought = int(np.ceil(SPARE_CANDIDATES * self.most))
            about = self.prepared, self.kind, sought, self.fewest, strength.q, self.workers
            # Only a table in passes is searched for the alphabets of one size.
            size = strength.q if is_passed(self.prepared) else 0
            if size not in self.asked:
                self.asked[size] = ask_pool(*about, self.progress)
            self.pools[key] = find_candidates(
                *about, self.progress, lead=key[1], asked=self.asked[size]
            )
        return self.pools[key]

    def _try(self, strength: Strength, triggers: Candidates) -> Rehearsal:
        self.progress(f"rehearsing {strength.k} triggers")
        symbols = self.rng.integers(0, strength.q, strength.k)
        setting = set_leaves(
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
    """Measure how much of the budget a leaf seal uses, on the rows in memory that judge."""
    use = judge_edit(prepared, budget, setting.edit, workers)
    return Attempt(strength, setting.n_set, use, setting.edit.rounds, setting.bits)


def nothing_fits(attempts: Sequence[Attempt], budget: Budget) -> InputError:
    """Return the error for a model that cannot carry a leaf seal within the budget."""
    if not attempts:
        return InputError(
            "There are too few usable rows for a mark.",
            hint="give more rows, or ask for fewer triggers with n_triggers=….",
            code="mark.too-few-rows",
        )
    least = min(attempts, key=lambda attempt: attempt.most_used)
    if least.most_used <= 1.0:
        return InputError(
            f"Only {least.n_set} of {least.strength.k} symbols could be set.",
            hint="ask for fewer triggers with n_triggers=…, or give more rows.",
            code="mark.too-few-set",
            parameter="n_triggers",
        )
    return over_budget(least.use, budget)


def over_budget(use: Mapping[str, float], budget: Budget) -> InputError:
    """Return the error for a mark that uses more than the budget."""
    name = max(use, key=lambda limit: use[limit])
    most, limit = use[name], getattr(budget, name)
    return InputError(
        f"The weakest mark would use {most:.1f} times {name}={limit:g}.",
        hint=f"allow {name}={limit * most * 1.1:.2g}, ask for fewer triggers with n_triggers=…, or "
        "give more rows.",
        code="budget.exceeded",
        parameter=name,
    )
