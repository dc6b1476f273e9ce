"""CatBoost's JSON file: checked before the library sees it, written so that it reads it exactly.

CatBoost rounds twice when it reads a number with many digits, which leaves a tenth of all leaves
off by one unit in the last place. `exact_text` finds other digits that it reads as meant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries.catboost.flatbuffer import Record
from timbermark.libraries.catboost.soundness import check_trees, count_splits

KEYS = ("ctr_data", "features_info", "model_info", "oblivious_trees", "scale_and_bias", "trees")
_FEATURE_KEYS = {"float_features", "categorical_features", "ctrs", "cat_features_hash"}
_TREATMENTS = {"AsIs": 0, "AsFalse": 1, "AsTrue": 2}
_CTR_WIDTHS = {"Borders": 0, "Buckets": 0, "Counter": 2, "FeatureFreq": 2}
# A nested tree keeps in sixteen bits how far ahead of a node its right child is.
_FARTHEST = 0xFFFF
_HINT = "it was damaged, or changed by another program; get it again from where it came."
_MOST_POWER = 300
# What margins are made of; everything else is in single precision or not used for them.
_ADDED_UP = ("leaf_values", "value", "scale_and_bias")
# What going through a document of another layout can raise.
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


def clean_json(data: bytes, name: str) -> bytes:
    """Return a JSON file of CatBoost as the library may see it: checked, and written anew.

    CatBoost goes on with what it has if it meets something that it cannot read, and follows every
    number; both can end the process.

    Raises FileFormatError, which calls the file ``name``, if it is not sound.
    """
    try:
        document = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_Digits,
            parse_int=_Digits,
        )
        clean = _dump(document, _known_digits)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is not valid JSON ({error}).", _HINT) from None
    try:
        _check_document(document)
    except _WRONG as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise FileFormatError(f"{name} is not a sound CatBoost model: {what}.", _HINT) from None
    return clean


def exact_text(number: float) -> str:
    """Return digits that CatBoost's reader turns into precisely this number.

    Dividing other whole numbers by other powers of ten rounds elsewhere, and one of them is right.

    Raises InputError if none is found, which happens to about three numbers in a million, and to
    those of unusual size.

    >>> float(exact_text(0.1)), exact_text(0.25), exact_text(0.015256440329945985)
    (0.1, '0.25', '15256440329945985024e-21')
    """
    plain = repr(number)
    if number == 0 or read_as_catboost(plain) == number:
        return plain
    for text in _candidates(number):
        if read_as_catboost(text) == number:
            return text
    raise InputError(
        f"CatBoost's JSON form cannot hold the number {number!r} exactly.",
        hint="save the model as .cbm instead.",
    )


def read_as_catboost(text: str) -> float | None:
    """Return what CatBoost makes of a number's digits, None where it is not known.

    It takes digits for a whole number of 64 bits, behind the point of 53; those that no longer fit
    go one by one into a double, behind the point no more than 17 in all. Then it divides by, or
    multiplies with, a power of ten. It rounds whenever it leaves whole numbers.

    >>> read_as_catboost("0.015256440329945985")
    0.015256440329945983
    """
    sign = -1.0 if text.startswith("-") else 1.0
    mantissa, _, exponent = text.lstrip("-").partition("e")
    before, _, after = mantissa.partition(".")
    limit = 1 << (63 if sign < 0 else 64)
    found: float = int(before)
    if found >= limit:
        fits = next(i for i in range(1, len(before)) if int(before[: i + 1]) >= limit)
        found = float(int(before[:fits]))
        for digit in before[fits:]:
            found = found * 10.0 + int(digit)
    counted, power = len(before) - 1, int(exponent or 0)
    for digit in after:
        if isinstance(found, int) and found < 1 << 53:
            found = found * 10 + int(digit)
        elif counted < 17:
            found = float(found) * 10.0 + int(digit)
        else:
            break
        power -= 1
        counted += found > 0
    if abs(power) > _MOST_POWER:
        return None
    scale = float(f"1e{abs(power)}")
    return sign * (float(found) / scale if power < 0 else float(found) * scale)


def _candidates(number: float) -> Iterator[str]:
    """Yield digits that are as near to a number as doubles are."""
    size, sign = abs(number), "-" if number < 0 else ""
    first = max(0, math.ceil(math.log10(2.0**52) - math.log10(size)))
    for power in range(first, min(first + 250, _MOST_POWER)):
        whole = size * float(f"1e{power}")
        for steps in (0, 1, -1, 2, -2):
            yield f"{sign}{int(whole + steps * math.ulp(whole))}e-{power}"


def rewrite_exactly(data: bytes) -> bytes:
    """Return a JSON document that CatBoost wrote, with what it adds up in `exact_text`.

    Raises InputError as `exact_text` does.
    """
    document = json.loads(data.decode(), parse_float=_Digits, parse_int=_Digits)
    return _dump(document, _exact_digits)


class _Digits(str):
    """A number as it stands in the file."""

    __slots__ = ()


def _exact_digits(digits: str, key: str) -> str:
    exact = key not in _ADDED_UP or _is_whole(digits)
    return digits if exact else exact_text(float(digits))


def _known_digits(digits: str, key: str) -> str:
    if not math.isfinite(float(digits)) or (_is_whole(digits) and abs(int(digits)) >> 64):
        raise ValueError(f"{digits[:40]} in {key} is too large")
    return digits


def _is_whole(digits: str) -> bool:
    return digits.lstrip("-").isdecimal()


def _dump(document: Any, number: Callable[[str, str], str]) -> bytes:
    """Return a document as JSON; ``number`` gives a number's digits for its own and its key."""
    pieces: list[str] = []

    def put(value: Any, key: str) -> None:
        if isinstance(value, dict):
            mark = "{"
            for name, inner in value.items():
                pieces.append(mark + json.dumps(name, ensure_ascii=False) + ":")
                put(inner, name)
                mark = ","
            pieces.append("}" if value else "{}")
        elif isinstance(value, list):
            pieces.append("[")
            for i, inner in enumerate(value):
                if i:
                    pieces.append(",")
                put(inner, key)
            pieces.append("]")
        elif isinstance(value, _Digits):
            pieces.append(number(value, key))
        else:
            pieces.append(json.dumps(value, ensure_ascii=False))

    put(document, "")
    # This refuses halves of characters, which JSON allows and CatBoost does not.
    return "".join(pieces).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _require(sound: bool, message: str) -> None:
    if not sound:
        raise ValueError(message)


