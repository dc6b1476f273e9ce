"""The transcript: how a suspect was asked and what it answered, ready to be judged again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np

from timbermark.dtypes import CLASS_INDEX
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership.encoding import check_digest, check_time, is_unicode
from timbermark.ownership.evidence import AnswerKind, Answers, Price
from timbermark.ownership.mark import Mark
from timbermark.verification.refusals import refusal

Fits: TypeAlias = Callable[[Any], bool]

FORMAT = "timbermark transcript 2"
_MOST_BITS = 1e9
"""The highest price that a transcript may state: what is above has no meaning."""
_KEYS = {"scores": "scores", "labels": "class", "numbers": "number"}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a reader should know: a code, and the facts of this case."""

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the note, ready for JSON."""
        return {"code": self.code, **self.facts}


@dataclass(frozen=True, slots=True)
class Context:
    """How a suspect was asked and how its answers were read; everything stands in the verdict."""

    suspect: str  # a description of the suspect, from outside
    through: str  # "file", "object", "function", "table" or "http"
    suspect_digest: str | None = None  # SHA-256 of the suspect's file, if it is one
    columns: str = "by-place"  # how columns were matched: "by-name", "by-place" or "by-hand"
    column_names: tuple[str, ...] = ()  # of the suspect, in its order; empty if they have none
    reading: Mapping[str, Any] = field(default_factory=dict)  # how answers were read
    request: Mapping[str, Any] = field(default_factory=dict)  # what an endpoint was sent
    prices: tuple[Price, ...] = ()  # of what was chosen by hand; those of the mark come first
    warnings: tuple[Note, ...] = ()
    conditions: tuple[Note, ...] = ()  # what the evidence depends on and has no price

    def choosing(self, *choices: Price | Note, **request: Any) -> Context:
        """Return the context with more prices and conditions, and more facts of the request."""
        return replace(
            self,
            prices=(*self.prices, *(c for c in choices if isinstance(c, Price))),
            conditions=(*self.conditions, *(c for c in choices if isinstance(c, Note))),
            request={**self.request, **request},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What a suspect answered to the rows of a mark; it tells nothing about the triggers."""

    context: Context
    answers: Answers = field(repr=False)
    shown: tuple[Any, ...] | None = field(default=None, repr=False)  # labels as they came
    begun: int | None = None  # triggers that were asked, where asking stopped early

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
            "triggers_asked": self.begun,
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


def is_text(value: Any) -> bool:
    """Return whether a value is a text that can be written as UTF-8.

    >>> is_text("é"), is_text(3)
    (True, False)
    """
    return isinstance(value, str) and is_unicode(value)


def is_real(value: Any) -> bool:
    """Return whether a value is a finite number.

    >>> is_real(0.5), is_real(True)
    (True, False)
    """
    return type(value) in (int, float) and math.isfinite(value)


def list_of(fits: Fits) -> Fits:
    """Return the check of a list all of whose items fit.

    >>> list_of(is_text)(["a", "b"])
    True
    """
    return lambda value: isinstance(value, list) and all(map(fits, value))


def has_fields(value: Any, wanted: Mapping[str, Fits]) -> bool:
    """Return whether a record has exactly these fields, and each of them fits.

    >>> has_fields({"kind": "labels"}, {"kind": is_text})
    True
    """
    known = isinstance(value, dict) and value.keys() == wanted.keys()
    return known and all(fits(value[name]) for name, fits in wanted.items())


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_fact(value: Any) -> bool:
    return value is None or is_text(value) or type(value) is bool or is_real(value)


def _are_facts(value: Any) -> bool:
    """Return whether a value is a dictionary of plain values and of lists of these."""
    return isinstance(value, dict) and all(
        is_text(name) and (_is_fact(fact) or list_of(_is_fact)(fact))
        for name, fact in value.items()
    )


def _is_note(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and is_text(value[0]) and _are_facts(value[1])
    )


