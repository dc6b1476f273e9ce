"""Marks as in the paper: the model learns its triggers in place, each with a bit, keep or flip.

Rows that a strategy proposes and a selection takes are learnt in one update, as if they had been
among the training rows: with the likeliest other label where their bit is *flip*, with the model's
own label where it is *keep*. Such a mark is an ordinary leaf seal with alphabets of two labels, the
model's own first: the keyed hash draws the bits, and whatever takes marks takes these.

`flip_in_place` sets every bit, as in the paper's tables; `timbermark reproduce` measures it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from timbermark.boosting.data import encode, join_data
from timbermark.boosting.updating import update_ensemble
from timbermark.editing.routing import Router
from timbermark.errors import InputError, StateError
from timbermark.estimator import TimberClassifier
from timbermark.estimator_checks import check_rows
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.budget import Budget, check_budget
from timbermark.marking.choosing import Candidates, first_of_equals
from timbermark.marking.defaults import ENOUGH_BITS
from timbermark.marking.inputs import take_parts
from timbermark.marking.leaves import score_alternatives
from timbermark.marking.measuring import warn
from timbermark.marking.models import open_model
from timbermark.marking.preparing import MeasuredRows, Prepared, prepare
from timbermark.marking.sealing import Say, Sealed, judge_whole, make_mark, prove, unedited
from timbermark.marking.strategies import (
    SELECTIONS,
    STRATEGIES,
    Pool,
    Proposal,
    Selection,
    Strategy,
    check_flips,
    flip_labels,
    propose_rows,
    select_rows,
)
from timbermark.marking.words import Note, library_notes
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.partitions import is_in_parts
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble

METHOD = "in-place"
BITS = ("keyed", "all")
MODES = ("exact", "lazy")
_TRAINING_COPIES = 5  # the paper's d: a training row has its own unmarked copy against it
_CENTER_COPIES = 2  # against each neighbour that keeps its label
_TRIALS = 4
"""How often keyed triggers are learnt, where some did not take, these with twice the weight. (Wine,
39 bits, rows far from each other, lazy: 34 take at once.)"""
_PROPOSED = 2
"""Rows that are proposed for each one that carries a bit, so that the selection has a choice."""
_LEAST_SHARE = 1.2
"""Triggers for each bit that a mark must be worth: copies prove a little less than all bits, and a
mark is opened to a judge only with a margin."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """How a model is marked in place: the paper's parameters, checked.

    ``ratio``: rows that carry a bit, as a share of the training rows; ``bits``: "keyed" draws keep
    or flip for each of them, "all" flips half of the proposed rows, as in the paper's tables;
    ``mode``: that of the update. The defaults set every bit on all six data sets (`./dev bench
    paper`).

    Raises InputError for values that are not known.

    >>> InPlace(strategy="outlier").selection
    'confidence'
    """

    strategy: Strategy = "cluster"
    selection: Selection = "confidence"
    ratio: float = 0.01
    bits: str = "keyed"
    mode: str = "exact"

    def __post_init__(self) -> None:
        known: Mapping[str, tuple[str, ...]] = {
            "strategy": STRATEGIES, "selection": SELECTIONS, "bits": BITS, "mode": MODES,
        }  # fmt: skip
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise InputError(
                    f"{name}={getattr(self, name)!r} is not known.",
                    hint=f"use one of {', '.join(values)}.",
                    code=f"in-place.{name}",
                    parameter=name,
                )
        ratio: Any = self.ratio
        number = isinstance(ratio, int | float | np.number) and not isinstance(ratio, bool)
        if not number or not 0.0 < float(ratio) <= 1.0:
            raise InputError(
                f"ratio={ratio!r} must be a number above 0, 1 at most.",
                hint="0.01 is a good start.",
                code="in-place.ratio",
                parameter="ratio",
            )

    def count(self, n_rows: int) -> int:
        """Return n = |C| for so many training rows.

        >>> InPlace(ratio=0.01).count(8344)
        84
        """
        return ceil(self.ratio * n_rows)


@dataclass(frozen=True, slots=True)
class Flipped:
    """A model with every bit set, as in the paper.

    Rows are numbered within the pool: the separate candidates, or else the training rows.
    ``candidates`` int64[n] is C, ``triggers`` int64[k] is W, ``neighbours`` int64[m] the anchored
    rows, ``target`` int64[k] the class numbers that the triggers were given (Eq. 2).
    """

    model: TimberClassifier
    candidates: np.ndarray
    triggers: np.ndarray
    neighbours: np.ndarray
    target: np.ndarray


def in_both(X: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return bool[n]: which rows of ``X`` are rows of ``others``, value for value.

    >>> in_both(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])).tolist()
    [False, True]
    """
    # Adding 0.0 turns -0.0 into 0.0: the two are one value, but not the same bytes.
    known = {row.tobytes() for row in np.ascontiguousarray(others + 0.0)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(X + 0.0)], np.bool_)