def _whole(value: Any, low: int, stop: int) -> int:
    number = isinstance(value, _Digits) and _is_whole(value) and low <= int(value) < stop
    _require(number, f"{value!r} is not a whole number from {low} to {stop - 1}")
    return int(value)


def _real(value: Any) -> float:
    _require(isinstance(value, _Digits), f"{value!r} is not a number")
    return float(value)


def _list(value: Any) -> list[Any]:
    _require(isinstance(value, list), "a list is something else")
    return list(value)


def _singles(values: Any) -> AnyArray:
    with np.errstate(over="ignore"):
        return np.array([_real(value) for value in _list(values)], dtype=np.float32)


def _check_document(document: Any) -> None:
    _require(isinstance(document, dict), "it is not an object")
    unknown = set(document) - set(KEYS)
    _require(not unknown, f"it has parts that are not known, {sorted(unknown)}")
    _require(("trees" in document) != ("oblivious_trees" in document), "it has no trees")
    _require(isinstance(document["model_info"], dict), "its information is not an object")
    features = _read_features(document["features_info"])
    bases = _check_ctr_data(document.get("ctr_data") or {})
    for ctr in document["features_info"].get("ctrs") or ():
        kind, parts = ctr["ctr_type"], _elements(ctr["elements"], features)
        _require((kind, parts) in bases, "the table of a category statistic is missing")
        classes = bases[kind, parts]
        _whole(ctr["target_border_idx"], 0, classes if kind in ("Borders", "Buckets") else 1 << 31)
        for key in ("prior_numerator", "prior_denomerator", "shift", "scale"):
            _real(ctr[key])
    n_splits = count_splits(features)
    if "trees" in document:
        dimension = _check_nested(_list(document["trees"]), n_splits)
        shape: Record = {}
    else:
        shape, dimension = _read_symmetric(_list(document["oblivious_trees"]), n_splits)
    scale, bias = document.get("scale_and_bias", [_Digits("1"), []])
    _real(scale)
    record = {**features, **shape, "ApproxDimension": dimension, "MultiBias": _singles(bias)}
    check_trees(record)


def _read_features(info: Any) -> Record:
    """Return the features of a document as they stand in a binary file, with no trees."""
    unknown = set(info) - _FEATURE_KEYS
    _require(not unknown, f"it has features that are not known, {sorted(unknown)}")
    found: Record = {
        "FloatFeatures": [],
        "CatFeatures": [],
        "OneHotFeatures": [],
        "CtrFeatures": [],
    }
    for each in info.get("float_features") or ():
        found["FloatFeatures"].append(
            {
                **_position(each),
                "Borders": _singles(each["borders"]),
                "NanValueTreatment": _TREATMENTS[each["nan_value_treatment"]],
            }
        )
        _require(type(each["has_nans"]) is bool, "has_nans is not true or false")
    for each in info.get("categorical_features") or ():
        found["CatFeatures"].append(_position(each))
        if "values" in each:
            values = [_whole(value, -(1 << 31), 1 << 31) for value in _list(each["values"])]
            texts = _list(each.get("string_values", []))
            _require(all(type(text) is str for text in texts), "a category is not a text")
            found["OneHotFeatures"].append(
                {"Index": int(each["feature_index"]), "Values": values, "StringValues": texts}
            )
    for each in info.get("ctrs") or ():
        found["CtrFeatures"].append({"Borders": _singles(each["borders"])})
    empty = np.empty(0, dtype=np.int64)
    for key in ("TreeSplits", "TreeSizes", "TreeStartOffsets", "LeafValues", "LeafWeights"):
        found[key] = empty
    return {**found, "NonSymmetricStepNodes": empty, "NonSymmetricNodeIdToLeafId": empty}


