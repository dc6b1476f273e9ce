"""An XGBoost model as its document: parsed from JSON or UBJ, and checked all but the trees.

The document is what ``save_raw`` gives and a model file holds. Everything that XGBoost would trust
is checked here or in `forest`, since it crashes or predicts nonsense on some damaged files.

UBJ is Universal Binary JSON, as far as XGBoost writes it: numbers, strings, lists, typed arrays. A
typed array becomes a NumPy array that looks into the given bytes, so that a model of a million
nodes is read without a loop over them; an untyped one becomes a list. Both go back as they came.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Offsets
from timbermark.errors import FileFormatError
from timbermark.libraries.contract import Task
from timbermark.trees.ensemble import Objective

_DEEPEST = 32
ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    "i": np.dtype("i1"),
    "U": np.dtype("u1"),
    "I": np.dtype(">i2"),
    "l": np.dtype(">i4"),
    "L": np.dtype(">i8"),
    "d": np.dtype(">f4"),
    "D": np.dtype(">f8"),
}
_LENGTH = struct.Struct(">q")
_SINGLE = struct.Struct(">f")
# By the byte that marks them: an index into bytes gives a number.
_NUMBERS = {
    ord(mark): struct.Struct(">" + form)
    for mark, form in {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}.items()
}
_LENGTHS = {mark: form for mark, form in _NUMBERS.items() if chr(mark) in "iUIlL"}
_ARRAYS = {ord(mark): dtype for mark, dtype in ARRAY_TYPES.items()}
_MARKS = {dtype.str: mark for mark, dtype in ARRAY_TYPES.items()}
_CONSTANTS = {ord("T"): True, ord("F"): False, ord("Z"): None}
_TEXT, _OBJECT, _OBJECT_END, _LIST, _LIST_END, _COUNT, _TYPE, _LONG = map(ord, "S{}[]#$L")


def decode(raw: bytes) -> Any:
    """Return the value that the bytes hold; all of them must be used.

    Raises FileFormatError if they are cut off, go on after the end, or hold anything else.

    >>> decode(b"{i\\x01ai\\x07}")
    {'a': 7}
    >>> decode(b"[$U#i\\x02\\x01\\x00")
    array([1, 0], dtype=uint8)
    """
    reader = _Reader(raw)
    try:
        value = reader.value(0)
    except (struct.error, IndexError):
        raise reader.damaged("it is cut off") from None
    except UnicodeDecodeError:
        raise reader.damaged("a text is garbled") from None
    if reader.at != len(raw):
        raise reader.damaged(f"{len(raw) - reader.at} bytes follow the end")
    return value


class _Reader:
    """A place in the bytes, moved on by everything that is read."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def damaged(self, why: str) -> FileFormatError:
        return FileFormatError(
            f"The UBJ data is damaged at byte {self.at}: {why}.",
            hint="get the file again from where it came.",
        )

    def value(self, depth: int) -> Any:
        mark = self.raw[self.at]
        self.at += 1
        if mark == _LIST:
            return self.items(depth + 1)
        if mark == _TEXT:
            return self.text()
        if mark in _NUMBERS:
            return self.number(_NUMBERS[mark])
        if mark == _OBJECT:
            return self.members(depth + 1)
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        raise self.damaged(f"{chr(mark)!r} begins no value")

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.raw, self.at)
        self.at += form.size
        return value

    def length(self) -> int:
        mark = self.raw[self.at]
        self.at += 1
        if mark not in _LENGTHS:
            raise self.damaged(f"{chr(mark)!r} begins no length")
        length: int = self.number(_LENGTHS[mark])
        # Everything that is counted takes at least a byte, so that no count can ask for memory
        # that the data itself does not fill.
        if not 0 <= length <= len(self.raw) - self.at:
            raise self.damaged(f"the length {length} is not possible")
        return length

    def text(self) -> str:
        start = self.at + 9
        # Nearly always a length has eight bytes: this halves the time of everything.
        size = _LENGTH.unpack_from(self.raw, self.at + 1)[0] if self.raw[self.at] == _LONG else -1
        if 0 <= size <= len(self.raw) - start:
            self.at = start + size
        else:
            size = self.length()
            start = self.at
            self.at += size
        return self.raw[start : start + size].decode()

    def members(self, depth: int) -> dict[str, Any]:
        self.check(depth)
        found: dict[str, Any] = {}
        while self.raw[self.at] != _OBJECT_END:
            key = self.text()
            found[key] = self.value(depth)
        self.at += 1
        return found

    def items(self, depth: int) -> Any:
        self.check(depth)
        ahead = self.raw[self.at]
        if ahead == _TYPE:
            self.at += 1
            return self.typed_items()
        if ahead == _COUNT:
            self.at += 1
            return [self.value(depth) for _ in range(self.length())]
        found = []
        while self.raw[self.at] != _LIST_END:
            found.append(self.value(depth))
        self.at += 1
        return found

    def typed_items(self) -> AnyArray:
        dtype = _ARRAYS.get(self.raw[self.at])
        if dtype is None or self.raw[self.at + 1] != _COUNT:
            raise self.damaged("the type of an array is not known")
        self.at += 2
        size, start = self.length(), self.at
        self.at += size * dtype.itemsize
        if self.at > len(self.raw):
            raise self.damaged(f"{size} numbers are announced, fewer are there")
        return np.frombuffer(self.raw, dtype, size, start)

    def check(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise self.damaged("it is nested too deeply")


def encode(value: Any) -> bytes:
    """Return the bytes of a value as `decode` gives them.

    A float becomes a float32, which is what XGBoost takes every number for.

    >>> decode(encode({"a": [1, 2.5, "x", None, True]}))
    {'a': [1, 2.5, 'x', None, True]}
    """
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


@lru_cache
def encode_key(key: str) -> bytes:
    """Return the bytes of a member's name, which its value follows."""
    text = key.encode()
    return b"L" + _LENGTH.pack(len(text)) + text


def _encode(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, np.ndarray):
        big = value.astype(value.dtype.newbyteorder(">"), copy=False)
        mark = _MARKS[big.dtype.str].encode()
        parts += [b"[$", mark, b"#L", _LENGTH.pack(value.size), big.tobytes()]
    elif isinstance(value, dict):
        parts.append(b"{")
        for key, member in value.items():
            parts.append(encode_key(key))
            _encode(member, parts)
        parts.append(b"}")
    elif isinstance(value, list):
        parts += [b"[#L", _LENGTH.pack(len(value))]
        for item in value:
            _encode(item, parts)
    elif isinstance(value, str):
        text = value.encode()
        parts += [b"SL", _LENGTH.pack(len(text)), text]
    elif value is None or isinstance(value, bool):
        parts.append({True: b"T", False: b"F", None: b"Z"}[value])
    elif isinstance(value, int):
        parts += [b"L", _LENGTH.pack(value)]
    else:
        parts += [b"d", _SINGLE.pack(value)]


HINT = "get the model again from where it came, or save it again with XGBoost."
CUT_NAMES = (
    "XGBoost 3.2 and others cut names that are not ASCII in the wrong places; train with other "
    "names of categories, or with a later XGBoost."
)
MOST_ROUNDS = 1 << 30
OBJECTIVES: dict[str, tuple[Task, Objective]] = {
    **dict.fromkeys(("binary:logistic", "binary:logitraw"), ("classification", "logistic")),
    **dict.fromkeys(("multi:softprob", "multi:softmax"), ("classification", "softmax")),
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror"),
        ),
        ("regression", "identity"),
    ),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), ("regression", "exponential")),
    "reg:logistic": ("regression", "expit"),
    **dict.fromkeys(("rank:pairwise", "rank:ndcg", "rank:map"), ("ranking", "identity")),
}
"""What a model is for, and what its margins become, by its objective."""
_JSON_START = re.compile(rb'\s*\{\s*"')
_FEATURE_TYPES = {"int", "float", "i", "q", "c"}
_MODEL_PARTS = {"cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees"}
_NEWER_MODEL_PARTS = {"cats", "iteration_indptr", "weight_drop"}
_MOST_FEATURES = 1 << 24  # rows are dense, in XGBoost as well as here


