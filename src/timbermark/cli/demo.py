"""`timbermark demo`, the main job from end to end, and `timbermark warmup`.

A model is trained, marked and claimed; a thief averages it with a model of their own; the owner
verifies, opens a part of the mark, and a judge decides. Everything is left in a folder.

`timbermark reproduce`: the paper's tables and figures, on this machine.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from timbermark.cli.app import app
from timbermark.cli.options import command, option
from timbermark.cli.outputs import show
from timbermark.errors import InputError, require_library

if TYPE_CHECKING:
    import numpy as np

    from timbermark.estimator import TimberClassifier
    from timbermark.experiments.running import Progress
    from timbermark.marking.embedding import EmbedResult
    from timbermark.ownership.claim import Claim
    from timbermark.ownership.opening import Opening
    from timbermark.verification.judge import Judgment


_N_TRAIN, _N_THIEF = 1_100, 250
_REPRODUCTION = Path("timbermark-reproduction")
_OWNER, _JUDGE = "timbermark demo", "Judge Judy"

Rows = tuple[Any, Any]


@command(app)
def demo(
    out: Annotated[Path, option("Where everything is left.")] = Path("timbermark-demo"),
) -> None:
    """Train on scikit-learn's digits, mark, claim, steal, verify, open, judge; leaves the pages."""
    _say("loading; the first time, the kernels are compiled, which takes most of a minute")
    from sklearn.datasets import load_digits
    from sklearn.utils import shuffle

    from timbermark.estimator import TimberClassifier
    from timbermark.marking.embedding import embed
    from timbermark.ownership.keys import OwnerKey
    from timbermark.verification.judge import claim as make_claim

    place = _Folder(out)
    train, thiefs, test = _cut(*shuffle(*load_digits(return_X_y=True), random_state=0))
    _say(f"training on {len(train[0])} rows of scikit-learn's digits")
    model = TimberClassifier(random_state=0, verbose=1).fit(*train)
    place.save("model.timber", model)
    show(f"1 train   your model: accuracy {model.score(*test):.4f} on {len(test[0])} fresh rows")

    _say("marking: choosing triggers, rehearsing, setting symbols")
    key_path = place.at("owner.key")
    if not key_path.exists():
        OwnerKey.generate().save(key_path)
    key = OwnerKey.load(key_path)
    result = embed(model, *train, key=key, owner=_OWNER, validation=test)
    place.forget_openings("digits.mark")
    result.mark.save(place.at("digits.mark"), force=True)
    place.save("marked.timber", result.model)
    _show_mark(result)

    claim = make_claim(place.at("marked.timber"), result.mark, key=key)
    claim.save(place.at("digits.claim"), force=True)
    show(f"3 claim   signed and without any secret, to be published: {claim.digest.hex()[:16]}…")

    _say(f"a thief takes the marked model, and trains one on {len(thiefs[0])} rows of their own")
    own = TimberClassifier(random_state=1).fit(*thiefs)
    place.save("own.timber", own)
    average = _Average(result.model, own)
    show("4 steal   the thief serves the average of your model and their own, behind a server")

    _say("verifying, by scores and by labels")
    _show_suspects(
        {
            "your model, before": model,
            "your model, marked": result.model,
            "averaged by the thief": average,
            "the thief's own": own,
        },
        result,
        test,
    )
    opening = place.open_mark("digits.mark", result, claim)
    show(
        f"6 open    {opening.n_opened} of {claim.n_triggers} triggers for {_JUDGE}, drawn by lot; "
        "the rest stays secret"
    )
    _say("a judge asks the thief's server, trusting neither side")
    judgment = _judge(place, average)
    show(
        f"7 judge   {judgment.level}: {judgment.bits:.0f} bits, the chance of coincidence is "
        f"{judgment.verdict.chance}"
    )
    _leave_pages(place, result, average, judgment)
    show(f"\nleft in {out}/: {', '.join(place.names)}")
    _show_hints(out, [name for name in place.names if name.endswith(".html")])


@dataclass(frozen=True, slots=True)
class _Average:
    """What a thief may serve: the mean of two models' scores."""

    stolen: TimberClassifier
    own: TimberClassifier

    @property
    def classes_(self) -> np.ndarray:
        classes: np.ndarray = self.stolen.classes_
        return classes

    def predict_proba(self, X: Any) -> np.ndarray:
        found: np.ndarray = (self.stolen.predict_proba(X) + self.own.predict_proba(X)) / 2.0
        return found

    def predict(self, X: Any) -> np.ndarray:
        labels: np.ndarray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


