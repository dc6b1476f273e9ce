"""The attack lab: what a mark survives, on the owner's own model, or what a mark would survive.

The rows given are the thief's. A part of them is kept apart and only measures how good attacked
models are. Evidence is what `timbermark.verify` finds in the attacked model, by scores and by
labels alone, or by numbers.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import timbermark
from timbermark.attacks.own_models import Service, other_model, own_model
from timbermark.attacks.registry import GUARD_ATTACKS, Attack, find_attacks
from timbermark.attacks.results import AttackResult, AttackRow, draw_chart, read_rows, write_rows
from timbermark.attacks.stolen import (
    MEASURES,
    Answer,
    Labelled,
    NotOfferedError,
    Stolen,
    Thief,
    measure_worth,
    steal,
)
from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError, require_library
from timbermark.files import atomic_write
from timbermark.guard.guarding import Guard
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.embedding import embed
from timbermark.marking.inputs import as_frame, check_seed, take_parts, take_rows
from timbermark.marking.large_tables import Say, take_some
from timbermark.marking.mixing import row_keys
from timbermark.marking.models import open_model
from timbermark.marking.tasks import task_of
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.partitions import is_in_parts
from timbermark.trees.ensemble import digest
from timbermark.verification.verdict import Verdict

_EVALUATION_SHARE = 0.4
FEWEST_ROWS = 100
"""Rows of the thief's, at least."""
_MOST_ROWS = 100_000
"""Rows that are taken of a table in parts: a thief who has as many trains a model of his own."""
_INDICATIVE = 20.0
_CLEAR = 0.002
"""A stolen model that is better than the thief's own by less than this is not worth stealing, and
the theft that is kept cannot be told: points of accuracy or NDCG."""
_CLEAR_ERROR = 0.01
"""The same for numbers, as a share of the stolen model's RMSE."""


