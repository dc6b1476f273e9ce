"""Embed: choose triggers, rehearse, derive the real symbols, set them, measure what it cost.

The symbols come out of a hash over everything else in the mark, so that nobody, the owner included,
can choose them; see docs/mark-format.md. How strong the mark is was settled before, by rehearsals
with throwaway symbols. Should the real ones not fit, they are drawn again for a weaker mark, and
the mark counts the draws.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError, StateError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.wrappers import asked_model
from timbermark.marking.alternatives import score_alternatives
from timbermark.marking.budget import Budget, check_budget
from timbermark.marking.choosing import Candidates
from timbermark.marking.cost import Cost
from timbermark.marking.defaults import ENOUGH_BITS
from timbermark.marking.measuring import warn
from timbermark.marking.models import close_model, open_model
from timbermark.marking.preparing import Prepared, prepare
from timbermark.marking.rehearsing import (
    Attempt,
    Rehearsal,
    judge_whole,
    over_budget,
    rehearse,
)
from timbermark.marking.sampling import Hold
from timbermark.marking.setting_symbols import Setting, set_symbols
from timbermark.marking.strengths import Strength, list_strengths
from timbermark.marking.words import Note, library_notes, show_result
from timbermark.ownership.columns import plain_rows
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.reportable import Reportable, write_page
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, digest

KINDS = ("mixed", "rows")
_WEAKER, _AIM = 0.7, 0.93
"""If the real symbols exceed the budget, the lead shrinks at most by the first factor, and the next
attempt aims at the second number as a share of the budget."""
_MOST_DRAWS = 4
_CARRIED = 0.97
"""The share of set symbols that a calibrated model must reproduce: its scores have steps, at which
the last digit of a margin decides."""


@dataclass(frozen=True, slots=True, eq=False)
class EmbedResult(Reportable):
    """The marked model, of the type that was given; the secret mark; what it cost.

    ``bits``: what the labels or numbers of an untouched copy prove; ``attempts``: the rehearsals
    and the draws of symbols, the last of which is the mark; ``notes``: what to tell the user,
    warnings first.
    """

    model: Any
    mark: Mark
    cost: Cost
    bits: float
    strength: Strength
    n_set: int
    attempts: tuple[Attempt, ...]
    notes: tuple[Note, ...] = ()

    def report(
        self, path: str | os.PathLike[str], *, attacks: Any = None, force: bool = False
    ) -> None:
        """Write one self-contained HTML page: what changed, and what the mark is worth.

        ``attacks``: what `timbermark.attack` found about the mark, to be shown with it. The page
        holds no trigger and no symbol, so it can be shown to anyone.

        Raises InputError if the file exists, unless ``force``, and MissingLibraryError where
        Jinja2 or Matplotlib is not installed.
        """
        write_page(self, path, force=force, attacks=attacks)

    def __str__(self) -> str:
        return show_result(
            f"{self.n_set} of {self.strength.k} triggers carry their symbol: "
            f"{self.bits:.0f} bits of evidence", self.cost, self.notes,
        )  # fmt: skip


def embed(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    key: OwnerKey,
    owner: str,
    groups: Any = None,
    candidates: Any = None,
    validation: Any = None,
    budget: Budget | None = None,
    triggers: str = "mixed",
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    lead: float | str = "auto",
    weak: bool = False,
    random_state: int = 0,
    verbose: int = 0,
) -> EmbedResult:
    """Mark ``model``, a classifier, regressor or ranker; the model given is never touched.

    ``X``: rows like those the model was trained on; they hold it in place. ``y``: their labels or
    numbers, which only the cost is measured with; for rankers ``groups`` [n] says which rows are
    ranked together (qid). Without training rows give ``X=None`` and ``candidates``.
    ``candidates``: rows, or (rows, labels), that triggers are made from; ``X`` if not given.
    ``validation``: held-out rows, (rows, labels), or (rows, labels, groups), to judge and report
    the cost by; else a part of ``X`` is kept apart for that. ``budget``: what the mark may cost.
    ``triggers``: "mixed" makes each out of two rows, so that no real row is one; "rows" takes rows
    as they are.
    ``n_triggers``, ``alphabet``, ``lead``: how many triggers, how many answers each can give (2 or
    4), and how far the label must be ahead or, for numbers, how far levels are apart in units of
    the model's error; "auto" takes the strongest mark within the budget.
    Rows need not fit in memory: they may be a data frame or an array of Dask, labels likewise, or
    Parquet files (a pattern, a folder or a list of paths), where ``y`` names the label column; see
    docs/scale.md.
    ``weak``: allow a mark that is worth less than 64 bits. ``verbose``: 1 shows progress on a
    terminal. A mark has a random id, so that marking twice gives two marks.

    Raises InputError, with nothing made, where no mark fits.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import OwnerKey, TimberClassifier, verify
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=30, random_state=0).fit(X[:1200], y[:1200])
    >>> result = embed(model, X[:1200], y[:1200], key=OwnerKey.generate(), owner="Ann Ltd")
    >>> verify(result.model, result.mark).level
    'conclusive'
    >>> verify(model, result.mark).level
    'none'
    """
    if not isinstance(key, OwnerKey):
        raise InputError("A mark needs your owner key.", hint="key=timbermark.OwnerKey.load(path).")
    if not isinstance(owner, str) or not owner.strip():
        raise InputError("A mark needs the owner's name.", hint="owner='Your Company Ltd'.")
    check_choices(budget, triggers)
    with Workers(count_threads(None)) as workers, step_bar(verbose) as say:
        say("reading the model and the rows")
        foreign = open_model(model)
        check_budget(budget or Budget(), foreign.task)
        strengths = list_strengths(len(foreign.classes), n_triggers, alphabet, lead, weak)
        prepared = prepare(
            foreign, X, y, candidates, validation, random_state, workers, groups, say
        )
        rehearsal = rehearse(prepared, budget or Budget(), strengths, triggers, workers, say)
        return _embed(prepared, rehearsal, budget or Budget(), key, owner, weak, workers, say)


def check_choices(budget: Any, triggers: str) -> None:
    """Raise InputError for choices that can be refused before any work."""
    if budget is not None and not isinstance(budget, Budget):
        raise InputError("budget is not a Budget.", hint="budget=timbermark.Budget(changed=0.02).")
    if triggers not in KINDS:
        raise InputError(f"triggers={triggers!r} is not known.", hint="use 'mixed' or 'rows'.")


def _embed(
    prepared: Prepared,
    rehearsal: Rehearsal,
    budget: Budget,
    key: OwnerKey,
    owner: str,
    weak: bool,
    workers: Workers,
    say: Callable[[str], None],
) -> EmbedResult:
    strength, attempts = rehearsal.strength, list(rehearsal.attempts)
    triggers = rehearsal.triggers
    hold = Hold.begin(prepared, triggers, workers, say)
    say("asking models without the mark")
    alternatives = score_alternatives(prepared, triggers, workers)
    for draws in range(1, _MOST_DRAWS + 1):
        say("setting the symbols")
        mark = _make_mark(prepared, triggers, alternatives, key, owner, strength, draws)
        setting = set_symbols(
            hold.prepared, triggers, mark.symbols, strength.lead, workers, strength.hidden
        )
        attempt, needs_more, cost = judge_whole(
            hold.prepared, budget, strength, setting, workers, say
        )
        attempts.append(attempt)
        # Asking a suspect for labels although it offers scores costs one bit.
        enough = attempt.bits - np.log2(draws) >= ENOUGH_BITS + 1.0 or weak
        if attempt.most_used <= 1.0 and enough:
            notes = warn(prepared, budget, cost)
            return _finish(prepared, setting, mark, strength, tuple(attempts), cost, notes, say)
        more = hold.doubled(workers, say) if needs_more else None
        if more is not None:
            hold = more
        elif attempt.most_used > 1.0:
            weaker = max(_WEAKER, _AIM / attempt.most_used)
            strength = replace(strength, lead=strength.lead * weaker)
        else:
            # Without limits on the gains of splits, the edit can set more symbols.
            strength = replace(strength, hidden=False)
    if attempts[-1].most_used <= 1.0:
        raise InputError(
            f"Only {attempts[-1].n_set} of {strength.k} symbols could be set, "
            f"{attempts[-1].bits:.0f} bits.",
            hint="ask for more triggers, give more rows, or allow a weak mark.",
        )
    raise over_budget(attempts[len(rehearsal.attempts) :], budget)


def _make_mark(
    prepared: Prepared,
    triggers: Candidates,
    alternatives: np.ndarray,
    key: OwnerKey,
    owner: str,
    strength: Strength,
    draws: int,
) -> Mark:
    foreign = prepared.foreign
    names = foreign.feature_names
    rows = prepared.schema.decode(triggers.X)
    margins = reference.margins(foreign.ensemble, prepared.schema.columns(triggers.X))
    return Mark.make(
        key,
        owner=owner,
        model_digest=digest(foreign.ensemble),
        triggers=rows,
        **prepared.task.describe_triggers(rows, margins, triggers.alphabets, strength.lead),
        alternatives=alternatives,
        feature_names=None if names is None else list(names),
        draws=draws,
        about={"library": foreign.library, "kind": foreign.kind, "lead": strength.lead},
    )


def _finish(
    prepared: Prepared,
    setting: Setting,
    mark: Mark,
    strength: Strength,
    attempts: tuple[Attempt, ...],
    cost: Cost,
    alarms: tuple[Note, ...],
    say: Callable[[str], None],
) -> EmbedResult:
    foreign = prepared.foreign
    say("writing the model")
    made = close_model(foreign, setting.edit.ensemble)
    _check_answers(foreign, setting.edit.ensemble, made, mark, setting.n_set)
    notes = [*alarms, *library_notes((*foreign.notes, *prepared.notes))]
    bits = attempts[-1].bits - float(np.log2(mark.draws))
    if bits < ENOUGH_BITS:
        notes.append(Note("weak", {"bits": bits}))
    if foreign.l2 is not None and not strength.hidden:
        notes.append(Note("gains"))
    return EmbedResult(made, mark, cost, bits, strength, attempts[-1].n_set, attempts, tuple(notes))


def _check_answers(
    foreign: ForeignModel, ensemble: Ensemble, made: Any, mark: Mark, n_set: int
) -> None:
    """Raise StateError unless the finished model's margins are those of the edited trees."""
    numeric = all(isinstance(column, np.ndarray) for column in mark.columns)
    named = foreign.takes_frames or not numeric
    triggers = plain_rows(mark.columns, foreign.feature_names if named else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        ours = reference.margins(ensemble, foreign.rows(triggers))
        theirs = foreign.adapter.margins(made, triggers)
    if not np.array_equal(ours, theirs):
        raise StateError(
            f"{foreign.library} does not predict what timbermark does on the triggers.",
            hint="nothing was written; please report the model's parameters and versions.",
        )
    if foreign.scores is not None:
        scores = np.asarray(asked_model(made).predict_proba(triggers))
        carried = int((scores.argmax(axis=1) == mark.expected_numbers).sum())
        if carried < _CARRIED * n_set:
            raise StateError(
                f"Only {carried} of {n_set} symbols come through the {foreign.kind}'s calibration.",
                hint="nothing was written; please report the model's parameters and versions.",
            )