class _Folder:
    """The folder that everything is left in; what an earlier demonstration left is replaced.

    A key is kept and used again. Raises InputError if the folder holds anything else.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir() and any(path.iterdir()) and not (path / "digits.mark").exists():
            raise InputError(
                f"{path} holds files that no demonstration left.",
                hint="give a new or empty folder with --out.",
            )
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.names: list[str] = []

    def at(self, name: str) -> Path:
        """Return where a file of this name goes."""
        if name not in self.names:
            self.names.append(name)
        return self._path / name

    def save(self, name: str, model: TimberClassifier) -> None:
        """Write a model."""
        model.save(self.at(name))

    def forget_openings(self, mark: str) -> None:
        """Remove the record of openings of the mark that is being replaced."""
        from timbermark.verification.records import ledger_path

        openings = ledger_path(self._path / mark)
        self.at(openings.name).unlink(missing_ok=True)

    def open_mark(self, mark: str, result: EmbedResult, claim: Claim) -> Opening:
        """Open a part of the mark to the judge, as `timbermark open` does."""
        from timbermark.ownership.opening import open_mark
        from timbermark.verification.packs import CLAIM, OPENING, write_pack
        from timbermark.verification.records import record_opening

        opening = open_mark(result.mark, claim, judge=_JUDGE, share=0.75)
        record_opening(self._path / mark, claim, opening)
        parts = {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()}
        write_pack(self.at("evidence"), parts, force=True)
        return opening


def _cut(X: Any, y: Any) -> list[Rows]:
    """Return three parts: for training, for the thief, for testing."""
    ends = (0, _N_TRAIN, _N_TRAIN + _N_THIEF, len(X))
    return [(X[a:b], y[a:b]) for a, b in pairwise(ends)]


def _show_mark(result: EmbedResult) -> None:
    cost = result.cost
    show(
        f"2 mark    {result.worth}\n"
        f"          accuracy {cost['accuracy'].before:.4f} → {cost['accuracy'].after:.4f}, "
        f"{cost.changed} of {cost.n_rows} labels changed, on the fresh rows that chose "
        "nothing"
    )


def _show_suspects(suspects: dict[str, Any], result: EmbedResult, test: Rows) -> None:
    from rich.console import Console
    from rich.table import Table

    from timbermark.verification.verifying import verify

    show("5 verify  whose model is it? Evidence in bits, 64 and more are conclusive")
    table = Table("suspect", "accuracy", "by scores", "by labels", "verdict")
    for name, suspect in suspects.items():
        by_scores, by_labels = (
            verify(suspect, result.mark, answers=kind) for kind in ("scores", "labels")
        )
        accuracy = float((suspect.predict(test[0]) == test[1]).mean())
        table.add_row(
            name,
            f"{accuracy:.4f}",
            f"{by_scores.bits:.0f}",
            f"{by_labels.bits:.0f}",
            by_scores.level,
        )
    Console().print(table)


def _judge(place: _Folder, suspect: _Average) -> Judgment:
    """Let the judge ask what was opened, as somebody who has the server's answers only."""
    from timbermark.files import atomic_write
    from timbermark.verification.judge import find_parts, judge
    from timbermark.verification.packs import read_pack
    from timbermark.verification.table import write_questions

    evidence = place.at("evidence")
    claim, opening = find_parts(read_pack(evidence), None)
    write_questions(opening.check(claim), place.at("questions.csv"))
    with place.at("questions.csv").open(newline="", encoding="utf-8") as file:
        (id_name, *_), *asked = csv.reader(file)
    scores = suspect.predict_proba([[float(value) for value in row[1:]] for row in asked])
    answers = io.StringIO()
    table = csv.writer(answers, lineterminator="\n")
    table.writerow([id_name, *suspect.classes_.tolist()])
    table.writerows([row[0], *said] for row, said in zip(asked, scores.tolist(), strict=True))
    # These are answers to opened triggers.
    atomic_write(place.at("answers.csv"), answers.getvalue().encode(), mode=0o600)
    judgment = judge(
        evidence,
        suspect=place.at("answers.csv"),
        claim=place.at("digits.claim"),
        judge=_JUDGE,
    )
    judgment.save(place.at("pack.zip"), force=True)
    return judgment


