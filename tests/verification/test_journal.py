import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.errors import FileFormatError, InputError
from timbermark.verification.journal import FIRST_LINE, Journal, _line, read_journal

START = {"mark_digest": "aa", "suspect": "http://host", "questions": "bb", "owner": "Ann"}
RECORDS = [
    {"asking": ["a", "b"]},
    {"answers": [["a", 1], ["b", [0.1, 0.9]]]},
    {"asking": ["c"]},
    {"failed": ["c"]},
    {"asking": ["c"]},
    {"answers": [["c", "é木"]]},
    {"asking": ["d", "e"]},
    {"skipped": ["d", "e"]},
    {"asking": ["f"]},
]


def written(path, records=RECORDS):
    with Journal(path, START) as journal:
        for record in records:
            journal.add(record, reserve=100)
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "journal"
    written(path)
    history = read_journal(path)
    assert history.start == START
    assert history.answers == {"a": 1, "b": [0.1, 0.9], "c": "é木", "d": None, "e": None}
    assert history.under_way == ("f",)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Journal(path, START) as journal:
        assert journal.start == history.start
        assert journal.answers == history.answers
        assert journal.under_way == history.under_way
        journal.add({"answers": [["f", "last"]]})
        journal.add({"ended": {"why": "all"}})
    assert read_journal(path).answers["f"] == "last"
    assert read_journal(path).ended == {"why": "all"}


def test_every_torn_end_is_tolerated_and_loses_nothing_before_it(tmp_path):
    path = tmp_path / "journal"
    whole = written(path, RECORDS[:6])
    whole = whole.rstrip(b"\0")
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for size in range(0, len(whole), 5):
        for tail in (b"", bytes(40)):
            path.write_bytes(whole[:size] + tail)
            kept = sum(end <= size for end in ends) - 2
            with Journal(path, START) as journal:
                n = sum("answers" in record for record in RECORDS[: max(kept, 0)])
                assert len(journal.answers) == (0, 2, 3)[n]
                journal.add({"ended": {}})
            assert read_journal(path).ended == {}


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "journal"
    whole = written(path).rstrip(b"\0")
    for place in range(len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FileFormatError) as caught:
            read_journal(path)
        assert caught.value.hint


def test_lines_that_are_lost_moved_or_doubled_are_noticed(tmp_path):
    path = tmp_path / "journal"
    lines = written(path).rstrip(b"\0").splitlines(keepends=True)
    for place in range(1, len(lines) - 1):
        fewer = lines[:place] + lines[place + 1 :]
        swapped = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
        doubled = [*lines[: place + 1], lines[place], *lines[place + 1 :]]
        for changed in (fewer, swapped, doubled):
            path.write_bytes(b"".join(changed))
            with pytest.raises(FileFormatError) as caught:
                read_journal(path)
            assert caught.value.code == "journal.damaged"


@given(st.binary(max_size=200))
def test_foreign_files_are_refused_and_untouched(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "foreign"
    for content in (b"x" + data, FIRST_LINE + b"[1]\n" + data, b"timbermark journal 1\n" + data):
        path.write_bytes(content)
        with pytest.raises(FileFormatError) as caught:
            Journal(path, START)
        assert caught.value.code in ("journal.foreign", "journal.damaged", "journal.version")
        assert path.read_bytes() == content


def test_a_journal_in_which_nobody_answered_is_begun_anew(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, {**START, "suspect": "a wrong address"}) as journal:
        journal.add({"asking": ["ab"]})
    with pytest.raises(InputError) as caught:
        Journal(path, START)  # it may have been asked
    assert caught.value.code == "journal.other-run"
    with Journal(path, {**START, "suspect": "a wrong address"}) as journal:
        journal.add({"failed": ["ab"]})
    with Journal(path, START) as journal:
        journal.add({"answers": [["ab", "yes"]]})
    assert read_journal(path).start == START
    assert read_journal(path).answers == {"ab": "yes"}


@pytest.mark.parametrize("name", ["mark_digest", "suspect", "questions"])
def test_the_journal_of_another_inquiry_is_refused_and_untouched(tmp_path, name):
    path = tmp_path / "journal"
    whole = written(path)
    with pytest.raises(InputError) as caught:
        Journal(path, {**START, name: "other"})
    assert (caught.value.code, caught.value.parameter) == ("journal.other-run", "journal")
    assert path.read_bytes() == whole
    Journal(path, {**START, "owner": "other name for a file"}).__exit__()


def test_records_that_nobody_writes_are_refused(tmp_path):
    path = tmp_path / "journal"
    for record in (
        {"refused": ["a"]},
        {"skipped": []},
        {"asking": [1.5]},
        {"asking": ["a" * 65]},
        {"asking": ["a"] * 10_001},
        {"asking": 5},
        {"answers": [0, "abc"]},
        {"answers": [["a"]]},
        {"answers": [["a", 1], ["a", 2]]},
        {"start": {}},
        {"other": 1},
        {"asking": ["a"], "failed": ["a"]},
        [],
        7,
    ):
        path.unlink(missing_ok=True)
        with Journal(path, START) as journal:
            journal._write(_line(journal._check, record)[1])
        with pytest.raises(FileFormatError) as caught:
            read_journal(path)
        assert caught.value.code == "journal.damaged"


def test_one_process_writes_at_a_time(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, START), pytest.raises(InputError) as caught:
        Journal(path, START)
    assert caught.value.code == "journal.in-use"
    Journal(path, START).__exit__()


def test_a_full_disk_is_noticed_before_a_question_is_asked(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    with Journal(path, START) as journal:
        whole = path.read_bytes()
        real = os.fsync

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device") as caught:
            journal.add({"asking": ["a"]}, reserve=1000)
        assert caught.value.code == "journal.disk"
        monkeypatch.setattr(os, "fsync", real)
    assert path.read_bytes() == whole
    with Journal(path, START) as journal:
        journal.add({"asking": ["a"]}, reserve=1000)
        # The room is there already when the answer comes.
        assert path.stat().st_size > len(whole) + 1000
        journal.add({"answers": [["a", "yes"]]})
    assert read_journal(path).answers == {"a": "yes"}


def test_a_folder_or_a_closed_place_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError, match="directory"):
        Journal(tmp_path, START)
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "nowhere" / "journal", START)
