"""CatBoost's binary file: what it holds, taken apart and put together again, exactly.

The file is four bytes, the length of the core and the core, a FlatBuffer; then, if the model has
statistics of categories (CTR), their number and for each its length and a FlatBuffer. Names and
their order are CatBoost's. A field that is not listed here is from a version that we do not know,
and is refused rather than lost.

FlatBuffers are read with every bound checked and written anew. A table becomes a dict that has
every field of its layout: a missing number has its default, a missing text or list is empty, a
missing table is None. Writing a dict gives a fresh buffer, so that whoever reads it later meets
only offsets that were made here, whatever the first one held.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError

Record: TypeAlias = dict[str, Any]

_LARGEST = (1 << 31) - 1
# Two tables may share what they point to. Written anew it stands twice, within reason.
_FREE_SIZE = 64 << 20
_MAX_RATIO = 16


class DamagedBufferError(ValueError):
    """A buffer that does not hold what its layout says."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table, which is read as its ``kind`` says.

    "number": ``of`` is what `struct` calls its type, and ``default`` its value where it is missing;
    "text": bytes, mostly UTF-8; "array": of numbers or records of the type ``of``, ``align`` bytes
    from the next; "table": of the layout ``of``, or None; "list": of texts or tables, of the field
    ``of``; "unread": a list of which only the length is wanted, written only if that is 0.
    """

    kind: str
    of: Any = None
    default: float = 0
    align: int = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's name and its fields, in the order of their numbers."""

    name: str
    fields: dict[str, Field]


STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])
_RECORDS = {
    "Step": STEP,
    "FloatSplit": np.dtype([("index", "<i4"), ("border", "<f4")]),
    "OneHotSplit": np.dtype([("index", "<i4"), ("value", "<i4")]),
}


def read_schema(text: str) -> dict[str, Layout]:
    """Return the tables of a schema: each a name, then its fields as ``name:type=default``.

    A type is one that `struct` knows, ``text``, ``unread``, a table above, or one of these in
    brackets; arrays of numbers and records are ``[i4]`` or, where the alignment differs from the
    size, ``[u1@16]``.

    >>> read_schema("Pair name:text sizes:[i4]")["Pair"].fields["name"]
    Field(kind='text', of=None, default=0, align=4)
    """
    known: dict[str, Layout] = {}
    fields: dict[str, Field] = {}
    for word in text.split():
        name, sign, kind = word.partition(":")
        if sign:
            fields[name] = _read_field(kind, known)
        else:
            fields = {}
            known[name] = Layout(name, fields)
    return known


def _read_field(text: str, known: dict[str, Layout]) -> Field:
    kind, _, default = text.partition("=")
    inner, _, align = kind.strip("[]").partition("@")
    if inner in known or inner in ("text", "unread"):
        one = Field("table", known[inner]) if inner in known else Field(inner)
        return Field("list", one) if kind.startswith("[") else one
    if kind.startswith("["):
        dtype = _RECORDS[inner] if inner in _RECORDS else np.dtype(f"<{inner}")
        return Field("array", dtype, align=int(align or dtype.itemsize))
    form = f"<{kind}"
    zero = struct.unpack(form, bytes(struct.calcsize(form)))[0]
    return Field("number", form, type(zero)(float(default or 0)))


def decode(data: bytes, layout: Layout) -> Record:
    """Return the root table of a buffer.

    Raises DamagedBufferError if an offset, a length or a field leads outside what the buffer and
    the layout allow, or if the whole would be far larger than the buffer.

    >>> pair = read_schema("Pair name:text sizes:[i4]")["Pair"]
    >>> decode(encode({"name": b"a", "sizes": np.array([1, 2])}, pair), pair)["sizes"]
    array([1, 2], dtype=int32)
    """
    reader = _Reader(data)
    return reader.table(reader.follow(0), layout)


def encode(record: Record, layout: Layout) -> bytes:
    """Return a buffer that `decode` reads as ``record``; keys that are missing count as missing.

    Raises DamagedBufferError if it would be larger than the format allows. See `decode`.
    """
    out = bytearray(4)
    _patch(out, 0, _put_table(out, record, layout))
    return bytes(out)