def numbers(given: Any, name: str, *, whole: bool = False) -> AnyArray:
    """Return a list or array of the document as an array, int64 [n] if ``whole``, else float [n].

    Raises FileFormatError if it holds anything but numbers, or fractions where ``whole``.

    >>> numbers([1, 2], "tree_info", whole=True)
    array([1, 2])
    """
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError):
        array = np.empty((1, 1))
    if array.size == 0:
        return np.empty(0, np.int64 if whole else np.float64)
    require(array.ndim == 1 and array.dtype.kind in ("biu" if whole else "iuf"), name)
    if not whole:
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    require(array.dtype != np.uint64, name)
    return array.astype(np.int64)


def require(right: bool | np.bool_, name: str, value: Any = None) -> None:
    """Raise FileFormatError, which names a part of the document, unless that part is right."""
    if not right:
        shown = "" if value is None else f"={value!r:.80}"
        raise FileFormatError(f"The model's {name}{shown} is damaged or not known.", HINT)


def part(content: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a part of the document. Raises FileFormatError if it is missing or of another kind."""
    if name not in content:
        raise FileFormatError(f"The model has no {name!r}.", HINT)
    require(isinstance(content[name], kind), name)
    return content[name]


def whole_number(params: Mapping[str, Any], name: str, low: int, high: int = MOST_ROUNDS) -> int:
    """Return one of XGBoost's parameters, which are all texts.

    Raises FileFormatError if it is missing, no whole number, or not from ``low`` to ``high``.

    >>> whole_number({"num_class": "3"}, "num_class", 2)
    3
    """
    text = part(params, name, str)
    require(re.fullmatch(r"[0-9]{1,10}", text) is not None, name, text)
    require(low <= int(text) <= high, name, text)
    return int(text)


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """What a document says, checked, apart from what is in its trees.

    ``content``: all of it. ``booster`` and ``model``: the parts of it that `with_trees` replaces.
    """

    content: dict[str, Any]
    model: dict[str, Any]
    booster: str  # "gbtree" or "dart"
    objective: str
    n_features: int
    n_outputs: int
    n_parallel: int
    round_start: Offsets  # [rounds + 1] where the trees of each round begin
    tree_output: AnyArray  # [T] int64
    tree_weight: AnyArray | None  # [T] float32; None: this model has no weights
    best_round: int | None
    by_wrapper: bool  # whether a wrapper like XGBClassifier saved it
    feature_names: tuple[str, ...] | None
    feature_types: tuple[str, ...] | None
    most_categories: int  # of a feature, if the model knows them by name; else 0
    categories: dict[int, list[str]]  # of features whose categories are texts
    version: tuple[int, ...]

    @property
    def n_trees(self) -> int:
        """Return the number of trees T."""
        return len(self.tree_output)

    @property
    def task(self) -> Task:
        """Return the task that the objective is for."""
        return OBJECTIVES[self.objective][0]


def parse(raw: bytes) -> dict[str, Any]:
    """Return the document in some bytes, which are JSON or UBJ.

    Raises FileFormatError if they are neither.

    >>> parse(b'{"version": [3, 2, 0]}')
    {'version': [3, 2, 0]}
    """
    content: Any = None
    if _JSON_START.match(raw[:64]):
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"The JSON is damaged ({error}).", HINT) from None
    elif raw.startswith(b"{"):
        content = decode(raw)
    if not isinstance(content, dict):
        raise FileFormatError(
            "This is neither JSON nor UBJ.", hint="save the model with save_model('model.ubj')."
        )
    return content


def outline(content: dict[str, Any]) -> Outline:
    """Return what a document says, with all of it checked but the trees themselves.

    Raises FileFormatError for what is damaged, unknown, or not made of trees.

    >>> outline({"version": [3, 2, 0]})
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The model has no 'learner'. Hint: get the model again from \
where it came, or save it again with XGBoost.
    """
    learner = part(content, "learner", dict)
    attributes = part(learner, "attributes", dict)
    require(all(isinstance(text, str) for text in attributes.values()), "attributes")
    objective, n_features, n_outputs = _task(learner)
    booster, model, weights = _booster(learner)
    names = _texts(learner, "feature_names", n_features)
    types = _texts(learner, "feature_types", n_features)
    require(types is None or set(types) <= _FEATURE_TYPES, "feature_types")
    n_parallel, round_start, output = _rounds(model, n_outputs)
    if weights is not None:
        with np.errstate(over="ignore"):
            weights = numbers(weights, "weight_drop").astype(np.float32)
        require(len(weights) == len(output) and np.isfinite(weights).all(), "weight_drop")
    best = attributes.get("best_iteration")
    version = part(content, "version", list)
    whole = all(isinstance(part, int) and 0 <= part < 1000 for part in version)
    require(len(version) == 3 and whole, "version", version)
    return Outline(
        content=content,
        model=model,
        booster=booster,
        objective=objective,
        n_features=n_features,
        n_outputs=n_outputs,
        n_parallel=n_parallel,
        round_start=round_start,
        tree_output=output,
        tree_weight=weights,
        best_round=None if best is None else whole_number(attributes, "best_iteration", 0),
        by_wrapper="scikit_learn" in attributes,
        feature_names=names,
        feature_types=types,
        most_categories=most_categories(model.get("cats"), n_features),
        categories=category_texts(model.get("cats")),
        version=tuple(version),
    )


def with_trees(known: Outline, trees: list[Any], output: AnyArray, round_start: Offsets) -> bytes:
    """Return the document around other trees, as UBJ.

    ``trees`` are documents; ``output`` is int [T]. If there are as many
    trees as before they keep their weights, otherwise all weights are 1.

    Raises FileFormatError if some other part of the document cannot be written.
    """
    learner = known.content["learner"]
    params = {**known.model["gbtree_model_param"], "num_trees": str(len(trees))}
    model = {
        **known.model,
        "gbtree_model_param": params,
        "iteration_indptr": round_start.tolist(),
        "tree_info": output.tolist(),
        "trees": trees,
    }
    weight = np.ones(len(trees), dtype=np.float32)
    if known.tree_weight is not None and len(trees) == known.n_trees:
        weight = known.tree_weight
    booster = dict(learner["gradient_booster"])
    if known.booster == "dart":
        booster["weight_drop"] = _like(booster["weight_drop"], weight)
        booster["gbtree"] = {**booster["gbtree"], "model": model}
    else:
        if known.tree_weight is not None:
            model["weight_drop"] = _like(model["weight_drop"], weight)
        booster["model"] = model
    attributes = dict(learner["attributes"])
    last = len(round_start) - 2
    if known.best_round is not None and known.best_round > last:
        attributes["best_iteration"] = str(last)
    learner = {**learner, "attributes": attributes, "gradient_booster": booster}
    try:
        return encode({**known.content, "learner": learner})
    except (ValueError, ArithmeticError, TypeError, struct.error) as error:
        raise FileFormatError(f"The model holds a number out of range ({error}).", HINT) from None


def patched(raw: bytes, old: list[Any], new: list[Any]) -> bytearray:
    """Return a document in UBJ with the arrays of other trees, which are as long as they were.

    ``old`` are the trees that were read from ``raw``; those that stay are the same objects in
    ``new``, and so are the arrays that stay.

    >>> raw = encode({"a": np.array([1.0, 2.0], ">f4")})
    >>> decode(patched(raw, [decode(raw)], [{"a": np.array([3.0, 2.0], ">f4")}]))["a"].tolist()
    [3.0, 2.0]
    """
    made = bytearray(raw)
    first = np.frombuffer(raw, np.uint8).ctypes.data
    for before, after in zip(old, new, strict=True):
        for name, array in after.items() if after is not before else ():
            if array is not before[name]:
                # A typed array looks into the bytes that it was read from.
                at = before[name].ctypes.data - first
                made[at : at + array.nbytes] = array.tobytes()
    return made


def _texts(learner: dict[str, Any], name: str, n_features: int) -> tuple[str, ...] | None:
    texts = part(learner, name, list)
    require(all(isinstance(text, str) for text in texts), name)
    require(len(texts) in (0, n_features), f"number of {name}", len(texts))
    return tuple(texts) or None


def _task(learner: dict[str, Any]) -> tuple[str, int, int]:
    """Return objective, features and outputs."""
    objective = part(learner, "objective", dict)
    name = part(objective, "name", str)
    if name.startswith("survival:"):
        raise FileFormatError(
            f"The objective {name!r} is one of survival, whose answers are hazards or times that "
            "may be censored.",
            hint="train with an objective of classification, regression or ranking.",
        )
    if name not in OBJECTIVES:
        raise FileFormatError(
            f"The objective {name!r} is not supported.",
            hint=f"supported are {', '.join(OBJECTIVES)}.",
        )
    params = part(learner, "learner_model_param", dict)
    n_features = whole_number(params, "num_feature", 1, _MOST_FEATURES)
    n_classes = whole_number(params, "num_class", 0)
    # Models from before 1.6 do not say.
    if whole_number({"num_target": "1", **params}, "num_target", 0) > 1:
        raise FileFormatError(
            "The model answers several questions at once (multi-label or multi-output).",
            hint="train one model for each.",
        )
    if OBJECTIVES[name][1] != "softmax":
        require(n_classes <= 1, "num_class", n_classes)
    else:
        stated = whole_number(part(objective, "softmax_multiclass_param", dict), "num_class", 0)
        require(n_classes == stated and n_classes >= 2, "num_class", n_classes)
    n_outputs = max(n_classes, 1)
    within = name in ("binary:logistic", "reg:logistic")
    positive = within or OBJECTIVES[name][1] == "exponential"
    _check_base_score(part(params, "base_score", str), n_outputs, positive, within)
    return name, n_features, n_outputs


def _check_base_score(text: str, n_outputs: int, positive: bool, probability: bool) -> None:
    try:
        scores = [float(part) for part in text.removeprefix("[").removesuffix("]").split(",")]
    except ValueError:
        scores = [math.nan]
    sound = len(scores) in (1, n_outputs) and all(math.isfinite(score) for score in scores)
    require(sound, "base_score", text)
    require(not positive or all(score > 0.0 for score in scores), "base_score", text)
    require(not probability or all(score < 1.0 for score in scores), "base_score", text)


def _booster(learner: dict[str, Any]) -> tuple[str, dict[str, Any], Any]:
    """Return the booster's name, its model and its weights, if any."""
    booster = part(learner, "gradient_booster", dict)
    name = part(booster, "name", str)
    if name == "gblinear":
        raise FileFormatError("The model is linear (gblinear), without trees.", hint="use gbtree.")
    require(name in ("gbtree", "dart"), "booster", name)
    inner = part(booster, "gbtree", dict) if name == "dart" else booster
    model = part(inner, "model", dict)
    parts = set(model)
    if not parts <= _MODEL_PARTS | _NEWER_MODEL_PARTS or not parts >= _MODEL_PARTS - (
        _NEWER_MODEL_PARTS
    ):
        raise FileFormatError(
            f"The layout of the model is not known: it has the parts {sorted(parts)}.",
            hint="a newer timbermark may know it.",
        )
    # XGBoost 3.4 made dart a kind of gbtree and moved the weights.
    weights = part(booster, "weight_drop", object) if name == "dart" else model.get("weight_drop")
    return name, model, weights


def _rounds(model: dict[str, Any], n_outputs: int) -> tuple[int, Offsets, AnyArray]:
    """Return the trees of a class in a round, where rounds begin, and the output of each tree."""
    params = part(model, "gbtree_model_param", dict)
    n_trees = whole_number(params, "num_trees", 0)
    n_parallel = max(whole_number({"num_parallel_tree": "1", **params}, "num_parallel_tree", 0), 1)
    output = numbers(model["tree_info"], "tree_info", whole=True)
    if n_trees == 0:
        raise FileFormatError("The model has no trees.", hint="train it for a round at least.")
    same = len(output) == n_trees == len(part(model, "trees", list))
    require(same, "num_trees", params["num_trees"])
    require((output >= 0).all() and (output < n_outputs).all(), "tree_info")
    # Files from before 2.0 do not say where rounds begin; all are equally long there.
    equal = np.arange(0, n_trees + 1, n_outputs * n_parallel)
    start = numbers(model.get("iteration_indptr", equal), "iteration_indptr", whole=True)
    rises = (
        len(start) >= 2 and start[0] == 0 and start[-1] == n_trees and (np.diff(start) > 0).all()
    )
    require(rises, "iteration_indptr")
    return n_parallel, start, output


def _like(given: Any, weight: AnyArray) -> Any:
    """Return weights in the form that the document had them in: typed in UBJ, a list in JSON."""
    single = weight.astype(np.float32)
    return single if isinstance(given, np.ndarray) else [float(w) for w in single]


def most_categories(cats: Any, n_features: int) -> int:
    """Return how many categories any feature has at most, of those with names.

    Raises FileFormatError if the names are damaged.
    """
    if cats is None:
        return 0
    require(isinstance(cats, dict), "cats")
    columns = part(cats, "enc", list)
    start = numbers(part(cats, "feature_segments", object), "feature_segments", whole=True)
    order = numbers(part(cats, "sorted_idx", object), "sorted_idx", whole=True)
    sizes = [_category_count(column) for column in columns]
    require(len(columns) in (0, n_features), "number of category lists", len(columns))
    bounds = np.cumsum([0, *sizes])
    require(np.array_equal(start, bounds) or (not columns and not len(start)), "feature_segments")
    require(len(order) in (0, bounds[-1]), "sorted_idx")
    if len(order):
        # Each feature's part must be a permutation: XGBoost looks names up through it.
        feature = np.repeat(np.arange(len(sizes)), sizes)
        straight = np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes)
        require(np.array_equal(order[np.lexsort((order, feature))], straight), "sorted_idx")
    return max(sizes, default=0)


def category_texts(cats: Any) -> dict[int, list[str]]:
    """Return the names of the categories of each feature that has texts for them."""
    found = {}
    for place, column in enumerate([] if cats is None else cats["enc"]):
        if "offsets" not in column or len(column["offsets"]) < 2:
            continue
        octets = bytes(int(value) & 0xFF for value in column["values"])
        ends = [int(offset) for offset in column["offsets"]]
        try:
            found[place] = [octets[a:b].decode() for a, b in pairwise(ends)]
        except UnicodeDecodeError:
            raise FileFormatError(
                "The model's names of categories are cut within a letter.",
                hint=CUT_NAMES,
                code="categories.cut",
            ) from None
    return found


def _category_count(column: Any) -> int:
    require(isinstance(column, dict), "cats")
    values = numbers(part(column, "values", object), "category values", whole=True)
    if "offsets" not in column:
        require(isinstance(part(column, "type", int), int), "category type")
        return len(values)
    offsets = numbers(column["offsets"], "category offsets", whole=True)
    if not len(offsets):
        require(not len(values), "category offsets")
        return 0
    require(offsets[0] == 0 and (np.diff(offsets) >= 0).all(), "category offsets")
    require(offsets[-1] <= len(values), "category offsets")
    return len(offsets) - 1