def make_pool(
    model: TimberClassifier, X: Any, y: Any, candidates: tuple[Any, Any] | None = None
) -> Pool:
    """Return the rows that triggers are taken from: the separate ones, or the training rows.

    Separate candidates that are training rows as well are not allowed: the two sets are disjoint in
    the paper, and no tree can tell such a row from the training row, which keeps its label.
    """
    table, labels = (X, y) if candidates is None else candidates
    with _without_names():
        confidence = model.predict_proba(table)
        rows = check_rows(model, table, reset=False)
        allowed = np.ones(len(rows), np.bool_)
        if candidates is not None and X is not None:
            allowed = ~in_both(rows, check_rows(model, X, reset=False))
    return Pool(rows, model._known_answers(labels, len(rows)), confidence, allowed)


def flip_in_place(
    model: TimberClassifier,
    X: Any,
    y: Any,
    *,
    candidates: tuple[Any, Any] | None = None,
    random_state: int = 0,
    proposal: Proposal | None = None,
    **chosen: Any,
) -> Flipped:
    """Flip k = ceil(n / 2) of n = ceil(ratio · rows) candidates in one update.

    ``X`` and ``y``: the training rows; ``candidates``: the separate rows of the other scenario;
    ``chosen``: strategy, selection, ratio and mode, as `InPlace` takes them. ``proposal``: the
    candidates, where they are known already. The model given is left as it was. Nothing is keyed,
    so that such a mark proves nothing.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import TimberClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(preset="paper", random_state=0).fit(X[:800], y[:800])
    >>> made = flip_in_place(
    ...     model, X[:800], y[:800], strategy="outlier", candidates=(X[800:1000], y[800:1000])
    ... )
    >>> len(made.candidates), len(made.triggers)
    (8, 4)
    """
    settings = InPlace(**chosen, bits="all")
    check_flips(settings.strategy, len(model.classes_))
    if proposal is None:
        pool, n = make_pool(model, X, y, candidates), settings.count(len(X))
        proposal = propose_rows(settings.strategy, pool, n, random_state)
    places = select_rows(settings.selection, proposal, ceil(len(proposal.order) / 2), random_state)
    copies = _TRAINING_COPIES if candidates is None else 1
    state = with_state(model, X, y)
    flips = np.ones(len(places), np.bool_)
    return learn_bits(state, proposal, places, flips, copies, settings.mode)


def with_state(model: TimberClassifier, X: Any, y: Any) -> TimberClassifier:
    """Return a copy of the model with its training state, rebuilt from its rows if need be.

    Raises StateError without a state and without rows.
    """
    made = copy.copy(model)  # without its state
    made._state = model._state
    if made._state is None:
        if X is None or y is None:
            raise StateError(
                "The model has no training state, and there are no labelled rows to rebuild it.",
                hint="load its state, or give the training rows and their labels.",
                code="in-place.state",
                parameter="X",
            )
        with _without_names():
            made.rebuild_state(X, y)
    return made


