"""The attack lab: what a mark survives, on the owner's own model.

The rows given are the thief's. A part of them is kept apart and only measures accuracies. Evidence
is what `timbermark.verify` would find in the attacked model, by scores and by labels alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.attacks.own_models import other_model, own_model
from timbermark.attacks.registry import Attack, find_attacks
from timbermark.attacks.results import AttackResult, AttackRow, read_rows, write_rows
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief, steal
from timbermark.boosting.progress import step_bar
from timbermark.errors import InputError, require_library
from timbermark.files import atomic_write
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.classification import Classification
from timbermark.marking.inputs import take_labels, take_pair, take_rows
from timbermark.marking.large_tables import Say, take_some
from timbermark.marking.mixing import row_keys
from timbermark.ownership.mark import Mark
from timbermark.ownership.suspects import Suspect
from timbermark.partitions import is_in_parts
from timbermark.trees.ensemble import digest
from timbermark.verification.verifying import verify

_EVALUATION_SHARE = 0.4
FEWEST_ROWS = 100
"""Rows of the thief's, at least."""
_MOST_ROWS = 100_000
"""Rows that are taken of a table in parts: a thief who has as many trains a model of his own."""
_INDICATIVE = 20.0
_CLEAR = 0.002
"""A stolen model that is better than the thief's own by less than this is not worth stealing, and
the theft that is kept cannot be told."""


def attack(
    model: Any,
    mark: Mark,
    X: Any,
    y: Any,
    *,
    attacks: str | Sequence[str] = "fast",
    evaluation: Any = None,
    out: str | Path | None = None,
    random_state: int = 0,
    verbose: int = 0,
) -> AttackResult:
    """Attack a marked model as a thief with the rows ``X`` and labels ``y`` could.

    ``model``: the marked model or its file; ``mark``: its secret mark. Rows may also be a table of
    Dask or Parquet files, where ``y`` names the label column: of those at most 100,000 are taken,
    the ones with the lowest hashes of their numbers. ``attacks``: "fast", "all",
    or a list of names; see `timbermark.attacks.registry.find_attacks`. ``evaluation``: (rows,
    labels) that accuracies are measured on; without it 40 % of the rows are kept apart for that.
    ``out``: a folder for results.csv and the chart; what is there already is not run again.

    Raises InputError before any attack runs where the mark is not in the model, the rows or labels
    do not fit, or an attack is not known; MissingLibraryError for ``out`` without Matplotlib.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import OwnerKey, TimberClassifier, embed
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=20, random_state=0).fit(X[:1000], y[:1000])
    >>> made = embed(model, X[:1000], y[:1000], key=OwnerKey.generate(), owner="Ann Ltd")
    >>> found = attack(made.model, made.mark, X[1000:], y[1000:], attacks=["round-answers:2"])
    >>> found.rows[0].level
    'conclusive'
    """
    wanted = find_attacks(attacks)
    if out is not None:
        require_library("matplotlib", "report", "to draw the chart of an attack")
    if not isinstance(mark, Mark):
        raise InputError("That is not a mark.", hint="load one with timbermark.Mark.load(path).")
    stolen = steal(model)
    foreign = stolen.trees()
    if y is None:
        raise InputError("The thief's rows have no labels.", hint="give one label per row as y.")
    known = replace(foreign, classes=known_labels(foreign, mark))
    with step_bar(verbose) as say:
        rows, label = take_labelled(known, X, y, "thief's rows", random_state, say)
        tested = _take_evaluation(known, evaluation, random_state, say)
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"{len(rows)} rows are too few to attack with.",
                hint=f"give {FEWEST_ROWS} at least.",
            )
        if tested is None:
            order = np.argsort(row_keys(rows, random_state), kind="stable")
            n = int(_EVALUATION_SHARE * len(rows))
            tested = rows[order[:n]], label[order[:n]]
            rows, label = rows[order[n:]], label[order[n:]]
        say("asking the marked model")
        bits = _measure(stolen, mark, tested, _is_counted(stolen))[0]
        if bits < _INDICATIVE:
            raise InputError(
                f"The mark is not in the model: it leaves {bits:.0f} bits of evidence there.",
                hint="give the marked model, not the unmarked one, and its own mark.",
            )
        thief = Thief(rows, label, random_state)
        folder = None if out is None else _Folder.open(Path(out), stolen, mark, thief, tested)
        return run_attacks(stolen, mark, thief, tested, wanted, folder, say)


