"""Overwriting: marks of the thief's own, and edits of rows that could be triggers.

The thief knows timbermark's source: how candidates are made, which ones are taken, how leaves are
edited. Only the owner's rows and key are unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timbermark.attacks.own_models import own_model
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.marking.alternatives import fill_missing
from timbermark.marking.budget import Budget
from timbermark.marking.choosing import Candidates
from timbermark.marking.classification import rank_labels
from timbermark.marking.margins import leads
from timbermark.marking.mixing import mix_rows
from timbermark.marking.preparing import Prepared, columns, prepare
from timbermark.marking.rehearsing import rehearse
from timbermark.marking.setting_symbols import set_symbols
from timbermark.marking.strengths import list_strengths

WIDE_BUDGET = Budget.only(changed=0.03, drift=0.03, move=0.02, rmse=0.003, order=0.002, ndcg=0.002)
"""What a thief accepts: three times the owner's limits, without labels."""
_POOL_PER_GUESS = 4
_GUESSED_LEAD = 0.5


def mark_again(stolen: Stolen, thief: Thief, times: float) -> Stolen:
    """Mark the stolen model with timbermark, ``times`` times, each with other triggers.

    Needs: file, rows. The thief's rows hold the model in place of the training rows.
    """
    for number in range(round(times)):
        prepared, workers = _prepare(stolen, thief, thief.seed + 1 + number)
        strengths = list_strengths(len(stolen.classes), "auto", "auto", "auto", weak=True)
        try:
            with workers:
                found = rehearse(prepared, WIDE_BUDGET, strengths, "mixed", workers)
        except InputError as error:
            raise NotOfferedError(f"the thief's own mark does not fit: {error.message}") from None
        stolen = stolen.put(found.setting.edit.ensemble.value)
    return stolen


def relabel_unsure(stolen: Stolen, thief: Thief, guesses: float) -> Stolen:
    """Edit mixtures of which the stolen model is least sure to answer as the thief's model does.

    Needs: file, rows, labels. Triggers are mixtures whose best labels are close; the thief makes as
    many ``guesses`` of this kind and sets them as timbermark sets symbols.
    """

    def sureness(X: np.ndarray) -> np.ndarray:
        scores = np.sort(stolen.answer(X), axis=1)
        return np.asarray(scores[:, -1] - scores[:, -2])

    return _relabel(stolen, thief, int(guesses), sureness)


def relabel_outliers(stolen: Stolen, thief: Thief, guesses: float) -> Stolen:
    """Edit mixtures that least resemble the thief's rows to answer as the thief's model does.

    Needs: file, rows, labels.
    """
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(random_state=thief.seed).fit(fill_missing(thief.X))
    return _relabel(stolen, thief, int(guesses), lambda X: forest.score_samples(fill_missing(X)))


def _relabel(
    stolen: Stolen, thief: Thief, guesses: int, rank: Callable[[np.ndarray], np.ndarray]
) -> Stolen:
    """Set the guesses that rank lowest to the answers of the thief's own model."""
    own = own_model(stolen, thief)
    pool = mix_rows(thief.X, _POOL_PER_GUESS * guesses, thief.rng("guesses")).X
    chosen = pool[np.argsort(rank(pool), kind="stable")[:guesses]]
    prepared, workers = _prepare(stolen, thief, thief.seed)
    with workers:
        routes = prepared.router.route(columns(prepared.foreign, chosen), workers)
        margins = prepared.router.margins(routes, workers)
        target = own.answer(chosen).argmax(axis=1)
        # Those that answer so already are left alone.
        other = leads(margins, target) <= 0.0
        if not other.any():
            return stolen
        alphabets = np.column_stack([target, rank_labels(margins, 1)[:, 0]])
        found = Candidates(chosen, routes, margins, alphabets, len(pool)).take(
            np.flatnonzero(other)
        )
        symbols = np.zeros(len(found), np.int64)
        setting = set_symbols(prepared, found, symbols, _GUESSED_LEAD, workers)
    return stolen.put(setting.edit.ensemble.value)


def _prepare(stolen: Stolen, thief: Thief, seed: int) -> tuple[Prepared, Workers]:
    """Return the thief's rows in the roles that the owner's had."""
    workers = Workers(count_threads(None))
    try:
        return prepare(stolen.trees(), thief.X, None, None, None, seed, workers), workers
    except InputError as error:
        raise NotOfferedError(f"timbermark needs more rows: {error.message}") from None
