import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from timbermark.errors import FileFormatError, InputError
from timbermark.files import (
    container_bytes,
    container_kind,
    read_container,
    reading,
    write_container,
)

ARRAYS = {
    "numbers": np.linspace(0, 1, 5),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3)),
}
META = {"name": "oak", "sizes": [1, 2.5, None], "deep": {"a": True}}
GOOD = container_bytes("note", 1, META, ARRAYS)
PAYLOAD_START = len(b"timbermark note 1\n") + 65


def signed(payload, kind="note", version=1):
    """A container with a right checksum, whatever its payload."""
    first = f"timbermark {kind} {version}\n".encode()
    return first + hashlib.sha256(first + payload).hexdigest().encode() + b"\n" + payload


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def read(data, kind="note", max_version=1):
    return read_container(data, kind, max_version)


dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
)
arrays = st.dictionaries(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,9}", fullmatch=True),
    dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0))),
    max_size=4,
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    meta=st.dictionaries(st.text(), json_values, max_size=3), arrays=arrays, compress=st.booleans()
)
def test_round_trip(meta, arrays, compress):
    version, meta_back, back = read(container_bytes("note", 1, meta, arrays, compress=compress))
    assert version == 1
    assert meta_back == meta
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype.newbyteorder("<")
        assert back[name].shape == array.shape
        assert back[name].flags.c_contiguous
        assert back[name].flags.aligned
        assert back[name].tobytes() == array.astype(back[name].dtype).tobytes()


def test_equal_content_gives_equal_bytes():
    base = np.arange(12.0).reshape(3, 4)
    forms = [base, np.asfortranarray(base), base.astype(">f8"), np.repeat(base, 2, axis=1)[:, ::2]]
    results = {
        container_bytes("note", 1, {"a": 1, "b": 2}, {"x": form, "y": base}) for form in forms
    }
    results.add(container_bytes("note", 1, {"b": 2, "a": 1}, {"y": base, "x": base}))
    assert len(results) == 1


@pytest.mark.parametrize("compress", [True, False])
def test_file_and_bytes_are_the_same(tmp_path, compress):
    write_container(tmp_path / "x", "note", 1, META, ARRAYS, compress=compress, mode=0o600)
    data = (tmp_path / "x").read_bytes()
    assert data == container_bytes("note", 1, META, ARRAYS, compress=compress)
    assert read(tmp_path / "x")[1] == META


def test_other_programs_can_read_it():
    """The way that docs/model-format.md describes, without our code."""
    first, digest, payload = GOOD.split(b"\n", 2)
    assert first == b"timbermark note 1"
    assert hashlib.sha256(first + b"\n" + payload).hexdigest() == digest.decode()
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        assert json.loads(archive.read("meta.json")) == META
        assert archive.testzip() is None
        for name, array in ARRAYS.items():
            loaded = np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
            np.testing.assert_array_equal(loaded, array)


def test_arrays_larger_than_a_chunk_survive():
    big = np.random.default_rng(0).integers(0, 256, 3 * reading.CHUNK + 17, dtype=np.uint8)
    for compress in (True, False):
        back = read(container_bytes("note", 1, {}, {"x": big}, compress=compress))[2]["x"]
        np.testing.assert_array_equal(back, big)


@given(position=st.integers(0, len(GOOD) - 1), change=st.integers(1, 255))
def test_any_changed_byte_is_refused(position, change):
    bad = bytearray(GOOD)
    bad[position] ^= change
    with pytest.raises(FileFormatError):
        # Later versions are readable here, so that a changed version number must be noticed too.
        read(bytes(bad), max_version=9)


def test_any_truncation_is_refused():
    for length in range(len(GOOD)):
        with pytest.raises(FileFormatError):
            read(GOOD[:length])


@given(
    position=st.integers(PAYLOAD_START, len(GOOD) - 1),
    change=st.integers(1, 255),
    cut=st.integers(0, 40),
)
def test_hostile_payload_with_right_checksum_raises_nothing_else(position, change, cut):
    payload = bytearray(GOOD)
    payload[position] ^= change
    data = signed(bytes(payload[PAYLOAD_START : len(payload) - cut]))
    try:
        _, meta, arrays = read(data)
    except FileFormatError:
        return
    # Some bytes of a zip archive mean nothing; what is accepted must then be the content.
    assert meta == META
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_no_byte_of_the_directory_hides_a_member():
    """The length of a comment or of an extra field could swallow the entries after it."""
    for position in range(GOOD.index(b"PK\x01\x02"), len(GOOD)):
        for change in (1, 16, 128, 255):
            payload = bytearray(GOOD)
            payload[position] ^= change
            try:
                found = read(signed(bytes(payload[PAYLOAD_START:])))[2]
            except FileFormatError:
                continue
            assert set(found) == set(ARRAYS), (position, change)


def describing(meta):
    return signed(zipped([("meta.json", meta)]))


def holding(npy, name="a.npy"):
    return signed(zipped([("meta.json", "{}"), (name, npy)]))


