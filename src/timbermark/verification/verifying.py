"""Verification of any suspect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from timbermark.errors import InputError
from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Verdict
from timbermark.ownership.verifying import AnswersWanted
from timbermark.ownership.verifying import verify as verify_opened
from timbermark.verification.answer_tables import AnswerTable, judge_table
from timbermark.verification.endpoints.endpoint import Endpoint
from timbermark.verification.suspects import open_suspect


def verify(
    suspect: Any,
    mark: Mark,
    *,
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
    journal: str | os.PathLike[str] | None = None,
    decoys: int | None = None,
    decoys_from: Any = None,
    stop_at: float | Literal["auto", "off"] | None = None,
    in_doubt: Literal["ask", "skip"] | None = None,
    progress: bool = False,
) -> Verdict:
    """Ask a suspect the triggers of a mark and return what its answers prove.

    ``suspect``: a fitted model, a function from rows to labels or scores, a model file of
    timbermark, XGBoost, LightGBM, CatBoost or skops, an `Endpoint` or its address, or answers to
    the questions of ``timbermark questions``: a CSV or Parquet file, a data frame, a dictionary
    from ids to answers. ``answers``, ``feature_names`` and ``label_map`` are those of
    :func:`timbermark.ownership.verify`.

    The rest is for endpoints, which are asked one question after the other. ``journal`` is a file
    that keeps every answer and resumes an interrupted run. ``decoys`` is the number of decoys for
    each trigger (default 1), with values of other triggers or of the rows ``decoys_from``: a
    matrix, a data frame, a table of Dask or the names of Parquet files ("rows/*.parquet").
    ``stop_at`` is the evidence in bits at which asking stops (default 64, "off" asks everything);
    it also stops where that is hardly in reach. ``in_doubt`` says whether questions that were under
    way when a run crashed are asked again ("ask") or left out ("skip"). ``progress`` shows a bar on
    a terminal.

    Raises InputError where it cannot be asked, FileFormatError for a file that is no model.

    >>> import numpy as np
    >>> from timbermark import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(64.0)[:, None], alphabets=[[0, 1]] * 64,
    ...     reference=np.full((64, 2), 0.5),
    ... )
    >>> verify(lambda X: np.zeros(len(X), int), mark).level
    'none'
    """
    if not isinstance(mark, Mark):
        raise InputError(
            f"{type(mark).__name__} is not a mark.", hint="load one with Mark.load(path)."
        )
    if answers not in get_args(AnswersWanted):
        raise InputError(
            f"answers={answers!r} is not known.", hint=f"use one of {get_args(AnswersWanted)}."
        )
    opened = open_suspect(suspect)
    given: dict[str, Any] = {
        "journal": journal,
        "decoys": decoys,
        "decoys_from": decoys_from,
        "stop_at": stop_at,
        "in_doubt": in_doubt,
    }
    given = {name: value for name, value in given.items() if value is not None}
    common: dict[str, Any] = {"answers": answers, "label_map": label_map}
    if isinstance(opened, Endpoint):
        from timbermark.verification.endpoints.inquiry import ask_endpoint
        from timbermark.verification.endpoints.inquiry_progress import InquiryOptions
        from timbermark.verification.endpoints.progress import questions_bar

        with questions_bar(progress) as bar:
            options = InquiryOptions(progress=bar, **given)
            return ask_endpoint(opened, mark, options, feature_names=feature_names, **common)
    if given:
        raise InputError(
            f"{next(iter(given))} is for endpoints, and the suspect is none.", hint="leave it out."
        )
    if isinstance(opened, AnswerTable):
        if feature_names is not None:
            raise InputError(
                "feature_names are given, and answers have no features.", hint="leave them out."
            )
        return judge_table(opened, mark, **common)
    return verify_opened(opened, mark, feature_names=feature_names, **common)
