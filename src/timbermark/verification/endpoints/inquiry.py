"""The inquiry: questions to an endpoint, one after the other, until enough is known."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from timbermark.errors import InputError
from timbermark.ownership.judging_answers import Inquiry, judge
from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Verdict
from timbermark.ownership.verifying import AnswersWanted, check_label_map
from timbermark.verification.endpoints.columns import choose_columns
from timbermark.verification.endpoints.delivery import Delivery
from timbermark.verification.endpoints.endpoint import Endpoint
from timbermark.verification.endpoints.inquiry_progress import (
    Ending,
    InquiryOptions,
    Progress,
    find_ending,
    find_limit,
    list_answered,
    list_prices,
    measure_evidence,
    sum_prices,
)
from timbermark.verification.endpoints.protocols import Batch, open_dialect
from timbermark.verification.endpoints.rate_limit import RateLimit
from timbermark.verification.endpoints.reading import (
    Reading,
    place_labels,
    place_scores,
    settle_reading,
)
from timbermark.verification.endpoints.request_prices import list_conditions
from timbermark.verification.endpoints.retrying import try_repeatedly
from timbermark.verification.endpoints.sending import Failure, FailureError
from timbermark.verification.questions import DECOY, make_questions, wire_rows

_FEW_REFUSALS = 8
_FAREWELL = 5.0


def ask_endpoint(
    endpoint: Endpoint,
    mark: Mark,
    options: InquiryOptions,
    *,
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
) -> Verdict:
    """Ask an endpoint the triggers among decoys and return what its answers prove.

    Raises InputError if it does not answer, or not with what can be read, if the journal belongs to
    another inquiry or cannot be written; MissingLibraryError without httpx. Answers that a journal
    holds by then stay there.
    """
    _check(options)
    sends_names = open_dialect(endpoint.protocol, endpoint.options).sends_names
    columns = choose_columns(mark, endpoint.columns, feature_names, sends_names=sends_names)
    translation = check_label_map(label_map, mark)
    questions = make_questions(mark, options.decoys, options.decoys_from)
    run = Progress(mark, endpoint, options, questions, columns)

    def settle(given: Sequence[Any]) -> Reading | None:
        return settle_reading(
            given,
            mark,
            wanted=answers,
            classes=endpoint.classes,
            scale=endpoint.scale,
            class_numbers=endpoint.class_numbers,
            label_map=translation,
        )

    with Delivery(_setting(run)) as delivery:
        past = delivery.history
        run.refused = past["refused"]
        # The first piece as it came then, because it settles how answers are read.
        for piece in (past["answers"][: past["first"]], past["answers"][past["first"] :]):
            _take(run, piece, settle)
        if past["under_way"] is not None and options.in_doubt == "skip":
            count = past["under_way"][1]
            delivery.note({"skipped": [run.asked, count]})
            _take(run, [None] * count, settle)
        ending = find_ending(run)
        limit = RateLimit(endpoint.rate)
        while ending is None:
            _tell(run)
            size = min(endpoint.batch, len(questions) - run.asked)
            limit.wait(size)
            _take(run, _ask(run, delivery, size), settle)
            ending = find_ending(run)
        _tell(run)
        verdict = _judge(run, ending)
        told = {"why": ending, "bits": verdict.bits, "level": verdict.level}
        delivery.note({"ended": {**told, "kind": verdict.kind, "triggers": len(run.answers)}})
    return verdict


def _check(options: InquiryOptions) -> None:
    stop = options.stop_at
    fits = stop in ("auto", "off") if isinstance(stop, str) else math.isfinite(stop) and stop > 0
    if not fits or isinstance(stop, bool):
        raise InputError(
            f"stop_at={stop!r} is neither a number of bits nor off.",
            hint="64 bits convince anyone, 20 convince you.",
        )
    if options.in_doubt not in ("ask", "skip"):
        raise InputError(f"in_doubt={options.in_doubt!r} is not known.", hint="use ask or skip.")


def _setting(run: Progress) -> dict[str, Any]:
    mark, endpoint = run.mark, run.endpoint
    start = {
        "owner": mark.owner,
        "mark_id": mark.mark_id.hex(),
        "mark_digest": mark.digest.hex(),
        "model_digest": mark.model_digest,
        "suspect": endpoint.shown_url,
        "protocol": endpoint.protocol,
        "questions": f"{run.questions.digest(mark)}/{_order(run)}",
        "n_questions": len(run.questions),
        "n_triggers": mark.n_triggers,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "run": secrets.token_hex(16),
        "timbermark": import_module("timbermark").__version__,
    }
    journal = run.options.journal
    return {
        "url": endpoint.url,
        "protocol": endpoint.protocol,
        "options": endpoint.options,
        "headers": endpoint.sent_headers,
        "timeout": endpoint.timeout,
        "cafile": None if endpoint.cafile is None else os.fspath(endpoint.cafile),
        "idempotency_header": endpoint.idempotency_header,
        "n_classes": len(mark.classes),
        "journal": None if journal is None else os.path.abspath(journal),
        # A courier whose run was killed holds the journal until its last answer has come.
        "patience": endpoint.timeout + _FAREWELL,
        "start": start,
    }


def _order(run: Progress) -> str:
    """Return what identifies the columns and all options given by hand about requests."""
    columns, options = run.columns, run.endpoint.options
    own = list(columns.places) == list(range(len(columns.places)))
    order = "own order" if own else ",".join(map(str, columns.places))
    by_hand = {name: value for name, value in options.items() if value is not None}
    if columns.names != run.mark.feature_names:
        by_hand["columns"] = columns.names
    if not by_hand:
        return order
    said = json.dumps(by_hand, sort_keys=True)
    return f"{order}/{hashlib.sha256(said.encode()).hexdigest()[:32]}"


def _take(
    run: Progress, given: Sequence[Any], settle: Callable[[Sequence[Any]], Reading | None]
) -> None:
    if run.reading is None:
        run.reading = settle(given)
    for trigger, answer in zip(run.questions.triggers[run.asked :], given, strict=False):
        if trigger != DECOY:
            run.answers[trigger] = answer
    run.asked += len(given)
    if run.reading is not None and run.answers:
        run.bits = measure_evidence(run)


def _ask(run: Progress, delivery: Delivery, size: int) -> list[Any]:
    """Return the answers to the next questions, repeating requests that fail."""
    try:
        return _try(run, delivery, run.asked, size)
    except FailureError as error:
        # A server may refuse single rows, such as an age of 150. That rule knows no symbols, so
        # these questions count as not answered; a server that takes nothing is misunderstood.
        taken = any(answer is not None for answer in run.answers.values())
        limit = _FEW_REFUSALS + run.asked // 4
        if error.failure.kind != "refused" or not taken or run.refused >= limit:
            raise _complaint(run, error.failure) from None
    if size > 1:
        return _ask(run, delivery, 1)
    delivery.note({"refused": [run.asked, 1]})
    run.refused += 1
    return [None]


def _try(run: Progress, delivery: Delivery, first: int, size: int) -> list[Any]:
    dialect = open_dialect(run.endpoint.protocol, run.endpoint.options)
    rows = wire_rows(run.questions, first, size, run.columns.places)
    body = json.dumps(dialect.make_body(Batch(rows, run.columns.names)), allow_nan=False)
    return try_repeatedly(lambda: delivery.ask(first, size, body), run.endpoint.retries)


def _complaint(run: Progress, failure: Failure) -> InputError:
    hint, message = failure.hint, failure.message
    if run.options.journal is not None and run.asked:
        kept = f"the journal holds {run.asked} answers, and the same command goes on from there."
        hint = f"{hint} {kept[0].upper()}{kept[1:]}" if hint else kept
    if failure.kind == "again":
        message = f"{message.removesuffix('.')}, in {run.endpoint.retries + 1} attempts."
    return InputError(f"The server at {run.endpoint.shown_url} {message}", hint)


def _judge(run: Progress, ending: Ending) -> Verdict:
    mark, endpoint = run.mark, run.endpoint
    reading = run.reading
    warnings = []
    if ending == "hopeless":
        warnings.append(
            f"Asking stopped after {len(run.answers)} of {mark.n_triggers} triggers: the evidence "
            f"would hardly reach {find_limit(run):g} bits. With a lower limit it would go on."
        )
    if endpoint.exposes_credentials:
        warnings.append("Credentials were sent without encryption, over http.")
    inquiry = Inquiry(
        suspect=f"endpoint {endpoint.shown_url}",
        asked_through=f"HTTP ({endpoint.protocol})",
        columns=run.columns.how,
        column_names=run.columns.names or (),
        reading="" if reading is None else reading.words,
        prices=list_prices(run),
        warnings=tuple(warnings),
        conditions=list_conditions(endpoint),
        asked=len(run.answers),
    )
    if reading is not None and reading.kind == "scores":
        return judge(mark, inquiry, scores=place_scores(list_answered(run), reading, mark))
    placed, shown = place_labels(list_answered(run), reading or Reading("labels"), mark)
    return judge(mark, inquiry, labels=placed, shown=shown, one_by_one=True)


def _tell(run: Progress) -> None:
    if run.options.progress is not None:
        price = 0.0 if run.reading is None else sum_prices(run)
        run.options.progress(run.asked, len(run.questions), max(0.0, run.bits - price))