NPY = saved(np.arange(3))
OBJECTS = saved(np.array([{}]), allow_pickle=True)
ABSURD = NPY.replace(b"(3,), }" + b" " * 12, b"(9999999999999,), }")
BAD_FLAG = saved(np.array([True]))[:-1] + b"\2"
BAD_TEXT = saved(np.array(["a"]))[:-4] + b"\xff" * 4
NO_NUMPY_HEADER = "header that NumPy would not write"
REFUSED = {
    "empty file": (b"", "is empty"),
    "foreign file": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a timbermark file"),
    "foreign text": (b"a,b,c\n1,2,3\n", "not a timbermark file"),
    "version 0": (signed(zipped([("meta.json", "{}")]), version=0), "not a timbermark file"),
    "other kind": (container_bytes("mark", 1, {}, {}), "holds a mark, not a note"),
    "newer version": (container_bytes("note", 2, {}, {}), "newer timbermark .*format 2.*format 1"),
    "truncated": (GOOD[:-30], "ends too early"),
    "only the first line": (b"timbermark note 1\n", "ends too early"),
    "changed": (GOOD[:200] + bytes([GOOD[200] ^ 1]) + GOOD[201:], "checksum is wrong"),
    "capital digest": (GOOD[:18] + GOOD[18:82].upper() + GOOD[82:], "checksum is wrong"),
    "no archive": (signed(b"not an archive at all, but long enough"), "zip archive"),
    "no metadata": (signed(zipped([("a.npy", NPY)])), "no meta.json"),
    "metadata not JSON": (describing("{"), "not valid JSON"),
    "metadata not text": (describing(b"\xff\xfe"), "not valid JSON"),
    "metadata no object": (describing("[1]"), "not a JSON object"),
    "metadata NaN": (describing('{"a": NaN}'), "NaN is not a number"),
    "metadata key twice": (describing('{"a":1,"a":2}'), "stands twice"),
    "metadata too deep": (describing("[" * 100_000), "not valid JSON"),
    "foreign member": (holding("print()", "run.py"), "foreign member, 'run.py'"),
    "member outside": (holding(NPY, "../a.npy"), "foreign member"),
    "objects": (holding(OBJECTS), "array a has the type object"),
    "records": (holding(saved(np.zeros(2, "i4,f8"))), NO_NUMPY_HEADER),
    "complex": (holding(saved(np.zeros(2, complex))), "type complex128"),
    "unknown type": (holding(NPY.replace(b"<i8", b"<q8")), "unknown type"),
    "type that is parsed": (holding(NPY.replace(b"<i8", b"<08")), "unknown type"),
    "type with a shape": (holding(NPY.replace(b"<i8", b"0i8")), "unknown type"),
    "big-endian": (holding(saved(np.zeros(2, ">f8"))), "little-endian"),
    "Fortran order": (holding(saved(np.zeros((2, 3), order="F"))), "C order"),
    "absurd shape": (holding(ABSURD), "claims the shape"),
    "too short": (holding(NPY[:-1]), "claims the shape"),
    "too long": (holding(NPY + b"\0"), "claims the shape"),
    "many dimensions": (holding(saved(np.zeros((1,) * 9))), "9 dimensions"),
    "executable header": (holding(NPY.replace(b"False", b"exit(")), NO_NUMPY_HEADER),
    "no numpy": (holding(b"hello"), "not in NumPy's format"),
    "flag of 2": (holding(BAD_FLAG), "other than true and false"),
    "no text": (holding(BAD_TEXT), "not Unicode"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refusal_has_its_own_message_and_a_hint(case):
    data, message = REFUSED[case]
    with pytest.raises(FileFormatError, match=message) as caught:
        read(data)
    assert caught.value.hint


def test_two_members_of_one_name_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        payload = zipped([("meta.json", "{}"), ("a.npy", NPY), ("a.npy", NPY)])
    with pytest.raises(FileFormatError, match="same name"):
        read(signed(payload))


def test_unknown_compression_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("meta.json", "{}")
    with pytest.raises(FileFormatError, match="unknown compression"):
        read(signed(file.getvalue()))


def test_archive_that_unpacks_out_of_proportion_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "FREE_UNPACKED", 1000)
    bomb = zipped([("meta.json", "{}"), ("a.npy", saved(np.zeros(10**6)))])
    with pytest.raises(FileFormatError, match="out of proportion"):
        read(signed(bomb))


def test_the_writer_never_writes_what_the_reader_refuses(monkeypatch):
    monkeypatch.setattr(reading, "FREE_UNPACKED", 1000)
    zeros = np.zeros(10**5)
    back = read(container_bytes("note", 1, {}, {"a": zeros}, compress=True))[2]["a"]
    np.testing.assert_array_equal(back, zeros)


def test_messages_name_the_file(tmp_path):
    (tmp_path / "broken.tm").write_bytes(GOOD[:-1])
    with pytest.raises(FileFormatError, match=r"broken\.tm ends too early"):
        read(tmp_path / "broken.tm")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.tm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("No Kind", 1, {}, {}), "not a kind"),
        (("note", 0, {}, {}), "version=0"),
        (("note", 1, {"a": float("nan")}, {}), "JSON"),
        (("note", 1, {"a": object()}, {}), "JSON"),
        (("note", 1, {}, {"a": np.array([None])}), "type object"),
        (("note", 1, {}, {"a": np.zeros(1, complex)}), "type complex128"),
        (("note", 1, {}, {"a/b": np.zeros(1)}), "array's name"),
        (("note", 1, {}, {"a": np.zeros((1,) * 9)}), "9 dimensions"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        write_container(tmp_path / "x", *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (GOOD, "note"),
        (b"", ""),
        (b"tree\nversion=v4\n", ""),
        (b"timbermark note\n", ""),
        (b"timbermark note 1 and more\n", ""),
        (b"\xff" * 100, ""),
    ],
)
def test_the_first_line_says_the_kind(content, kind, tmp_path):
    (tmp_path / "f").write_bytes(content)
    assert container_kind(tmp_path / "f") == kind
