import copy
import io
import json
import os
import pickle
import re
import stat
import threading
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership.making import (
    KEY,
    make_known_mark,
    make_mark,
    make_mixed_mark,
    marks,
    obedient,
    packed,
    resigned,
    signed,
    unpacked,
)
from timbermark.errors import FileFormatError, InputError, PassphraseError
from timbermark.files import container_bytes
from timbermark.ownership import Mark, OwnerKey, sealing, verify
from timbermark.ownership.columns import split_columns

MARK = make_mark()
FIRST = b"timbermark mark 2\n"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(sealing, "COST", sealing.ScryptCost(n=1 << 10))


@given(marks())
def test_round_trip(mark):
    back = Mark.from_bytes(mark.to_bytes())
    assert back == mark
    assert hash(back) == hash(mark)
    assert [type(label) for label in back.classes] == [type(label) for label in mark.classes]
    np.testing.assert_array_equal(back.symbols, mark.symbols)
    assert back.expected == mark.expected
    assert back.to_bytes() == mark.to_bytes()


@given(mark=marks(), passphrase=st.text(st.characters(codec="utf-8"), min_size=1))
@settings(max_examples=20)
def test_round_trip_with_a_passphrase(mark, passphrase):
    assert Mark.from_bytes(mark.to_bytes(passphrase), passphrase) == mark


def test_a_mark_is_not_pickled():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=r"cannot be pickled: its secret .* Hint: .*mark\.save"):
            pickle.dumps(MARK, protocol)
    assert copy.copy(MARK) is MARK
    assert copy.deepcopy([MARK])[0] is MARK


