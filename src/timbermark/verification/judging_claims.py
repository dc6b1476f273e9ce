"""Judge claims: derive everything again from the evidence, ask the suspect, weigh its answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from timbermark.errors import EvidenceError, InputError
from timbermark.ownership.claim import Claim
from timbermark.ownership.judging_answers import judge_again
from timbermark.ownership.mark_checks import TIME_FORMAT
from timbermark.ownership.opening import OpenedMark, Opening
from timbermark.ownership.stamps import check_stamps
from timbermark.ownership.transcript import Transcript
from timbermark.ownership.verdict import Verdict
from timbermark.ownership.verifying import AnswersWanted
from timbermark.verification.judgment_notes import list_checks, list_notes, note_ignored
from timbermark.verification.judgments import Judgment
from timbermark.verification.packs import Pack, read_pack
from timbermark.verification.recorded_judgments import check_recorded
from timbermark.verification.verifying import verify


def judge(
    evidence: str | os.PathLike[str] | Pack,
    *,
    suspect: Any = None,
    claim: Claim | str | os.PathLike[str] | None = None,
    judge_name: str | None = None,
    roots: Sequence[bytes] = (),
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
    rows: tuple[Any, Any] | None = None,
    verbose: int = 0,
    **asking: Any,
) -> Judgment:
    """Judge whether a suspect carries a claimed mark, by the triggers that its owner opened.

    ``evidence`` is the folder or zip that `timbermark open` or an earlier judge wrote, or an
    opening. ``claim`` is the claim as it was published; it must be the one in the evidence.
    ``suspect`` and the arguments for asking it are those of `timbermark.verify`, all of which may
    be given; without a suspect the answers in the pack's transcript are judged again.
    ``judge_name`` is whom the opening must be for, ``roots`` the PEM files of the time-stamping
    authorities that are trusted. ``rows``, (rows, labels) in the mark's columns, ask for a second
    opinion: models trained on them. ``verbose``: 1 shows progress on a terminal.

    Raises EvidenceError, FileFormatError or InputError, with the reason, for evidence that does not
    hold, a claim without its opening, and a suspect that does not answer.

    >>> import numpy as np
    >>> from timbermark import Mark, OwnerKey, open_mark
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(100.0)[:, None], alphabets=[[0, 1]] * 100,
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64)
    >>> pack = Pack("evidence", claim, open_mark(mark, claim, judge="Judge Judy", share=1.0))
    >>> memory = dict(zip(mark.triggers[:, 0], mark.expected, strict=True))
    >>> judge(pack, suspect=lambda X: [memory[x] for x in X[:, 0]]).level
    'conclusive'
    >>> judge(pack, suspect=lambda X: [0] * len(X), judge_name="Judge Judy").level
    'none'
    """
    pack = evidence if isinstance(evidence, Pack) else read_pack(evidence)
    published = Claim.load(claim) if isinstance(claim, str | os.PathLike) else claim
    held, opening = find_parts(pack, published)
    # What costs nothing is refused before what takes time.
    stamps = check_stamps(held, roots)
    opened = opening.check(held, judge_name)
    if suspect is not None:
        verdict = verify(
            suspect, opened, answers=answers, feature_names=feature_names, label_map=label_map,
            **{"progress": verbose > 0, **asking},
        )  # fmt: skip
        asked = datetime.now(UTC).strftime(TIME_FORMAT)
    else:
        verdict, asked = _judge_transcript(pack, opened)
    found = verdict.suspect_digest
    judgment = Judgment(
        claim=held,
        opening=opening,
        stamps=stamps,
        checks=list_checks(opening, stamps, named=judge_name is not None),
        verdict=verdict,
        transcript=_write_transcript(verdict, opened, asked),
        asked=asked,
        asked_again=suspect is not None,
        is_marked_model=None if found is None or held.marked_file is None
        else found == held.marked_file,
        references=_train_references(rows, opened, verbose),
        notes=(
            *list_notes(opening, stamps, was_published=published is not None),
            *_list_ignored(pack),
        ),
    )  # fmt: skip
    if suspect is None and pack.verdict is not None:
        then = held if pack.claim is None else pack.claim
        more = check_recorded(pack.verdict, judgment, check_stamps(then, roots, strict=False))
        judgment = replace(judgment, notes=(*judgment.notes, *more))
    return judgment


def find_parts(pack: Pack, published: Claim | None) -> tuple[Claim, Opening]:
    """Return the claim and the opening of a pack, the claim with all stamps that are known.

    Raises InputError if one of them is missing, EvidenceError if the published claim is another.
    """
    if pack.opening is None:
        raise InputError(
            f"{pack.name} holds a claim without its opening, which shows nothing about a suspect.",
            hint="ask the owner to open the mark for you with timbermark open.",
        )
    if published is None and pack.claim is None:
        raise InputError(
            f"{pack.name} holds no claim.", hint="give the claim as its owner published it."
        )
    if published is not None and pack.claim is not None and published.digest != pack.claim.digest:
        raise EvidenceError(
            f"The claim in {pack.name} is not the one that was published.",
            hint="ask the owner which of them the mark was opened for.",
        )
    # Stamps may have been added to either after the other was written.
    claim = published or pack.claim
    assert claim is not None
    for stamp in () if pack.claim is None else pack.claim.stamps:
        claim = claim.with_stamp(stamp)
    return claim, pack.opening


def _judge_transcript(pack: Pack, opened: OpenedMark) -> tuple[Verdict, str]:
    if pack.transcript is None:
        raise InputError(
            f"{pack.name} holds no answers and no suspect is given.",
            hint="give a suspect to ask.",
        )
    transcript, asked = Transcript.from_json(pack.transcript, opened)
    return judge_again(opened, transcript), asked


def _write_transcript(verdict: Verdict, opened: OpenedMark, asked: str) -> str:
    assert verdict.transcript is not None
    return verdict.transcript.to_json(opened, asked)


def _list_ignored(pack: Pack) -> tuple[str, ...]:
    if not pack.ignored:
        return ()
    return (note_ignored(len(pack.ignored), pack.name),)


def _train_references(rows: tuple[Any, Any] | None, opened: OpenedMark, verbose: int) -> Any:
    if rows is None:
        return ()
    # Only a second opinion needs scikit-learn.
    from timbermark.verification.second_opinion import train_references

    return train_references(*rows, opened, verbose=verbose)
