"""Files of every released version are read for ever, and are worth what they were worth.

`tests/fixtures/make_release_files.py` makes a folder of them before each release that changes a
format; the folders of older releases stay.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import timbermark as tm
from tests.fixtures.make_release_files import JUDGE, KEY_BYTES, PASSPHRASE
from timbermark.errors import FileFormatError, PassphraseError
from timbermark.ownership import Opening
from timbermark.ownership.keys import OwnerKey
from timbermark.verification.journal import read_journal
from timbermark.verification.packs import read_pack

RELEASES = sorted(Path(__file__).parent.joinpath("fixtures").glob("release-*"))
EVIDENCE = {"release-0.1": {"model": 76.05, "numbers": 126.754, "pack": 45.331}}


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request, tmp_path):
    """A copy that only its owner may read, as a checkout leaves secrets readable to everyone."""
    copy = tmp_path / request.param.name
    shutil.copytree(request.param, copy)
    for path in copy.iterdir():
        path.chmod(0o600)
    return copy


def test_no_released_version_is_missing():
    assert {folder.name for folder in RELEASES} == set(EVIDENCE)


def test_keys_are_read_plain_and_sealed(release):
    key = OwnerKey.load(release / "owner.key")
    assert key == OwnerKey(KEY_BYTES)
    assert OwnerKey.load(release / "owner-sealed.key", PASSPHRASE) == key
    with pytest.raises(PassphraseError):
        OwnerKey.load(release / "owner-sealed.key", PASSPHRASE + "!")


def test_marks_are_read_plain_and_sealed(release):
    mark = tm.Mark.load(release / "secret.mark")
    assert mark.made_with(OwnerKey(KEY_BYTES))
    assert mark.to_bytes() == (release / "secret.mark").read_bytes()
    assert tm.Mark.load(release / "secret-sealed.mark", PASSPHRASE) == mark


@pytest.mark.parametrize(("kind", "mark"), [("model", "secret.mark"), ("numbers", "numbers.mark")])
def test_the_evidence_of_marked_models_is_what_it_was(release, kind, mark):
    opened = tm.Mark.load(release / mark)
    file = {"model": "marked.timber", "numbers": "regressor.timber"}[kind]
    verdict = tm.verify(release / file, opened)
    assert verdict.bits == EVIDENCE[release.name][kind]
    # The engine answers as the reference predictor does.
    assert tm.verify(tm.load(release / file), opened).bits == verdict.bits


def test_an_unmarked_model_is_not_accused(release):
    mark = tm.Mark.load(release / "secret.mark")
    assert tm.verify(release / "model.timber", mark).level == "none"


def test_claim_and_opening_belong_together(release):
    mark = tm.Mark.load(release / "secret.mark")
    claim = tm.Claim.load(release / "model.claim")
    again = tm.claim(release / "marked.timber", mark, key=OwnerKey(KEY_BYTES))
    differ = {n for n, value in again.statement.items() if claim.statement[n] != value}
    assert differ <= {"claimed"}
    assert claim.to_bytes() == (release / "model.claim").read_bytes()
    opening = Opening.load(release / "mark.opening")
    assert opening.check(claim).symbols.tolist() == mark.symbols[list(opening.places)].tolist()
    assert tm.open_mark(mark, claim, judge=JUDGE, share=0.75).to_bytes() == opening.to_bytes()


def test_the_pack_is_judged_as_it_was(release):
    found = tm.judge(release / "evidence.zip", judge_name=JUDGE)
    assert found.verdict.bits == EVIDENCE[release.name]["pack"]
    asked = tm.judge(read_pack(release / "evidence.zip"), suspect=release / "model.timber")
    assert asked.level == "none"


def test_the_journal_is_read(release):
    history = read_journal(release / "run.journal")
    mark = tm.Mark.load(release / "secret.mark")
    assert history.start["mark_digest"] == mark.digest.hex()
    assert history.ended["level"] == "conclusive"
    assert len(history.answers) == history.ended["triggers"]


def test_a_state_lets_its_model_learn_on(release):
    X, y = load_iris(return_X_y=True)
    model = tm.load(release / "small.timber")
    before = model.predict_proba(X)
    model.load_state(release / "small.state")
    np.testing.assert_array_equal(model.predict_proba(X), before)
    fresh = tm.TimberClassifier(max_iter=3, random_state=0).fit(X, y)
    for one in (model, fresh):
        one.update(X[:5], np.roll(y, 60)[:5])
    np.testing.assert_array_equal(model.predict_proba(X), fresh.predict_proba(X))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("owner.key", OwnerKey.load),
        ("secret.mark", tm.Mark.load),
        ("model.claim", tm.Claim.load),
        ("mark.opening", Opening.load),
        ("evidence.zip", read_pack),
        ("marked.timber", tm.load),
    ],
)
def test_a_flipped_byte_is_found(release, name, read):
    data = bytearray((release / name).read_bytes())
    data[len(data) // 2] ^= 1
    (release / name).write_bytes(data)
    with pytest.raises((FileFormatError, tm.errors.EvidenceError)):
        read(release / name)