class _Reader:
    """A buffer, and how much has been read from it in all."""

    __slots__ = ("budget", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.budget = _FREE_SIZE + _MAX_RATIO * len(data)

    def unpack(self, form: str, at: int) -> int | float:
        if at < 0 or at + struct.calcsize(form) > len(self.data):
            raise DamagedBufferError(f"an offset leads to byte {at} of {len(self.data)}")
        number: int | float = struct.unpack_from(form, self.data, at)[0]
        return number

    def follow(self, at: int) -> int:
        return at + int(self.unpack("<I", at))

    def spend(self, size: int) -> None:
        self.budget -= size
        if self.budget < 0:
            raise DamagedBufferError("it would unpack to far more than its size")

    def block(self, at: int, width: int) -> tuple[int, int]:
        """Return where the elements of a list begin and how many there are, all inside."""
        start = self.follow(at)
        count = int(self.unpack("<I", start))
        if start + 4 + count * width > len(self.data):
            raise DamagedBufferError(f"a list of {count} begins at byte {start} and does not end")
        self.spend(count * width)
        return start + 4, count

    def table(self, at: int, layout: Layout) -> Record:
        table_of_fields = at - int(self.unpack("<i", at))
        size = int(self.unpack("<H", table_of_fields))
        if size < 4 or size % 2:
            raise DamagedBufferError(f"{layout.name} has a table of fields of {size} bytes")
        self.spend(size)
        places = [int(self.unpack("<H", table_of_fields + i)) for i in range(4, size, 2)]
        if any(places[len(layout.fields) :]):
            raise DamagedBufferError(f"{layout.name} has a field that is not known")
        places += [0] * (len(layout.fields) - len(places))
        return {
            name: self.field(at + place if place else 0, field)
            for place, (name, field) in zip(places, layout.fields.items(), strict=False)
        }

    def field(self, at: int, field: Field) -> Any:
        match field.kind:
            case "number":
                return self.unpack(field.of, at) if at else field.default
            case "text":
                return self.text(at) if at else b""
            case "array":
                start, count = self.block(at, field.of.itemsize) if at else (0, 0)
                return np.frombuffer(self.data, field.of, count, start)
            case "table":
                return self.table(self.follow(at), field.of) if at else None
            case "unread":
                return int(self.unpack("<I", self.follow(at))) if at else 0
            case _:
                start, count = self.block(at, 4) if at else (0, 0)
                return [self.field(i, field.of) for i in range(start, start + 4 * count, 4)]

    def text(self, at: int) -> bytes:
        start, count = self.block(at, 1)
        return self.data[start : start + count]


def _put_table(out: bytearray, record: Record, layout: Layout) -> int:
    """Append a table and all it points to; return where it begins."""
    places, end = _arrange(record, layout)
    _pad(out, 8, 4 + 2 * len(places))
    table_of_fields = len(out)
    out += struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), end, *places)
    at = len(out)
    out += struct.pack("<i", at - table_of_fields) + bytes(end - 4)
    for place, (name, field) in zip(places, layout.fields.items(), strict=True):
        if not place:
            continue
        if field.kind == "number":
            struct.pack_into(field.of, out, at + place, record[name])
        else:
            _patch(out, at + place, _put(out, record[name], field))
    return at


def _arrange(record: Record, layout: Layout) -> tuple[list[int], int]:
    """Return each field's place in its table, 0 if it is missing, and the table's size."""
    places, end = [], 4
    for name, field in layout.fields.items():
        value = record.get(name)
        if value is None or (field.kind == "unread" and value == 0):
            places.append(0)
            continue
        width = struct.calcsize(field.of) if field.kind == "number" else 4
        end += -end % width
        places.append(end)
        end += width
    return places, end


def _put(out: bytearray, value: Any, field: Field) -> int:
    match field.kind:
        case "text":
            return _put_block(out, len(value), bytes(value) + b"\0", 4)
        case "array":
            array: AnyArray = np.asarray(value, field.of)
            return _put_block(out, len(array), array.tobytes(), field.align)
        case "table":
            return _put_table(out, value, field.of)
        case "list":
            at = _put_block(out, len(value), bytes(4 * len(value)), 4)
            for i, one in enumerate(value):
                _patch(out, at + 4 + 4 * i, _put(out, one, field.of))
            return at
        case _:
            raise DamagedBufferError(f"{field} cannot be written")


def _put_block(out: bytearray, count: int, content: bytes, align: int) -> int:
    _pad(out, max(align, 4), 4)
    at = len(out)
    if at + len(content) > _LARGEST:
        raise DamagedBufferError(f"it would be larger than {_LARGEST} bytes")
    out += struct.pack("<I", count) + content
    return at


def _pad(out: bytearray, align: int, header: int) -> None:
    """Pad, so that what follows a header of some bytes begins at a multiple of ``align``."""
    out += bytes(-(len(out) + header) % align)


def _patch(out: bytearray, at: int, target: int) -> None:
    struct.pack_into("<I", out, at, target - at)


MAGIC = b"CBM1"
FORMAT = b"FlabuffersModel_v1"
CTR_PART = b"static_provider_v1"