def _leave_pages(
    place: _Folder, result: EmbedResult, average: _Average, judgment: Judgment
) -> None:
    from timbermark.errors import MissingLibraryError
    from timbermark.report import check_packages
    from timbermark.verification.verifying import verify

    try:
        check_packages()
    except MissingLibraryError as missing:
        _say(f"no pages: {missing}")
        return
    result.report(place.at("marking.html"), force=True)
    verify(average, result.mark).report(place.at("verdict.html"), force=True)
    judgment.report(place.at("judgment.html"), force=True)


def _show_hints(out: Path, pages: list[str]) -> None:
    if pages:
        show(f"look: {', '.join(f'{out}/{page}' for page in pages)}")
    # From a clone the program is in .venv/bin, which is on nobody's path.
    program = "timbermark" if shutil.which("timbermark") else os.path.relpath(sys.argv[0])
    show(
        f"try:  {program} verify {out}/marked.timber {out}/digits.mark\n"
        f"      {program} judge {out}/pack.zip"
    )


@command(app)
def warmup() -> None:
    """Compile all kernels now, so that the first training or marking starts at once."""
    from timbermark.marking.warmup import warmup as compile_all

    start = time.perf_counter()
    compile_all()
    show(f"kernels are ready ({time.perf_counter() - start:.1f} s)")


def _say(text: str) -> None:
    print(f"timbermark: {text}", file=sys.stderr)


@command(app)
def reproduce(
    table: Annotated[
        int | None, option("One table, 1 to 8, without figures; all if not given.")
    ] = None,
    dataset: Annotated[list[str] | None, option("A data set; may be given several times.")] = None,
    seeds: Annotated[
        int | None, option("How many splits and models.", show_default="3; quick: 1")
    ] = None,
    jobs: Annotated[int, option("Processes; the numbers are the same for any.")] = 2,
    out: Annotated[Path, option("Where results go and are taken up again.")] = _REPRODUCTION,
    data: Annotated[
        Path | None,
        option("Folder of the data sets.", show_default="TIMBERMARK_DATA, or download"),
    ] = None,
    quick: Annotated[bool, option("A part that takes a minute or two.", "--quick")] = False,
) -> None:
    """Measure the paper's grid and write its tables and figures, ours beside the paper's.

    A run that was ended goes on where it was when it is started again.
    """
    if jobs < 1:
        raise InputError(f"jobs={jobs} must be at least 1.", hint="2 is a good start.")
    require_library("jinja2", "reproduce", "to write the page of the reproduction")
    require_library("matplotlib", "reproduce", "to draw the figures of the reproduction")
    from timbermark.experiments.datasets import find_files
    from timbermark.experiments.measuring import make_plan
    from timbermark.experiments.page import overall_lines, write_report
    from timbermark.experiments.results import collect
    from timbermark.experiments.running import run_plan
    from timbermark.kernels.compile import is_cold
    from timbermark.kernels.growing import train_trees
    from timbermark.marking.warmup import warm_up

    plan = make_plan(table, dataset or [], seeds, quick)
    # Before anything is measured: a file that is absent or wrong should not end a long run.
    for name in plan.datasets:
        find_files(name, data)
    if is_cold(train_trees):
        _say("compiling the kernels, once")
        warm_up()
    with _bar() as progress:
        finished = run_plan(plan, out, data, jobs, progress)
    _say("drawing figures and writing tables" if table is None else "writing tables")
    paths = write_report(plan, finished, out, data, with_figures=table is None)
    for text in [*overall_lines(plan, collect(plan, finished)), *map(str, paths)]:
        show(text)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show progress on stderr, only on a terminal: a bar with the remaining time."""
    from timbermark.experiments.running import Progress

    if not sys.stderr.isatty():
        yield Progress(_tell_start, lambda cost: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar("cells", *columns, console=Console(stderr=True), speed_estimate_period=600) as bar:
        task = bar.add_task("", total=None)

        def start(done: float, whole: float) -> None:
            _tell_start(done, whole)
            # What was done before took no time now: it would make the rest look fast.
            bar.update(task, total=whole - done)

        yield Progress(start, lambda cost: bar.advance(task, cost))


def _tell_start(done: float, whole: float) -> None:
    if done >= whole:
        _say("all cells are there already")
    elif done > 0:
        _say(f"going on: {done / whole:.0%} is there already")