@given(marks())
def test_nothing_secret_is_shown(mark):
    # One that is not to be found in other bytes by accident.
    mark = replace(mark, secret=KEY.mark_secret(mark.mark_id))
    len(mark.symbols)
    shown = f"{mark} {mark!r} {[mark]}"
    assert mark.secret.hex() not in shown
    assert repr(mark.secret)[2:-1] not in shown
    assert set(re.findall(r"(\w+)=", shown)) == {
        "mark_id", "owner", "created", "n_triggers", "q",
    }  # fmt: skip


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_files(tmp_path, passphrase):
    MARK.save(tmp_path / "m", passphrase)
    assert stat.S_IMODE(os.stat(tmp_path / "m").st_mode) == 0o600
    assert Mark.load(tmp_path / "m", passphrase) == MARK
    with pytest.raises(InputError, match="exists already, the mark was not written"):
        MARK.save(tmp_path / "m", passphrase)
    MARK.save(tmp_path / "m", passphrase, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_file_that_others_may_read_warns(tmp_path):
    MARK.save(tmp_path / "m")
    (tmp_path / "m").chmod(0o644)
    with pytest.warns(UserWarning, match="secret mark, but others may read it"):
        Mark.load(tmp_path / "m")


def test_making():
    made = Mark.make(
        KEY,
        owner="Ann",
        model_digest="0" * 64,
        classes=np.array(["a", "b"]),
        triggers=[[1, 2], [3, 4]],
        alphabets=[[0, 1], [1, 0]],
        reference=[[0.5, 0.5], [0.0, 1.0]],
        feature_names=np.array(["x", "y"]),
        about={"strategy": "random"},
    )
    assert made.made_with(KEY)
    assert not made.made_with(OwnerKey.generate())
    assert made.secret == KEY.mark_secret(made.mark_id)
    assert made.classes == ("a", "b")
    assert made.feature_names == ("x", "y")
    assert (made.n_triggers, made.n_features, made.q) == (2, 2, 2)
    again = replace(made)
    assert again == made
    other = Mark.make(
        KEY, owner="Ann", model_digest="0" * 64, classes=made.classes, triggers=made.triggers,
        alphabets=made.alphabets, reference=made.reference,
    )  # fmt: skip
    assert other.mark_id != made.mark_id
    assert other.secret != made.secret
    assert made.reference.tolist() == [[0.5, 0.5], [1e-6, 1.0]]
    assert (made.protocol, made.answers, made.draws) == (2, "classes", 1)


def test_other_draws_are_other_symbols():
    again = MARK.with_draws(2)
    assert (again.draws, again.mark_id, again.secret) == (2, MARK.mark_id, MARK.secret)
    assert np.mean(again.symbols == MARK.symbols) < 0.7
    assert again.with_draws(1) == MARK


def test_other_triggers_are_other_symbols():
    other = make_mark(k=20, seed=3)
    parts = {name: getattr(other, name) for name in ("columns", "alphabets", "reference")}
    changed = replace(MARK, **parts, alternatives=other.alternatives)
    assert changed == other
    np.testing.assert_array_equal(changed.triggers, other.triggers)


def test_triggers_with_texts():
    mark = make_mixed_mark()
    assert mark.has_texts
    assert not MARK.has_texts
    with pytest.raises(InputError, match=r"hold texts.*mark\.rows"):
        mark.triggers  # noqa: B018
    rows = mark.rows()
    assert rows.dtype == object
    assert rows[0, 1] == "red"
    assert rows[3, 1] is None
    assert type(rows[0, 0]) is float
    assert Mark.from_bytes(mark.to_bytes()) == mark
    np.testing.assert_array_equal(MARK.rows(), MARK.triggers)
    assert MARK.rows().dtype == np.float64


def test_expected_labels_are_those_of_the_alphabet():
    assert list(MARK.expected) == [
        MARK.classes[MARK.alphabets[i, s]] for i, s in enumerate(MARK.symbols)
    ]
    assert MARK.expected_numbers.dtype == np.int32


def test_a_sealed_mark_shows_nothing():
    meta, members = unpacked(MARK.to_bytes("right"))
    assert meta.keys() == {"cipher", "scrypt", "salt", "nonce"}
    assert MARK.triggers.tobytes() not in members["sealed.npy"]


def test_a_mark_cannot_be_changed():
    triggers = MARK.triggers.copy()
    reference = MARK.reference.copy()
    mark = replace(MARK, columns=tuple(triggers.T), reference=reference)
    triggers[:] = 0
    reference[:] = 0
    assert mark == MARK
    with pytest.raises(ValueError, match="read-only"):
        mark.triggers[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        mark.alphabets[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        mark.reference[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        mark.columns[0][0] = 1
    with pytest.raises(TypeError):
        mark.about["x"] = 1
    with pytest.raises(AttributeError):
        mark.owner = "Eve"


def test_zeros_and_missing_values_have_one_form():
    odd = np.frombuffer(bytes.fromhex("010000000000f8ff"), "<f8")[0]
    parts = {
        "alphabets": MARK.alphabets[:2], "reference": MARK.reference[:2],
        "alternatives": MARK.alternatives[:2],
    }  # fmt: skip
    a = replace(MARK, columns=split_columns([[0.0, np.nan, 1], [2, 2, 2]]), **parts)
    b = replace(MARK, columns=split_columns(np.array([[-0.0, odd, 1], [2, 2, 2]])), **parts)
    assert a == b
    assert a.triggers.tobytes() == b.triggers.tobytes()
    assert list(a.symbols) == list(b.symbols)


TWO = {"feature_names": None, "reference": MARK.reference[:2]}
BAD = {
    "protocol 0": ({"protocol": 0}, "Protocol=0 is not known"),
    "protocol True": ({"protocol": True}, "Protocol=True"),
    "short id": ({"mark_id": bytes(15)}, "Mark_id is not 16 bytes"),
    "short secret": ({"secret": bytes(31)}, "Secret is not 32 bytes"),
    "no owner": ({"owner": " "}, "Owner is not a name"),
    "long owner": ({"owner": "x" * 201}, "Owner is not a name"),
    "owner not Unicode": ({"owner": "\ud800"}, "Owner is not a name"),
    "no digest": ({"model_digest": "ab"}, "64 hexadecimal digits"),
    "capital digest": ({"model_digest": "AB" * 32}, "64 hexadecimal digits"),
    "few names": ({"feature_names": ("a", "b")}, "3 distinct texts"),
    "same names": ({"feature_names": ("a", "b", "a")}, "3 distinct texts"),
    "names no texts": ({"feature_names": (1, 2, 3)}, "3 distinct texts"),
    "names one text": ({"feature_names": "abc"}, "3 distinct texts"),
    "one class": ({"classes": (1,)}, "not enough"),
    "class twice": ({"classes": (1, 2, 3, 4, 5, 1)}, "not enough"),
    "mixed classes": ({"classes": (1, "2", 3, 4, 5, 6)}, "types int, str"),
    "classes no list": ({"classes": 7}, "no list of labels"),
    "NaN for a class": ({"classes": (1.0, np.nan)}, "classes holds nan"),
    "None for a class": ({"classes": (None, None)}, "types NoneType"),
    "lists for classes": ({"classes": ([1], [2])}, "types tuple"),
    "no triggers": ({"columns": (np.zeros(0),)}, "0 triggers of 1 features"),
    "too many": ({"columns": (np.arange(16385),)}, "16385 triggers"),
    "no features": ({"columns": ()}, "0 features"),
    "ragged": ({"columns": ([1.0], [1.0, 2.0])}, "different lengths"),
    "infinity": ({"columns": ([np.inf] * 32,)}, "holds infinity"),
    "lossy": ({"columns": ([2**53 + 1] * 32,)}, "beyond 2\\^53"),
    "mixed": ({"columns": (["a", 1] * 16,)}, "mixes texts"),
    "surrogate": ({"columns": (["\ud800"] * 32,)}, "mixes texts"),
    "objects": ({"columns": ([object()] * 32,)}, "neither numbers nor texts"),
    "twice": ({"columns": (np.zeros(32), ["a"] * 32)}, "two triggers are the same"),
    "twice but for the sign": (
        {**TWO, "columns": ([0.0, -0.0],), "alphabets": [[0, 1], [0, 1]]},
        "two triggers are the same",
    ),
    "answers": ({"answers": "poems"}, "no known kind of answers"),
    "no draws": ({"draws": 0}, "draws=0"),
    "half a draw": ({"draws": 1.5}, "draws=1.5"),
    "draws true": ({"draws": True}, "draws=True"),
    "reference of another shape": ({"reference": MARK.reference[:, 1:]}, "reference has"),
    "margins": ({"reference": MARK.reference * 3 - 1}, "no probabilities"),
    "NaN in the reference": ({"reference": MARK.reference * np.nan}, "no probabilities"),
    "texts in the reference": ({"reference": [["a"] * 6] * 32}, "reference has"),
    "alternatives of another shape": ({"alternatives": np.ones((32, 2, 3))}, "alternatives have"),
    "a matrix of alternatives": ({"alternatives": np.ones((32, 4))}, "alternatives have"),
    "too many alternatives": ({"alternatives": np.ones((32, 17, 4))}, "R up to 16"),
    "margins of alternatives": ({"alternatives": np.full((32, 1, 4), 2.0)}, "no probabilities"),
    "NaN in alternatives": ({"alternatives": np.full((32, 1, 4), np.nan)}, "no probabilities"),
    "an escape in the owner": ({"owner": "Ann\x1b[2J"}, "printable"),
    "a large about": ({"about": {"x": "y" * (9 << 20)}}, "its file holds at most"),
    "few alphabets": ({"alphabets": MARK.alphabets[1:]}, "32 triggers have 31 alphabets"),
    "q of 3": ({"alphabets": MARK.alphabets[:, :3]}, "have 3 labels"),
    "q of 1": ({"alphabets": MARK.alphabets[:, :1]}, "have 1 labels"),
    "class too large": ({"alphabets": MARK.alphabets + 1}, "outside 0 to 5"),
    "class negative": ({"alphabets": MARK.alphabets - 1}, "outside 0 to 5"),
    "same label": ({"alphabets": np.zeros((32, 4), int)}, "same class twice"),
    "labels for numbers": ({"alphabets": np.full((32, 4), "a")}, "no matrix of class numbers"),
    "fractions": ({"alphabets": MARK.alphabets + 0.5}, "no matrix of class numbers"),
    "local time": ({"created": "2030-01-02T03:04:05"}, "not a time"),
    "no time": ({"created": "2030-02-30T03:04:05Z"}, "not a time"),
    "about no dictionary": ({"about": [1]}, "not a dictionary"),
    "about not plain": ({"about": {"x": object()}}, "not a plain value"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_mark_is_refused(case):
    change, message = BAD[case]
    with pytest.raises(InputError, match=f"(?i){message}") as caught:
        replace(MARK, **change)
    assert caught.value.hint
    assert MARK.secret.hex() not in str(caught.value)


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_changed_byte_of_a_file_is_refused(passphrase):
    good = MARK.to_bytes(passphrase)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        with pytest.raises(FileFormatError):
            Mark.from_bytes(bytes(bad), passphrase)


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_truncation_is_refused(passphrase):
    good = MARK.to_bytes(passphrase)
    for length in range(0, len(good), 11):
        with pytest.raises(FileFormatError):
            Mark.from_bytes(good[:length], passphrase)


BIG = make_mark(k=128)
BIG_FILE = packed(FIRST, *unpacked(BIG.to_bytes()))


@given(
    position=st.integers(len(FIRST) + 65, len(BIG_FILE) - 1),
    change=st.integers(1, 255),
)
@settings(max_examples=300)
def test_with_a_repaired_checksum_a_changed_mark_is_refused_or_worth_nothing(position, change):
    """A forger who knows the format; members are stored as they are, so each byte is content."""
    bad = bytearray(BIG_FILE)
    bad[position] ^= change
    try:
        mark = Mark.from_bytes(resigned(bytes(bad)))
    except FileFormatError:
        return
    if mark == BIG:
        return  # a byte of the archive that means nothing
    with suppress(InputError):  # the classes or the columns may be others now
        assert verify(obedient(BIG), mark).bits < 20


@pytest.mark.parametrize(
    "member", ["numbers.npy", "alphabets.npy", "reference.npy", "alternatives.npy"]
)
def test_changed_arrays_behind_right_checksums_give_other_symbols(member):
    """As above, with the archive's own checksums repaired too."""
    known = make_known_mark(k=128)
    meta, members = unpacked(known.to_bytes())
    accepted = 0
    for position in range(128, len(members[member]), 97):
        raw = bytearray(members[member])
        raw[position] ^= 1
        data = packed(b"timbermark mark 3\n", meta, {**members, member: bytes(raw)})
        try:
            mark = Mark.from_bytes(data)
        except FileFormatError:
            continue
        accepted += 1
        assert np.mean(mark.symbols == known.symbols) < 0.55
    assert accepted > 2


META_CHANGES = {
    "secret": "00" * 32,
    "mark_id": "ff" * 16,
    "owner": "Eve",
    "model_digest": "00" * 32,
    "created": "2029-01-02T03:04:05Z",
    "feature_names": ["a", "b", "c"],
    "classes": ["0", "1", "2", "3", "4", "5"],
    "about": {},
    "draws": 2,
    "columns": [None, None, [str(i) for i in range(128)]],
}


@pytest.mark.parametrize("name", META_CHANGES)
def test_changed_words_give_other_symbols(name):
    meta, members = unpacked(BIG.to_bytes())
    if name == "columns":
        arrays = {"numbers": BIG.triggers[:, :2], "alphabets": BIG.alphabets}
        changed = {**meta, name: META_CHANGES[name]}
        data = container_bytes("mark", 2, changed, {**arrays, "reference": BIG.reference})
    else:
        data = packed(FIRST, {**meta, name: META_CHANGES[name]}, members)
    mark = Mark.from_bytes(data)
    assert np.mean(mark.symbols == BIG.symbols) < 0.55
    answers = dict(zip(map(tuple, BIG.triggers[:, :2].tolist()), BIG.expected, strict=True))
    known = [answers[tuple(row)] for row in mark.rows()[mark.order][:, :2].tolist()]
    assert verify(lambda X: list(map(str, known)), mark).level == "none"


FOREIGN = {
    "protocol": (3, "uses protocol 3"),
    "draws": (0, "Draws=0"),
    "answers": ("poems", "no known kind of answers"),
    "columns": ([None], "not those of its numbers"),
    "columns of numbers": ([None, None, [1] * 32], "not those of its numbers"),
    "secret": ("0g" * 32, "Secret is not in hexadecimal"),
    "mark_id": (" 0" * 16, "Mark_id is not in hexadecimal"),
    "owner": (7, "Owner is not a name"),
    "classes": (3, "no list of labels"),
    "feature_names": ({"a": 1}, "3 distinct texts"),
    "about": ([], "not a dictionary"),
    "created": (None, "not a time"),
    "extra": (1, "exactly the parts of a mark"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_words_are_refused_as_a_bad_file(name):
    value, message = FOREIGN[name]
    meta, members = unpacked(MARK.to_bytes())
    with pytest.raises(FileFormatError, match=message) as caught:
        Mark.from_bytes(packed(FIRST, {**meta, name.split()[0]: value}, members))
    assert caught.value.hint


def test_foreign_arrays_are_refused():
    meta, _ = unpacked(MARK.to_bytes())
    arrays = {
        "numbers": MARK.triggers, "alphabets": MARK.alphabets, "reference": MARK.reference
    }  # fmt: skip
    for change, message in (
        ({"numbers": MARK.triggers.astype(np.float32)}, "float32, not float64"),
        ({"alphabets": MARK.alphabets.astype(np.int64)}, "int64, not int32"),
        ({"reference": MARK.reference.astype(np.float32)}, "float32, not float64"),
        ({"extra": np.zeros(1)}, "exactly the parts"),
        ({"numbers": MARK.triggers[:3]}, "3 triggers have 32 alphabets"),
        ({"numbers": MARK.triggers[0]}, "not those of its numbers"),
        ({"reference": MARK.reference[:3]}, "reference has"),
    ):
        with pytest.raises(FileFormatError, match=message):
            Mark.from_bytes(container_bytes("mark", 2, meta, {**arrays, **change}))


def test_alternatives_are_in_files_of_format_3_alone():
    known = make_known_mark()
    data = known.to_bytes()
    assert data.startswith(b"timbermark mark 3\n")
    assert Mark.from_bytes(data) == known
    assert Mark.from_bytes(known.to_bytes("sesame"), "sesame") == known
    meta, members = unpacked(data)
    with pytest.raises(FileFormatError, match="exactly the parts"):
        Mark.from_bytes(packed(FIRST, meta, members))
    assert MARK.to_bytes().startswith(FIRST)
    plain = {name: raw for name, raw in members.items() if name != "alternatives.npy"}
    with pytest.raises(FileFormatError, match="exactly the parts"):
        Mark.from_bytes(packed(b"timbermark mark 3\n", meta, plain))


def test_texts_in_a_file_are_texts():
    mark = make_mixed_mark()
    meta, members = unpacked(mark.to_bytes())
    for texts in ([1] * 24, ["a"] * 23, [None] * 24, ["a", 1] * 12, "a" * 24, {"a": 1}):
        changed = {**meta, "columns": [None, texts, None]}
        with pytest.raises(FileFormatError, match="column of texts is not 24 texts"):
            Mark.from_bytes(packed(FIRST, changed, members))


def compressed(meta, members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("meta.json", meta)
        for name, content in members.items():
            archive.writestr(name, content)
    return signed(FIRST, file.getvalue())


def zeros(*shape):
    raw = io.BytesIO()
    np.save(raw, np.zeros(shape))
    return raw.getvalue()


BOMBS = {
    "about": lambda meta: ({**meta, "about": {"x": [0] * 8_000_000}}, {}),
    "classes": lambda meta: ({**meta, "classes": ["x" * 30_000_000, "y"]}, {}),
    "long": lambda meta: (meta, {"numbers.npy": zeros(4_000_000, 1)}),
    "wide": lambda meta: (meta, {"numbers.npy": zeros(1, 4_000_000)}),
}


def bomb(case):
    """A file of some 65 KB that would unpack to hundreds of times that."""
    meta, members = unpacked(MARK.to_bytes())
    changed, arrays = BOMBS[case](meta)
    return compressed(json.dumps(changed), {**members, **arrays})


@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_takes_little_memory(case):
    data = bomb(case)
    assert len(data) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match=r"would unpack to|bytes of metadata"):
            Mark.from_bytes(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_sizes_are_bounded_at_every_layer(tmp_path):
    sparse = tmp_path / "huge.mark"
    with open(sparse, "wb") as file:
        file.write(FIRST)
        file.truncate(300 << 20)
    with pytest.raises(FileFormatError, match=r"huge\.mark has 314572800 bytes, at most"):
        Mark.load(sparse)
    # The same inside an encrypted file: whoever knows the passphrase may have packed anything.
    inner = bomb("long")
    salt, nonce = bytes(16), bytes(12)
    how = {
        "cipher": sealing.CIPHER, "scrypt": {"n": 1024, "r": 8, "p": 1}, "salt": salt.hex(),
        "nonce": nonce.hex(),
    }  # fmt: skip
    cipher = sealing._cipher("right", salt, sealing.ScryptCost(n=1024))
    sealed = cipher.encrypt(nonce, inner, sealing._bound("mark", 2, how))
    data = container_bytes(
        "mark", 2, how, {"sealed": np.frombuffer(sealed, np.uint8)}, compress=False
    )
    with pytest.raises(FileFormatError, match="would unpack to"):
        Mark.from_bytes(data, "right")


def test_a_lack_of_memory_is_a_sentence(monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr("timbermark.ownership.mark_file.unseal", refuse)
    with pytest.raises(FileFormatError, match="needs more memory than there is"):
        Mark.from_bytes(b"")


def test_a_wide_and_a_long_mark_are_read(tmp_path):
    for k, d in ((4, 20_000), (16384, 4)):
        mark = make_mark(k=k, d=d, about={})
        mark.save(tmp_path / str(d))
        assert Mark.load(tmp_path / str(d)) == mark


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_mark_comes_through_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(MARK.to_bytes(),))
    writer.start()
    assert Mark.load(tmp_path / "pipe") == MARK
    writer.join()


def test_messages_name_the_file(tmp_path):
    MARK.save(tmp_path / "oak.mark", "right")
    with pytest.raises(PassphraseError, match=r"does not open .*oak\.mark"):
        Mark.load(tmp_path / "oak.mark", "wrong")
    KEY.save(tmp_path / "owner.key")
    with pytest.raises(FileFormatError, match="holds an owner key, not a mark"):
        Mark.load(tmp_path / "owner.key")
    with pytest.raises(FileNotFoundError):
        Mark.load(tmp_path / "none")


def test_other_versions_are_refused():
    payload = MARK.to_bytes().split(b"\n", 2)[2]
    with pytest.raises(FileFormatError, match="version 4"):
        Mark.from_bytes(signed(b"timbermark mark 4\n", payload))
    with pytest.raises(FileFormatError, match=r"version 1 .* no longer read"):
        Mark.from_bytes(signed(b"timbermark mark 1\n", payload))


def test_equality_is_that_of_content():
    assert make_mark() == MARK
    assert make_mark(seed=1) != MARK
    assert MARK != "mark"


def test_what_a_mark_is_worth_at_most():
    assert make_mark(k=96, q=4).full_bits == 192
    assert make_mark(k=96, q=2, draws=8).full_bits == 93