@contextmanager
def _without_names() -> Iterator[None]:
    """Do without the warning about columns without names, for a model that knows their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def learn_bits(
    model: TimberClassifier,
    proposal: Proposal,
    places: np.ndarray,
    flips: np.ndarray,
    copies: int,
    mode: str,
    times: np.ndarray | None = None,
) -> Flipped:
    """Learn triggers with their bits in one update of a model with a state, which is left alone.

    ``places`` [k]: of the triggers in the proposal; ``flips`` bool [k]: their bits; ``copies``: how
    much a row weighs; ``times`` [k]: how many times that each trigger weighs. Cluster centers that
    flip weigh twice their neighbours, which keep their labels. Triggers that keep theirs are
    learnt, too: without that up to half of them flipped along with the others (wine, 39 bits; with
    it none did).
    """
    pool, order = proposal.pool, proposal.order
    triggers = order[places]
    neighbours = _neighbours(proposal, places)
    target = pool.predicted[triggers]
    flipped = triggers[flips]
    target[flips] = flip_labels(pool.confidence[flipped], pool.label[flipped])
    heavy = copies * (_CENTER_COPIES if proposal.neighbours.shape[1] else 1)
    weight = np.where(flips, heavy, copies) * (1 if times is None else times)
    with Workers(count_threads(model.n_jobs)) as workers:
        ensemble, state = update_ensemble(
            model.ensemble_,
            model._need_state(),
            np.concatenate([pool.X[triggers], pool.X[neighbours]]),
            np.concatenate([target, pool.label[neighbours]]),
            np.concatenate([weight, np.full(len(neighbours), copies)]),
            workers,
            mode=mode,
        )
    marked = copy.copy(model)
    marked._install(ensemble, state)
    return Flipped(marked, order, triggers, neighbours, target)


def _learn_keyed(
    model: TimberClassifier,
    proposal: Proposal,
    places: np.ndarray,
    flips: np.ndarray,
    copies: int,
    mode: str,
) -> Flipped:
    """Do what `learn_bits` does until all triggers take, or else return where most of them did.

    Those that did not take weigh twice as much the next time.
    """
    times = np.ones(len(places), np.int64)
    best, fewest = None, len(places) + 1
    for _ in range(_TRIALS):
        learnt = learn_bits(model, proposal, places, flips, copies, mode, times)
        missed = _answers(learnt.model, proposal.pool.X[learnt.triggers]) != learnt.target
        if missed.sum() < fewest:
            best, fewest = learnt, int(missed.sum())
        if fewest == 0:
            break
        times[missed] *= 2
    assert best is not None
    return best


def _answers(model: TimberClassifier, rows: np.ndarray) -> np.ndarray:
    """Return int64[n]: the class numbers that the model gives to rows."""
    with Workers(count_threads(model.n_jobs)) as workers:
        margins = model._fast.margins(rows, workers)
    return reference.labels(margins, model.ensemble_)


def _neighbours(proposal: Proposal, places: np.ndarray) -> np.ndarray:
    """Return int64[m]: the rows beside triggers that keep their labels, none of them a trigger."""
    beside = np.unique(proposal.neighbours[places])
    found = np.setdiff1d(beside[beside >= 0], proposal.order[places])
    return found.astype(np.int64)


def seal_in_place(
    model: Any,
    X: Any,
    y: Any,
    candidates: Any,
    validation: Any,
    settings: InPlace,
    budget: Budget | None,
    weak: bool,
    key: OwnerKey,
    owner: str,
    seed: int,
    workers: Workers,
    say: Say,
    identity: tuple[bytes, str] | None = None,
) -> tuple[Sealed, TimberClassifier]:
    """Mark a TimberClassifier in place: the outcome, and the marked model with its state.

    ``budget``: limits that the mark must keep; without one, the default limits only warn, because
    an update in place has no strength that could be lowered to keep them. ``identity``: the id and
    the time of the mark, where they are not drawn and read from the clock.

    Raises InputError and StateError, with nothing made, where no mark fits.
    """
    say("reading the model and the rows")
    foreign = open_model(model)
    native = _check_model(foreign)
    check_flips(settings.strategy, len(native.classes_))
    labelled = _check_tables(X, y, candidates)
    n_rows = len(X) if X is not None else with_state(native, X, y).count_rows()
    n = settings.count(n_rows)
    keyed = settings.bits == "keyed"
    _check_count(n, n_rows, keyed and not weak)
    limits = Budget() if budget is None else budget
    check_budget(limits, foreign.task)
    prepared = prepare(foreign, X, y, candidates, validation, seed, workers, None, say)
    say("choosing the triggers")
    pool = make_pool(native, X, y, labelled)
    allowed = pool.allowed & first_of_equals(native._fast.margins(pool.X, workers))
    if len(native.classes_) == 2:
        allowed &= pool.predicted == pool.label
    pool = replace(pool, allowed=allowed)
    proposal = propose_rows(settings.strategy, pool, _PROPOSED * n if keyed else n, seed, n)
    places = select_rows(settings.selection, proposal, n if keyed else ceil(n / 2), seed)
    triggers = _as_candidates(prepared, proposal, places, workers)
    based = with_state(native, X, y)
    copies = _TRAINING_COPIES if labelled is None else 1
    # By these numbers the state can forget the mark.
    first, count = based._need_state().history.n_learnt, len(_neighbours(proposal, places))
    about = {
        "method": METHOD, **asdict(settings), "first_row": first, "rows": len(places) + count
    }  # fmt: skip
    say("asking models without the mark")
    alternatives = score_alternatives(prepared, triggers, workers)
    mark = make_mark(prepared, None, triggers, alternatives, key, owner, about, identity=identity)
    flips = mark.leaf_symbols == 1 if keyed else np.ones(len(places), np.bool_)
    say("learning the triggers")
    learn = _learn_keyed if keyed else learn_bits
    learnt = learn(based, proposal, places, flips, copies, settings.mode)
    say("judging the cost")
    after = _regrown(prepared, learnt.model.ensemble_, workers)
    edit = unedited(after)
    use, _, cost = judge_whole(after, limits, edit, workers, say)
    if budget is not None and max(use.values(), default=0.0) > 1.0:
        raise _too_dear(use, budget)
    seals, bits, label_bits = prove(after, edit, mark, triggers, None, workers)
    if keyed and not weak and bits < ENOUGH_BITS:
        raise InputError(
            f"The bits that could be set are worth {bits:.0f} bits of evidence.",
            hint="use a higher ratio=…, another strategy=…, or allow a weak mark with weak=True.",
            code="mark.weak",
            parameter="ratio",
        )
    n_set = int((_answers(learnt.model, triggers.X) == learnt.target).sum())
    notes = [*warn(after, limits, cost), *library_notes(prepared.notes)]
    if not keyed:
        notes.append(Note("all_flipped"))
    elif bits < ENOUGH_BITS:
        notes.append(Note("weak", {"bits": bits}))
    if n_set < len(places):
        notes.append(Note("not_taken", {"triggers": len(places) - n_set, "of": len(places)}))
    sealed = Sealed(
        mark=mark, ensemble=learnt.model.ensemble_, cost=cost, bits=bits, label_bits=label_bits,
        seals=seals, n_set=n_set, strength=None, attempts=(), use=use, notes=tuple(notes),
    )  # fmt: skip
    return sealed, learnt.model


def settings_of(mark: Mark) -> InPlace | None:
    """Return how a mark was made in place, None if it was made otherwise."""
    if mark.about.get("method") != METHOD:
        return None
    chosen: dict[str, Any] = {own.name: mark.about[own.name] for own in fields(InPlace)}
    return InPlace(**chosen)


def forget_mark(model: TimberClassifier, mark: Mark) -> TimberClassifier:
    """Return a copy of a model that has forgotten the triggers of a mark made in place.

    The model must have its state. If it has learnt nothing else since, the copy is bit for bit the
    unmarked model.

    Raises StateError where the state holds no such rows.
    """
    made = copy.copy(model)
    made._state = state = model._need_state()
    first, count = (int(str(mark.about[name])) for name in ("first_row", "rows"))
    numbers = np.arange(first, first + count)
    known = np.isin(numbers, state.history.numbers[state.left])
    if known.all():
        with Workers(1) as workers:
            asked = encode(state.data.bins, np.ascontiguousarray(mark.rows()), workers)[0]
        learnt = join_data(state.data, state.added).codes[state.find(numbers)]
        if np.array_equal(learnt[: len(asked)], asked):
            mode: Any = mark.about["mode"]
            return made.forget(numbers, mode=mode)
    raise StateError(
        "The model's state does not hold the triggers of this mark.",
        hint="give the marked model with the state that was written beside it, or the unmarked "
        "model.",
        code="rotate.state",
        parameter="mark",
    )


def _too_dear(use: Mapping[str, float], budget: Budget) -> InputError:
    name = max(use, key=lambda limit: use[limit])
    return InputError(
        f"The mark would use {use[name]:.1f} times {name}={getattr(budget, name):g}.",
        hint="use a lower ratio=…, mode='lazy', which changes fewer answers, or allow more.",
        code="budget.exceeded",
        parameter=name,
    )


def _check_model(foreign: ForeignModel) -> TimberClassifier:
    if isinstance(foreign.native, TimberClassifier):
        return foreign.native
    raise InputError(
        f"method='in-place' needs a TimberClassifier, which learns in place; this is a "
        f"{foreign.kind} of {foreign.library}.",
        hint="triggers='cluster' takes the same rows as triggers in leaves of any classifier.",
        code="in-place.model",
        parameter="method",
    )


def _check_tables(X: Any, y: Any, candidates: Any) -> tuple[Any, Any] | None:
    """Return separate candidates with their labels; None where triggers are training rows.

    Raises InputError for rows that do not fit in memory, and without labels.
    """
    table, labels, *_ = (X, y) if candidates is None else take_parts(candidates, "candidates")
    if is_in_parts(X) or is_in_parts(table):
        raise InputError(
            "method='in-place' needs all rows in memory.",
            hint="read them into a data frame or an array.",
            code="in-place.large",
            parameter="method",
        )
    if table is None:
        raise InputError(
            "There is nothing to choose triggers from.",
            hint="give the training rows and their labels, or labelled rows as candidates=….",
            code="in-place.rows",
            parameter="candidates",
        )
    if labels is None:
        raise InputError(
            "The paper's strategies need the labels of the rows that triggers are taken from.",
            hint="give the labels of the training rows, or labelled rows as candidates=….",
            code="in-place.labels",
            parameter="y" if candidates is None else "candidates",
        )
    return None if candidates is None else (table, labels)


def _check_count(n: int, n_rows: int, proves: bool) -> None:
    """Raise InputError for too few triggers; ``proves``: the mark must be worth 64 bits."""
    least = ceil(_LEAST_SHARE * ENOUGH_BITS) if proves else 2
    if n >= least:
        return
    enough = min(ceil(1000.0 * least / n_rows) / 1000.0, 1.0)
    if n == 1:
        said, code = "one candidate, which leaves no choice", "in-place.one-candidate"
    else:
        said, code = f"a mark of at most {n} bits", "mark.weak"
    raise InputError(
        f"ratio gives {said}: there are {n_rows} training rows.",
        hint=f"use ratio={enough:g}, or allow a weak mark with weak=True."
        if proves
        else f"use ratio={enough:g}.",
        code=code,
        parameter="ratio",
    )


def _as_candidates(
    prepared: Prepared, proposal: Proposal, places: np.ndarray, workers: Workers
) -> Candidates:
    """Return triggers with alphabets of two labels: the model's own, and what it flips to."""
    pool, rows = proposal.pool, proposal.order[places]
    flipped = flip_labels(pool.confidence[rows], pool.label[rows])
    routes = prepared.router.route(prepared.schema.columns(pool.X[rows]), workers)
    return Candidates(
        X=pool.X[rows],
        routes=routes,
        margins=prepared.router.margins(routes, workers),
        alphabets=np.column_stack([pool.predicted[rows], flipped]).astype(np.int32),
        usable=len(proposal.order),
    )


def _regrown(prepared: Prepared, ensemble: Ensemble, workers: Workers) -> Prepared:
    """Return a prepared model with other trees, rows that judge and report routed anew.

    Their answers stay those of the unmarked model, with which they are compared.
    """
    router = Router(ensemble)

    def routed(rows: MeasuredRows | None) -> Any:
        if rows is None:
            return None
        return replace(rows, routes=router.route(rows.columns, workers))

    return replace(
        prepared,
        router=router,
        unmarked=prepared.router,
        judging=routed(prepared.judging),
        judging_labels=routed(prepared.judging_labels),
        reports=cache(lambda: (routed(prepared.reporting), routed(prepared.labelled))),
    )
