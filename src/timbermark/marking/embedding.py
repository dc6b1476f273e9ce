"""Embedding a mark: choose triggers, derive their symbols, make the model answer them all.

The symbols come out of a hash over everything else in the mark, so nobody, the owner included, can
choose them; see docs/mark-format.md. Every symbol is set when this returns, or nothing is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, cast, overload

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.candidates import Strategy
from timbermark.marking.choosing import Choice, choose, count_labels, count_triggers
from timbermark.marking.cost import Cost, measure
from timbermark.marking.engine import Marked
from timbermark.marking.labels import alphabets
from timbermark.marking.paper import PaperMark, embed_as_in_paper
from timbermark.marking.rows import shared_codes
from timbermark.marking.selection import DEFAULT_SELECTION, Selection
from timbermark.marking.setting import Care, Request, Setting, set_answers
from timbermark.marking.surveying import Ground, survey
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.statistics import evidence_bits

_MAX_ROUNDS = 10
_MAX_REPLACEMENTS = 6
# What a trigger weighs at first. From the training rows it has its own unmarked copy against it.
_SEPARATE_WEIGHT, _TRAINING_WEIGHT = 1.0, 2.0
# Tried in turn, with fresh symbols each, until the cost is within the budget. On small or noisy
# data two updates that differ in a detail differ by half a point of accuracy.
_CARE = (
    Care("lazy", 0.05), Care("exact"), Care("lazy", 0.02), Care("lazy", 0.1), Care("exact"),
)  # fmt: skip
# A model of another library is never trained again. Less patience costs no time there, and half of
# the accuracy on XGBoost and optdigits.
_CARE_FOREIGN = (Care("lazy", 0.01), Care("lazy", 0.03), Care("lazy", 0.01), Care("lazy", 0.05))
# Without training rows: more patience, for rows that stand in must not decide much anew.
_CARE_WITHOUT_ROWS = (Care("lazy", 0.2), Care("lazy", 0.3), Care("lazy", 0.05), Care("lazy", 0.1))
_WEIGHT_WITHOUT_ROWS = 4.0
# Splits stay and leaves alone learn: tried first where a changed split makes a model far larger.
_LEAVES_ALONE = (Care("lazy", float("inf")), Care("lazy", float("inf")))


class NotAllSet(InputError):  # noqa: N818 - named for what happened
    """Some triggers do not take, and there are no others in their place."""


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """The marked model, of the type that was given; the secret mark; what it cost.

    ``notes``: sentences on what else became of the model.
    """

    model: Any
    mark: Mark
    cost: Cost
    strategy: str
    why: str
    notes: tuple[str, ...] = ()


@overload
def embed(
    model: Any,
    X: Any,
    y: Any,
    *,
    key: OwnerKey,
    owner: str = ...,
    candidates: tuple[Any, Any] | None = ...,
    validation: tuple[Any, Any] | None = ...,
    strategy: str = ...,
    selection: Selection | None = ...,
    n_triggers: int | str = ...,
    alphabet: int | str = ...,
    margin: float = ...,
    max_accuracy_loss: float = ...,
    random_state: int = ...,
    sample_weight: Any = ...,
    training: Mapping[str, float] | None = ...,
    preset: None = ...,
    verbose: int = ...,
) -> EmbedResult: ...


@overload
def embed(
    model: Any,
    X: Any,
    y: Any,
    *,
    preset: Literal["paper"],
    ratio: float = ...,
    candidates: tuple[Any, Any] | None = ...,
    strategy: str = ...,
    selection: Selection | None = ...,
    random_state: int = ...,
) -> PaperMark: ...


def embed(
    model: Any,
    X: Any,
    y: Any,
    *,
    key: OwnerKey | None = None,
    owner: str = "the owner",
    candidates: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    strategy: str = "auto",
    selection: Selection | None = None,
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    margin: float = 0.5,
    max_accuracy_loss: float = 0.005,
    random_state: int = 0,
    sample_weight: Any = None,
    training: Mapping[str, float] | None = None,
    preset: str | None = None,
    ratio: float = 0.01,
    verbose: int = 0,
) -> EmbedResult | PaperMark:
    """Mark ``model``, trained on ``X`` and ``y``; the model given is never touched.

    ``candidates`` (rows, labels): where triggers are taken from; the training rows if not given.
    ``validation`` (rows, labels): held-out rows on which the cost is measured; without them it is
    measured on training rows that are no triggers. ``selection``: "isolation" unless given.
    ``margin``: how far above all others the wanted label's margin must be. ``verbose``: 1 shows
    progress on a terminal. ``training``: what another library's model does not say itself, any of
    learning_rate, l2_regularization, min_hessian and min_samples_leaf. A mark has a random id, so
    that marking twice gives two marks.

    ``preset="paper"`` embeds exactly as in the paper instead, half of ``ratio`` · rows triggers
    with no key and no mark, and gives a PaperMark: see :mod:`timbermark.marking.paper`.

    Raises InputError, with nothing made, where the symbols cannot all be set within
    ``max_accuracy_loss`` (a share: 0.005 is half a point).

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import OwnerKey, TimberClassifier, verify
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=30, random_state=0).fit(X[:1000], y[:1000])
    >>> result = embed(
    ...     model, X[:1000], y[:1000], key=OwnerKey.generate(), n_triggers=32,
    ...     candidates=(X[1000:1400], y[1000:1400]), validation=(X[1400:], y[1400:]),
    ...     max_accuracy_loss=0.05,
    ... )
    >>> verify(result.model, result.mark).level
    'public'
    >>> verify(model, result.mark).level
    'none'
    """
    if preset == "paper":
        return embed_as_in_paper(
            model, X, y, strategy=cast(Strategy, strategy), selection=selection or "confidence",
            ratio=ratio, candidates=candidates, random_state=random_state,
        )  # fmt: skip
    if preset is not None:
        raise InputError(f"preset={preset!r} is not known.", hint="use None or 'paper'.")
    if not isinstance(key, OwnerKey):
        raise InputError("A mark needs your owner key.", hint="key=timbermark.OwnerKey.load(path).")
    selection = selection or DEFAULT_SELECTION
    _check_limits(margin, max_accuracy_loss)
    ground = survey(
        model, X, y, candidates, validation, sample_weight, verbose, training, random_state
    )
    k = count_triggers(n_triggers, ground.n_rows)
    q = count_labels(alphabet, len(ground.marked.classes))
    choice = choose(ground.pool, strategy, selection, k, q, ground.separate, random_state)
    about = {
        "strategy": choice.strategy,
        "selection": str(selection),
        "candidates": "separate" if ground.separate else "training",
    }
    costs: list[float] = []
    failure = None
    for care in _cares(ground):
        try:
            mark, setting, replaced = _set_all(ground, choice, q, key, owner, about, margin, care)
        except NotAllSet as error:
            failure = error
            continue
        cost = _measure(ground, mark, setting, replaced)
        costs.append(cost.accuracy_lost)
        if cost.accuracy_lost <= max_accuracy_loss:
            asked = np.concatenate([mark.triggers, ground.test_rows])
            marked_model = ground.marked.wrap(setting.ensemble, setting.state, asked)
            notes = ground.marked.notes(setting.ensemble)
            return EmbedResult(marked_model, mark, cost, choice.strategy, choice.why, notes)
    if failure is not None and not costs:
        raise failure
    raise InputError(
        f"{k} triggers would cost {100 * min(costs):.2f} points of accuracy at best, more than the "
        f"{100 * max_accuracy_loss:.2f} allowed.",
        hint=f"n_triggers={max(k // 2, 1)} costs about half; or raise max_accuracy_loss.",
    )


def _cares(ground: Ground) -> tuple[Care, ...]:
    if isinstance(ground.marked, Marked):
        return _CARE
    usual = _CARE_WITHOUT_ROWS if ground.marked.bare else _CARE_FOREIGN
    return (*_LEAVES_ALONE, *usual) if ground.marked.shares_splits else usual


def _check_limits(margin: Any, max_accuracy_loss: Any) -> None:
    for name, value in (("margin", margin), ("max_accuracy_loss", max_accuracy_loss)):
        if not isinstance(value, Real) or not 0.0 <= float(value) < float("inf"):
            raise InputError(
                f"{name}={value!r} must be a number of at least 0.", hint="leave it at its default."
            )


def _set_all(
    ground: Ground,
    choice: Choice,
    q: int,
    key: OwnerKey,
    owner: str,
    about: dict[str, str],
    margin: float,
    care: Care,
) -> tuple[Mark, Setting, int]:
    """Set every symbol; a trigger that cannot be set is replaced and all symbols derived anew."""
    pool, marked = ground.pool, ground.marked
    chosen, spare = choice.chosen.copy(), list(choice.spare)
    mark = Mark.make(
        key,
        owner=owner,
        model_digest=marked.digest,
        classes=marked.classes.tolist(),
        triggers=pool.X[chosen],
        alphabets=alphabets(pool.confidence[chosen], pool.label[chosen], q),
        feature_names=marked.feature_names,
        about=about,
    )
    replaced = 0
    for _ in range(_MAX_REPLACEMENTS):
        setting = set_answers(marked, _request(ground, mark, choice), margin, _MAX_ROUNDS, care)
        short = np.flatnonzero(setting.gap < margin)
        if len(short) == 0:
            return mark, setting, replaced
        if len(spare) < len(short):
            break
        chosen[short] = [spare.pop(0) for _ in short]
        replaced += len(short)
        choice = replace(choice, chosen=chosen.copy())
        mark = replace(
            mark,
            triggers=pool.X[chosen],
            alphabets=alphabets(pool.confidence[chosen], pool.label[chosen], q),
        )
    done = int((setting.gap >= margin).sum())
    raise NotAllSet(
        f"Only {done} of {mark.n_triggers} symbols could be set.",
        hint=f"ask for n_triggers={max(done // 2, 1)}, or give more candidates.",
    )


def _request(ground: Ground, mark: Mark, choice: Choice) -> Request:
    # A row that stood beside a trigger may have become one itself.
    beside = np.setdiff1d(choice.anchors[choice.anchors >= 0], choice.chosen).astype(np.int64)
    target = mark.expected_numbers.astype(np.int64)
    if ground.marked.bare:
        right = ground.pool.predicted[choice.chosen] == target
        weight = np.where(right, _SEPARATE_WEIGHT, _WEIGHT_WITHOUT_ROWS)
    else:
        first = _SEPARATE_WEIGHT if ground.separate else _TRAINING_WEIGHT
        weight = np.full(mark.n_triggers, first)
    return Request(
        np.asarray(mark.triggers),
        target,
        weight,
        ground.pool.X[beside],
        ground.pool.label[beside],
    )


def _measure(ground: Ground, mark: Mark, setting: Setting, replaced: int) -> Cost:
    marked, rows, label = ground.marked, ground.test_rows, ground.test_label
    number = np.arange(len(rows))
    if ground.measured_on != "validation":
        same = shared_codes(marked.codes(rows), marked.codes(np.asarray(mark.triggers)))
        rows, label, number = rows[~same], label[~same], number[~same]
    if len(rows) == 0:
        raise InputError(
            "All rows are triggers, so that none is left to measure the cost on.",
            hint="give validation=(X, y), or ask for fewer triggers.",
        )
    before = ground.test_confidence[number]
    after = marked.confidence(rows, setting.ensemble)
    return Cost(
        measured_on=ground.measured_on,
        n_rows=len(rows),
        before=measure(before, label),
        after=measure(after, label),
        changed=number[before.argmax(axis=1) != after.argmax(axis=1)],
        evidence_bits=evidence_bits(mark.n_triggers, mark.n_triggers, mark.q),
        n_triggers=mark.n_triggers,
        rounds=setting.rounds,
        weights=tuple(setting.weight.tolist()),
        replaced=replaced,
    )
