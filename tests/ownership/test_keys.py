import copy
import hashlib
import hmac
import os
import pickle
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ownership.making import KEY, make_mark, packed, resigned, unpacked
from timbermark.errors import (
    FileFormatError,
    InputError,
    PassphraseError,
    PassphraseNeededError,
)
from timbermark.files import container_bytes
from timbermark.ownership import OwnerKey, sealing

FIRST = b"timbermark owner-key 1\n"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(sealing, "COST", sealing.ScryptCost(n=1 << 10))


def write(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.fixture
def plain_file(tmp_path):
    KEY.save(tmp_path / "plain.key")
    return tmp_path / "plain.key"


@pytest.fixture
def sealed_file(tmp_path):
    KEY.save(tmp_path / "sealed.key", "right")
    return tmp_path / "sealed.key"


def test_generated_keys_differ():
    assert len({OwnerKey.generate().secret for _ in range(50)}) == 50


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "x" * 32, None, bytearray(32)])
def test_a_key_is_32_bytes(bad):
    with pytest.raises(InputError, match="32 bytes"):
        OwnerKey(bad)


def test_the_secret_is_never_shown():
    shown = f"{KEY} {KEY!r} {[KEY]} {KEY.fingerprint}"
    assert KEY.secret.hex() not in shown
    assert repr(KEY.secret)[2:-1] not in shown
    assert KEY.fingerprint in repr(KEY)


def test_the_fingerprint_is_what_the_docs_say():
    full = hashlib.sha256(b"timbermark/fingerprint/1" + KEY.secret).hexdigest()
    assert KEY.fingerprint == full[:16]


def test_a_key_is_neither_pickled_nor_changed():
    with pytest.raises(InputError, match="cannot be pickled"):
        pickle.dumps(KEY)
    with pytest.raises(AttributeError):
        KEY.secret = bytes(32)
    assert copy.deepcopy(KEY) is KEY
    assert copy.copy(KEY) is KEY


def test_equality():
    assert OwnerKey(KEY.secret) == KEY
    assert hash(OwnerKey(KEY.secret)) == hash(KEY)
    assert OwnerKey(bytes(32)) != KEY
    assert KEY.secret != KEY


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16))
def test_the_mark_secret_is_hkdf_of_rfc_5869(secret, mark_id):
    extracted = hmac.digest(bytes(32), secret, "sha256")
    expected = hmac.digest(extracted, b"timbermark/mark/1" + mark_id + b"\x01", "sha256")
    assert OwnerKey(secret).mark_secret(mark_id) == expected


@pytest.mark.parametrize("bad", [b"", bytes(15), bytes(17), "x" * 16])
def test_a_mark_id_is_16_bytes(bad):
    with pytest.raises(InputError, match="16 bytes"):
        KEY.mark_secret(bad)


