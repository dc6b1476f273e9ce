"""What servers speak: how rows become a request, and where the answers are in a reply.

Four protocols, each a class that knows only rows, names and JSON values: MLflow's scoring server,
versions 1 and 2 of the Open Inference Protocol (KServe, MLServer, Triton), and any JSON by a
template.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit, urlunsplit

from timbermark.verification.refusals import refusal

MOST_PATHS = 1024
"""Places in a reply that a path to the answers may lead to; log₂ of it is the price of a path."""
_LONGEST_LABEL = 10_000
_PREDICTIONS = ("predictions",)


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


class Dialect(Protocol):
    """A protocol with its options."""

    options: ClassVar[tuple[str, ...]]
    one_at_a_time: bool  # takes one row in each request
    sends_names: bool  # whether a server may find columns by their names

    def __init__(self, **options: Any) -> None: ...

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path of an address tells that this protocol is spoken there."""
        ...

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path that questions go to."""
        ...

    @staticmethod
    def own_path(path: str) -> str:
        """Return the part of a path that the protocol does not set itself."""
        ...

    def make_body(self, batch: Batch) -> Any:
        """Return the request for some rows, a JSON value."""
        ...

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return n answers: a label, a number, a list of scores or scores by name, or None.

        Raises ReplyError if the reply does not hold them.
        """
        ...


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a path to the answers, as in "outputs.0.data" or "results.*.label".

    >>> parse_path("results.*.label")
    ('results', '*', 'label')
    """
    return tuple(path.split(".")) if path else ()


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


class MLflow:
    """``answer``: a path to the answers, by default "predictions" or the whole reply."""

    options: ClassVar[tuple[str, ...]] = ("answer",)
    one_at_a_time = False
    sends_names = True
    takes_lists = True  # as replies: old servers answer with the bare list

    def __init__(self, answer: str | None = None) -> None:
        self._steps = None if answer is None else parse_path(answer)

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of invocations."""
        return path.endswith("/invocations")

    @staticmethod
    def complete_path(path: str) -> str:
        """Return /invocations where there is no path."""
        return path if path.rstrip("/") else "/invocations"

    @staticmethod
    def own_path(path: str) -> str:
        """Return what stands before /invocations."""
        return path.removesuffix("/invocations")

    def make_body(self, batch: Batch) -> Any:
        """Return {"dataframe_split": …}."""
        split: dict[str, Any] = {"data": [list(row) for row in batch.rows]}
        if batch.names is not None:
            split = {"columns": batch.columns, **split}
        return {"dataframe_split": split}

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return the predictions."""
        steps = self._steps
        if steps not in (None, _PREDICTIONS):
            check_paths(reply, n)
        if steps is None:
            steps = () if self.takes_lists and isinstance(reply, list) else _PREDICTIONS
        return list_replies(follow(reply, steps), n)


def _complete(path: str, model: re.Pattern[str], verb: str) -> str:
    """Return the path with the verb, where it ends with the path of a model."""
    match = model.search(path)
    whole = match is not None and path.endswith(match[0])
    return path.rstrip("/") + verb if whole else path


_MODEL_V1 = re.compile(r"/v1/models/[^/:]+/?")


class KServeV1(MLflow):
    """``answer``: a path to the answers, by default "predictions"."""

    sends_names = False
    takes_lists = False

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of a model or of its predictions."""
        return path.endswith(":predict") or _MODEL_V1.search(path) is not None

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path of predictions where it is that of the model."""
        return _complete(path, _MODEL_V1, ":predict")

    @staticmethod
    def own_path(path: str) -> str:
        """Return what stands before /v1/models, and the name of the model."""
        before, _, name = path.partition("/v1/models/")
        return before + name.removesuffix(":predict")

    def make_body(self, batch: Batch) -> Any:
        """Return {"instances": …}."""
        return {"instances": [list(row) for row in batch.rows]}


_MODEL_V2 = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/?")
_INPUT = "input-0"


class KServeV2:
    """``output``: the name of the output to ask for; by default the only one that there is."""

    options: ClassVar[tuple[str, ...]] = ("output",)
    one_at_a_time = False
    sends_names = True  # where a column holds texts

    def __init__(self, output: str | None = None) -> None:
        self._output = output

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path is that of a model or of its inference."""
        return _MODEL_V2.search(path) is not None

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path of inference where it is that of the model."""
        return _complete(path, _MODEL_V2, "/infer")

    @staticmethod
    def own_path(path: str) -> str:
        """Return what stands before /v2/models, and the name of the model."""
        before, _, name = path.partition("/v2/models/")
        return before + name.removesuffix("/infer")

    def make_body(self, batch: Batch) -> Any:
        """Return one tensor of all rows; one for each column where a column holds texts."""
        texts = any(isinstance(value, str) for row in batch.rows for value in row)
        body: dict[str, Any] = _columns(batch) if texts else _matrix(batch)
        if self._output is not None:
            body["outputs"] = [{"name": self._output}]
        return body

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return one output, cut into rows by its shape."""
        outputs = reply.get("outputs") if isinstance(reply, dict) else None
        if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
            raise ReplyError("there are no 'outputs' in it")
        names = [str(one.get("name")) for one in outputs]
        if self._output is None and len(outputs) != 1:
            raise ReplyError(f"it holds the outputs {', '.join(names)}, and none was asked for")
        if self._output is not None and self._output not in names:
            raise ReplyError(f"there is no output '{self._output}' in it, but {', '.join(names)}")
        chosen = outputs[0 if self._output is None else names.index(self._output)]
        return list_replies(_cut(chosen.get("data"), chosen.get("shape")), n)


