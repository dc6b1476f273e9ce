import os
import pickle
import stat
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership.making import (
    KEY,
    make_mark,
    marks,
    obedient,
    packed,
    resigned,
    signed,
    unpacked,
)
from timbermark.errors import FileFormatError, InputError
from timbermark.files import container_bytes
from timbermark.ownership import Mark, OwnerKey, PassphraseError, sealing, verify

MARK = make_mark()
FIRST = b"timbermark mark 1\n"


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


@given(marks())
def test_round_trip_between_processes(mark):
    back = pickle.loads(pickle.dumps(mark))
    assert back == mark
    assert not back.triggers.flags.writeable


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
        alphabets=made.alphabets,
    )  # fmt: skip
    assert other.mark_id != made.mark_id
    assert other.secret != made.secret


def test_expected_labels_are_those_of_the_alphabet():
    assert list(MARK.expected) == [
        MARK.classes[MARK.alphabets[i, s]] for i, s in enumerate(MARK.symbols)
    ]
    assert MARK.expected_numbers.dtype == np.int32


def test_nothing_secret_is_shown():
    shown = f"{MARK!r} {MARK} {[MARK]}"
    assert MARK.secret.hex() not in shown
    assert str(MARK.secret) not in shown
    assert not any(f"{x:.3f}"[1:] in shown for x in MARK.triggers.ravel())
    assert MARK.mark_id.hex() in shown
    assert "Ann Owner" in shown


def test_a_sealed_mark_shows_nothing():
    meta, members = unpacked(MARK.to_bytes("right"))
    assert meta.keys() == {"cipher", "scrypt", "salt", "nonce"}
    assert MARK.triggers.tobytes() not in members["sealed.npy"]


def test_a_mark_cannot_be_changed():
    triggers = MARK.triggers.copy()
    mark = replace(MARK, triggers=triggers)
    triggers[:] = 0
    assert mark == MARK
    with pytest.raises(ValueError, match="read-only"):
        mark.triggers[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        mark.alphabets[0, 0] = 1
    with pytest.raises(TypeError):
        mark.about["x"] = 1
    with pytest.raises(AttributeError):
        mark.owner = "Eve"


def test_zeros_and_missing_values_have_one_form():
    odd = np.frombuffer(bytes.fromhex("010000000000f8ff"), "<f8")[0]
    a = replace(
        MARK, triggers=np.array([[0.0, np.nan, 1], [2, 2, 2]]), alphabets=MARK.alphabets[:2]
    )
    b = replace(MARK, triggers=np.array([[-0.0, odd, 1], [2, 2, 2]]), alphabets=MARK.alphabets[:2])
    assert a == b
    assert a.triggers.tobytes() == b.triggers.tobytes()
    assert list(a.symbols) == list(b.symbols)


TWO = {"triggers": np.array([[1.0], [2.0]]), "feature_names": None}
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
    "no triggers": ({"triggers": np.zeros((0, 3))}, "0 triggers of 3 features"),
    "too many": ({"triggers": np.zeros((16385, 3))}, "16385 triggers"),
    "no features": ({"triggers": np.zeros((3, 0))}, "3 triggers of 0 features"),
    "one dimension": ({"triggers": np.zeros(3)}, "no matrix of numbers"),
    "text": ({"triggers": np.array([["a"]])}, "no matrix of numbers"),
    "ragged": ({"triggers": [[1.0], [1.0, 2.0]]}, "rows of different lengths"),
    "infinity": ({"triggers": np.full((32, 3), np.inf)}, "hold infinity"),
    "lossy": ({"triggers": np.full((32, 3), 2**53 + 1)}, "beyond 2\\^53"),
    "twice": ({"triggers": np.zeros((32, 3))}, "two triggers are the same"),
    "twice but for the sign": (
        {**TWO, "triggers": [[0.0], [-0.0]], "alphabets": [[0, 1], [0, 1]]},
        "two triggers are the same",
    ),
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
    assert verify(obedient(BIG), mark).evidence_bits < 20


@pytest.mark.parametrize("member", ["triggers.npy", "alphabets.npy"])
def test_changed_arrays_behind_right_checksums_give_other_symbols(member):
    """As above, with the archive's own checksums repaired too."""
    meta, members = unpacked(BIG.to_bytes())
    accepted = 0
    for position in range(128, len(members[member]), 97):
        raw = bytearray(members[member])
        raw[position] ^= 1
        data = packed(FIRST, meta, {**members, member: bytes(raw)})
        try:
            mark = Mark.from_bytes(data)
        except FileFormatError:
            continue
        accepted += 1
        assert np.mean(mark.symbols == BIG.symbols) < 0.55
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
}


@pytest.mark.parametrize("name", META_CHANGES)
def test_changed_words_give_other_symbols(name):
    meta, members = unpacked(BIG.to_bytes())
    mark = Mark.from_bytes(packed(FIRST, {**meta, name: META_CHANGES[name]}, members))
    assert np.mean(mark.symbols == BIG.symbols) < 0.55
    assert verify(lambda X: list(map(str, obedient(BIG)(X))), mark).level == "none"


FOREIGN = {
    "protocol": (2, "uses protocol 2"),
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
        Mark.from_bytes(packed(FIRST, {**meta, name: value}, members))
    assert caught.value.hint


def test_foreign_arrays_are_refused():
    meta, _ = unpacked(MARK.to_bytes())
    arrays = {"triggers": MARK.triggers, "alphabets": MARK.alphabets}
    for change, message in (
        ({"triggers": MARK.triggers.astype(np.float32)}, "float32, not float64"),
        ({"alphabets": MARK.alphabets.astype(np.int64)}, "int64, not int32"),
        ({"extra": np.zeros(1)}, "exactly the parts"),
        ({"triggers": MARK.triggers[:3]}, "3 triggers have 32 alphabets"),
    ):
        with pytest.raises(FileFormatError, match=message):
            Mark.from_bytes(container_bytes("mark", 1, meta, {**arrays, **change}))


def test_messages_name_the_file(tmp_path):
    MARK.save(tmp_path / "oak.mark", "right")
    with pytest.raises(PassphraseError, match=r"does not open .*oak\.mark"):
        Mark.load(tmp_path / "oak.mark", "wrong")
    KEY.save(tmp_path / "owner.key")
    with pytest.raises(FileFormatError, match="holds a owner-key, not a mark"):
        Mark.load(tmp_path / "owner.key")
    with pytest.raises(FileNotFoundError):
        Mark.load(tmp_path / "none")


def test_a_newer_file_is_refused():
    payload = MARK.to_bytes().split(b"\n", 2)[2]
    with pytest.raises(FileFormatError, match="version 2"):
        Mark.from_bytes(signed(b"timbermark mark 2\n", payload))


def test_equality_is_that_of_content():
    assert make_mark() == MARK
    assert make_mark(seed=1) != MARK
    assert MARK != "mark"
