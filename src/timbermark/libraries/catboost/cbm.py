"""CatBoost's binary file: what it holds, taken apart and put together again, exactly.

The file is four bytes, the length of the core and the core, a FlatBuffer; then, if the model has
statistics of categories (CTR), their number and for each its length and a FlatBuffer. Names and
their order are CatBoost's. A field that is not listed here is from a version that we do not know,
and is refused rather than lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from timbermark.errors import FileFormatError
from timbermark.libraries.catboost.flatbuffer import (
    DamagedBufferError,
    Layout,
    Number,
    Numbers,
    Part,
    Parts,
    Record,
    Text,
    Texts,
    Unread,
    decode,
    encode,
)

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
    {"Index": Number("<i", -1), "Values": _INTS, "StringValues": Texts()},
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
        "CatFeatures": Parts(_CAT_FEATURE),
        "FloatFeatures": Parts(_FLOAT_FEATURE),
        "OneHotFeatures": Parts(_ONE_HOT_FEATURE),
        "CtrFeatures": Parts(Layout("TCtrFeature", {"Ctr": Part(_CTR), "Borders": _FLOATS})),
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
_CORE = Layout(
    "TModelCore",
    {
        "FormatVersion": Text(),
        "ModelTrees": Part(_TREES),
        "InfoMap": Parts(Layout("TKeyValue", {"Key": Text(), "Value": Text()})),
        "ModelPartIds": Texts(),
    },
)

_HINT = "get the file again from where it came; if CatBoost reads it, write it with save_model."


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What a file holds: trees and features, information by key, tables of category statistics."""

    trees: Record
    info: dict[bytes, bytes]
    tables: tuple[Record, ...] | None


def unpack(data: bytes, name: str = "The model") -> Contents:
    """Return what the bytes of a file hold; whether it makes sense is not checked here.

    Raises FileFormatError, which calls the file ``name``, if it is damaged, has an unknown layout
    or features of text or embeddings.
    """
    try:
        if data[:4] != MAGIC:
            raise DamagedBufferError("it does not begin with CBM1")
        core, rest = _cut(data[4:])
        record = decode(core, _CORE)
        trees = record["ModelTrees"]
        if record["FormatVersion"] != FORMAT or trees is None:
            raise DamagedBufferError(f"its format is {record['FormatVersion']!r}")
        _refuse_text(trees, record["ModelPartIds"], name)
        tables = None
        if record["ModelPartIds"]:
            tables, rest = _unpack_tables(rest)
        if rest:
            raise DamagedBufferError(f"{len(rest)} bytes follow its end")
    except DamagedBufferError as error:
        raise FileFormatError(f"{name} is not a sound CatBoost model: {error}.", _HINT) from None
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


def _refuse_text(trees: Record, parts: list[bytes], name: str) -> None:
    for kind in ("Text", "Embedding"):
        if trees[f"{kind}Features"]:
            raise FileFormatError(
                f"{name} has {kind.lower()} features, which timbermark does not read.",
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