@pytest.mark.parametrize("passphrase", [None, "p", "größer als gedacht", "木" * 100])
def test_round_trip(tmp_path, passphrase):
    KEY.save(tmp_path / "k", passphrase)
    assert OwnerKey.load(tmp_path / "k", passphrase) == KEY
    assert stat.S_IMODE(os.stat(tmp_path / "k").st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_a_passphrase_is_the_same_from_every_keyboard(tmp_path):
    KEY.save(tmp_path / "k", "caf\u00e9")
    assert OwnerKey.load(tmp_path / "k", "cafe\u0301") == KEY


def test_a_sealed_file_does_not_hold_the_secret(sealed_file, plain_file):
    assert KEY.secret.hex() in str(unpacked(plain_file.read_bytes()))
    data = sealed_file.read_bytes()
    assert KEY.secret.hex() not in str(unpacked(data))
    assert KEY.secret not in data


def test_no_two_files_are_alike(tmp_path):
    for name in "ab":
        KEY.save(tmp_path / name, "right")
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_an_existing_file_is_kept(plain_file):
    before = plain_file.read_bytes()
    other = OwnerKey.generate()
    with pytest.raises(InputError, match=r"plain\.key exists already"):
        other.save(plain_file)
    assert plain_file.read_bytes() == before
    other.save(plain_file, force=True)
    assert OwnerKey.load(plain_file) == other


def race(folder, n):
    """Let n threads save keys of their own to one path; return the keys that were saved."""
    barrier, saved = threading.Barrier(n), []

    def save(key):
        barrier.wait()
        with suppress(InputError):
            key.save(folder / "k")
            saved.append(key)

    threads = [threading.Thread(target=save, args=(OwnerKey.generate(),)) for _ in range(n)]
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
        saved = race(folder, 6)
        assert len(saved) == 1
        assert OwnerKey.load(folder / "k") == saved[0]
        assert [p.name for p in folder.iterdir()] == ["k"]


def test_of_concurrent_commands_exactly_one_succeeds(tmp_path):
    """Two processes that make a key at the same moment: one key, one refusal."""
    code = "import sys; from timbermark.cli import main; input(); sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "keygen", str(tmp_path / "k")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    runs = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    said = [run.communicate() for run in runs]
    codes = sorted(run.returncode for run in runs)
    assert codes == [0, 2, 2, 2], said
    (made,) = [out for run, (out, _) in zip(runs, said, strict=True) if run.returncode == 0]
    assert OwnerKey.load(tmp_path / "k").fingerprint in made
    assert sum("exists" in err for _, err in said) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="disk full"):
        KEY.save(tmp_path / "k")
    assert not list(tmp_path.iterdir())