def attack(
    model: Any,
    mark: Mark | None,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    label_map: Mapping[Any, Any] | None = None,
    attacks: str | Sequence[str] = "fast",
    evaluation: Any = None,
    out: str | Path | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> AttackResult:
    """Attack a marked model as a thief with the rows ``X`` and true answers ``y`` could.

    ``model``: the marked model or its file; ``mark``: its secret mark. A guard may stand for both,
    with None as the mark: thieves then ask a rehearsal of it, with a throwaway key and ledger, and
    are held to the mark of their own questions. Rows may also be a table of Dask or Parquet files,
    where ``y`` names the label column: of those at most 100,000 are taken, the ones with the lowest
    hashes of their numbers. ``groups``: the group (qid) of each row, for rankers. ``label_map``:
    from the labels of rows to the model's own, where they differ. ``attacks``: "fast", "all",
    "chains", or a list of names; see `timbermark.attacks.registry.find_attacks`; guards have a list
    of their own. ``evaluation``: (rows, labels), or (rows, grades, groups), that qualities are
    measured on; without it 40 % of the rows are kept apart for that.
    ``out``: a folder for results.csv and the chart; what is there already is not run again.

    Raises InputError before any attack runs where the mark is not in the model, the rows or labels
    do not fit, or an attack is not known; MissingLibraryError for ``out`` without Matplotlib.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import OwnerKey, TimberClassifier, embed
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=30, random_state=0).fit(X[:300], y[:300])
    >>> made = embed(model, X[:300], y[:300], key=OwnerKey.generate(), owner="Ann Ltd")
    >>> found = attack(made.model, made.mark, X[300:], y[300:], attacks=["round-answers:2"])
    >>> found.rows[0].level
    'conclusive'
    """
    guard = model if isinstance(model, Guard) else None
    wanted = find_attacks(attacks, None if guard is None else GUARD_ATTACKS)
    check_seed(random_state)
    if out is not None:
        require_library("matplotlib", "report", "to draw the chart of an attack")
    if not isinstance(mark, Mark) and (guard is None or mark is not None):
        raise InputError(
            "That is not a mark.",
            hint="load one with timbermark.Mark.load(path); a guard goes with None.",
            code="attack.mark",
            parameter="mark",
        )
    stolen = steal(model if guard is None else guard.model)
    foreign = stolen.trees()
    known = replace(foreign, classes=getattr(guard, "classes_", known_labels(foreign, mark)))
    with step_bar(progress) as say:
        rows = take_labelled(known, (X, y, groups), "thief's rows", random_state, say, label_map)
        tested = None
        if evaluation is not None:
            given = take_parts(evaluation, "evaluation")
            tested = take_labelled(known, given, "evaluation rows", random_state, say, label_map)
        if len(rows.X) < FEWEST_ROWS:
            raise InputError(
                f"{len(rows.X)} rows are too few to attack with.",
                hint=f"give {FEWEST_ROWS} at least.",
            )
        if tested is None:
            tested, rows = divide_rows(rows, _EVALUATION_SHARE, random_state)
        thief = Thief(rows.X, rows.target, random_state, groups=rows.groups)
        if guard is not None:
            return _attack_guard(guard, stolen, thief, tested, wanted, out, say)
        assert mark is not None
        say("asking the marked model")
        bits = _measure(stolen, mark, tested, known.classes).scores
        if bits < _INDICATIVE:
            raise InputError(
                f"The mark is not in the model: it leaves {bits:.0f} bits of evidence there.",
                hint="give the marked model, not the unmarked one, and its own mark.",
            )
        same = mark.digest.hex()
        folder = None if out is None else _Folder.open(Path(out), stolen, same, thief, tested)
        return run_attacks(stolen, mark, thief, tested, wanted, folder, say)


def _attack_guard(
    guard: Guard, stolen: Stolen, thief: Thief, tested: Labelled,
    wanted: Sequence[tuple[Attack, float]], out: str | Path | None, say: Say,
) -> AttackResult:  # fmt: skip
    """Run attacks through a rehearsal of a guard: another key, and a ledger that is thrown away."""
    foreign, settings = stolen.trees(), guard.settings
    if foreign.text_columns:
        raise InputError(
            "The lab asks guards of models of numbers only, and this one takes texts.",
            hint="encode the texts before the model.",
            code="attack.texts",
            parameter="model",
        )
    key = OwnerKey(hashlib.sha256(f"timbermark/lab/{thief.seed}".encode()).digest())
    folder = None
    if out is not None:
        same = json.dumps(settings.facts())
        folder = _Folder.open(Path(out), stolen, same, thief, tested)
    mine = tested.X if guard.X is None else guard.X
    chosen = {"move": settings.move} if settings.move else {"lead": settings.lead}
    with tempfile.TemporaryDirectory() as place:
        twin = Guard(
            guard.model, mine, key=key, owner="rehearsal", share=settings.share,
            ledger=Path(place) / "guard.db", **chosen,
        )  # fmt: skip

        def ask(X: np.ndarray, client: str) -> np.ndarray:
            classes = stolen.task == "classification"
            found = (twin.predict_proba if classes else twin.predict)(X, client=client)
            return np.asarray(found, np.float64).reshape(len(X), -1)

        def begin(client: str) -> tuple[Stolen, Callable[[], Mark | None]]:
            service = Service(ask, client)

            def marked() -> Mark | None:
                try:
                    return twin.mark(list(dict.fromkeys(service.clients)))
                except InputError as error:
                    if error.code != "ledger.no-question":
                        raise
                    return None  # nothing that was asked is narrow

            return stolen.served(service), marked

        try:
            return run_attacks(stolen, None, thief, tested, wanted, folder, say, begin)
        finally:
            twin.close()


def forecast(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    validation: Any,
    attacks: str | Sequence[str] = "fast",
    random_state: int = 0,
    progress: bool = False,
    **choices: Any,
) -> AttackResult:
    """Mark a copy of ``model`` with a throwaway key, attack it, and keep nothing but the figures.

    ``validation``: (rows, labels), or (rows, grades, groups), that the model was not trained on.
    One half is the thief's, the other measures qualities. ``attacks``: as in
    :func:`timbermark.attack`. All else, ``choices`` included, is as in :func:`timbermark.embed`.

    Raises InputError, before anything runs, where validation rows or their labels are missing or
    too few, or an attack is not known; and where no mark fits.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import TimberClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=30, random_state=0).fit(X[:300], y[:300])
    >>> held = X[300:], y[300:]
    >>> found = forecast(model, X[:300], validation=held, attacks=["round-answers:2"])
    >>> found.rows[0].level
    'conclusive'
    """
    find_attacks(attacks)
    foreign = open_model(model)
    with step_bar(progress) as say:
        rows = take_validation(foreign, validation, say, choices.get("label_map"))
    made = embed(
        foreign, X, y, key=OwnerKey.generate(), owner="rehearsal", validation=validation,
        random_state=random_state, progress=progress, **choices,
    )  # fmt: skip
    parts = divide_rows(rows, 0.5, random_state)
    tested, thief = (_as_given(foreign, part) for part in parts)
    return attack(
        made.model, made.mark, thief[0], thief[1], groups=parts[1].groups, attacks=attacks,
        evaluation=tested, random_state=random_state, progress=progress,
    )  # fmt: skip


def take_validation(
    model: Any,
    validation: Any,
    say: Say = lambda said: None,
    label_map: Mapping[Any, Any] | None = None,
) -> Labelled:
    """Return validation rows and true answers. Raises InputError if attacks need more of them.

    ``say``: told how many rows of a table in parts have been read.
    """
    foreign = open_model(model)
    given = (None, None, None) if validation is None else take_parts(validation, "validation")
    if given[0] is None or given[1] is None:
        raise InputError(
            "Attacks are measured on validation rows with labels.",
            hint="give some that the model was not trained on.",
        )
    rows = take_labelled(foreign, given, "validation rows", 0, say, label_map)
    if len(rows.X) < 2 * FEWEST_ROWS:
        raise InputError(
            f"{len(rows.X)} validation rows are too few for attacks.",
            hint=f"give {2 * FEWEST_ROWS} at least: half of them are the thief's.",
        )
    return rows


Begin = Callable[[str], tuple[Stolen, Callable[[], Mark | None]]]


def run_attacks(
    stolen: Stolen,
    mark: Mark | None,
    thief: Thief,
    tested: Labelled,
    wanted: Sequence[tuple[Attack, float]],
    folder: _Folder | None = None,
    say: Say = lambda said: None,
    begin: Begin | None = None,
) -> AttackResult:
    """Run attacks on a stolen model, marked or not, and measure each on ``tested``.

    ``begin``: the name of an attack → what it asks, and its mark once that was asked; by default
    the model and its mark.
    """
    thief.once("kind", stolen.trees)
    labels = known_labels(stolen.trees(), mark)
    start_with: Begin = (lambda name: (stolen, lambda: mark)) if begin is None else begin
    asked, marked = start_with("untouched")
    asked.answer(thief.X)
    base = _measure(asked, marked(), tested, labels)
    say("training the thief's own models")
    made = [
        measure_worth(m, tested) for m in (own_model(stolen, thief), other_model(stolen, thief))
    ]
    measure = MEASURES[stolen.task]
    own = min(made) if measure == "rmse" else max(made)
    clear = _CLEAR_ERROR * base.quality if measure == "rmse" else _CLEAR
    lead = own - base.quality if measure == "rmse" else base.quality - own

    def kept(quality: float) -> float | None:
        return None if lead < clear else float((quality - own) / (base.quality - own))

    known = {} if folder is None else {(r.attack, r.strength): r for r in folder.rows}
    found: list[AttackRow] = []
    for number, (one, strength) in enumerate(wanted, start=1):
        row = known.get((one.name, strength))
        if row is None:
            say(f"attack {number} of {len(wanted)}: {one.name} {strength:g}")
            start = time.perf_counter()
            try:
                asked, marked = start_with(f"{one.name}:{strength:g}")
                attacked = one.run(asked, thief, strength)
                left = _measure(attacked, marked(), tested, labels)
                seconds = round(time.perf_counter() - start, 2)
                row = left.row(one.name, one.family, strength, kept(left.quality), seconds)
            except NotOfferedError as reason:
                row = AttackRow(one.name, one.family, strength, skipped=reason.code)
            if folder is not None:
                folder.add(row)
        found.append(row)
    untouched = base.row("untouched", "none", 0.0, kept(base.quality), 0.0)
    result = AttackResult(tuple(found), untouched, own, len(thief.X), len(tested.X), measure)
    if folder is not None:
        say("drawing the chart")
        folder.draw(result)
    return result


def known_labels(foreign: ForeignModel, mark: Mark | None) -> np.ndarray:
    """Return a model's labels by class number; a bare booster's are those of the mark."""
    if mark is not None and foreign.kind == "Booster" and len(mark.classes) == len(foreign.classes):
        return np.array(mark.classes)
    return foreign.classes


class _Left(NamedTuple):
    """What is left after an attack: the evidence, its level, and how good the model is."""

    scores: float
    labels: float | None
    level: str
    quality: float
    seals: tuple[float | None, float | None]

    def row(
        self, name: str, family: str, strength: float, kept: float | None, seconds: float
    ) -> AttackRow:
        """Return the row of an attack."""
        return AttackRow(
            name, family, strength, self.scores, self.labels, self.quality, kept, seconds,
            self.level, *self.seals,
        )  # fmt: skip


class _Suspect:
    """An attacked model as `timbermark.verify` asks a fitted one."""

    def __init__(self, model: Stolen, n_features: int, classes: np.ndarray) -> None:
        self.n_features_in_ = n_features
        if model.task == "classification":
            self.classes_ = classes
            self.predict_proba = model.answer
            self.predict: Answer = lambda X: classes[model.answer(X).argmax(axis=1)]
        else:
            self.predict = lambda X: model.answer(X)[:, 0]


def _measure(model: Stolen, mark: Mark | None, tested: Labelled, classes: np.ndarray) -> _Left:
    """Return the evidence by scores and by labels alone, or by numbers, and the quality.

    ``classes``: the labels by class number, which a booster's file does not hold.
    """
    numbers = model.task != "classification"
    if mark is None:
        none = None if numbers else 0.0
        return _Left(0.0, none, "none", measure_worth(model, tested), (None, None))
    suspect = _Suspect(model, tested.X.shape[1], classes)
    verdict = timbermark.verify(suspect, mark)
    labels = None
    if not numbers:
        labels = timbermark.verify(lambda X: suspect.predict(X), mark).bits
    seals = (_bits_of_seal(verdict, "splits"), _bits_of_seal(verdict, "leaves"))
    return _Left(verdict.bits, labels, verdict.level, measure_worth(model, tested), seals)


def _bits_of_seal(verdict: Verdict, seal: str) -> float | None:
    """Return the evidence of one seal, None where the mark does not have it."""
    found = verdict.seal(seal)
    return None if found is None else found.bits


def take_labelled(
    foreign: ForeignModel,
    given: tuple[Any, Any, Any],
    what: str,
    seed: int,
    say: Say,
    label_map: Mapping[Any, Any] | None = None,
) -> Labelled:
    """Return rows, true answers and groups; of a table in parts some rows, by hashes of numbers.

    ``given``: rows, labels and groups, which may be None. ``say``: told how many rows of a table in
    parts have been read. Rows of one group are together. Raises InputError if they do not fit the
    model.
    """
    X, y, groups = as_frame(given[0]), *given[1:]
    task = task_of(foreign, label_map)
    if y is None:
        raise InputError(f"The {what} have no labels.", hint="give one label per row, (X, y).")
    if foreign.task == "ranking" and groups is None:
        raise InputError(
            f"The {what} have no groups, and the model is a ranker.",
            hint="give the group (qid) of each row, in a table that fits in memory.",
            code="groups.missing",
        )
    if is_in_parts(X):
        rows, target, _ = take_some(foreign, task, X, y, what, _MOST_ROWS, seed, say)
        assert target is not None
        return Labelled(rows, target)
    rows = take_rows(foreign, X, what)
    target = task.take_targets(y, len(rows), what.removesuffix(" rows"), groups)
    if target.ndim == 1:
        return Labelled(rows, target)
    order = np.argsort(target[:, 1], kind="stable")
    return Labelled(rows[order], target[order, 0], target[order, 1].astype(np.int64))


def divide_rows(rows: Labelled, share: float, seed: int) -> tuple[Labelled, Labelled]:
    """Return a ``share`` of the rows and the others, by hashes of rows, or of whole groups.

    >>> X = np.arange(10.0)[:, None]
    >>> one, two = divide_rows(Labelled(X, X[:, 0], np.repeat([0, 1], 5)), 0.5, seed=0)
    >>> len(one.X), set(one.groups.tolist()) & set(two.groups.tolist())
    (5, set())
    """
    if rows.groups is None:
        order = np.argsort(row_keys(rows.X, seed), kind="stable")
        n = int(share * len(order))
        parts = order[:n], order[n:]
    else:
        names = np.unique(rows.groups)
        order = np.argsort(row_keys(names[:, None].astype(np.float64), seed), kind="stable")
        first = np.isin(rows.groups, names[order[: int(share * len(names))]])
        parts = np.flatnonzero(first), np.flatnonzero(~first)
    taken = [
        Labelled(rows.X[p], rows.target[p], None if rows.groups is None else rows.groups[p])
        for p in parts
    ]
    return taken[0], taken[1]


def _as_given(foreign: ForeignModel, rows: Labelled) -> tuple[Any, ...]:
    """Return rows and true answers as a user gives them."""
    labels = foreign.task == "classification"
    found = (rows.X, foreign.classes[rows.target] if labels else rows.target)
    return found if rows.groups is None else (*found, rows.groups)


class _Folder:
    """Results in a folder, each written as soon as it is there."""

    def __init__(self, path: Path, rows: list[AttackRow]) -> None:
        self.path, self.rows = path, rows

    @classmethod
    def open(cls, path: Path, stolen: Stolen, mark: str, thief: Thief, tested: Labelled) -> _Folder:
        """Take up what is there. Raises InputError if it is of another model, mark or rows."""
        seen = hashlib.sha256()
        for array in (thief.X, thief.target, thief.groups, *tested):
            if array is not None:
                seen.update(np.ascontiguousarray(array).tobytes())
        facts = {
            "model": digest(stolen.trees().ensemble),
            "mark": mark,
            "rows": seen.hexdigest(),
            "seed": thief.seed,
        }
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder.", hint="give the name of a folder.")
        path.mkdir(parents=True, exist_ok=True)
        note, table = path / "lab.json", path / "results.csv"
        if note.exists() or table.exists():
            try:
                same = json.loads(note.read_text(encoding="utf-8")) == facts
            except (OSError, ValueError):
                same = False
            if not same:
                raise InputError(
                    f"{path} holds results of another model, mark, rows or seed.",
                    hint="choose another folder.",
                )
        else:
            atomic_write(note, json.dumps(facts, indent=1).encode())
        return cls(path, read_rows(table) if table.exists() else [])

    def add(self, row: AttackRow) -> None:
        """Keep one more row."""
        self.rows.append(row)
        write_rows(self.path / "results.csv", self.rows)

    def draw(self, result: AttackResult) -> None:
        """Draw the chart, as PNG and SVG."""
        for ending in ("png", "svg"):
            draw_chart(result, self.path / f"chart.{ending}")
