"""The file of an opening: what is written, and every check before an opening is built from it."""

import os
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.dtypes import CLASS_INDEX, FEATURE_VALUE, REAL, AnyArray
from timbermark.files import container_bytes, read_container
from timbermark.files.limits import Arrays
from timbermark.ownership import mark_checks
from timbermark.ownership.columns import MAX_TRIGGERS, Column, numeric_matrix
from timbermark.ownership.encoding import freeze
from timbermark.ownership.head import Head
from timbermark.ownership.labels import check_classes
from timbermark.ownership.mark_checks import check_name, from_hex, require, rows_per_trigger
from timbermark.ownership.merkle import HASH_BYTES, path_length
from timbermark.ownership.sealing import SizeLimits
from timbermark.ownership.symbols import ALPHABET_SIZES

if TYPE_CHECKING:
    from timbermark.ownership.opening import Opening

KIND = "opening"
FORMAT_VERSION, PLAIN_VERSION = 2, 1
"""Openings of marks without alternatives are written as before there were any."""
LIMITS = SizeLimits(file=256 << 20, meta=8 << 20)
_HEAD_BYTES = {"mark_id": 16, "secret_digest": 32, "about_digest": 32, "root": 32}
_ARRAYS = {
    "numbers": FEATURE_VALUE,
    "alphabets": CLASS_INDEX,
    "reference": REAL,
    "salts": np.uint8,
    "paths": np.uint8,
}
_NOT_ONE = "it has not exactly the parts of an opening"
_HEAD = tuple(field.name for field in fields(Head))


def opening_to_bytes(opening: "Opening") -> bytes:
    """Return the file of an opening; see `Opening.to_bytes`."""
    meta = {
        "claim": opening.claim_digest.hex(),
        "for": opening.judge,
        "head": {name: _plain(getattr(opening.head, name)) for name in _HEAD},
        "places": list(opening.places),
        "texts": [list(column) for column in opening.columns if not _is_numbers(column)],
    }
    arrays: dict[str, AnyArray] = {
        "numbers": numeric_matrix(opening.columns),
        "alphabets": opening.alphabets,
        "reference": opening.reference,
        "salts": _matrix(opening.salts),
        "paths": _matrix([step for path in opening.paths for step in path]),
    }
    version = PLAIN_VERSION
    if opening.alternatives.shape[1]:
        version, arrays["alternatives"] = FORMAT_VERSION, opening.alternatives
    # Without compression the reader can hold what a file declares against its size.
    return container_bytes(KIND, version, meta, arrays, compress=False)


def read_opening(source: str | os.PathLike[str] | bytes, name: str) -> dict[str, Any]:
    """Return the fields of the opening in a file, by name.

    Raises FileFormatError if it is no file of an opening, InputError if its parts do not fit.
    """
    LIMITS.check(source, name)
    version, meta, arrays = read_container(source, KIND, FORMAT_VERSION)
    known = {**_ARRAYS, "alternatives": REAL} if version == FORMAT_VERSION else _ARRAYS
    require(
        meta.keys() == {"claim", "for", "head", "places", "texts"}
        and arrays.keys() == known.keys(),
        _NOT_ONE,
        "",
    )
    head = _read_head(meta["head"])
    types = {**known, "alphabets": REAL} if head.answers == "numbers" else known
    require(all(arrays[part].dtype == dtype for part, dtype in types.items()), _NOT_ONE, "")
    places = _read_places(meta["places"], head)
    m = len(places)
    _check_shapes(arrays, head, m)
    check_name(meta["for"], "the judge's name")
    claim = from_hex("the claim", meta["claim"])
    require(len(claim) == HASH_BYTES, "the claim's digest is not 32 bytes", "")
    return {
        "claim_digest": claim,
        "judge": meta["for"],
        "head": head,
        "places": places,
        "salts": tuple(salt.tobytes() for salt in arrays["salts"]),
        "columns": _read_columns(head, arrays["numbers"], meta["texts"], len(arrays["numbers"])),
        "alphabets": arrays["alphabets"],
        "reference": arrays["reference"],
        "alternatives": arrays.get("alternatives", np.zeros((m, 0, head.q))),
        "paths": _read_paths(arrays["paths"], places, head.n_triggers),
    }


