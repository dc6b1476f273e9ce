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
class Number:
    """A number in the table itself; ``form`` is what `struct` calls its type."""

    form: str
    default: float = 0


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes, mostly UTF-8."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of numbers or of fixed records of numbers, each ``align`` bytes from the next."""

    dtype: Any
    align: int


@dataclass(frozen=True, slots=True)
class Part:
    """Another table, or None."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Many:
    """A list of texts or of tables."""

    of: Text | Part


@dataclass(frozen=True, slots=True)
class Unread:
    """A list of which only the length is wanted; it can be written only if it is 0."""


Field: TypeAlias = Number | Text | Numbers | Part | Many | Unread


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's name and its fields, in the order of their numbers."""

    name: str
    fields: dict[str, Field]


def decode(data: bytes, layout: Layout) -> Record:
    """Return the root table of a buffer.

    Raises DamagedBufferError if an offset, a length or a field leads outside what the buffer and
    the layout allow, or if the whole would be far larger than the buffer.

    >>> pair = Layout("pair", {"name": Text(), "sizes": Numbers("<i4", 4)})
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
        match field:
            case Number(form, default):
                return self.unpack(form, at) if at else default
            case Text():
                return self.text(at) if at else b""
            case Numbers(dtype):
                start, count = self.block(at, np.dtype(dtype).itemsize) if at else (0, 0)
                return np.frombuffer(self.data, dtype, count, start)
            case Part(layout):
                return self.table(self.follow(at), layout) if at else None
            case Unread():
                return int(self.unpack("<I", self.follow(at))) if at else 0
            case Many(of):
                start, count = self.block(at, 4) if at else (0, 0)
                return [self.field(i, of) for i in range(start, start + 4 * count, 4)]

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
        if isinstance(field, Number):
            struct.pack_into(field.form, out, at + place, record[name])
        else:
            _patch(out, at + place, _put(out, record[name], field))
    return at


def _arrange(record: Record, layout: Layout) -> tuple[list[int], int]:
    """Return each field's place in its table, 0 if it is missing, and the table's size."""
    places, end = [], 4
    for name, field in layout.fields.items():
        value = record.get(name)
        if value is None or (isinstance(field, Unread) and value == 0):
            places.append(0)
            continue
        width = struct.calcsize(field.form) if isinstance(field, Number) else 4
        end += -end % width
        places.append(end)
        end += width
    return places, end


def _put(out: bytearray, value: Any, field: Field) -> int:
    match field:
        case Text():
            return _put_block(out, len(value), bytes(value) + b"\0", 4)
        case Numbers(dtype, align):
            array: AnyArray = np.asarray(value, dtype)
            return _put_block(out, len(array), array.tobytes(), align)
        case Part(layout):
            return _put_table(out, value, layout)
        case Many(of):
            at = _put_block(out, len(value), bytes(4 * len(value)), 4)
            for i, one in enumerate(value):
                _patch(out, at + 4 + 4 * i, _put(out, one, of))
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

STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
BUCKET = np.dtype([("hash", "<u8"), ("index", "<u4")])

_INTS, _FLOATS, _REALS = Numbers("<i4", 4), Numbers("<f4", 4), Numbers("<f8", 8)

_FLOAT_FEATURE = Layout(
    "TFloatFeature",
    {
        "HasNans": Number("<?", False),
        "Index": Number("<i", -1),
        "FlatIndex": Number("<i", -1),
        "Borders": _FLOATS,
        "FeatureId": Text(),
        "NanValueTreatment": Number("<b"),
    },
)
_CAT_FEATURE = Layout(
    "TCatFeature",
    {
        "Index": Number("<i", -1),
        "FlatIndex": Number("<i", -1),
        "FeatureId": Text(),
        "UsedInModel": Number("<?", True),
    },
)
_ONE_HOT_FEATURE = Layout(
    "TOneHotFeature",
    {"Index": Number("<i", -1), "Values": _INTS, "StringValues": Many(Text())},
)
_COMBINATION = Layout(
    "TFeatureCombination",
    {
        "CatFeatures": _INTS,
        "FloatSplits": Numbers(np.dtype([("index", "<i4"), ("border", "<f4")]), 4),
        "OneHotSplits": Numbers(np.dtype([("index", "<i4"), ("value", "<i4")]), 4),
    },
)
_CTR_BASE = Layout(
    "TModelCtrBase",
    {
        "FeatureCombination": Part(_COMBINATION),
        "CtrType": Number("<b"),
        "TargetBorderClassifierIdx": Number("<i"),
    },
)
_CTR = Layout(
    "TModelCtr",
    {
        "Base": Part(_CTR_BASE),
        "TargetBorderIdx": Number("<i"),
        "PriorNum": Number("<f"),
        "PriorDenom": Number("<f", 1.0),
        "Shift": Number("<f"),
        "Scale": Number("<f", 1.0),
    },
)
_CTR_FEATURE = Layout("TCtrFeature", {"Ctr": Part(_CTR), "Borders": _FLOATS})
_CTR_TABLE = Layout(
    "TCtrValueTable",
    {
        "ModelCtrBase": Part(_CTR_BASE),
        "IndexHashRaw": Numbers("u1", 16),
        "CTRBlob": Numbers("u1", 16),
        "CounterDenominator": Number("<i"),
        "TargetClassesCount": Number("<i"),
    },
)
_TREES = Layout(
    "TModelTrees",
    {
        "ApproxDimension": Number("<i"),
        "TreeSplits": _INTS,
        "TreeSizes": _INTS,
        "TreeStartOffsets": _INTS,
        "CatFeatures": Many(Part(_CAT_FEATURE)),
        "FloatFeatures": Many(Part(_FLOAT_FEATURE)),
        "OneHotFeatures": Many(Part(_ONE_HOT_FEATURE)),
        "CtrFeatures": Many(Part(_CTR_FEATURE)),
        "LeafValues": _REALS,
        "LeafWeights": _REALS,
        "NonSymmetricStepNodes": Numbers(STEP, 2),
        "NonSymmetricNodeIdToLeafId": Numbers("<u4", 4),
        "TextFeatures": Unread(),
        "EstimatedFeatures": Unread(),
        "Scale": Number("<d", 1.0),
        "Bias": Number("<d"),
        "MultiBias": _REALS,
        # CatBoost works these out anew whenever it loads a model.
        "RepackedBins": Numbers("<u4", 4),
        "EmbeddingFeatures": Unread(),
    },
)
_KEY_VALUE = Layout("TKeyValue", {"Key": Text(), "Value": Text()})
_CORE = Layout(
    "TModelCore",
    {
        "FormatVersion": Text(),
        "ModelTrees": Part(_TREES),
        "InfoMap": Many(Part(_KEY_VALUE)),
        "ModelPartIds": Many(Text()),
    },
)

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