def _matrix(batch: Batch) -> dict[str, Any]:
    data = [value if value is None else float(value) for row in batch.rows for value in row]
    shape = [len(batch.rows), len(batch.rows[0])]
    return {"inputs": [{"name": _INPUT, "shape": shape, "datatype": "FP64", "data": data}]}


def _columns(batch: Batch) -> dict[str, Any]:
    inputs = []
    for name, column in zip(batch.columns, zip(*batch.rows, strict=True), strict=True):
        texts = any(isinstance(value, str) for value in column)
        kind = {"datatype": "BYTES" if texts else "FP64", "data": list(column)}
        inputs.append({"name": name, "shape": [len(column), 1], **kind})
    return {"parameters": {"content_type": "pd"}, "inputs": inputs}


def _cut(data: Any, shape: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ReplyError("an output has no data")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
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


class JsonTemplate:
    """``body``: any JSON value in which texts stand for the questions; ``answer``: a path.

    "$rows" is a list of rows, "$records" a list of objects by column; "$row" and "$record" are one
    of these, for servers that take one question at a time; "$columns" are the names.
    """

    options: ClassVar[tuple[str, ...]] = ("body", "answer")

    def __init__(self, body: Any = None, answer: str = "") -> None:
        self._body, self._steps = body, parse_path(answer)
        words = _find_words(body)
        if len(words & {*_MANY, *_ONE}) != 1:
            raise refusal("template:places", words=[*_MANY, *_ONE])
        self.one_at_a_time = bool(words & set(_ONE))
        self.sends_names = bool(words & _NAMED)

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return False: a template has no path of its own."""
        return False

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path as it is."""
        return path

    @staticmethod
    def own_path(path: str) -> str:
        """Return all of the path but its first sign."""
        return path.removeprefix("/")

    def make_body(self, batch: Batch) -> Any:
        """Return the template, filled in."""
        return _fill(self._body, batch)

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return what the path leads to: a list of n, or the one answer to one question."""
        if self._steps:
            check_paths(reply, None if self.one_at_a_time else n)
        found = follow(reply, self._steps)
        return list_replies([found] if self.one_at_a_time else found, n)


def read_template(text: str) -> Any:
    """Return a template from JSON. Raises InputError if it is none.

    >>> read_template('{"rows": "$rows"}')
    {'rows': '$rows'}
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal("template:not-json", why=error) from None


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


def _fill(value: Any, batch: Batch) -> Any:
    if isinstance(value, dict):
        return {name: _fill(part, batch) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, batch) for part in value]
    return _WORDS[value](batch) if is_placeholder(value) else value


PROTOCOLS: dict[str, type[Dialect]] = {
    "mlflow": MLflow,
    "kserve-v1": KServeV1,
    "kserve-v2": KServeV2,
    "json": JsonTemplate,
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
        found = [name for name, dialect in PROTOCOLS.items() if dialect.speaks_at(path)]
        if len(found) != 1:
            url = urlunsplit(parts._replace(query=""))
            raise refusal("protocol", url=url, known=[*PROTOCOLS])
        protocol = found[0]
    if protocol not in PROTOCOLS:
        raise refusal("protocol:unknown", protocol=protocol, known=[*PROTOCOLS])
    path = PROTOCOLS[protocol].complete_path(parts.path)
    return urlunsplit(parts._replace(path=path, fragment="")), protocol


def open_dialect(protocol: str, options: Mapping[str, Any]) -> Dialect:
    """Return a protocol with its options, those of `Endpoint`: body, answer, output.

    Raises InputError if an option does not belong to the protocol or is missing.

    >>> open_dialect("kserve-v1", {}).make_body(Batch([[1.0]], None))
    {'instances': [[1.0]]}
    """
    dialect = PROTOCOLS[protocol]
    given = {name: value for name, value in options.items() if value is not None}
    strange = sorted(set(given) - set(dialect.options))
    if strange:
        known = [f"{name}=…" for name in dialect.options]
        raise refusal("protocol.option", option=strange[0], protocol=protocol, known=known)
    return dialect(**given)


def own_path(protocol: str, path: str) -> str:
    """Return the part of an address's path that its protocol does not set: it may choose a model.

    >>> own_path("mlflow", "/invocations"), own_path("kserve-v2", "/v2/models/churn/infer")
    ('', 'churn')
    """
    return PROTOCOLS[protocol].own_path(path)