def _read_head(given: Any) -> Head:
    require(isinstance(given, dict) and given.keys() == set(_HEAD), "it has no head of a mark", "")
    parts = dict(given)
    for name, size in _HEAD_BYTES.items():
        parts[name] = from_hex(name, parts[name])
        require(len(parts[name]) == size, f"{name} is not {size} bytes", "")
    mark_checks.check_protocol(parts["protocol"])
    mark_checks.check_words(
        parts["owner"], parts["model_digest"], parts["answers"], parts["created"]
    )
    require(type(parts["q"]) is int and parts["q"] in ALPHABET_SIZES, "q is neither 2 nor 4", "")
    count = parts["n_triggers"]
    require(type(count) is int and 1 <= count <= MAX_TRIGGERS, "n_triggers is out of bounds", "")
    parts["draws"] = mark_checks.check_draws(parts["draws"])
    if parts["answers"] == "numbers":
        require(parts["classes"] == [], "a mark of numbers has classes", "")
        parts["classes"] = ()
    else:
        parts["classes"] = check_classes(parts["classes"])
    kinds = parts["columns"]
    require(
        isinstance(kinds, list)
        and len(kinds) >= 1
        and all(kind in ("numbers", "texts") for kind in kinds),
        "the columns are neither numbers nor texts",
        "",
    )
    parts["columns"] = tuple(kinds)
    parts["feature_names"] = mark_checks.freeze_names(parts["feature_names"], len(kinds))
    return Head(**parts)


def _read_places(given: Any, head: Head) -> tuple[int, ...]:
    require(
        isinstance(given, list)
        and all(type(place) is int and 0 <= place < head.n_triggers for place in given)
        and len(given) >= 1
        and all(a < b for a, b in pairwise(given)),
        "the places of the triggers are not ascending numbers",
        "",
    )
    return tuple(given)


def _check_shapes(arrays: Arrays, head: Head, m: int) -> None:
    n_numbers = head.columns.count("numbers")
    width = rows_per_trigger(head.answers)
    n_known = 2 if head.answers == "numbers" else len(head.classes)
    for part, shape in (
        ("numbers", (m * width, n_numbers)),
        ("alphabets", (m, head.q)),
        ("reference", (m, n_known)),
        ("salts", (m, HASH_BYTES)),
    ):
        found = arrays[part].shape
        require(found == shape, f"{part} has the shape {found}, not {shape}", "")
    if "alternatives" in arrays:
        found = arrays["alternatives"].shape
        require(
            head.answers == "classes"
            and len(found) == 3
            and (found[0], found[2]) == (m, head.q)
            and 1 <= found[1] <= mark_checks.MOST_ALTERNATIVES,
            f"alternatives has the shape {found}, not ({m}, R, {head.q}) with R from 1 to "
            f"{mark_checks.MOST_ALTERNATIVES}, of classes",
            "",
        )


def _read_columns(head: Head, numbers: AnyArray, texts: Any, m: int) -> tuple[Column, ...]:
    require(
        isinstance(texts, list)
        and len(texts) == head.columns.count("texts")
        and all(
            isinstance(column, list)
            and len(column) == m
            and all(text is None or isinstance(text, str) for text in column)
            for column in texts
        ),
        f"the columns of texts are not {m} texts each",
        "",
    )
    require(not np.isinf(numbers).any(), "a trigger holds infinity", "")
    # As in a mark: no tree tells these apart, and their hashes must not either.
    numbers = numbers + 0.0
    numbers[np.isnan(numbers)] = np.nan
    left, right = iter(numbers.T), iter(texts)
    return tuple(
        np.ascontiguousarray(next(left))
        if kind == "numbers"
        else tuple(freeze(text, "a text") for text in next(right))  # type: ignore[misc]
        for kind in head.columns
    )


def _read_paths(
    given: AnyArray, places: tuple[int, ...], count: int
) -> tuple[tuple[bytes, ...], ...]:
    lengths = [path_length(place, count) for place in places]
    require(given.shape == (sum(lengths), HASH_BYTES), "the Merkle paths have the wrong length", "")
    steps = iter(given)
    return tuple(tuple(next(steps).tobytes() for _ in range(length)) for length in lengths)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value


def _is_numbers(column: Column) -> bool:
    return isinstance(column, np.ndarray)


def _matrix(rows: Any) -> AnyArray:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, HASH_BYTES)
