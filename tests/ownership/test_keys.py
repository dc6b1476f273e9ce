"""The owner key: what derives from it, and its file."""

import copy
import hashlib
import hmac
import os
import pickle
import stat
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ownership.making import KEY, make_mark, packed, unpacked
from timbermark.errors import FileFormatError, InputError, PassphraseError
from timbermark.files import container_bytes, encrypting
from timbermark.ownership import OwnerKey

FIRST = b"timbermark owner-key 1\n"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(encrypting, "COST", encrypting.ScryptCost(n=1 << 10))


def write(path, data):
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.fixture
def plain_file(tmp_path):
    KEY.save(tmp_path / "plain.key")
    return tmp_path / "plain.key"


def test_generated_keys_differ():
    assert len({OwnerKey.generate().secret for _ in range(50)}) == 50


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "x" * 32, None, bytearray(32)])
def test_a_key_is_32_bytes(bad):
    with pytest.raises(InputError) as caught:
        OwnerKey(bad)
    assert caught.value.code == "key.length"


def test_the_secret_is_never_shown():
    shown = f"{KEY} {KEY!r} {[KEY]} {KEY.fingerprint}"
    assert KEY.secret.hex() not in shown
    assert repr(KEY.secret)[2:-1] not in shown
    assert KEY.fingerprint in repr(KEY)


def test_the_fingerprint_is_what_the_docs_say():
    full = hashlib.sha256(b"timbermark/fingerprint/1" + KEY.secret).hexdigest()
    assert KEY.fingerprint == full[:16]


def test_a_key_is_neither_pickled_nor_changed():
    with pytest.raises(InputError) as caught:
        pickle.dumps(KEY)
    assert caught.value.code == "key.pickled"
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
    with pytest.raises(InputError) as caught:
        KEY.mark_secret(bad)
    assert caught.value.code == "field.mark_id"


@pytest.mark.parametrize("passphrase", [None, "p", "größer als gedacht", "木" * 100])
def test_round_trip(tmp_path, passphrase):
    KEY.save(tmp_path / "k", passphrase)
    assert OwnerKey.load(tmp_path / "k", passphrase) == KEY
    assert stat.S_IMODE(os.stat(tmp_path / "k").st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_an_existing_file_is_kept(plain_file):
    before = plain_file.read_bytes()
    other = OwnerKey.generate()
    with pytest.raises(InputError, match=r"plain\.key") as caught:
        other.save(plain_file)
    assert caught.value.code == "file.exists"
    assert plain_file.read_bytes() == before
    other.save(plain_file, force=True)
    assert OwnerKey.load(plain_file) == other


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


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_warns(plain_file, mode):
    plain_file.chmod(mode)
    with pytest.warns(UserWarning, match="chmod 600") as caught:
        assert OwnerKey.load(plain_file) == KEY
    assert caught[0].filename == __file__


def test_nothing_is_warned_of_otherwise(plain_file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OwnerKey.load(plain_file)


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


@pytest.mark.parametrize(
    "meta",
    [{}, {"secret": "00"}, {"secret": 1}, {"secret": "G" * 64}, {"secret": "0" * 64, "x": 1}],
)
def test_a_file_without_a_key_is_refused(tmp_path, meta):
    write(tmp_path / "k", container_bytes("owner-key", 1, meta, {}))
    with pytest.raises(FileFormatError) as caught:
        OwnerKey.load(tmp_path / "k")
    assert caught.value.code == "file.parts"


def test_other_kinds_and_versions_are_refused(tmp_path):
    make_mark().save(tmp_path / "m")
    write(tmp_path / "newer", container_bytes("owner-key", 2, {}, {}))
    large = {"x": np.random.default_rng(0).normal(size=20_000)}
    write(tmp_path / "large", container_bytes("mark", 4, {}, large))
    for name, code in (("m", "file.kind"), ("large", "file.kind"), ("newer", "file.version")):
        with pytest.raises(FileFormatError) as caught:
            OwnerKey.load(tmp_path / name)
        assert caught.value.code == code


def test_a_sealed_mark_cannot_pose_as_a_key(tmp_path):
    """The kind is authenticated: relabelling the file does not help."""
    make_mark(k=8).save(tmp_path / "m", "right")
    meta, members = unpacked((tmp_path / "m").read_bytes())
    write(tmp_path / "m", packed(FIRST, meta, members))
    with pytest.raises(PassphraseError) as caught:
        OwnerKey.load(tmp_path / "m", "right")
    assert caught.value.code == "passphrase.wrong"


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        OwnerKey.load(tmp_path / "none")