def run_attacks(
    stolen: Stolen,
    mark: Mark,
    thief: Thief,
    tested: tuple[np.ndarray, np.ndarray],
    wanted: Sequence[tuple[Attack, float]],
    folder: _Folder | None = None,
    say: Say = lambda said: None,
) -> AttackResult:
    """Run attacks on a stolen model, marked or not, and measure each.

    ``tested``: rows [n, d] and class numbers [n] that accuracies are measured on.
    """
    thief.once("kind", stolen.trees)
    counted = _is_counted(stolen)
    base = _measure(stolen, mark, tested, counted)
    say("training the thief's own models")
    own = _own_accuracy(stolen, thief, tested)

    def kept(accuracy: float) -> float | None:
        gap = base[2] - own
        return None if gap < _CLEAR else float((accuracy - own) / gap)

    known = {} if folder is None else {(r.attack, r.strength): r for r in folder.rows}
    found: list[AttackRow] = []
    for number, (one, strength) in enumerate(wanted, start=1):
        row = known.get((one.name, strength))
        if row is None:
            say(f"attack {number} of {len(wanted)}: {one.name} {strength:g}")
            start = time.perf_counter()
            try:
                left = one.run(stolen, thief, strength)
                scores, labels, accuracy = _measure(left, mark, tested, counted)
                row = AttackRow(
                    one.name, one.family, strength, scores, labels, accuracy, kept(accuracy),
                    round(time.perf_counter() - start, 2),
                )  # fmt: skip
            except NotOfferedError as reason:
                row = AttackRow(one.name, one.family, strength, skipped=reason.message)
            if folder is not None:
                folder.add(row)
        found.append(row)
    untouched = AttackRow("untouched", "none", 0.0, *base, kept(base[2]), 0.0)
    notes = []
    if kept(base[2]) is None:
        notes.append(
            f"The thief's own model has an accuracy of {own:.4f}, the stolen one {base[2]:.4f}: "
            "there is nothing to steal, and theft kept is not shown."
        )
    result = AttackResult(tuple(found), untouched, own, len(thief.X), len(tested[0]), tuple(notes))
    if folder is not None:
        say("drawing the chart")
        folder.draw(result)
    return result


def known_labels(foreign: ForeignModel, mark: Mark) -> np.ndarray:
    """Return a model's labels by class number; a bare booster's are those of the mark."""
    if foreign.kind == "Booster" and len(mark.classes) == len(foreign.classes):
        return np.array(mark.classes)
    return foreign.classes


def _is_counted(stolen: Stolen) -> bool:
    """Return whether labels are class numbers only, as in a booster that lost its labels."""
    return stolen.trees().kind == "Booster"


def _measure(
    model: Stolen, mark: Mark, tested: tuple[np.ndarray, np.ndarray], counted: bool
) -> tuple[float, float, float]:
    """Return the evidence by scores and by labels alone, and the accuracy."""
    classes = model.classes

    def labels(X: np.ndarray) -> np.ndarray:
        numbers = model.answer(X).argmax(axis=1)
        return numbers if counted else np.asarray(classes[numbers])

    by_scores = Suspect(
        "attacked model", answer_scores=model.answer,
        score_classes=None if counted else tuple(classes.tolist()), n_features=tested[0].shape[1],
    )  # fmt: skip
    by_labels = Suspect("attacked model", answer_labels=labels, answers_class_numbers=counted)
    right = model.answer(tested[0]).argmax(axis=1) == tested[1]
    return verify(by_scores, mark).bits, verify(by_labels, mark).bits, float(right.mean())


def _own_accuracy(stolen: Stolen, thief: Thief, tested: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the accuracy of the best model that the thief can train without the stolen one."""
    made = (own_model(stolen, thief), other_model(stolen, thief))
    return max(float((m.answer(tested[0]).argmax(axis=1) == tested[1]).mean()) for m in made)


def take_labelled(
    foreign: ForeignModel, X: Any, y: Any, what: str, seed: int, say: Say
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and class numbers; of a table in parts some of them, by the hashes of numbers.

    ``say``: told how many rows of such a table have been read. Raises InputError if they do not fit
    the model.
    """
    if is_in_parts(X):
        task = Classification(foreign)
        rows, label, _ = take_some(foreign, task, X, y, what, _MOST_ROWS, seed, say)
        assert label is not None
        return rows, label
    rows = take_rows(foreign, X, what)
    named = what.removesuffix(" rows") + " labels"
    return rows, take_labels(y, len(rows), foreign.classes, named)


def _take_evaluation(
    foreign: ForeignModel, given: Any, seed: int, say: Say
) -> tuple[np.ndarray, np.ndarray] | None:
    if given is None:
        return None
    rows, labels = take_pair(given, "evaluation")
    if labels is None:
        raise InputError("The evaluation rows have no labels.", hint="evaluation=(X, y).")
    return take_labelled(foreign, rows, labels, "evaluation rows", seed, say)


class _Folder:
    """Results in a folder, each written as soon as it is there."""

    def __init__(self, path: Path, rows: list[AttackRow]) -> None:
        self.path, self.rows = path, rows

    @classmethod
    def open(
        cls,
        path: Path,
        stolen: Stolen,
        mark: Mark,
        thief: Thief,
        tested: tuple[np.ndarray, np.ndarray],
    ) -> _Folder:
        """Take up what is there. Raises InputError if it is of another model, mark or rows."""
        seen = hashlib.sha256()
        for array in (thief.X, thief.label, *tested):
            seen.update(np.ascontiguousarray(array).tobytes())
        facts = {
            "model": digest(stolen.trees().ensemble),
            "mark": mark.digest.hex(),
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
        from timbermark.attacks.chart import draw_chart

        for ending in ("png", "svg"):
            draw_chart(result, self.path / f"chart.{ending}")
