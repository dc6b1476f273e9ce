"""The transcript: how a suspect was asked and what it answered, ready to be judged again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from timbermark.dtypes import CLASS_INDEX
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership.encoding import check_digest, is_unicode
from timbermark.ownership.evidence import Answers, Price
from timbermark.ownership.mark import Mark
from timbermark.verification.refusals import refusal
from timbermark.verification.verdict import Context, Note

FORMAT = "timbermark transcript 2"
_KEYS = {"scores": "scores", "labels": "class", "numbers": "number"}
_TEXTS = ("suspect", "through", "columns")


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What a suspect answered to the rows of a mark; it tells nothing about the triggers."""

    context: Context
    answers: Answers = field(repr=False)
    shown: tuple[Any, ...] | None = field(default=None, repr=False)  # labels as they came
    asked: int | None = None  # triggers that were asked, where asking stopped early

    def to_json(self, mark: Mark, when: str) -> str:
        """Return the transcript of a mark's rows, asked at a time (UTC), as JSON.

        Answers stand in the order of the mark's rows; numbers keep all their digits.
        """
        key = _KEYS[self.answers.kind]
        rows: list[dict[str, Any]] = []
        for i, value in enumerate(self.answers.values.tolist()):
            row: dict[str, Any] = {key: _finite(value)}
            if self.shown is not None:
                row["shown"] = _show(self.shown[i])
            rows.append(row)
        record = {
            "format": FORMAT,
            "asked": when,
            "mark_digest": mark.digest.hex(),
            "places": list(map(int, mark.places)),
            "kind": self.answers.kind,
            "triggers_asked": self.asked,
            "context": _write_context(self.context),
            "answers": rows,
        }
        return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, mark: Mark) -> tuple[Transcript, str]:
        """Return the transcript of a mark's rows, and when they were asked.

        Raises FileFormatError if it is anything but such a transcript, or of other triggers.
        """
        try:
            return _read(json.loads(text, parse_constant=_refuse_constant), mark)
        except FileFormatError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError, InputError):
            raise refusal("transcript.unreadable", FileFormatError) from None


def _read(record: Any, mark: Mark) -> tuple[Transcript, str]:
    _require(isinstance(record, dict) and record.get("format") == FORMAT, "it is none")
    parts = {"format", "asked", "mark_digest", "places", "kind", "triggers_asked", "context"}
    _require(record.keys() == {*parts, "answers"}, "it has not exactly its parts")
    _require(record["mark_digest"] == mark.digest.hex(), "it is that of another mark")
    _require(record["places"] == list(map(int, mark.places)), "it is about other triggers")
    rows, kind, asked = record["answers"], record["kind"], record["triggers_asked"]
    _require(
        kind in _KEYS and _is_text(record["asked"]),
        "its kind or its time",
    )
    _require(
        asked is None or (type(asked) is int and 0 <= asked <= mark.n_triggers), "what was asked"
    )
    key = _KEYS[kind]
    _require(
        isinstance(rows, list)
        and len(rows) == mark.n_rows
        and all(isinstance(row, dict) and {"shown", *row} == {"shown", key} for row in rows),
        "its answers are not those to the triggers",
    )
    with_shown = all("shown" in row for row in rows)
    _require(with_shown or not any("shown" in row for row in rows), "its labels")
    shown = tuple(_check_shown(row["shown"]) for row in rows) if with_shown else None
    values = _READERS[kind]([row[key] for row in rows], mark)
    answers = Answers(kind, values)
    answers.check(mark)
    return Transcript(_read_context(record["context"]), answers, shown, asked), record["asked"]


def _read_scores(rows: list[Any], mark: Mark) -> Any:
    scores = np.full((len(rows), len(mark.classes)), np.nan)
    for i, row in enumerate(rows):
        _require(isinstance(row, list) and len(row) == len(mark.classes), "scores")
        if None in row:
            _require(row == [None] * len(row), "scores")
            continue
        _require(all(type(x) in (int, float) and 0 <= x <= 1 for x in row), "scores")
        scores[i] = row
    return scores


def _read_labels(numbers: list[Any], mark: Mark) -> Any:
    _require(all(type(number) is int for number in numbers), "a class number")
    return np.array(numbers, dtype=CLASS_INDEX)


def _read_numbers(numbers: list[Any], mark: Mark) -> Any:
    _require(
        all(x is None or (type(x) in (int, float) and math.isfinite(x)) for x in numbers),
        "a number",
    )
    return np.array([math.nan if x is None else float(x) for x in numbers])


_READERS: dict[str, Any] = {
    "scores": _read_scores,
    "labels": _read_labels,
    "numbers": _read_numbers,
}


def _write_context(context: Context) -> dict[str, Any]:
    record = {f.name: getattr(context, f.name) for f in fields(Context)}
    record["column_names"] = list(context.column_names)
    record["reading"], record["request"] = dict(context.reading), dict(context.request)
    record["prices"] = [[p.code, p.bits, dict(p.facts)] for p in context.prices]
    for name in ("warnings", "conditions"):
        record[name] = [[note.code, dict(note.facts)] for note in record[name]]
    return record


def _read_context(given: Any) -> Context:
    names = {f.name for f in fields(Context)}
    _require(isinstance(given, dict) and given.keys() == names, "how it was asked")
    digest = given["suspect_digest"]
    _require(
        all(isinstance(given[name], str) and given[name].isprintable() for name in _TEXTS),
        "how it was asked",
    )
    if digest is not None:
        check_digest("suspect_digest", digest)
    listed = given["column_names"]
    _require(
        isinstance(listed, list) and all(isinstance(n, str) and n.isprintable() for n in listed),
        "a name",
    )
    prices = []
    for code, bits, facts in given["prices"]:
        _require(
            _is_text(code)
            and type(bits) in (int, float)
            and math.isfinite(bits)
            and bits >= 0
            and all(type(value) is int for value in _check_facts(facts).values()),
            "a price",
        )
        prices.append(Price(code, float(bits), facts))
    notes: dict[str, Any] = {}
    for name in ("warnings", "conditions"):
        for code, facts in given[name]:
            _require(_is_text(code), "a note")
            _check_facts(facts)
        notes[name] = tuple(Note(code, facts) for code, facts in given[name])
    return Context(
        **{name: given[name] for name in _TEXTS},
        suspect_digest=digest,
        column_names=tuple(listed),
        reading=_check_facts(given["reading"]),
        request=_check_facts(given["request"]),
        prices=tuple(prices),
        **notes,
    )


def _check_facts(facts: Any) -> Mapping[str, Any]:
    """Return facts as they were written: texts, numbers, yes or no, and lists of these."""
    _require(isinstance(facts, dict) and all(map(_is_text, facts)), "facts")
    for value in facts.values():
        for item in value if isinstance(value, list) else [value]:
            _require(
                item is None
                or _is_text(item)
                or type(item) in (bool, int)
                or (type(item) is float and math.isfinite(item)),
                "facts",
            )
    return dict(facts)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_unicode(value)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [None if any(map(math.isnan, value)) else x for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(answer: Any) -> Any:
    if answer is None or isinstance(answer, bool | int):
        return answer
    if isinstance(answer, float):
        return answer if math.isfinite(answer) else str(answer)
    text = f"{answer!s:.200}"
    return text if is_unicode(text) else ascii(text)


def _check_shown(value: Any) -> Any:
    _require(value is None or _is_text(value) or isinstance(value, bool | int | float), "a label")
    return value


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise refusal("transcript.not-sound", FileFormatError, what=what)


def _refuse_constant(text: str) -> float:
    raise ValueError(text)
