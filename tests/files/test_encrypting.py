"""Secret files: what is encrypted, what is authenticated, and what a reader pays at most."""

import os
import stat
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership.making import packed, resigned, unpacked
from timbermark.errors import (
    FileFormatError,
    InputError,
    PassphraseError,
    PassphraseNeededError,
)
from timbermark.files import container_bytes, encrypting
from timbermark.files.encrypting import SizeLimits, save_sealed, seal, unseal, warn_if_readable

META, ARRAYS = {"word": "geheim", "size": 3}, {"numbers": np.arange(5.0)}
FIRST = b"timbermark note 2\n"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(encrypting, "COST", encrypting.ScryptCost(n=1 << 10))


@pytest.fixture
def sealed():
    return seal("note", 2, META, ARRAYS, "right")


def read(data, passphrase="right"):
    version, meta, arrays = unseal(data, "note", 2, passphrase)
    return version, meta, {name: array.tolist() for name, array in arrays.items()}


CONTENT = 2, META, {"numbers": [0.0, 1.0, 2.0, 3.0, 4.0]}


@given(st.none() | st.text(st.characters(codec="utf-8"), min_size=1), st.booleans())
@settings(max_examples=20)
def test_round_trip(passphrase, compress):
    data = seal("note", 2, META, ARRAYS, passphrase, compress=compress)
    assert read(data, passphrase) == CONTENT


def test_nothing_of_the_content_is_in_a_sealed_file(sealed):
    assert b"geheim" in seal("note", 2, META, ARRAYS, compress=False)
    assert b"geheim" not in sealed
    meta, members = unpacked(sealed)
    assert meta.keys() == {"cipher", "scrypt", "salt", "nonce"}
    assert members.keys() == {"sealed.npy"}
    assert b"geheim" not in members["sealed.npy"]


def test_no_two_files_are_alike(sealed):
    assert seal("note", 2, META, ARRAYS, "right") != sealed


def test_a_passphrase_is_the_same_from_every_keyboard():
    data = seal("note", 2, META, ARRAYS, "caf\u00e9")
    assert read(data, "cafe\u0301") == CONTENT


@pytest.mark.parametrize("wrong", ["wrong", "right ", "Right", "righ"])
def test_a_wrong_passphrase_is_one_sentence(sealed, wrong):
    with pytest.raises(PassphraseError) as caught:
        read(sealed, wrong)
    assert (caught.value.code, caught.value.parameter) == ("passphrase.wrong", "passphrase")
    assert caught.value.__cause__ is None


def test_a_forged_content_reads_like_a_wrong_passphrase(sealed):
    meta, members = unpacked(sealed)
    raw = members["sealed.npy"]
    forged = packed(FIRST, meta, {"sealed.npy": raw[:-1] + bytes([raw[-1] ^ 1])})
    said = []
    for data, passphrase in ((sealed, "wrong"), (forged, "right")):
        with pytest.raises(PassphraseError) as caught:
            read(data, passphrase)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_missing_passphrase_asks_for_one(sealed):
    with pytest.raises(PassphraseNeededError) as caught:
        read(sealed, None)
    assert caught.value.code == "passphrase.needed"


def test_a_needless_passphrase_is_refused():
    with pytest.raises(PassphraseError) as caught:
        read(seal("note", 2, META, ARRAYS))
    assert caught.value.code == "passphrase.needless"


@pytest.mark.parametrize("empty", ["", "\ud800", b"bytes"])
def test_an_empty_passphrase_seals_nothing(empty):
    with pytest.raises(PassphraseError) as caught:
        seal("note", 2, META, ARRAYS, empty)
    assert caught.value.code == "passphrase.empty"


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_changed_byte_is_refused(passphrase):
    good = seal("note", 2, META, ARRAYS, passphrase)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        with pytest.raises(FileFormatError):
            read(bytes(bad), passphrase)


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_truncation_is_refused(passphrase):
    good = seal("note", 2, META, ARRAYS, passphrase)
    for length in range(0, len(good), 7):
        with pytest.raises(FileFormatError):
            read(good[:length], passphrase)


def test_with_a_repaired_checksum_a_sealed_file_is_refused_or_the_same(sealed):
    refused = 0
    for position in range(len(FIRST) + 65, len(sealed), 3):
        bad = bytearray(sealed)
        bad[position] ^= 1 << position % 8
        try:
            found = read(resigned(bytes(bad)))
        except (FileFormatError, PassphraseError):
            refused += 1
        else:
            assert found == CONTENT
    assert refused > 100


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("salt", "0" * 32, "passphrase.wrong"),
        ("nonce", "0" * 24, "passphrase.wrong"),
        ("scrypt", {"n": 1 << 11, "r": 8, "p": 1}, "passphrase.wrong"),
        ("cipher", "rot13", "file.cipher"),
        ("salt", "zz" * 16, "file.cipher"),
        ("salt", "00" * 15, "file.cipher"),
        ("nonce", 7, "file.cipher"),
        ("nonce", " 0" * 12, "file.cipher"),
        ("extra", 1, "file.cipher"),
    ],
)
def test_every_parameter_is_authenticated_or_refused(sealed, name, value, code):
    meta, members = unpacked(sealed)
    with pytest.raises((PassphraseError, FileFormatError)) as caught:
        read(packed(FIRST, {**meta, name: value}, members))
    assert caught.value.code == code


