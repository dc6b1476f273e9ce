"""Set the seals of a mark: find triggers for both, draw symbols, set them, judge what that costs.

The symbols come out of a hash over everything else in the mark, so that nobody, the owner included,
can choose them. Should the real ones not fit the budget, they are drawn again for a weaker mark,
and the mark counts the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

import numpy as np

from timbermark.editing.leaves import Edit
from timbermark.editing.routing import Router, Routes
from timbermark.errors import InputError
from timbermark.kernels.compile import notice_if_cold
from timbermark.kernels.routing import measure_jumps
from timbermark.kernels.workers import Workers
from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.wrappers import asked_model
from timbermark.marking.boundaries import Boundaries, Cuts, Gaps, are_inside, join, merge, scan
from timbermark.marking.budget import Budget, check_budget
from timbermark.marking.choosing import Candidates
from timbermark.marking.cost import Cost
from timbermark.marking.defaults import ENOUGH_BITS, LEAF_SHARE, LONE_SPLIT_SHARE, SPLIT_SHARE
from timbermark.marking.large_tables import LargeTable
from timbermark.marking.leaves import Hold, Setting, reroute, score_alternatives, set_leaves
from timbermark.marking.measuring import (
    judge_edit,
    judge_table,
    report_cost,
    tally_table,
    warn,
)
from timbermark.marking.models import open_model
from timbermark.marking.preparing import MeasuredRows, Prepared, prepare
from timbermark.marking.rehearsing import (
    Attempt,
    Rehearsal,
    Strength,
    list_strengths,
    over_budget,
    rehearse,
)
from timbermark.marking.splits import (
    SplitLimits,
    SplitSearch,
    SplitTriggers,
    set_thresholds,
    split_strata,
)
from timbermark.marking.strategies import SOURCES
from timbermark.marking.words import Note, library_notes, show_result
from timbermark.ownership.evidence import Answers, sum_prices, total_bits, weigh
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.seals import SplitSeal
from timbermark.partitions import Block, run_pass
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, digest

Say = Callable[[str], None]

KINDS = ("mixed", "rows", *SOURCES)
SEALS = ("both", "splits", "leaves")
_OF_LEAVES = ("triggers", "n_triggers", "alphabet", "lead")
"""The choices that say nothing about a mark in splits alone."""
_WEAKER = 0.7
"""By how much the lead shrinks at most if the real symbols exceed the budget."""
_AIM = 0.93
"""The share of the budget that the next attempt aims at."""
_MOST_DRAWS = 4
_FEWEST_BOUNDARIES = 8
"""Triggers below which a split seal is not worth a part of the mark."""
_ENOUGH_BOUNDARIES, _ENOUGH_ALONE = 96, 128
"""Triggers below which thresholds may also lie between two values of a column's grid, beside a leaf
seal and alone. (`./dev bench models`, diamonds: five of six regressors had 35 to 64 bits, and were
refused.)"""
_SEARCHES = 6
"""How often boundaries are chosen until they use at most their share of the budget."""
_THROWAWAY = 2
"""Sets of symbols by which a choice of boundaries is judged, and which are then thrown away."""
_LESS = (0.25, 0.8)
"""A choice spends less than the one before on wide boundaries, or has fewer and cheaper free ones,
whichever cost more: as much less as that one used too much, between these factors. The last choice
leaves wide ones out."""
_BY_PRICE = 1e-9
"""What a free boundary may cost against its quality where the cheapest are wanted."""
_FEWER_BOUNDARIES = 2
"""The draw after which a mark of both seals that is too dear also loses its dearest boundaries."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user asks of a mark, checked: the arguments that `embed` and `plan` share."""

    seals: str = "both"
    budget: Budget = field(default_factory=Budget)
    triggers: str = "mixed"
    n_triggers: int | str = "auto"
    alphabet: int | str = "auto"
    lead: float | str = "auto"
    weak: bool = False
    label_map: Mapping[Any, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise InputError(
                "budget is not a Budget.",
                hint="budget=timbermark.Budget(changed=0.02).",
                parameter="budget",
            )
        if self.triggers not in KINDS:
            raise InputError(
                f"triggers={self.triggers!r} is not known.",
                hint=f"use one of {', '.join(KINDS)}.",
                code="triggers.unknown",
                parameter="triggers",
            )
        if self.seals not in SEALS:
            raise InputError(
                f"seals={self.seals!r} is not known.",
                hint=f"use one of {', '.join(SEALS)}.",
                parameter="seals",
            )

    def for_task(self, foreign: ForeignModel) -> Choices:
        """Return the choices for one model. Raises InputError where they do not fit its task."""
        check_budget(self.budget, foreign.task)
        numbers = foreign.task != "classification"
        if numbers and self.seals == "leaves":
            raise InputError(
                f"The {foreign.kind} answers with numbers, which only splits can carry.",
                hint="leave seals='leaves' out.",
                code="seals.numbers",
                parameter="seals",
            )
        if not numbers and self.seals != "splits":
            return self
        default = Choices()
        for name in _OF_LEAVES:
            if getattr(self, name) != getattr(default, name):
                raise InputError(
                    f"{name} is about a seal in leaves, and this mark has none"
                    + (", because the model answers with numbers." if numbers else "."),
                    hint="leave it out." if numbers else "leave it out, or use seals='both'.",
                    code="seals.argument",
                    parameter=name,
                )
        return replace(self, seals="splits")


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A mark before its symbols: a prepared model, and triggers for one or two seals.

    ``beside``: boundaries that carry other symbols in every copy of the model (`tracing`); the cost
    is judged with throwaway symbols there, and these are in the ensemble that is sealed.
    """

    prepared: Prepared
    choices: Choices
    splits: SplitTriggers | None
    rehearsal: Rehearsal | None
    notes: tuple[Note, ...]
    beside: Boundaries | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome:
    """What marking came to, whether a model was closed around it or not.

    ``bits``: what the scores or numbers of an untouched copy prove; ``label_bits``: what its labels
    alone prove, None for numbers; ``seals``: the bits of each seal by scores or numbers. ``n_set``:
    symbols of the leaf seal that are set; ``strength``: of the leaf seal, None without one;
    ``attempts``: rehearsals of the leaf seal, and draws of symbols; ``use``: how much of each limit
    is used; ``notes``: what to tell the user, warnings first.
    """

    mark: Mark
    cost: Cost
    bits: float
    label_bits: float | None
    seals: Mapping[str, float]
    n_set: int
    strength: Strength | None
    attempts: tuple[Attempt, ...]
    use: Mapping[str, float]
    notes: tuple[Note, ...] = ()

    @property
    def worth(self) -> str:
        """Return what the mark is and what an untouched copy of it proves, in one line."""
        mark = self.mark
        parts = [f"{mark.n_splits} triggers in splits"] if mark.n_splits else []
        parts += [f"{mark.n_leaves} in leaves"] if mark.n_leaves else []
        by_labels = "" if self.label_bits is None else f", {self.label_bits:.0f} by labels alone"
        return f"{' and '.join(parts)}: {self.bits:.0f} bits of evidence{by_labels}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it is secret."""
        mark, strength = self.mark, self.strength
        return {
            "cost": self.cost.to_dict(),  # first of all: on which rows it was measured
            "seals": {name: round(bits, 1) for name, bits in self.seals.items()},
            "triggers": {"splits": mark.n_splits, "leaves": mark.n_leaves},
            "bits": round(self.bits, 1),
            "label_bits": None if self.label_bits is None else round(self.label_bits, 1),
            "alphabet": mark.q if mark.n_leaves else None,
            "lead": None if strength is None else strength.lead,
            "set": self.n_set,
            "draws": mark.draws,
            "budget_used": dict(self.use),
            "notes": [note.to_dict() for note in self.notes],
            "attempts": [
                {
                    "triggers": attempt.strength.k,
                    "alphabet": attempt.strength.q,
                    "lead": attempt.strength.lead,
                    "set": attempt.n_set,
                    "used": dict(attempt.use),
                }
                for attempt in self.attempts
            ],
        }

    def shared(self) -> dict[str, Any]:
        """Return the fields that every outcome has, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Outcome)}

    def __str__(self) -> str:
        return show_result(self.worth, self.cost, self.notes)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sealed(Outcome):
    """A mark and the ensemble that carries it."""

    ensemble: Ensemble


def draft_mark(
    model: Any,
    X: Any,
    y: Any,
    groups: Any,
    candidates: Any,
    validation: Any,
    choices: Choices,
    seed: int,
    workers: Workers,
    say: Say,
    limits: SplitLimits | None = None,
) -> Draft:
    """Return a mark before its symbols. Raises InputError for bad input, and where none fits.

    ``limits``: how many boundaries are wanted, where it is not the number that a mark has.
    """
    notice_if_cold(measure_jumps)
    say("reading the model and the rows")
    foreign = open_model(model)
    choices = choices.for_task(foreign)
    strengths: tuple[Strength, ...] = ()
    if choices.seals != "splits":
        strengths = list_strengths(
            len(foreign.classes), choices.n_triggers, choices.alphabet, choices.lead,
            choices.weak or choices.seals == "both",
        )  # fmt: skip
    prepared = prepare(
        foreign,
        X,
        y,
        candidates,
        validation,
        seed,
        workers,
        groups,
        say,
        bool(strengths),
        choices.label_map,
    )
    notes: list[Note] = []
    splits = None
    if choices.seals != "leaves":
        say("finding boundaries")
        given = limits or SplitLimits()
        splits = _find_boundaries(prepared, choices, workers, say, given)
        enough = _ENOUGH_BOUNDARIES if strengths else _ENOUGH_ALONE
        if limits is None and len(splits) < enough:
            given = replace(given, off_grid=True)
            more = _find_boundaries(prepared, choices, workers, say, given)
            if len(more) > len(splits):
                splits = more
                notes.append(Note("off_grid"))
        if not prepared.training.known:
            notes.append(Note("gaps_from_candidates"))
        notes += library_notes(splits.notes)
        if len(splits) < _FEWEST_BOUNDARIES:
            if choices.seals == "splits":
                raise _too_few_boundaries(foreign, splits)
            notes.append(Note("no_splits", {"boundaries": len(splits)}))
            splits = None
        else:
            prepared = replace(prepared, boundaries=splits.boundaries)
    rehearsal = None
    for share in _leaf_shares(splits) if strengths else ():
        try:
            rehearsal = rehearse(
                prepared, choices.budget, strengths, choices.triggers, workers, say, share
            )
            break
        except InputError as error:
            if splits is None:
                raise
            if share < _leaf_shares(splits)[-1]:
                continue
            notes.append(Note("no_leaves", text=error.message))
    return Draft(prepared, choices, splits, rehearsal, tuple(notes))


def _leaf_shares(splits: SplitTriggers | None) -> tuple[float, ...]:
    """Return the shares of the budget to try for a leaf seal, beside ``splits`` if there are some.

    What few boundaries leave of the budget is needed, and any leaf seal is better than none.
    """
    if splits is None:
        return (1.0,)
    rest = 1.0 - SPLIT_SHARE
    return (rest,) if len(splits) < _ENOUGH_BOUNDARIES else (LEAF_SHARE, rest)


def _find_boundaries(
    prepared: Prepared, choices: Choices, workers: Workers, say: Say, limits: SplitLimits
) -> SplitTriggers:
    """Return the triggers of the split seal that use at most their share of the budget."""
    training, foreign, schema = prepared.training, prepared.foreign, prepared.schema
    share = SPLIT_SHARE if choices.seals == "both" else LONE_SPLIT_SHARE
    gaps, n_rows = None, None
    if training.table is not None:
        gaps = run_pass(
            training.table.parts, _Scanning(training.table.bare(), foreign.ensemble), say
        )
        n_rows = training.table.n_rows
    search = SplitSearch(
        prepared.router, training.X, training.Z, schema.columns, foreign.answers, workers,
        prepared.seed, limits, gaps, n_rows, ~schema.named, foreign.movable,
    )  # fmt: skip
    single = foreign.threshold_dtype == "f4"
    rng = np.random.default_rng(prepared.seed + 9)
    for left in reversed(range(_SEARCHES)):
        chosen = search.choose(limits)
        if left == 0 or not len(chosen):
            break
        moving, most = _in_single(chosen) if single else chosen, 0.0
        for _ in range(_THROWAWAY):
            symbols = rng.integers(0, 2, len(moving))
            moved = move_thresholds(prepared, moving, symbols, workers, only_judging=True)
            use = judge_edit(moved, choices.budget, unedited(moved), workers)
            most = max(most, *use.values(), 0.0)
            if most > share:
                break
        else:
            break
        less, wide = float(np.clip(share / most, *_LESS)), chosen.wide
        spent, n_free = float(chosen.price[wide].sum()), int((~wide).sum())
        if float(chosen.price[~wide].sum()) > spent and n_free > _ENOUGH_BOUNDARIES:
            fewer = max(int(less * n_free), _ENOUGH_BOUNDARIES)
            limits = replace(limits, wide=len(chosen) - n_free, free=fewer, free_price=_BY_PRICE)
        elif not wide.any():
            break
        else:
            limits = replace(limits, wide_price=spent * less)
        if left == 1:
            limits = replace(limits, wide=0)
    found = search.find_triggers(chosen, limits)
    return replace(found, boundaries=_in_single(found.boundaries)) if single else found


def _in_single(b: Boundaries) -> Boundaries:
    """Return boundaries whose thresholds are float32, as the library holds them.

    Boundaries are many units of float32's last place wide, so that rounding crosses no value.
    """
    low, high = (t.astype(np.float32).astype(np.float64) for t in (b.low, b.high))
    return replace(b, low=low, high=high)


@dataclass(frozen=True, slots=True, eq=False)
class _Scanning:
    """The pass that finds the values around all thresholds."""

    table: LargeTable
    ensemble: Ensemble
    title = "pass 2: values around thresholds"

    def look(self, block: Block) -> Gaps:
        taken, takes = self.table.schema.try_columns(self.table.rows(block))
        return scan(Cuts.of(self.ensemble), taken[takes])

    def merge(self, results: Any) -> Gaps:
        return merge(results)


def _too_few_boundaries(foreign: ForeignModel, splits: SplitTriggers) -> InputError:
    if not foreign.movable.any():
        return InputError(
            f"The {foreign.kind} splits no column of numbers, so that no threshold can move.",
            hint="mark its leaves with seals='leaves'."
            if foreign.task == "classification"
            else "give a model that splits numbers.",
            code="splits.none",
            parameter="seals",
        )
    return InputError(
        f"Only {len(splits)} boundaries between training values can carry a symbol."
        + "".join(f" {note}" for note in splits.notes),
        hint="give all training rows, and values that are not all alike"
        + ("; or use seals='both'." if foreign.task == "classification" else "."),
        code="splits.too-few",
        parameter="seals",
    )


def move_thresholds(
    prepared: Prepared,
    boundaries: Boundaries,
    symbols: np.ndarray,
    workers: Workers,
    *,
    only_judging: bool = False,
) -> Prepared:
    """Return a prepared model whose thresholds are where symbols ask for, rows routed anew.

    Of the rows that judge and report, margins and answers stay those of the unmarked model.
    ``only_judging``: other rows than those that judge keep their routes, and must not be used.
    """
    router = Router(set_thresholds(prepared.router.ensemble, boundaries, symbols))

    def moved(routes: Routes, Z: np.ndarray) -> Routes:
        inside = np.flatnonzero(are_inside(Z, boundaries, router.ensemble.input_dtype == "f4"))
        if not len(inside):
            return routes
        found = router.route(Z[inside], workers)
        patched: dict[int, np.ndarray] = {}
        for old, new in zip(routes.leaf, found.leaf, strict=True):
            if id(old) not in patched:
                leaf = old.copy()
                leaf[:, inside] = new
                patched[id(old)] = leaf
        return Routes(tuple(patched[id(old)] for old in routes.leaf))

    def measured(rows: MeasuredRows | None) -> Any:
        return None if rows is None else replace(rows, routes=moved(rows.routes, rows.columns))

    judged = replace(
        prepared,
        router=router,
        unmarked=prepared.unmarked or prepared.router,
        judging=measured(prepared.judging),
        judging_labels=measured(prepared.judging_labels),
    )
    if only_judging:
        return judged
    holding = moved(prepared.holding, prepared.columns)
    return replace(
        judged,
        holding=holding,
        margins=router.margins(holding, workers),
        reports=cache(lambda: (measured(prepared.reporting), measured(prepared.labelled))),
    )


def unedited(prepared: Prepared) -> Edit:
    """Return the edit of no leaf: the prepared model as its trees and thresholds are."""
    e = prepared.router.ensemble
    return Edit(e, np.zeros((0, e.n_outputs)), np.zeros((0, e.n_outputs)), 0)


def draw_seals(
    draft: Draft,
    key: OwnerKey,
    owner: str,
    workers: Workers,
    say: Say,
    identity: tuple[bytes, str] | None = None,
) -> Sealed:
    """Make the mark, set its symbols and judge what that costs; draw again where it does not fit.

    ``identity``: the id and the time of the mark, where they are not drawn and read from the clock.

    Raises InputError where no mark fits the budget, or too few symbols could be set.
    """
    prepared, choices, rehearsal = draft.prepared, draft.choices, draft.rehearsal
    attempts = () if rehearsal is None else rehearsal.attempts
    strength = None if rehearsal is None else rehearsal.strength
    splits, hold, alternatives = draft.splits, None, None
    if rehearsal is not None:
        hold = Hold.begin(prepared, rehearsal.triggers, workers, say)
        say("asking models without the mark")
        alternatives = score_alternatives(prepared, rehearsal.triggers, workers)
    use: Mapping[str, float] = {}
    bits = 0.0
    for draws in range(1, _MOST_DRAWS + 1):
        say("setting the symbols")
        triggers = None if rehearsal is None else rehearsal.triggers
        lead = {} if strength is None else {"lead": strength.lead}
        mark = make_mark(
            prepared, splits, triggers, alternatives, key, owner, lead, draws, identity
        )
        # The symbols wait for scrypt, which takes one thread; the rows that report, another.
        drawing = workers.begin(partial(getattr, mark, "symbols"))
        prepared.reports()
        drawing()
        held = prepared if hold is None else hold.prepared
        if splits is not None:
            moving, symbols = splits.boundaries, mark.split_symbols
            if draft.beside is not None:
                drawn = np.random.default_rng(prepared.seed + 10).integers(0, 2, len(draft.beside))
                moving = join(moving, draft.beside)
                symbols = np.concatenate([symbols, drawn.astype(symbols.dtype)])
            held = move_thresholds(held, moving, symbols, workers)
        setting: Setting | None = None
        edit = unedited(held)
        if triggers is not None and strength is not None:
            moved = reroute(held, triggers, workers) if splits is not None else triggers
            setting = set_leaves(
                held, moved, mark.leaf_symbols, strength.lead, workers, strength.hidden
            )
            edit = setting.edit
        use, needs_more, cost = judge_whole(held, choices.budget, edit, workers, say)
        seals, bits, label_bits = prove(held, edit, mark, triggers, splits, workers)
        if strength is not None and setting is not None:
            attempts += (Attempt(strength, setting.n_set, dict(use), edit.rounds, setting.bits),)
        most = max(use.values(), default=0.0)
        if most <= 1.0 and (bits >= ENOUGH_BITS or choices.weak):
            notes = [*warn(held, choices.budget, cost), *draft.notes]
            notes += library_notes((*prepared.foreign.notes, *prepared.notes))
            if bits < ENOUGH_BITS:
                notes.append(Note("weak", {"bits": bits}))
            if strength is not None and prepared.foreign.l2 is not None and not strength.hidden:
                notes.append(Note("gains"))
            n_set = 0 if setting is None else setting.n_set
            return Sealed(
                mark=mark, ensemble=edit.ensemble, cost=cost, bits=bits, label_bits=label_bits,
                seals=seals, n_set=n_set, strength=strength, attempts=attempts, use=use,
                notes=tuple(notes),
            )  # fmt: skip
        more = hold.doubled(workers, say) if needs_more and hold is not None else None
        if more is not None:
            hold = more
        elif most > 1.0 and strength is not None:
            strength = replace(strength, lead=strength.lead * max(_WEAKER, _AIM / most))
            if splits is not None and draws >= _FEWER_BOUNDARIES:
                splits = _cheaper(splits)
        elif most > 1.0 and splits is not None:
            splits = _cheaper(splits)
        elif strength is not None:
            # Without limits on the gains of splits, the edit can set more symbols.
            strength = replace(strength, hidden=False)
        else:
            break
    if max(use.values(), default=0.0) <= 1.0:
        raise _too_weak(draft, bits)
    raise over_budget(use, choices.budget)


def _too_weak(draft: Draft, bits: float) -> InputError:
    """Return the error of a mark that fits and is not worth enough, with what would help."""
    said = f"The symbols that could be set are worth {bits:.0f} bits, of {ENOUGH_BITS:.0f} wanted."
    said += "".join(f" {note}" for note in draft.notes if note.code in ("no_leaves", "no_splits"))
    more = "give more rows, "
    if draft.rehearsal is not None:
        more = "ask for more triggers with n_triggers=…, give more rows, "
    elif draft.choices.seals == "splits" and draft.prepared.foreign.task == "classification":
        more = "use seals='both', give more rows, "
    return InputError(
        said,
        hint=more + "or allow a weak mark with weak=True.",
        code="mark.weak",
        parameter="weak",
    )


def _cheaper(splits: SplitTriggers) -> SplitTriggers:
    """Return the cheaper two thirds of the boundaries."""
    order = np.argsort(splits.boundaries.price, kind="stable")
    return splits.take(np.sort(order[: -(-2 * len(order) // 3)]))


def judge_whole(
    prepared: Prepared, budget: Budget, edit: Edit, workers: Workers, say: Say
) -> tuple[dict[str, float], bool, Cost]:
    """Judge an edit by the rows in memory and, where a table is large, by all of its rows.

    Return how much of each limit it uses, whether it is only all rows together that find it too
    dear, and its cost.
    """
    use = judge_edit(prepared, budget, edit, workers)
    if prepared.large is None or max(use.values(), default=0.0) > 1.0:
        return use, False, report_cost(prepared, edit, workers)
    whole = tally_table(prepared, edit, say)
    all_rows = judge_table(prepared, budget, whole)
    joined = {
        name: max(use.get(name, 0.0), all_rows.get(name, 0.0)) for name in {**use, **all_rows}
    }
    cost = report_cost(prepared, edit, workers, whole)
    return joined, max(joined.values(), default=0.0) > 1.0, cost


def prove(
    prepared: Prepared,
    edit: Edit,
    mark: Mark,
    triggers: Candidates | None,
    splits: SplitTriggers | None,
    workers: Workers,
) -> tuple[dict[str, float], float, float | None]:
    """Return the bits of each seal, of both together, and of labels alone, of an untouched copy."""
    rows = [triggers.X] if triggers is not None else []
    rows += [splits.rows()] if splits is not None else []
    router = prepared.router.around(edit.ensemble)
    routes = router.route(prepared.schema.columns(np.concatenate(rows)), workers)
    found = prepared.foreign.answers(router.margins(routes, workers))
    price = sum_prices(mark.prices)
    if not mark.classes:
        told = weigh(mark, Answers("numbers", found[:, 0]))
        return _by_seal(told), total_bits([s.bits for s in told], 1) - price, None
    n_seals = len(mark.seals)
    scores = weigh(mark, Answers("scores", np.clip(found, 0.0, 1.0)))
    labels = weigh(mark, Answers("labels", found.argmax(axis=1).astype(np.int32)))
    bits, label_bits = (
        total_bits([seal.bits for seal in told], n_seals) - price for told in (scores, labels)
    )
    return _by_seal(scores), bits, max(0.0, label_bits)


def _by_seal(told: Any) -> dict[str, float]:
    return {seal.seal: seal.bits for seal in reversed(told)}  # that in splits first


def make_mark(
    prepared: Prepared,
    splits: SplitTriggers | None,
    triggers: Candidates | None,
    alternatives: np.ndarray | None,
    key: OwnerKey,
    owner: str,
    about: Mapping[str, Any],
    draws: int = 1,
    identity: tuple[bytes, str] | None = None,
) -> Mark:
    """Return the mark of triggers for one or two seals; ``about``: how it was made."""
    foreign, schema = prepared.foreign, prepared.schema
    names = foreign.feature_names
    given: dict[str, Any] = {}
    if triggers is not None:
        rows = schema.decode(triggers.X)
        given |= {
            "triggers": rows,
            "alphabets": triggers.alphabets,
            "reference": _ask_unmarked(prepared, triggers.X, rows),
            "alternatives": alternatives,
        }
    if splits is not None:
        b = splits.boundaries
        ends = splits.rows().reshape(len(splits), 3, -1)[:, ::2].reshape(2 * len(splits), -1)
        known = _ask_unmarked(prepared, ends, schema.decode(ends))
        given["splits"] = SplitSeal.make(
            schema.decode(splits.base),
            b.column,
            np.column_stack([b.a, b.mid, b.b]),
            known.reshape(len(splits), 2, -1),
            np.column_stack(split_strata(splits)).astype(np.int32),
        )
    return Mark.make(
        key,
        owner=owner,
        model_digest=digest(foreign.ensemble),
        classes=foreign.classes.tolist() if foreign.task == "classification" else (),
        answers="classes" if foreign.task == "classification" else "numbers",
        feature_names=None if names is None else list(names),
        draws=draws,
        about={"library": foreign.library, "kind": foreign.kind, **about},
        mark_id=None if identity is None else identity[0],
        created=None if identity is None else identity[1],
        **given,
    )


def _ask_unmarked(prepared: Prepared, rows: np.ndarray, decoded: Any) -> np.ndarray:
    """Return the unmarked model's probabilities or numbers of encoded rows, float64 [n, K or 1]."""
    foreign = prepared.foreign
    if foreign.task == "classification" and foreign.scores is not None:
        # Calibrated scores have steps, so that only the deployed model gives exact answers.
        return np.asarray(asked_model(foreign.native).predict_proba(decoded), np.float64)
    margins = reference.margins(foreign.ensemble, prepared.schema.columns(rows))
    found = foreign.answers(margins.astype(np.float64))
    return np.clip(found, 0.0, 1.0) if foreign.task == "classification" else found
