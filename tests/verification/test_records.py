"""What is left of a mark after openings."""

import os

import pytest

from tests.verification.making import KEY, make_mark
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership import Claim, Mark, open_mark
from timbermark.verification.records import (
    ledger_path,
    list_marks,
    read_ledger,
    record_opening,
    what_is_left,
)

MARK = make_mark(k=40, n_splits=60)
CLAIM = Claim.make(MARK, KEY, marked_digest="cd" * 32)


def opened(name, share=0.5):
    return open_mark(MARK, CLAIM, judge=name, share=share, force=True)


def test_openings_add_up(tmp_path):
    path = tmp_path / "secret.mark"
    assert read_ledger(path) == ()
    whole = what_is_left(MARK, ())
    assert whole.bits == MARK.full_bits
    # What `open` takes, or less by what the draw of a name is short of the average.
    taken = open_mark(MARK, CLAIM, judge="Judge Judy").n_opened / 100
    assert whole.next_share == pytest.approx(taken, abs=0.01)
    one, two = opened("Judge Judy"), opened("Zoë", 0.25)
    record_opening(path, CLAIM, one)
    record_opening(path, CLAIM, two)
    record_opening(path, CLAIM, one)  # again: nothing new was shown
    entries = read_ledger(path)
    assert [entry.judge for entry in entries] == ["Judge Judy", "Zoë"]
    left = what_is_left(MARK, entries)
    seen = {*one.places, *two.places}
    assert (left.opened, left.left) == (len(seen), 100 - len(seen))
    # Of both seals, minus the price of a part.
    unseen = [place for place in range(100) if place not in seen]
    most = sum(2 if place < 40 else 1 for place in unseen)
    assert most - 13 < left.bits < most
    assert (left.can_convince, left.next_share) == (False, None)
    if os.name == "posix":
        assert ledger_path(path).stat().st_mode & 0o777 == 0o600


def test_openings_of_another_mark_do_not_count(tmp_path):
    path = tmp_path / "secret.mark"
    record_opening(path, CLAIM, opened("Judge Judy"))
    assert what_is_left(make_mark(k=40, n_splits=60, seed=1), read_ledger(path)).left == 100


@pytest.mark.parametrize(
    "bad",
    [b"", b"hello\n", b"timbermark openings 1", b"timbermark openings 1\n{}\n",
     b"timbermark openings 1\n[\n", b"timbermark openings 1\n\xff\n",
     b"timbermark openings 2\n"],
)  # fmt: skip
def test_a_damaged_ledger_is_refused_and_kept(tmp_path, bad):
    path = tmp_path / "secret.mark"
    ledger_path(path).write_bytes(bad)
    with pytest.raises(FileFormatError) as caught:
        read_ledger(path)
    assert caught.value.code == "ledger.damaged"
    with pytest.raises(FileFormatError):
        record_opening(path, CLAIM, opened("Judge Judy"))
    assert ledger_path(path).read_bytes() == bad


def test_every_lost_or_cut_line_is_noticed_or_whole(tmp_path):
    path = tmp_path / "secret.mark"
    record_opening(path, CLAIM, opened("Judge Judy"))
    good = ledger_path(path).read_bytes()
    for length in range(len(good)):
        ledger_path(path).write_bytes(good[:length])
        try:
            entries = read_ledger(path)
        except FileFormatError:
            continue
        assert entries == ()  # all of the line is gone


def test_a_folder_lists_its_marks(tmp_path):
    older = make_mark(k=40, seed=1, created="2029-01-02T03:04:05Z", about={"kind": "Booster"})
    MARK.save(tmp_path / "new.mark")
    (tmp_path / "2029").mkdir()
    older.save(tmp_path / "2029" / "old.mark")
    make_mark(seed=3).save(tmp_path / "locked.mark", "open sesame")
    CLAIM.with_stamp(b"x").save(tmp_path / "new.claim")
    Claim.make(make_mark(seed=9), KEY, marked_digest="cd" * 32).save(tmp_path / "lost.claim")
    (tmp_path / "bad.claim").write_bytes(CLAIM.to_bytes()[:-1])
    (tmp_path / "notes.txt").write_text("timbermark mark my words")
    record_opening(tmp_path / "new.mark", CLAIM, opened("Judge Judy"))
    listed, notes = list_marks(tmp_path)
    assert [mark.path for mark in listed] == [
        "locked.mark", os.path.join("2029", "old.mark"), "new.mark"
    ]  # fmt: skip
    locked, old, new = listed
    assert locked.problem
    assert (old.model_kind, old.bits, old.openings, old.claims) == ("Booster", 80, (), ())
    assert old.can_convince  # 80 bits are just enough, with the margin
    assert new.openings == ("Judge Judy",)
    assert (new.unopened, new.can_convince) == (50, False)
    assert [(c.path, c.n_stamps) for c in new.claims] == [("new.claim", 1)]
    assert len(notes) == 2
    assert any("lost.claim is a claim for no mark in here" in note for note in notes)
    assert any("bad.claim" in note for note in notes)
    again, _ = list_marks(
        tmp_path, lambda path: Mark.load(path, "open sesame" if "locked" in path.name else None)
    )
    assert not any(mark.problem for mark in again)


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        list_marks(tmp_path / "none")
    assert caught.value.code == "folder.none"
