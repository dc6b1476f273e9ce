"""The file of a mark: round trips, and whatever is changed in it is refused or worth nothing."""

import io
import json
import os
import stat
import threading
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import heavy
from tests.ownership.making import (
    KEY,
    answers_to,
    carried,
    make_both,
    make_known_mark,
    make_mark,
    make_mixed_mark,
    make_number_mark,
    make_splits,
    marks,
    npy_bytes,
    packed,
    resigned,
    signed,
    unpacked,
)
from timbermark.errors import FileFormatError, InputError, PassphraseError
from timbermark.files import container_bytes, encrypting
from timbermark.ownership import Mark, weigh
from timbermark.ownership.evidence import total_bits

MARK = make_known_mark(12, n_models=1, splits=make_splits(9))
BIG = make_known_mark(128, splits=make_splits(128))
FIRST = b"timbermark mark 4\n"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(encrypting, "COST", encrypting.ScryptCost(n=1 << 10))


def bits(mark, answers):
    return total_bits([seal.bits for seal in weigh(mark, answers)], len(mark.seals))


@given(st.data())
@heavy
def test_round_trip(data):
    mark = data.draw(marks())
    back = Mark.from_bytes(mark.to_bytes())
    assert back == mark
    assert hash(back) == hash(mark)
    assert [type(label) for label in back.classes] == [type(label) for label in mark.classes]
    np.testing.assert_array_equal(back.symbols, mark.symbols)
    assert back.expected == mark.expected
    assert back.kinds == mark.kinds
    assert back.rows().tobytes() == mark.rows().tobytes() or mark.has_texts
    assert back.to_bytes() == mark.to_bytes()
    answers = data.draw(answers_to(mark))
    assert bits(back, answers) == bits(mark, answers)


@given(mark=marks(), passphrase=st.text(st.characters(codec="utf-8"), min_size=1))
@settings(max_examples=20)
def test_round_trip_with_a_passphrase(mark, passphrase):
    assert Mark.from_bytes(mark.to_bytes(passphrase), passphrase) == mark


