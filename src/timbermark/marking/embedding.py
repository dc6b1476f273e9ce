"""Embed and plan: from a model to a marked one, or to what marking would come to.

The road: open the model and give every row its role (`preparing`), find boundaries for the split
seal (`splits`), rehearse a leaf seal within what is left of the budget (`rehearsing`), make the
mark, set both seals and judge the cost (`sealing`), close the model. `plan` walks the same road but
for the last step, with a key that follows from the seed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError, StateError
from timbermark.estimator import TimberClassifier
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.wrappers import asked_model
from timbermark.marking.budget import Budget
from timbermark.marking.in_place import (
    METHOD,
    InPlace,
    forget_mark,
    seal_in_place,
    settings_of,
)
from timbermark.marking.models import close_model, open_model
from timbermark.marking.sealing import Choices, Outcome, draft_mark, draw_seals
from timbermark.marking.words import Note
from timbermark.ownership.columns import plain_rows
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.reportable import Reportable, write_page
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, digest

METHODS = ("edit", METHOD)
_OF_EDIT = ("seals", "triggers", "n_triggers", "alphabet", "lead", "label_map")
"""The choices that say nothing about a mark made in place."""
_CARRIED = 0.97
"""The share of set symbols that a calibrated model must reproduce: its scores have steps, at which
the last digit of a margin decides."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EmbedResult(Outcome, Reportable):
    """The marked model, of the type that was given; the secret mark; what it cost.

    All other fields are those of `timbermark.marking.sealing.Outcome`.
    """

    model: Any

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it is secret."""
        mark = self.mark
        return Outcome.to_dict(self) | {
            "owner": mark.owner,
            "mark_id": mark.mark_id.hex(),
            "mark_digest": mark.digest.hex(),
            "model_digest": mark.model_digest,
        }

    def __repr__(self) -> str:
        return f"EmbedResult({type(self.model).__name__}, {self.mark!r}, {self.bits:.0f} bits)"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan(Outcome, Reportable):
    """What `embed` would do with the same arguments; ``mark`` is a throwaway one."""

    def __repr__(self) -> str:
        return f"Plan({self.worth})"


def embed(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    key: OwnerKey,
    owner: str,
    seals: str = "both",
    groups: Any = None,
    label_map: Mapping[Any, Any] | None = None,
    candidates: Any = None,
    validation: Any = None,
    budget: Budget | None = None,
    triggers: str = "mixed",
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    lead: float | str = "auto",
    weak: bool = False,
    method: str = "edit",
    strategy: str | None = None,
    selection: str | None = None,
    ratio: float | None = None,
    bits: str | None = None,
    mode: str | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> EmbedResult:
    """Mark ``model``, a classifier, regressor or ranker; the model given is never touched.

    ``X``: the rows the model was trained on: thresholds move only between them, and they hold the
    leaves in place. ``y``: their labels or numbers, which only the cost is measured with; for
    rankers ``groups`` [n] says which rows are ranked together (qid). ``label_map``: from the labels
    of rows to the model's own, as in ``{"no": 0, "yes": 1}``, where they differ. Without
    training rows give ``candidates`` alone.
    ``seals``: where the mark goes: "splits" moves thresholds between training values, which changes
    next to nothing and outlives refitted leaves; "leaves" changes leaf values; "both" is hardest to
    remove. Numbers are carried by splits alone.
    ``candidates``: rows, or (rows, labels), that triggers in leaves are made from; ``X`` if not
    given. ``validation``: held-out rows, (rows, labels), or (rows, labels, groups), to judge and
    report the cost by; else a part of ``X`` is kept apart for that. ``budget``: what the mark may
    cost.
    ``triggers``: "mixed" makes triggers in leaves out of two rows, so that no real row is one;
    "rows" takes rows as they are; "outlier", "cluster", "confidence" and "wrong" take those that a
    strategy of the paper proposes. ``n_triggers``, ``alphabet``, ``lead``: how many of these, how
    many answers each can give (2 or 4), and how far the label must be ahead; "auto" takes the
    strongest that fits.
    Rows need not fit in memory: they may be a data frame or an array of Dask, labels likewise, or
    Parquet files (a pattern, a folder or a list of paths), where ``y`` names the label column; see
    docs/scale.md.
    ``method``: "edit" sets the seals above; "in-place" marks a `TimberClassifier` as the paper
    does, by learning its triggers, each of which carries one bit, keep or flip. Its own arguments,
    in place of those of seals and triggers: ``strategy``, which rows are proposed ("cluster", or
    "outlier", "confidence", "wrong", "random"); ``selection``, which of these are taken
    ("confidence" or "distance"); ``ratio``, how many, relative to the training rows (0.01);
    ``bits``: "keyed" draws them by the keyed hash, "all" flips every trigger as in the paper's
    tables, which proves nothing by itself; ``mode`` of the update ("exact" or "lazy"). The model
    needs its state, or ``X`` and ``y`` to rebuild it; ``result.model`` has a state, which no file
    of the model holds. Limits refuse such a mark only where ``budget`` is given. See docs/paper.md.
    ``weak``: allow a mark that is worth less than 64 bits. ``progress`` shows steps on a terminal.
    A mark has a random id, so that marking twice gives two marks.

    Raises InputError, with nothing made, where no mark fits.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import OwnerKey, TimberClassifier, verify
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=60, random_state=0).fit(X, y)
    >>> result = embed(model, X, y, key=OwnerKey.generate(), owner="Ann Ltd")
    >>> verify(result.model, result.mark).level
    'conclusive'
    >>> verify(model, result.mark).level
    'none'
    """
    if not isinstance(key, OwnerKey):
        raise InputError(
            "A mark needs your owner key.",
            hint="key=timbermark.OwnerKey.load(path).",
            parameter="key",
        )
    if not isinstance(owner, str) or not owner.strip():
        raise InputError(
            "A mark needs the owner's name.", hint="owner='Your Company Ltd'.", parameter="owner"
        )
    choices = Choices(
        seals, budget or Budget(), triggers, n_triggers, alphabet, lead, weak, label_map
    )
    paper = {
        "strategy": strategy, "selection": selection, "ratio": ratio, "bits": bits, "mode": mode
    }  # fmt: skip
    settings = _read_method(method, choices, groups, paper)
    with Workers(count_threads(None)) as workers, step_bar(progress) as say:
        if settings is not None:
            sealed, made = seal_in_place(
                model, X, y, candidates, validation, settings, budget, weak, key, owner,
                random_state, workers, say,
            )  # fmt: skip
            return EmbedResult(model=made, **sealed.shared())
        draft = draft_mark(
            model, X, y, groups, candidates, validation, choices, random_state, workers, say
        )
        sealed = draw_seals(draft, key, owner, workers, say)
        say("writing the model")
        foreign = draft.prepared.foreign
        made = close_model(foreign, sealed.ensemble)
        _check_answers(foreign, sealed.ensemble, made, sealed.mark, sealed.n_set)
    return EmbedResult(model=made, **sealed.shared())


def _read_method(
    method: str, choices: Choices, groups: Any, paper: Mapping[str, Any]
) -> InPlace | None:
    """Return how a model is marked in place; None where it is edited.

    Raises InputError for arguments of the other method, which would do nothing.
    """
    if method not in METHODS:
        raise InputError(
            f"method={method!r} is not known.",
            hint=f"use one of {', '.join(METHODS)}.",
            code="method.unknown",
            parameter="method",
        )
    said = {name: value for name, value in paper.items() if value is not None}
    default = Choices()
    foreign = (
        list(said)
        if method == "edit"
        else [n for n in _OF_EDIT if getattr(choices, n) != getattr(default, n)]
    )
    foreign += ["groups"] if method == METHOD and groups is not None else []
    if foreign:
        other = METHOD if method == "edit" else "edit"
        raise InputError(
            f"{foreign[0]} goes with method={other!r}, not with method={method!r}.",
            hint="leave it out, or choose the other method.",
            code="method.argument",
            parameter=foreign[0],
        )
    return InPlace(**said) if method == METHOD else None


def plan(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    seals: str = "both",
    groups: Any = None,
    label_map: Mapping[Any, Any] | None = None,
    candidates: Any = None,
    validation: Any = None,
    budget: Budget | None = None,
    triggers: str = "mixed",
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    lead: float | str = "auto",
    weak: bool = False,
    method: str = "edit",
    strategy: str | None = None,
    selection: str | None = None,
    ratio: float | None = None,
    bits: str | None = None,
    mode: str | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> Plan:
    """Return what a mark would be and cost, by marking a model that is then thrown away.

    The arguments are those of :func:`timbermark.embed`. Raises InputError where no mark fits.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import TimberClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=60, random_state=0).fit(X, y)
    >>> plan(model, X, y).bits > 64
    True
    """
    choices = Choices(
        seals, budget or Budget(), triggers, n_triggers, alphabet, lead, weak, label_map
    )
    paper = {
        "strategy": strategy, "selection": selection, "ratio": ratio, "bits": bits, "mode": mode
    }  # fmt: skip
    settings = _read_method(method, choices, groups, paper)
    # One seed gives one plan: the key and the mark's identity follow from it.
    drawn = hashlib.sha256(f"timbermark/plan/{random_state}".encode()).digest()
    key, owner, identity = OwnerKey(drawn), "plan", (drawn[:16], "2000-01-01T00:00:00Z")
    with Workers(count_threads(None)) as workers, step_bar(progress) as say:
        if settings is not None:
            found, _ = seal_in_place(
                model, X, y, candidates, validation, settings, budget, weak, key, owner,
                random_state, workers, say, identity,
            )  # fmt: skip
        else:
            draft = draft_mark(
                model, X, y, groups, candidates, validation, choices, random_state, workers, say
            )
            found = draw_seals(draft, key, owner, workers, say, identity)
    return Plan(**found.shared())


def rotate(
    model: Any,
    mark: Mark,
    X: Any = None,
    y: Any = None,
    *,
    key: OwnerKey,
    owner: str | None = None,
    **options: Any,
) -> EmbedResult:
    """Replace a mark: by new symbols, and by another key's where ``key`` is another one.

    ``model`` is the marked model, with its state, if the mark was made in place: it forgets the old
    triggers, which gives the unmarked model bit for bit, and learns new ones in the same way. An
    edit cannot be taken back: for other marks ``model`` must be the unmarked model that ``mark``
    was made of. ``owner`` is that of the old mark if not given; ``X``, ``y`` and ``options`` are
    those of :func:`timbermark.embed`. Models that carry the old mark stay proved by it: keep it.

    Raises InputError and StateError, with nothing made, where the model is another.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import OwnerKey, TimberClassifier, verify
    >>> X, y = load_digits(n_class=5, return_X_y=True)
    >>> model = TimberClassifier(max_iter=30, learning_rate=0.3, random_state=0).fit(X, y)
    >>> key, other = OwnerKey.generate(), OwnerKey.generate()
    >>> old = embed(model, X, y, key=key, owner="Ann", method="in-place", ratio=0.1)
    >>> new = rotate(old.model, old.mark, X, y, key=other)
    >>> verify(new.model, new.mark).level, verify(new.model, old.mark).level
    ('conclusive', 'none')
    """
    if not isinstance(mark, Mark):
        raise InputError(
            "rotate needs the mark that is to be replaced.",
            hint="mark=timbermark.Mark.load(path).",
            code="rotate.mark",
            parameter="mark",
        )
    foreign, settings = open_model(model), settings_of(mark)
    bare: Any = foreign
    notes: tuple[Note, ...] = ()
    if digest(foreign.ensemble) != mark.model_digest:
        marked = foreign.native
        if settings is None or not isinstance(marked, TimberClassifier):
            raise InputError(
                "This is not the unmarked model that the mark was made of, and an edit cannot be "
                "taken back.",
                hint="give the unmarked model, the one that embed was given.",
                code="rotate.unmarked",
                parameter="model",
            )
        bare = forget_mark(marked, mark)
        if digest(bare.ensemble_) != mark.model_digest:
            notes = (Note("not_restored"),)
    if settings is not None:
        options = {"method": METHOD, **asdict(settings)} | options
    made = embed(bare, X, y, key=key, owner=mark.owner if owner is None else owner, **options)
    return replace(made, notes=(*made.notes, *notes))


def _check_answers(
    foreign: ForeignModel, ensemble: Ensemble, made: Any, mark: Mark, n_set: int
) -> None:
    """Raise StateError unless the finished model's margins are those of the edited trees."""
    numeric = all(isinstance(column, np.ndarray) for column in mark.columns)
    named = foreign.takes_frames or not numeric
    asked = plain_rows(mark.columns, foreign.feature_names if named else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        ours = reference.margins(ensemble, foreign.rows(asked))
        theirs = foreign.adapter.margins(made, asked)
    if not np.array_equal(ours, theirs):
        raise StateError(
            f"{foreign.library} does not predict what timbermark does on the triggers.",
            hint="nothing was written; please report the model's parameters and versions.",
            code="model.other-margins",
        )
    if foreign.scores is not None and mark.n_leaves:
        scores = np.asarray(asked_model(made).predict_proba(asked))[: mark.n_leaves]
        carried = int((scores.argmax(axis=1) == mark.expected_numbers).sum())
        if carried < _CARRIED * n_set:
            raise StateError(
                f"Only {carried} of {n_set} symbols come through the {foreign.kind}'s calibration.",
                hint="nothing was written; please report the model's parameters and versions.",
                code="model.calibration",
            )
