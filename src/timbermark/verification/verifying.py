"""Verification: ask a suspect of any kind the triggers of a mark, and judge its answers.

This is the one road from a suspect to a verdict: open it (`suspects`), match its columns and fix
how answers are read (`Inquiry.begin`), ask (`Suspect.ask`), read (`answers`), judge (`verdict`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from timbermark.ownership.encoding import TIME_FORMAT
from timbermark.ownership.evidence import Price
from timbermark.ownership.mark import Mark
from timbermark.verification.answers import AnswersWanted
from timbermark.verification.inquiry import Inquiry, StopAt, read_stop_at
from timbermark.verification.journal import History, Journal
from timbermark.verification.questions import list_questions
from timbermark.verification.refusals import check_choice, refusal
from timbermark.verification.suspects import open_suspect
from timbermark.verification.transcript import Note
from timbermark.verification.verdict import Verdict

if TYPE_CHECKING:
    from timbermark.verification.endpoint import Endpoint

DEFAULT_DECOYS = 1
_NO_DECOYS_BITS, _MANY_DECOYS_BITS = 1.0, 8.0


def verify(
    suspect: Any,
    mark: Mark | str | os.PathLike[str],
    *,
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
    journal: str | os.PathLike[str] | None = None,
    decoys: int | None = None,
    decoys_from: Any = None,
    stop_at: StopAt | None = None,
    in_doubt: Literal["ask", "skip"] | None = None,
    progress: bool = False,
) -> Verdict:
    """Ask a suspect the triggers of a mark and return what its answers prove.

    ``suspect``: a fitted model, a function from rows to labels, scores or numbers, a model file of
    timbermark, XGBoost, LightGBM, CatBoost or skops, an `Endpoint` or its address, or answers to
    the questions of ``timbermark questions``: a CSV or Parquet file, a data frame, a dictionary
    from ids to answers. ``mark``: a mark or its file.

    Scores are used where the suspect offers them, otherwise labels; ``answers`` asks for one kind,
    and choosing another than the rule costs 1 bit. If mark and suspect both name their features,
    columns are matched by name and nothing overrides that; ``feature_names``, the mark's names in
    the order of the suspect's columns, are for a suspect without names and cost log₂(d!) bits.
    ``label_map``, from the suspect's labels to the mark's classes, costs log₂(K!) bits, and more if
    it leaves out labels that the suspect gives.

    The rest is for endpoints, which are asked one question after the other. ``journal`` is a file
    that keeps every answer and resumes an interrupted run. ``decoys`` is the number of decoys for
    each trigger (default 1), with values of other triggers or of the rows ``decoys_from``: a
    matrix, a data frame, a table of Dask or the names of Parquet files ("rows/*.parquet"). If an
    endpoint has ``batch`` > 1, another number of decoys costs bits, and ``decoys_from`` limits the
    level to indicative.
    ``stop_at`` is the evidence in bits at which asking stops (default 64, "off" asks everything);
    it also stops where that is hardly in reach. ``in_doubt`` says whether questions that were under
    way when a run crashed are asked again ("ask") or left out ("skip"). ``progress`` shows a bar on
    a terminal.

    Raises InputError where it cannot be asked, FileFormatError for a file that is no model.

    >>> import numpy as np
    >>> from timbermark import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0)[:, None], alphabets=[[0, 1]] * 100,
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> memory = dict(zip(mark.rows()[:, 0], mark.expected, strict=True))
    >>> verdict = verify(lambda X: [memory[x] for x in X[:, 0]], mark)
    >>> verdict.level, verdict.kind, verdict.matched
    ('conclusive', 'labels', 100)
    >>> verify(lambda X: ["no"] * len(X), mark).level
    'none'
    """
    known = Mark.load(mark) if isinstance(mark, str | os.PathLike) else mark
    if not isinstance(known, Mark):
        raise refusal("mark.type", given=type(mark).__name__)
    inquiries = partial(
        Inquiry.begin, mark=known, answers=answers, feature_names=feature_names, label_map=label_map
    )
    asking = {
        "journal": journal,
        "decoys": decoys,
        "decoys_from": decoys_from,
        "stop_at": stop_at,
        "in_doubt": in_doubt,
    }
    verdict: Verdict = ask_suspect(suspect, inquiries, asking, progress)
    return verdict


def ask_suspect(
    suspect: Any,
    inquiries: Callable[..., Inquiry],
    asking: Mapping[str, Any],
    progress: bool = False,
) -> Any:
    """Ask a suspect of any kind everything, and return what the inquiry ends in, as `finish` says.

    ``inquiries``: an inquiry of the opened suspect, given further fields; ``asking``: what is for
    endpoints alone, by name, None for what was not given. Raises InputError where it cannot be
    asked.
    """
    opened = open_suspect(suspect)
    given = {name: value for name, value in asking.items() if value is not None}
    one_by_one = getattr(opened, "one_by_one", False)
    if given and not one_by_one:
        raise refusal("option.unfit", name=next(iter(given)), what="endpoints")
    if one_by_one:
        with questions_bar(progress) as bar:
            return _ask_endpoint(cast("Endpoint", opened), inquiries, given, bar)
    inquiry = inquiries(opened)
    for piece in opened.ask(inquiry):
        inquiry.take(piece)
    return inquiry.finish(early=False)


def _ask_endpoint(
    endpoint: Endpoint,
    inquiries: Callable[..., Inquiry],
    given: Mapping[str, Any],
    bar: Callable[[int, int, float], None] | None,
) -> Any:
    stop_at, in_doubt = given.get("stop_at", "auto"), given.get("in_doubt", "ask")
    limit = read_stop_at(stop_at)
    check_choice("in_doubt", in_doubt, ("ask", "skip"))
    decoys = given.get("decoys", DEFAULT_DECOYS)
    inquiry = inquiries(
        endpoint,
        decoys=decoys,
        decoys_from=given.get("decoys_from"),
        limit=limit,
        progress=bar,
    )
    # Decoys stand beside triggers only in requests of several rows, and answers may depend on them.
    if endpoint.batch > 1 and decoys != DEFAULT_DECOYS:
        bits = _MANY_DECOYS_BITS if decoys else _NO_DECOYS_BITS
        inquiry.add(Price("decoys", bits, {"decoys": decoys}))
    if endpoint.batch > 1 and decoys and "decoys_from" in given:
        inquiry.add(Note("decoys-from", {"caps": True}))
    if stop_at != "auto":
        inquiry.check_limit()
    kept = given.get("journal")
    start = _start(inquiry, endpoint)
    with nullcontext(History(start)) if kept is None else Journal(kept, start) as journal:
        inquiry.journal = journal
        if journal.answers:
            since = str(journal.start.get("created", ""))
            inquiry.add(from_journal=len(journal.answers), journal_since=since)
        if journal.under_way and in_doubt == "skip":
            journal.add({"skipped": list(journal.under_way)})
        for piece in endpoint.ask(inquiry):
            inquiry.take(piece)
        found = inquiry.finish(early=True)
        told = {"bits": found.bits, "level": found.level, "kind": found.kind}
        journal.add({"ended": {**told, "triggers": found.answered}})
    return found


def _start(inquiry: Inquiry, endpoint: Endpoint) -> dict[str, Any]:
    """Return the first record of a journal: what must be the same when a run is resumed."""
    mark, columns = inquiry.mark, inquiry.columns
    ids = [q.id for q in list_questions(inquiry.questions)]
    by_hand = {name: value for name, value in endpoint.options.items() if value is not None}
    if endpoint.batch > 1:
        by_hand["batch"] = endpoint.batch
    same = json.dumps([ids, list(columns.places), columns.names, by_hand], sort_keys=True)
    return {
        "owner": mark.owner,
        "mark_id": mark.mark_id.hex(),
        "mark_digest": mark.digest.hex(),
        "model_digest": mark.model_digest,
        "suspect": endpoint.shown_url,
        "protocol": endpoint.protocol,
        "questions": hashlib.sha256(same.encode()).hexdigest(),
        "n_questions": len(ids),
        "n_triggers": mark.n_triggers,
        "created": datetime.now(UTC).strftime(TIME_FORMAT),
        "run": secrets.token_hex(16),
        "timbermark": import_module("timbermark").__version__,
    }


@contextmanager
def questions_bar(wanted: bool) -> Iterator[Callable[[int, int, float], None] | None]:
    """Yield a function that shows questions asked and evidence; None if not wanted.

    >>> with questions_bar(False) as bar:
    ...     print(bar)
    None
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bits]:.1f} bits"))
    with Progress(
        "questions", *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task("", total=None, bits=0.0)
        yield lambda done, total, bits: progress.update(
            task, completed=done, total=total, bits=bits
        )
