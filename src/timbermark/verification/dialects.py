"""What servers speak: how rows become a request, and where the answers are in a reply.

Protocols are data, `PROTOCOLS`: MLflow's scoring server, versions 1 and 2 of the Open Inference
Protocol (KServe, MLServer, Triton), and any JSON by a template. A `Dialect` is one of them with its
options; it knows only rows, names and JSON values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from timbermark.verification.refusals import check_choice, refusal

MOST_PATHS = 1024
"""Places in a reply that a path to the answers may lead to; log₂ of it is the price of a path."""
_LONGEST_LABEL = 10_000
_MOST_DIMENSIONS = 32


class ReplyError(Exception):
    """A reply that does not hold the answers."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are asked together, as JSON values, and the names of their columns if known."""

    rows: Sequence[Sequence[Any]]
    names: Sequence[str] | None

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return each row by the names of its columns; "0", "1", … where there are none."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns; "0", "1", … where there are none."""
        if self.names is not None:
            return list(self.names)
        return [str(number) for number in range(len(self.rows[0]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What sets one protocol apart from the others."""

    options: tuple[str, ...]
    fill: Callable[[Batch, Any], Any]  # rows and the option "body" -> the request, a JSON value
    found_at: str = "(?!)"  # a pattern that paths of its addresses have in them
    lacks_verb: str = "(?!)"  # a pattern of whole paths that are completed with the verb
    verb: str = ""
    base: str = ""  # what the protocol sets in a path, besides the verb
    answer: str = ""  # where the answers are in a reply
    bare_lists: bool = False  # whether a reply may also be the list of answers itself
    sends_names: bool = True  # whether a server may find columns by their names


@dataclass(frozen=True, slots=True)
class Dialect:
    """A protocol with its options, each of which is None where it was not given.

    ``body`` is a template: any JSON value in which texts stand for the questions. "$rows" is a list
    of rows, "$records" a list of objects by column; "$row" and "$record" are one of these, for
    servers that take one question at a time; "$columns" are the names. ``answer`` is a path to the
    answers; ``output`` the name of the output to ask for, by default the only one that there is.
    """

    protocol: Protocol
    body: Any = None
    answer: str | None = None
    output: str | None = None

    @property
    def one_at_a_time(self) -> bool:
        """Return whether a request takes one row."""
        return bool(_find_words(self.body) & _ONE.keys())

    @property
    def sends_names(self) -> bool:
        """Return whether a server may find columns by their names."""
        named = self.body is None or bool(_find_words(self.body) & _NAMED)
        return self.protocol.sends_names and named

    @property
    def chooses_path(self) -> bool:
        """Return whether the path to the answers is another than the protocol's own."""
        return self.answer not in (None, self.protocol.answer)

    def make_body(self, batch: Batch) -> Any:
        """Return the request for some rows, a JSON value."""
        request = self.protocol.fill(batch, self.body)
        return request if self.output is None else {**request, "outputs": [{"name": self.output}]}

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return n answers: a label, a number, a list of scores or scores by name, or None.

        Raises ReplyError if the reply does not hold them.
        """
        if "output" in self.protocol.options:
            return list_replies(_cut(_find_output(reply, self.output)), n)
        if self.chooses_path:
            # Where the reply as a whole is about one question, any place will do.
            check_paths(reply, None if self.one_at_a_time else n)
        path = self.protocol.answer if self.answer is None else self.answer
        if self.answer is None and self.protocol.bare_lists and isinstance(reply, list):
            path = ""
        found = follow(reply, path.split(".") if path else ())
        return list_replies([found] if self.one_at_a_time else found, n)


def follow(value: Any, steps: Sequence[str]) -> Any:
    """Return what is found in a JSON value by names, numbers and * for every item.

    Raises ReplyError if a step leads nowhere.

    >>> follow({"results": [{"label": "a"}, {"label": "b"}]}, ["results", "*", "label"])
    ['a', 'b']
    """
    for place, step in enumerate(steps):
        if step == "*" and isinstance(value, list):
            return [follow(item, steps[place + 1 :]) for item in value]
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            known = f", but {', '.join(map(repr, list(value)[:5]))}" if type(value) is dict else ""
            raise ReplyError(f"there is no '{step}' in it{known}")
    return value


def check_paths(reply: Any, n: int | None) -> None:
    """Raise ReplyError if a path to n answers could lead to too many places in a reply.

    ``n`` is None where the reply as a whole is about one question, so that any place will do. A
    path that is chosen by hand among more places than `MOST_PATHS` would be worth more than its
    price.

    >>> check_paths({"results": [{"label": "a"}, {"label": "b"}]}, 2)
    """
    try:
        count = _count_paths(reply, n, MOST_PATHS)
    except RecursionError:
        raise ReplyError("it is nested too deeply") from None
    if count > MOST_PATHS:
        raise ReplyError(
            f"a path to the answers could lead to more than {MOST_PATHS:,} places in it, and "
            "choosing one of so many proves nothing"
        )


def _count_paths(value: Any, n: int | None, limit: int) -> int:
    """Return how many paths lead to a list of n answers, or anywhere if n is None.

    The count may stop as soon as it is above ``limit``.
    """
    found = int(n is None or (isinstance(value, list) and len(value) == n))
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for part in parts:
            if found > limit:
                return found
            found += _count_paths(part, n, limit - found)
    if isinstance(value, list) and value and (n is None or len(value) == n):
        # A path through every item exists at most where it exists in the first one.
        found += _count_paths(value[0], None, limit - found)
    return found


def list_replies(value: Any, n: int) -> list[Any]:
    """Return n answers out of a list of n.

    >>> list_replies([[0.25, 0.75], {"label": "a"}], 2)
    [[0.25, 0.75], 'a']
    """
    if not isinstance(value, list):
        raise ReplyError(f"the answers are no list, but {_name(value)}")
    if len(value) != n:
        raise ReplyError(f"it holds {len(value)} answers to {n} questions")
    return [_answer(item) for item in value]


def _answer(item: Any) -> Any:
    """Return one answer in its simplest form; NaN and infinity count as no answer."""
    if isinstance(item, list | dict) and len(item) == 1:
        item = next(iter(item.values())) if isinstance(item, dict) else item[0]
    if isinstance(item, dict):
        return {str(name): _score(value) for name, value in item.items()}
    if isinstance(item, list):
        return [_score(value) for value in item]
    if isinstance(item, str) and len(item) > _LONGEST_LABEL:
        raise ReplyError(f"an answer is a text of {len(item)} characters")
    return _score(item)


def _score(value: Any) -> Any:
    if isinstance(value, list | dict):
        raise ReplyError("an answer is nested too deeply")
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        # The logarithm of probability 0 is an answer, everything else that is not finite is none.
        # Journals hold no infinity, and readers know the text.
        return "-inf" if value == float("-inf") else None
    if isinstance(value, int) and abs(value) > 2**63:
        raise ReplyError("an answer is a number of more than 64 bits")
    return value


def _name(value: Any) -> str:
    names = {dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _tensors(batch: Batch, _: Any) -> Any:
    """Return one tensor of all rows; one for each column where a column holds texts."""
    if not any(isinstance(value, str) for row in batch.rows for value in row):
        data = [value if value is None else float(value) for row in batch.rows for value in row]
        shape = [len(batch.rows), len(batch.rows[0])]
        return {"inputs": [{"name": "input-0", "shape": shape, "datatype": "FP64", "data": data}]}
    inputs = []
    for name, column in zip(batch.columns, zip(*batch.rows, strict=True), strict=True):
        texts = any(isinstance(value, str) for value in column)
        kind = {"datatype": "BYTES" if texts else "FP64", "data": list(column)}
        inputs.append({"name": name, "shape": [len(column), 1], **kind})
    return {"parameters": {"content_type": "pd"}, "inputs": inputs}


def _split(batch: Batch, _: Any) -> Any:
    named = {} if batch.names is None else {"columns": batch.columns}
    return {"dataframe_split": {**named, "data": [list(row) for row in batch.rows]}}


def _find_output(reply: Any, wanted: str | None) -> Mapping[str, Any]:
    outputs = reply.get("outputs") if isinstance(reply, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise ReplyError("there are no 'outputs' in it")
    names = [str(one.get("name")) for one in outputs]
    if wanted is None and len(outputs) != 1:
        raise ReplyError(f"it holds the outputs {', '.join(names)}, and none was asked for")
    if wanted is not None and wanted not in names:
        raise ReplyError(f"there is no output '{wanted}' in it, but {', '.join(names)}")
    found: Mapping[str, Any] = outputs[0 if wanted is None else names.index(wanted)]
    return found


def _cut(output: Mapping[str, Any]) -> list[Any]:
    """Return the data of an output, cut into rows by its shape."""
    data, shape = output.get("data"), output.get("shape")
    if not isinstance(data, list):
        raise ReplyError("an output has no data")
    if (
        not isinstance(shape, list)
        or len(shape) > _MOST_DIMENSIONS
        or not all(type(size) is int and size >= 0 for size in shape)
    ):
        raise ReplyError("an output has no shape")
    if data and isinstance(data[0], list):
        return data  # rows already, as the protocol allows
    if not shape or math.prod(shape) != len(data):
        raise ReplyError(f"an output of the shape {shape} holds {len(data)} values")
    width = math.prod(shape[1:])
    if len(shape) == 1 or width == 1:
        return data
    return [data[at : at + width] for at in range(0, len(data), width)] if width else []


_MANY: dict[str, Callable[[Batch], Any]] = {
    "$rows": lambda batch: [list(row) for row in batch.rows],
    "$records": lambda batch: batch.records,
}
_ONE: dict[str, Callable[[Batch], Any]] = {
    "$row": lambda batch: list(batch.rows[0]),
    "$record": lambda batch: batch.records[0],
}
_WORDS: dict[str, Callable[[Batch], Any]] = {
    **_MANY,
    **_ONE,
    "$columns": lambda batch: batch.columns,
}


_NAMED = frozenset({"$records", "$record", "$columns"})


def is_placeholder(value: Any) -> bool:
    """Return whether a value of a template stands for the questions or the names of their columns.

    >>> is_placeholder("$rows"), is_placeholder("rows")
    (True, False)
    """
    return isinstance(value, str) and value in _WORDS


def _find_words(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value} & set(_WORDS)
    inside = value.values() if isinstance(value, dict) else value
    return set().union(*map(_find_words, inside)) if isinstance(value, dict | list) else set()


def _fill(batch: Batch, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _fill(batch, part) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill(batch, part) for part in value]
    return _WORDS[value](batch) if is_placeholder(value) else value


PROTOCOLS = {
    "mlflow": Protocol(
        options=("answer",),
        fill=_split,
        found_at="/invocations$",
        lacks_verb="/*",
        verb="/invocations",
        answer="predictions",
        bare_lists=True,
    ),
    "kserve-v1": Protocol(
        options=("answer",),
        fill=lambda batch, _: {"instances": [list(row) for row in batch.rows]},
        found_at=":predict$|/v1/models/[^/:]+",
        lacks_verb=".*/v1/models/[^/:]+/?",
        verb=":predict",
        base="/v1/models/",
        answer="predictions",
        sends_names=False,
    ),
    "kserve-v2": Protocol(
        options=("output",),
        fill=_tensors,
        found_at="/v2/models/[^/]+",
        lacks_verb=".*/v2/models/[^/]+(/versions/[^/]+)?/?",
        verb="/infer",
        base="/v2/models/",
    ),
    "json": Protocol(options=("body", "answer"), fill=_fill, base="/"),
}


def complete_url(url: str, protocol: str) -> tuple[str, str]:
    """Return the address that questions go to, and the protocol; "auto" follows from the address.

    Raises InputError if the protocol is unknown or does not follow from the address.

    >>> complete_url("http://host:5000", "mlflow")
    ('http://host:5000/invocations', 'mlflow')
    >>> complete_url("http://host/v2/models/churn", "auto")
    ('http://host/v2/models/churn/infer', 'kserve-v2')
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if protocol == "auto":
        found = [name for name, known in PROTOCOLS.items() if re.search(known.found_at, path)]
        if len(found) != 1:
            raise refusal("protocol", url=urlunsplit(parts._replace(query="")), known=[*PROTOCOLS])
        protocol = found[0]
    check_choice("protocol", protocol, [*PROTOCOLS])
    spoken = PROTOCOLS[protocol]
    if re.fullmatch(spoken.lacks_verb, parts.path):
        parts = parts._replace(path=path + spoken.verb)
    return urlunsplit(parts._replace(fragment="")), protocol


def open_dialect(protocol: str, options: Mapping[str, Any]) -> Dialect:
    """Return a protocol with its options, those of `Endpoint`: body, answer, output.

    Raises InputError if an option does not belong to the protocol or is missing.

    >>> open_dialect("kserve-v1", {}).make_body(Batch([[1.0]], None))
    {'instances': [[1.0]]}
    """
    spoken = PROTOCOLS[protocol]
    given = {name: value for name, value in options.items() if value is not None}
    strange = sorted(set(given) - set(spoken.options))
    if strange:
        known = [f"{name}=…" for name in spoken.options]
        raise refusal("protocol.option", option=strange[0], protocol=protocol, known=known)
    places = {*_MANY, *_ONE}
    if "body" in spoken.options and len(_find_words(given.get("body")) & places) != 1:
        raise refusal("template:places", words=[*_MANY, *_ONE])
    return Dialect(spoken, **given)


def own_path(protocol: str, path: str) -> str:
    """Return the part of an address's path that its protocol does not set: it may choose a model.

    >>> own_path("mlflow", "/invocations"), own_path("kserve-v2", "/v2/models/churn/infer")
    ('', 'churn')
    """
    spoken = PROTOCOLS[protocol]
    if spoken.base not in path:
        return path
    return path.removesuffix(spoken.verb).replace(spoken.base, "", 1)
