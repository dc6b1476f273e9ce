"""The transcript: how a suspect was asked and what it answered, ready to be judged again."""

import json
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.dtypes import CLASS_INDEX, ClassIndices, Reals
from timbermark.errors import FileFormatError
from timbermark.ownership.encoding import is_unicode
from timbermark.ownership.verdict import Price

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

FORMAT = "timbermark transcript 1"
MAX_BYTES = 64 << 20
_KEYS = {"scores": "scores", "labels": "class", "numbers": "numbers"}
_LATER = {"column_names", "conditions"}
"""What an inquiry of an older version of timbermark does not say."""
_FOREIGN = "it was not written by timbermark, do not trust it."


@dataclass(frozen=True, slots=True)
class Inquiry:
    """How a suspect was asked; everything in it stands in the verdict."""

    suspect: str  # a description of the suspect
    asked_through: str = "answers"  # "file", "object", "function", an address
    suspect_digest: str | None = None  # SHA-256 of the suspect's file, if it is one
    columns: str = "by place"  # how columns were matched: "by name", "by place" or "by hand"
    reading: str = ""  # how answers were read
    prices: tuple[Price, ...] = ()  # of what was chosen by hand; draws are added by `judge`
    warnings: tuple[str, ...] = ()
    asked: int | None = None  # triggers that were asked, where asking stopped before the last
    # Of the suspect, in its order; empty if they have none, None if it was not written down.
    column_names: tuple[str, ...] | None = None
    conditions: tuple[str, ...] = ()  # what the evidence depends on and has no price


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What a suspect answered to n triggers, in the mark's order; one kind of answers is there.

    It tells nothing about the triggers, but which answers they got.
    """

    inquiry: Inquiry
    scores: Reals | None = field(default=None, repr=False)  # [n, K]; NaN where there is no answer
    labels: ClassIndices | None = field(default=None, repr=False)  # [n] class numbers
    numbers: Reals | None = field(default=None, repr=False)  # [2n], one pair after the other
    shown: tuple[Any, ...] | None = field(default=None, repr=False)  # n labels as they came
    one_by_one: bool = False

    @property
    def kind(self) -> str:
        """Return the kind of the answers: "scores", "labels" or "numbers"."""
        if self.numbers is not None:
            return "numbers"
        return "labels" if self.scores is None else "scores"

    def to_json(self, mark: "Mark", asked: str) -> str:
        """Return the transcript of a mark's triggers, asked at a time (UTC), as JSON.

        Answers stand in the order in which they were asked, each with the trigger's place in the
        mark; numbers keep all their digits.
        """
        answers: list[dict[str, Any]] = []
        for i in mark.order.tolist():
            answer: dict[str, Any] = {"trigger": int(mark.places[i])}
            if self.scores is not None:
                row = self.scores[i].tolist()
                answer["scores"] = None if any(map(math.isnan, row)) else row
            if self.labels is not None:
                answer["class"] = int(self.labels[i])
            if self.numbers is not None:
                pair = self.numbers[2 * i : 2 * i + 2].tolist()
                answer["numbers"] = [x if math.isfinite(x) else None for x in pair]
            if self.shown is not None:
                answer["shown"] = _show(self.shown[i])
            answers.append(answer)
        inquiry = {f.name: getattr(self.inquiry, f.name) for f in fields(Inquiry)}
        inquiry["prices"] = [[price.reason, price.bits] for price in self.inquiry.prices]
        inquiry["warnings"] = list(self.inquiry.warnings)
        names = self.inquiry.column_names
        inquiry["column_names"] = None if names is None else list(names)
        inquiry["conditions"] = list(self.inquiry.conditions)
        record = {
            "format": FORMAT,
            "asked": asked,
            "mark_digest": mark.digest.hex(),
            "kind": self.kind,
            "one_by_one": self.one_by_one,
            "inquiry": inquiry,
            "answers": answers,
        }
        return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str, mark: "Mark") -> tuple["Transcript", str]:
        """Return the transcript of a mark's triggers, and when they were asked.

        Raises FileFormatError if it is anything but such a transcript, or of other triggers.
        """
        try:
            record = json.loads(text, parse_constant=_refuse_constant)
            return _read(record, mark)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError("The transcript cannot be read.", _FOREIGN) from None


def _read(record: Any, mark: "Mark") -> tuple[Transcript, str]:
    _require(isinstance(record, dict) and record.get("format") == FORMAT, "it is none")
    _require(
        record.keys()
        == {"format", "asked", "mark_digest", "kind", "one_by_one", "inquiry", "answers"},
        "it has not exactly its parts",
    )
    _require(record["mark_digest"] == mark.digest.hex(), "it is that of another mark")
    answers, kind = record["answers"], record["kind"]
    order = mark.order.tolist()
    asked_places = [int(mark.places[i]) for i in order]
    _require(
        isinstance(answers, list)
        and all(isinstance(answer, dict) for answer in answers)
        and [answer.get("trigger") for answer in answers] == asked_places
        and all(type(answer["trigger"]) is int for answer in answers),
        "its answers are not those to the opened triggers, in their order",
    )
    _require(
        kind in _KEYS
        and (kind == "numbers") == mark.in_pairs
        and type(record["one_by_one"]) is bool,
        "its kind",
    )
    _require(isinstance(record["asked"], str), "its time")
    keys = {"trigger", _KEYS[kind]}
    _require(all({"shown"} | answer.keys() == {"shown"} | keys for answer in answers), "an answer")
    placed: list[Any] = [None] * len(answers)
    for i, answer in zip(order, answers, strict=True):
        placed[i] = answer
    with_shown = all("shown" in answer for answer in answers)
    shown = tuple(answer["shown"] for answer in placed) if with_shown else None
    inquiry = _read_inquiry(record["inquiry"], len(answers))
    found = Transcript(
        inquiry,
        shown=shown,
        one_by_one=record["one_by_one"],
        **{kind: _READERS[kind]([answer[_KEYS[kind]] for answer in placed], mark)},
    )
    return found, record["asked"]


def _read_inquiry(given: Any, n: int) -> Inquiry:
    names = {f.name for f in fields(Inquiry)}
    _require(isinstance(given, dict) and given.keys() | _LATER == names, "how it was asked")
    digest = given["suspect_digest"]
    _require(
        all(
            isinstance(given[name], str) and is_unicode(given[name])
            for name in ("suspect", "asked_through", "columns", "reading")
        )
        and (digest is None or isinstance(digest, str))
        and (given["asked"] is None or (type(given["asked"]) is int and 0 <= given["asked"] <= n)),
        "how it was asked",
    )
    prices = []
    for price in given["prices"]:
        reason, bits = price
        _require(
            isinstance(reason, str)
            and type(bits) in (int, float)
            and math.isfinite(bits)
            and bits >= 0,
            "a price",
        )
        prices.append(Price(reason, float(bits)))
    listed = ("warnings", "conditions", "column_names")
    texts = {name: tuple(given[name]) for name in listed if given.get(name) is not None}
    _require(
        all(isinstance(text, str) and is_unicode(text) for said in texts.values() for text in said),
        "a warning, a condition or a name",
    )
    return Inquiry(**{**given, "prices": tuple(prices), **texts})


def _read_scores(rows: list[Any], mark: "Mark") -> Reals:
    n_classes = len(mark.classes)
    scores = np.full((len(rows), n_classes), np.nan)
    for i, row in enumerate(rows):
        if row is None:
            continue
        _require(
            isinstance(row, list)
            and len(row) == n_classes
            and all(type(x) in (int, float) and 0 <= x <= 1 for x in row),
            "scores",
        )
        scores[i] = row
    return scores


def _read_labels(numbers: list[Any], mark: "Mark") -> ClassIndices:
    _require(all(type(number) is int for number in numbers), "a class number")
    return np.array(numbers, dtype=CLASS_INDEX)


def _read_pairs(pairs: list[Any], mark: "Mark") -> Reals:
    _require(
        all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(x is None or (type(x) in (int, float) and math.isfinite(x)) for x in pair)
            for pair in pairs
        ),
        "a pair of numbers",
    )
    return np.array([math.nan if x is None else float(x) for pair in pairs for x in pair])


_READERS: dict[str, Any] = {"scores": _read_scores, "labels": _read_labels, "numbers": _read_pairs}


def _show(answer: Any) -> Any:
    if answer is None or isinstance(answer, bool | int):
        return answer
    if isinstance(answer, float):
        return answer if math.isfinite(answer) else str(answer)
    text = f"{answer!s:.200}"
    return text if is_unicode(text) else ascii(text)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise FileFormatError(f"The transcript is not sound: {what}.", _FOREIGN)


def _refuse_constant(text: str) -> float:
    raise ValueError(text)
