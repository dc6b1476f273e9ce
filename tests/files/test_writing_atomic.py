import os
import stat
import subprocess
import sys

import pytest

from timbermark.errors import InputError
from timbermark.files import atomic_write


def test_writes_bytes_and_replaces(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")
    atomic_write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_writer_may_seek_and_read_back(tmp_path):
    def write(file):
        file.write(b"0123")
        file.seek(1)
        assert file.read(1) == b"1"
        file.seek(0)
        file.write(b"x")

    atomic_write(tmp_path / "file", write)
    assert (tmp_path / "file").read_bytes() == b"x123"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failing_half_way_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"half of the new")
        file.flush()
        raise error

    with pytest.raises(error):
        atomic_write(path, write)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_refused_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = f"""
import os
from timbermark.files import atomic_write
def write(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
atomic_write({str(path)!r}, write)
"""
    run = subprocess.run([sys.executable, "-c", code])
    assert run.returncode == -9
    assert path.read_bytes() == b"old"


def test_content_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("sync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    atomic_write(tmp_path / "file", b"new")
    assert calls == ["sync", "rename", "sync"]


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_mode_is_set_and_never_wider(tmp_path):
    path = tmp_path / "secret"
    seen = []
    atomic_write(
        path,
        lambda file: seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode)),
        mode=0o600,
    )
    assert seen == [0o600]
    assert permissions(path) == 0o600


def test_mode_of_the_replaced_file_is_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    atomic_write(path, b"new")
    assert permissions(path) == 0o640


def test_new_file_gets_the_usual_mode(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    atomic_write(tmp_path / "file", b"new")
    assert permissions(tmp_path / "file") == permissions(tmp_path / "usual")


def test_symbolic_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_missing_folder_and_folder_as_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        atomic_write(tmp_path / "none" / "file", b"new")
    with pytest.raises(InputError, match="is a folder"):
        atomic_write(tmp_path, b"new")