@pytest.mark.parametrize(
    "mark",
    [
        make_mark(),
        make_mark(0, n_splits=20),
        make_both(),
        make_number_mark(),
        make_mixed_mark(9, 8),
    ],
)
def test_round_trip_of_every_kind(mark):
    assert Mark.from_bytes(mark.to_bytes()) == mark


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_files(tmp_path, passphrase):
    MARK.save(tmp_path / "m", passphrase)
    assert stat.S_IMODE(os.stat(tmp_path / "m").st_mode) == 0o600
    assert Mark.load(tmp_path / "m", passphrase) == MARK
    with pytest.raises(InputError) as caught:
        MARK.save(tmp_path / "m", passphrase)
    assert (caught.value.code, caught.value.parameter) == ("file.exists", "force")
    MARK.save(tmp_path / "m", passphrase, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_file_that_others_may_read_warns(tmp_path):
    MARK.save(tmp_path / "m")
    (tmp_path / "m").chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        Mark.load(tmp_path / "m")


def test_a_sealed_mark_shows_nothing():
    meta, members = unpacked(MARK.to_bytes("right"))
    assert meta.keys() == {"cipher", "scrypt", "salt", "nonce"}
    for seal in MARK.seals:
        assert seal.reference.tobytes() not in members["sealed.npy"]


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_changed_byte_is_refused(passphrase):
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
        with pytest.raises(FileFormatError) as caught:
            Mark.from_bytes(good[:length], passphrase)
        assert caught.value.code in ("file.empty", "file.foreign", "file.truncated")


BIG_FILE = packed(FIRST, *unpacked(BIG.to_bytes()))
CARRIED = carried(BIG, "scores")


def is_worth_nothing(mark):
    """Whether answers of a model that carries `BIG` prove hardly anything by a changed mark."""
    try:
        found = bits(mark, CARRIED)
    except InputError as error:  # the classes or the number of triggers may be others now
        return error.code == "answers.shape"
    return found < 24


@given(position=st.integers(len(FIRST) + 65, len(BIG_FILE) - 1), change=st.integers(1, 255))
@settings(max_examples=300)
def test_with_a_repaired_checksum_a_changed_mark_is_refused_or_worth_nothing(position, change):
    """A forger who knows the format; members are stored as they are, so each byte is content."""
    bad = bytearray(BIG_FILE)
    bad[position] ^= change
    try:
        mark = Mark.from_bytes(resigned(bytes(bad)))
    except FileFormatError:
        return
    # Equal where the byte means nothing, such as the time of a member of the archive.
    assert mark == BIG or is_worth_nothing(mark)


MEMBERS = sorted(unpacked(BIG.to_bytes())[1])


@pytest.mark.parametrize("member", MEMBERS)
def test_changed_arrays_behind_right_checksums_give_other_symbols(member):
    """As above, with the archive's own checksums repaired too."""
    meta, members = unpacked(BIG.to_bytes())
    accepted = 0
    step = max(61, len(members[member]) // 24 | 1)  # every byte of a number is met
    for position in range(128, len(members[member]), step):
        raw = bytearray(members[member])
        raw[position] ^= 1
        try:
            mark = Mark.from_bytes(packed(FIRST, meta, {**members, member: bytes(raw)}))
        except FileFormatError:
            continue
        accepted += 1
        assert np.mean(mark.leaf_symbols == BIG.leaf_symbols) < 0.5
        assert is_worth_nothing(mark)
    # Features and their values contradict the rows wherever they are changed but in the middle.
    assert accepted > 2 or member in ("splits.features.npy",)


META_CHANGES = {
    "secret": "00" * 32,
    "mark_id": "ff" * 16,
    "claim_key": "ff" * 32,
    "owner": "Eve",
    "model_digest": "00" * 32,
    "created": "2029-01-02T03:04:05Z",
    "feature_names": ["a", "b", "c"],
    "classes": ["0", "1", "2", "3", "4", "5"],
    "about": {},
    "draws": 2,
}


@pytest.mark.parametrize("name", META_CHANGES)
def test_changed_words_give_other_symbols(name):
    meta, members = unpacked(BIG.to_bytes())
    mark = Mark.from_bytes(packed(FIRST, {**meta, name: META_CHANGES[name]}, members))
    assert np.mean(mark.leaf_symbols == BIG.leaf_symbols) < 0.5
    assert is_worth_nothing(mark)


def test_every_word_is_among_them():
    meta, _ = unpacked(BIG.to_bytes())
    # What cannot be changed alone: one protocol, and what follows from the arrays.
    assert meta.keys() - META_CHANGES.keys() == {"protocol", "answers", "kinds", "texts"}


FOREIGN = {
    "protocol": (2, "field.protocol"),
    "draws": (0, "field.draws"),
    "answers": ("poems", "field.answers"),
    "answers numbers": ("numbers", "field.classes"),
    "kinds": (["numbers"] * 2, "triggers.shape"),
    "kinds unknown": (["numbers", "numbers", "poems"], "field.kinds"),
    "kinds none": ([], "field.kinds"),
    "kinds texts": (["numbers", "numbers", "texts"], "triggers.shape"),
    "texts": ([], "field.texts"),
    "texts of one seal": ({"leaves": []}, "file.parts"),
    "texts of a third seal": ({"leaves": [], "splits": [], "poems": []}, "file.parts"),
    "texts too many": ({"leaves": [["a"] * 12], "splits": []}, "triggers.shape"),
    "secret": ("0g" * 32, "field.secret"),
    "claim_key": ("00" * 31, "field.claim_key"),
    "mark_id": (" 0" * 16, "field.mark_id"),
    "owner": (7, "field.owner"),
    "classes": (3, "field.classes"),
    "feature_names": ({"a": 1}, "field.feature_names"),
    "about": ([], "field.about"),
    "created": (None, "field.created"),
    "model_digest": ("", "field.model_digest"),
    "extra": (1, "file.parts"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_words_are_refused_as_a_bad_file(name):
    value, code = FOREIGN[name]
    meta, members = unpacked(MARK.to_bytes())
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(packed(FIRST, {**meta, name.split()[0]: value}, members))
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("leaves.rows", lambda a: a.astype(np.float32), "leaves.rows"),
        ("splits.rows", lambda a: a[0], "splits.rows"),
        ("leaves.rows", lambda a: a[:3], "leaves.alphabets"),
        ("leaves.rows", lambda a: a * np.inf, "triggers.values"),
        ("splits.rows", lambda a: a[:3], "splits.features"),
        ("splits.rows", lambda a: a + 1, "splits.rows"),
        ("leaves.alphabets", lambda a: a.astype(np.int64), "leaves.alphabets"),
        ("leaves.reference", lambda a: a.astype(np.float32), "leaves.reference"),
        ("leaves.reference", lambda a: a[:3], "leaves.reference"),
        ("leaves.alternatives", lambda a: a[:, :, :3], "leaves.alternatives"),
        ("splits.features", lambda a: a.astype(np.int64), "splits.features"),
        ("splits.values", lambda a: -a, "splits.values"),
        ("splits.reference", lambda a: a[:, 0], "splits.reference"),
        ("splits.strata", lambda a: a.astype(float), "splits.strata"),
        ("extra", lambda a: np.zeros(1), "file.parts"),
    ],
)
def test_foreign_arrays_are_refused(name, change, code):
    meta, members = unpacked(MARK.to_bytes())
    arrays = {n[:-4]: np.load(io.BytesIO(raw)) for n, raw in members.items()}
    arrays[name] = change(arrays.get(name))
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(container_bytes("mark", 4, meta, arrays))
    assert caught.value.code == code


@pytest.mark.parametrize("member", MEMBERS)
def test_no_array_may_be_missing(member):
    meta, members = unpacked(MARK.to_bytes())
    del members[member]
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(packed(FIRST, meta, members))
    assert caught.value.code == "file.parts"


def test_texts_in_a_file_are_texts():
    mark = make_mixed_mark()
    meta, members = unpacked(mark.to_bytes())
    for texts in ([1] * 24, ["a"] * 23, ["a", 1] * 12, "a" * 24, {"a": 1}):
        changed = {**meta, "texts": {"leaves": [texts]}}
        with pytest.raises(FileFormatError) as caught:
            Mark.from_bytes(packed(FIRST, changed, members))
        assert caught.value.code == "triggers.shape"


def test_texts_that_are_all_missing_stay_texts():
    mark = make_mixed_mark()
    meta, members = unpacked(mark.to_bytes())
    changed = {**meta, "texts": {"leaves": [[None] * 24]}}
    read = Mark.from_bytes(packed(FIRST, changed, members))
    assert read.kinds == ("numbers", "texts", "numbers")
    assert Mark.from_bytes(read.to_bytes()) == read


def compressed(meta, members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("meta.json", meta)
        for name, content in members.items():
            archive.writestr(name, content)
    return signed(FIRST, file.getvalue())


BOMBS = {
    "about": lambda meta: ({**meta, "about": {"x": [0] * 8_000_000}}, {}),
    "classes": lambda meta: ({**meta, "classes": ["x" * 30_000_000, "y"]}, {}),
    "long": lambda meta: (meta, {"leaves.rows.npy": npy_bytes(np.zeros((4_000_000, 1)))}),
    "wide": lambda meta: (meta, {"splits.rows.npy": npy_bytes(np.zeros((1, 4_000_000)))}),
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
        with pytest.raises(FileFormatError) as caught:
            Mark.from_bytes(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "file.size"
    assert peak < 4_000_000


def test_sizes_are_bounded_at_every_layer(tmp_path):
    sparse = tmp_path / "huge.mark"
    with open(sparse, "wb") as file:
        file.write(FIRST)
        file.truncate(300 << 20)
    with pytest.raises(FileFormatError) as caught:
        Mark.load(sparse)
    assert caught.value.code == "file.size"
    # The same inside an encrypted file: whoever knows the passphrase may have packed anything.
    inner = bomb("long")
    salt, nonce = bytes(16), bytes(12)
    how = {
        "cipher": encrypting.CIPHER, "scrypt": {"n": 1024, "r": 8, "p": 1}, "salt": salt.hex(),
        "nonce": nonce.hex(),
    }  # fmt: skip
    cipher = encrypting._cipher("right", salt, encrypting.ScryptCost(n=1024))
    sealed = cipher.encrypt(nonce, inner, encrypting._bound("mark", 4, how))
    data = container_bytes(
        "mark", 4, how, {"sealed": np.frombuffer(sealed, np.uint8)}, compress=False
    )
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(data, "right")
    assert caught.value.code == "file.size"


def test_a_lack_of_memory_is_a_sentence(monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr("timbermark.ownership.mark_file.unseal", refuse)
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(b"")
    assert caught.value.code == "memory"


def test_a_wide_and_a_long_mark_are_read(tmp_path):
    for k, d, n in ((4, 20_000, 2), (10_000, 4, 6384)):
        mark = make_mark(k=k, d=d, n_splits=n, about={})
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
    with pytest.raises(PassphraseError, match=r"oak\.mark") as caught:
        Mark.load(tmp_path / "oak.mark", "wrong")
    assert (caught.value.code, caught.value.parameter) == ("passphrase.wrong", "passphrase")
    KEY.save(tmp_path / "owner.key")
    with pytest.raises(FileFormatError, match=r"owner\.key") as caught:
        Mark.load(tmp_path / "owner.key")
    assert caught.value.code == "file.kind"
    with pytest.raises(FileNotFoundError):
        Mark.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("version", "wrote"), [(1, "before 0.2"), (3, "before 0.2"), (5, "newer"), (99, "newer")]
)
def test_other_versions_say_what_wrote_them_and_what_reads_them(version, wrote):
    payload = MARK.to_bytes().split(b"\n", 2)[2]
    with pytest.raises(FileFormatError) as caught:
        Mark.from_bytes(signed(f"timbermark mark {version}\n".encode(), payload))
    said = caught.value
    assert said.code == "file.version"
    assert wrote in said.message
    assert f"format {version}" in said.message
    assert "format 4" in said.message
    assert said.hint