def test_forcing_narrows_the_mode(plain_file):
    plain_file.chmod(0o644)
    KEY.save(plain_file, force=True)
    assert stat.S_IMODE(plain_file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_warns(plain_file, mode):
    plain_file.chmod(mode)
    with pytest.warns(UserWarning, match=r"others may read it .*chmod 600") as caught:
        assert OwnerKey.load(plain_file) == KEY
    assert caught[0].filename == __file__


def test_nothing_is_warned_of_otherwise(plain_file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OwnerKey.load(plain_file)


@pytest.mark.parametrize("wrong", ["wrong", "right ", "Right", "righ"])
def test_a_wrong_passphrase_is_one_sentence(sealed_file, wrong):
    with pytest.raises(PassphraseError, match=r"does not open .*sealed\.key") as caught:
        OwnerKey.load(sealed_file, wrong)
    assert isinstance(caught.value, InputError)
    assert caught.value.__cause__ is None


def test_a_forged_content_reads_like_a_wrong_passphrase(sealed_file):
    meta, members = unpacked(sealed_file.read_bytes())
    with pytest.raises(PassphraseError) as wrong:
        OwnerKey.load(sealed_file, "wrong")
    members["sealed.npy"] = members["sealed.npy"][:-1] + bytes([members["sealed.npy"][-1] ^ 1])
    write(sealed_file, packed(FIRST, meta, members))
    with pytest.raises(PassphraseError) as forged:
        OwnerKey.load(sealed_file, "right")
    assert str(wrong.value) == str(forged.value)


def test_a_missing_passphrase_asks_for_one(sealed_file):
    with pytest.raises(PassphraseNeededError, match="is encrypted"):
        OwnerKey.load(sealed_file)


def test_a_needless_passphrase_is_refused(plain_file):
    with pytest.raises(PassphraseError, match="is not encrypted"):
        OwnerKey.load(plain_file, "right")


@pytest.mark.parametrize("empty", ["", "\ud800", b"bytes"])
def test_an_empty_passphrase_writes_nothing(tmp_path, empty):
    with pytest.raises(PassphraseError, match="empty or not text"):
        KEY.save(tmp_path / "k", empty)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_changed_byte_is_refused(tmp_path, passphrase):
    KEY.save(tmp_path / "k", passphrase)
    good = (tmp_path / "k").read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        write(tmp_path / "k", bytes(bad))
        with pytest.raises(FileFormatError):
            OwnerKey.load(tmp_path / "k", passphrase)


@pytest.mark.parametrize("passphrase", [None, "right"])
def test_every_truncation_is_refused(tmp_path, passphrase):
    KEY.save(tmp_path / "k", passphrase)
    good = (tmp_path / "k").read_bytes()
    for length in range(0, len(good), 7):
        write(tmp_path / "k", good[:length])
        with pytest.raises(FileFormatError):
            OwnerKey.load(tmp_path / "k", passphrase)


def test_with_a_repaired_checksum_a_sealed_file_is_refused_or_the_same(sealed_file):
    good = sealed_file.read_bytes()
    start = len(FIRST) + 65
    refused = 0
    for position in range(start, len(good), 3):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        write(sealed_file, resigned(bytes(bad)))
        try:
            key = OwnerKey.load(sealed_file, "right")
        except (FileFormatError, PassphraseError):
            refused += 1
        else:
            assert key == KEY
    assert refused > 100


HOW_CHANGES = {
    "salt": ("0" * 32, PassphraseError, "does not open"),
    "nonce": ("0" * 24, PassphraseError, "does not open"),
    "cipher": ("rot13", FileFormatError, "unknown way"),
    "scrypt": ({"n": 1 << 11, "r": 8, "p": 1}, PassphraseError, "does not open"),
}


@pytest.mark.parametrize("name", HOW_CHANGES)
def test_every_parameter_is_authenticated(sealed_file, name):
    value, error, message = HOW_CHANGES[name]
    meta, members = unpacked(sealed_file.read_bytes())
    write(sealed_file, packed(FIRST, {**meta, name: value}, members))
    with pytest.raises(error, match=message):
        OwnerKey.load(sealed_file, "right")


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
def test_a_hostile_cost_is_refused_before_it_is_paid(sealed_file, cost, monkeypatch):
    meta, members = unpacked(sealed_file.read_bytes())
    write(sealed_file, packed(FIRST, {**meta, "scrypt": cost}, members))
    monkeypatch.setattr(sealing, "_cipher", lambda *_: pytest.fail("scrypt was run"))
    with pytest.raises(FileFormatError, match=r"out of bounds|what a guess costs"):
        OwnerKey.load(sealed_file, "right")


@pytest.mark.parametrize(
    "change",
    [
        {"salt": "zz" * 16},
        {"salt": "00" * 15},
        {"nonce": 7},
        {"nonce": " 0" * 12},
        {"extra": 1},
    ],
)
def test_a_broken_description_is_refused(sealed_file, change):
    meta, members = unpacked(sealed_file.read_bytes())
    write(sealed_file, packed(FIRST, {**meta, **change}, members))
    with pytest.raises(FileFormatError, match="how it is encrypted"):
        OwnerKey.load(sealed_file, "right")


@pytest.mark.parametrize(
    "meta",
    [{}, {"secret": "00"}, {"secret": 1}, {"secret": "G" * 64}, {"secret": "0" * 64, "x": 1}],
)
def test_a_file_without_a_key_is_refused(tmp_path, meta):
    write(tmp_path / "k", container_bytes("owner-key", 1, meta, {}))
    with pytest.raises(FileFormatError, match="does not hold an owner key"):
        OwnerKey.load(tmp_path / "k")


def test_other_kinds_are_refused(tmp_path):
    make_mark().save(tmp_path / "m")
    with pytest.raises(FileFormatError, match="holds a mark, not an owner key"):
        OwnerKey.load(tmp_path / "m")
    write(tmp_path / "newer", container_bytes("owner-key", 2, {}, {}))
    with pytest.raises(FileFormatError, match="version 2"):
        OwnerKey.load(tmp_path / "newer")


def test_a_sealed_mark_cannot_pose_as_a_key(tmp_path):
    """The kind is authenticated: relabelling the file does not help."""
    make_mark().save(tmp_path / "m", "right")
    meta, members = unpacked((tmp_path / "m").read_bytes())
    write(tmp_path / "m", packed(FIRST, meta, members))
    with pytest.raises(PassphraseError, match="does not open"):
        OwnerKey.load(tmp_path / "m", "right")


def test_the_real_cost_is_what_is_recommended():
    real = sealing.ScryptCost()
    assert real.memory == 128 << 20
    assert real.is_bearable()


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        OwnerKey.load(tmp_path / "none")