def _position(each: Any) -> Record:
    _require(type(each["feature_id"]) is str, "a feature's name is not a text")
    index, flat = each["feature_index"], each["flat_feature_index"]
    return {"Index": _whole(index, 0, 1 << 24), "FlatIndex": _whole(flat, 0, 1 << 24)}


def _elements(elements: Any, features: Record | None) -> str:
    """Return what a statistic is of, as a text; each element must be among the features."""
    found = []
    for each in _list(elements):
        kind = each["combination_element"]
        if kind == "float_feature":
            index, key = each["float_feature_index"], "border"
        else:
            _require(kind in ("cat_feature_value", "cat_feature_exact_value"), f"{kind!r} is new")
            index, key = each["cat_feature_index"], "value"
        asked = None if kind == "cat_feature_value" else _real(each[key])
        if kind == "float_feature":
            asked = float(np.float32(asked))
        found.append((kind, _whole(index, 0, 1 << 24), asked))
        _require(features is None or _exists(features, *found[-1]), "a statistic is of nothing")
    return repr(sorted(found, key=repr))


def _exists(features: Record, kind: str, index: int, asked: float | None) -> bool:
    if kind == "float_feature":
        places = [each["Borders"] for each in features["FloatFeatures"] if each["Index"] == index]
        return any(asked in borders for borders in places)
    if kind == "cat_feature_exact_value":
        places = [each["Values"] for each in features["OneHotFeatures"] if each["Index"] == index]
        return any(asked in values for values in places)
    return any(each["Index"] == index for each in features["CatFeatures"])


def _check_ctr_data(tables: Any) -> dict[tuple[str, str], int]:
    """Return the number of classes of each table of category statistics."""
    found = {}
    for key, table in tables.items():
        base = json.loads(key, parse_float=_Digits, parse_int=_Digits)
        kind, stride = base["type"], _whole(table["hash_stride"], 2, 1 << 24)
        _require(kind in _CTR_WIDTHS, f"JSON does not hold statistics of type {kind} exactly")
        entries, width = _list(table["hash_map"]), _CTR_WIDTHS[kind]
        _require(width in (0, stride) and len(entries) % stride == 0, "a table has a wrong width")
        for i, entry in enumerate(entries):
            if i % stride:
                _whole(entry, -(1 << 31), 1 << 31)
            else:
                _require(type(entry) is str, f"{entry!r} is no hash")
                _whole(_Digits(entry), 0, 1 << 64)
        _whole(table["counter_denominator"], -(1 << 31), 1 << 31)
        _require(kind != "Borders" or stride >= 3, "a table has too few classes")
        found[kind, _elements(base["identifier"], None)] = stride - 1
    return found


def _read_symmetric(trees: list[Any], n_splits: int) -> tuple[Record, int]:
    splits: list[int] = []
    sizes: list[int] = []
    n_values, weights, dimensions = 0, [], set()
    for tree in trees:
        asked = [_whole(split["split_index"], 0, n_splits) for split in tree["splits"] or ()]
        values = [_real(value) for value in _list(tree["leaf_values"])]
        _require(len(asked) <= 30 and len(values) > 0, "a tree is too deep or has no leaves")
        dimensions.add(len(values) / (1 << len(asked)))
        splits += asked
        sizes.append(len(asked))
        n_values += len(values)
        weights += [_real(weight) for weight in tree.get("leaf_weights", ())]
    _require(len(dimensions) <= 1, "its trees have different numbers of outputs")
    dimension = dimensions.pop() if dimensions else 1.0
    _require(dimension.is_integer() and dimension >= 1, "a tree has a wrong number of values")
    depth = np.array(sizes, dtype=np.int64)
    record: Record = {
        "TreeSplits": np.array(splits, dtype=np.int64),
        "TreeSizes": depth,
        "TreeStartOffsets": np.cumsum(depth) - depth,
        "LeafValues": np.empty(n_values),
        "LeafWeights": np.array(weights),
    }
    return record, int(dimension)


def _check_nested(trees: list[Any], n_splits: int) -> int:
    """Walk through nested trees; return the number of outputs."""
    dimensions, weighed = set(), set()
    for tree in trees:
        # Each entry is a node and how many nodes were counted when it was entered.
        walk: list[tuple[Any, bool]] = [(tree, False)]
        entered: list[int] = []
        count = 0
        while walk:
            node, between = walk.pop()
            if between:
                _require(count - entered.pop() <= _FARTHEST, "a tree is too large for CatBoost")
                continue
            count += 1
            if "value" in node:
                value = node["value"]
                many = isinstance(value, list)
                numbers = [_real(each) for each in (value if many else [value])]
                dimensions.add((many, len(numbers)))
                weighed.add("weight" in node)
                _real(node.get("weight", _Digits("0")))
            else:
                _whole(node["split"]["split_index"], 0, n_splits)
                entered.append(count - 1)
                walk += [(node["right"], False), (None, True), (node["left"], False)]
    _require(len(dimensions) <= 1 and len(weighed) <= 1, "its leaves are of different kinds")
    dimension = dimensions.pop()[1] if dimensions else 1
    _require(dimension >= 1, "a leaf has no value")
    return dimension