_LAYOUTS = read_schema("""
TFloatFeature
    HasNans:? Index:i=-1 FlatIndex:i=-1 Borders:[f4] FeatureId:text NanValueTreatment:b
TCatFeature
    Index:i=-1 FlatIndex:i=-1 FeatureId:text UsedInModel:?=1
TOneHotFeature
    Index:i=-1 Values:[i4] StringValues:[text]
TFeatureCombination
    CatFeatures:[i4] FloatSplits:[FloatSplit@4] OneHotSplits:[OneHotSplit@4]
TModelCtrBase
    FeatureCombination:TFeatureCombination CtrType:b TargetBorderClassifierIdx:i
TModelCtr
    Base:TModelCtrBase TargetBorderIdx:i PriorNum:f PriorDenom:f=1 Shift:f Scale:f=1
TCtrFeature
    Ctr:TModelCtr Borders:[f4]
TCtrValueTable
    ModelCtrBase:TModelCtrBase IndexHashRaw:[u1@16] CTRBlob:[u1@16]
    CounterDenominator:i TargetClassesCount:i
TModelTrees
    ApproxDimension:i TreeSplits:[i4] TreeSizes:[i4] TreeStartOffsets:[i4]
    CatFeatures:[TCatFeature] FloatFeatures:[TFloatFeature]
    OneHotFeatures:[TOneHotFeature] CtrFeatures:[TCtrFeature]
    LeafValues:[f8] LeafWeights:[f8]
    NonSymmetricStepNodes:[Step@2] NonSymmetricNodeIdToLeafId:[u4]
    TextFeatures:unread EstimatedFeatures:unread
    Scale:d=1 Bias:d MultiBias:[f8] RepackedBins:[u4] EmbeddingFeatures:unread
TKeyValue
    Key:text Value:text
TModelCore
    FormatVersion:text ModelTrees:TModelTrees InfoMap:[TKeyValue] ModelPartIds:[text]
""")
"""CatBoost's tables. It works ``RepackedBins`` out anew whenever it loads a model."""
_CORE, _CTR_TABLE = _LAYOUTS["TModelCore"], _LAYOUTS["TCtrValueTable"]

_HINT = "get the file again from where it came; if CatBoost reads it, write it with save_model."


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What a file holds: trees and features, information by key, tables of category statistics."""

    trees: Record
    info: dict[bytes, bytes]
    tables: tuple[Record, ...] | None


def unpack(data: bytes) -> Contents:
    """Return what the bytes of a file hold; whether it makes sense is not checked here.

    Raises FileFormatError if they are damaged, have an unknown layout or features of text or
    embeddings.
    """
    try:
        if data[:4] != MAGIC:
            raise DamagedBufferError("it does not begin with CBM1")
        core, rest = _cut(data[4:])
        record = decode(core, _CORE)
        trees = record["ModelTrees"]
        if record["FormatVersion"] != FORMAT or trees is None:
            raise DamagedBufferError(f"its format is {record['FormatVersion']!r}")
        _refuse_text(trees, record["ModelPartIds"])
        tables = None
        if record["ModelPartIds"]:
            tables, rest = _unpack_tables(rest)
        if rest:
            raise DamagedBufferError(f"{len(rest)} bytes follow its end")
    except DamagedBufferError as error:
        raise FileFormatError(f"This is not a sound CatBoost model: {error}.", _HINT) from None
    info = {pair["Key"]: pair["Value"] for pair in record["InfoMap"]}
    return Contents(trees, info, tables)


def pack(contents: Contents) -> bytes:
    """Return the bytes of a file that holds this; `unpack` reads it back.

    Raises FileFormatError if the file would be too large.
    """
    core: Record = {
        "FormatVersion": FORMAT,
        "ModelTrees": contents.trees,
        "InfoMap": [{"Key": key, "Value": value} for key, value in contents.info.items()],
        "ModelPartIds": [] if contents.tables is None else [CTR_PART],
    }
    try:
        blocks = [encode(core, _CORE)]
        blocks += [encode(table, _CTR_TABLE) for table in contents.tables or ()]
    except DamagedBufferError as error:
        raise FileFormatError(f"The model cannot be written: {error}.") from None
    sized = [_size(len(block)) + block for block in blocks]
    if contents.tables is not None:
        sized.insert(1, _size(len(contents.tables)))
    return MAGIC + b"".join(sized)


def _refuse_text(trees: Record, parts: list[bytes]) -> None:
    for kind in ("Text", "Embedding"):
        if trees[f"{kind}Features"]:
            raise FileFormatError(
                f"The model has {kind.lower()} features, which timbermark does not read.",
                hint="train it on numbers and categories only.",
            )
    if trees["EstimatedFeatures"] or parts not in ([], [CTR_PART]):
        raise DamagedBufferError(f"it has parts that are not known, {parts}")


def _unpack_tables(data: bytes) -> tuple[tuple[Record, ...], bytes]:
    count, data = _read_size(data)
    tables = []
    for _ in range(count):
        block, data = _cut(data)
        tables.append(decode(block, _CTR_TABLE))
    return tuple(tables), data


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Split into the block whose length comes first, and what follows it."""
    size, data = _read_size(data)
    if size > len(data):
        raise DamagedBufferError(f"it ends too early, {size - len(data)} bytes are missing")
    return data[:size], data[size:]


def _read_size(data: bytes) -> tuple[int, bytes]:
    if len(data) < 4:
        raise DamagedBufferError("it ends too early")
    size = int.from_bytes(data[:4], "little")
    # CatBoost writes longer sizes in another form, but a core cannot be that long.
    return size, data[4:]


def _size(size: int) -> bytes:
    return struct.pack("<I", size)