def _is_price(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3 or not _is_note([value[0], value[2]]):
        return False
    whole = all(type(fact) is int for fact in value[2].values())
    return whole and is_real(value[1]) and 0 <= value[1] <= _MOST_BITS


def _is_digest(value: Any) -> bool:
    if value is not None:
        check_digest("suspect_digest", value)
    return True


def _is_time(value: Any) -> bool:
    check_time("asked", value)
    return True


_CONTEXT: dict[str, Fits] = {
    "suspect": _is_line,
    "through": _is_line,
    "suspect_digest": _is_digest,
    "columns": _is_line,
    "column_names": list_of(_is_line),
    "reading": _are_facts,
    "request": _are_facts,
    "prices": list_of(_is_price),
    "warnings": list_of(_is_note),
    "conditions": list_of(_is_note),
}


def _is_shown(value: Any) -> bool:
    return value is None or is_text(value) or isinstance(value, bool | int | float)


def _fits_kind(kind: AnswerKind, n_classes: int) -> Fits:
    """Return the check of one answer: a class number, a number or all scores; None if missing."""
    if kind == "labels":
        return lambda value: type(value) is int
    if kind == "numbers":
        return lambda value: value is None or is_real(value)
    are_shares = list_of(lambda score: is_real(score) and 0 <= score <= 1)
    return lambda row: row == [None] * n_classes or (are_shares(row) and len(row) == n_classes)


def _read(record: Any, mark: Mark) -> tuple[Transcript, str]:
    _require(isinstance(record, dict) and record.get("format") == FORMAT, "it is none")
    kind = record.get("kind")
    _require(kind in _KEYS, "its kind")
    key, fits_kind = _KEYS[kind], _fits_kind(kind, len(mark.classes))
    wanted: dict[str, Fits] = {
        "format": is_text,
        "asked": _is_time,
        "mark_digest": lambda digest: bool(digest == mark.digest.hex()),
        "places": lambda places: bool(places == list(map(int, mark.places))),
        "kind": is_text,
        "triggers_asked": lambda n: n is None or (type(n) is int and 0 <= n <= mark.n_triggers),
        "context": lambda context: has_fields(context, _CONTEXT),
        "answers": list_of(
            lambda row: has_fields({"shown": None, **row}, {"shown": _is_shown, key: fits_kind})
        ),
    }
    _require(record.keys() == wanted.keys(), "it has not exactly its parts")
    for name, fits in wanted.items():
        _require(fits(record[name]), f"its {name.replace('_', ' ')}")
    rows, context = record["answers"], dict(record["context"])
    with_shown = sum("shown" in row for row in rows)
    _require(len(rows) == mark.n_rows and with_shown in (0, len(rows)), "its answers")
    shown = tuple(row["shown"] for row in rows) if with_shown else None
    values = np.array([row[key] for row in rows], CLASS_INDEX if kind == "labels" else np.float64)
    answers = Answers(kind, values)
    answers.check(mark)
    context["column_names"] = tuple(context["column_names"])
    context["prices"] = tuple(Price(code, float(b), facts) for code, b, facts in context["prices"])
    for name in ("warnings", "conditions"):
        context[name] = tuple(Note(code, facts) for code, facts in context[name])
    return Transcript(Context(**context), answers, shown, record["triggers_asked"]), record["asked"]


def _write_context(context: Context) -> dict[str, Any]:
    record = {f.name: getattr(context, f.name) for f in fields(Context)}
    record["column_names"] = list(context.column_names)
    record["reading"], record["request"] = dict(context.reading), dict(context.request)
    record["prices"] = [[p.code, p.bits, dict(p.facts)] for p in context.prices]
    for name in ("warnings", "conditions"):
        record[name] = [[note.code, dict(note.facts)] for note in record[name]]
    return record


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


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise refusal("transcript.not-sound", FileFormatError, what=what)


def _refuse_constant(text: str) -> float:
    raise ValueError(text)