@pytest.mark.parametrize("first", [b"timbermark poem 2\n", b"timbermark note 1\n"])
def test_kind_and_version_are_authenticated(sealed, first):
    """A sealed mark cannot pose as a key by another first line."""
    meta, members = unpacked(sealed)
    kind = first.split()[1].decode()
    with pytest.raises(PassphraseError) as caught:
        unseal(packed(first, meta, members), kind, 2, "right")
    assert caught.value.code == "passphrase.wrong"


@pytest.mark.parametrize(
    "cost",
    [
        {"n": 1 << 40, "r": 8, "p": 1},
        {"n": 1 << 19, "r": 8, "p": 1},
        {"n": 1 << 14, "r": 1 << 20, "p": 1},
        {"n": 1 << 14, "r": 8, "p": 1 << 20},
        {"n": 3000, "r": 8, "p": 1},
        {"n": 1, "r": 8, "p": 1},
        {"n": -1024, "r": 8, "p": 1},
        {"n": 1024.0, "r": 8, "p": 1},
        {"n": True, "r": 8, "p": 1},
        {"n": 1024, "r": 8},
        {"n": 1024, "r": 8, "p": 1, "x": 1},
        [1024, 8, 1],
        None,
    ],
)
def test_a_hostile_cost_is_refused_before_it_is_paid(sealed, cost, monkeypatch):
    meta, members = unpacked(sealed)
    monkeypatch.setattr(encrypting, "_cipher", lambda *_: pytest.fail("scrypt was run"))
    with pytest.raises(FileFormatError) as caught:
        read(packed(FIRST, {**meta, "scrypt": cost}, members))
    assert caught.value.code == "file.cost"


def test_the_real_cost_is_what_is_recommended():
    real = encrypting.ScryptCost()
    assert real.memory == 128 << 20
    assert real.is_bearable()


def test_a_lack_of_memory_is_a_sentence(monkeypatch):
    class Scrypt:
        def __init__(self, **_):
            pass

        def derive(self, _):
            raise MemoryError

    monkeypatch.setattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt", Scrypt)
    with pytest.raises(InputError) as caught:
        seal("note", 2, META, ARRAYS, "right")
    assert caught.value.code == "memory"


def test_sizes_are_checked_before_anything_is_unpacked():
    bomb = container_bytes("note", 2, {}, {"zeros": np.zeros(1 << 20)})
    for data, limits in (
        (b"timbermark note 2\n" + bytes(70_000), SizeLimits()),
        (bomb, SizeLimits()),
        (container_bytes("note", 2, {"x": "y" * 2000}, {}), SizeLimits(meta=1000)),
    ):
        with pytest.raises(FileFormatError) as caught:
            unseal(data, "note", 2, limits=limits)
        assert caught.value.code == "file.size"


def test_a_file_is_for_its_owner_and_is_never_replaced_unasked(tmp_path):
    save_sealed(tmp_path / "x", b"one", "note")
    assert stat.S_IMODE(os.stat(tmp_path / "x").st_mode) == 0o600
    with pytest.raises(InputError) as caught:
        save_sealed(tmp_path / "x", b"two", "note")
    assert (caught.value.code, caught.value.parameter) == ("file.exists", "force")
    assert (tmp_path / "x").read_bytes() == b"one"
    (tmp_path / "x").chmod(0o644)
    save_sealed(tmp_path / "x", b"two", "note", force=True)
    assert (tmp_path / "x").read_bytes() == b"two"
    assert stat.S_IMODE(os.stat(tmp_path / "x").st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="disk full"):
        save_sealed(tmp_path / "x", b"one", "note")
    assert not list(tmp_path.iterdir())


def race(folder, n):
    """Let n threads save to one path; return what was saved."""
    barrier, saved = threading.Barrier(n), []

    def save(content):
        barrier.wait()
        with suppress(InputError):
            save_sealed(folder / "x", content, "note")
            saved.append(content)

    threads = [threading.Thread(target=save, args=(bytes([i]) * 100,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return saved


@pytest.mark.parametrize("links", ["links", "no links"])
def test_of_concurrent_saves_exactly_one_succeeds(tmp_path, monkeypatch, links):
    if links == "no links":

        def refuse(*_):
            raise PermissionError("no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    # Whoever comes between the check and the write must be noticed too.
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (saved,) = race(folder, 6)
        assert (folder / "x").read_bytes() == saved
        assert [p.name for p in folder.iterdir()] == ["x"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_warns(tmp_path, mode):
    (tmp_path / "x").touch(mode=0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_readable(tmp_path / "x", "note")
    (tmp_path / "x").chmod(mode)
    with pytest.warns(UserWarning, match="chmod 600"):
        warn_if_readable(tmp_path / "x", "note")


def test_a_small_file_takes_no_more_memory_than_it_has(tmp_path):
    """A buffer of all that is allowed was made first: 1 GiB for the chain of a guard."""
    (tmp_path / "x").write_bytes(container_bytes("note", 2, {}, {}))
    SizeLimits(file=1 << 60).check(tmp_path / "x", "it")
