"""Files of released versions: every later version reads them, and finds in them what was there."""

import json
import shutil
from pathlib import Path

import pytest

import timbermark as tm
from tests.fixtures.make_release_files import JUDGE, KEY_BYTES, PASSPHRASE
from timbermark.guard.ledger_file import read_summary
from timbermark.ownership.opening import Opening
from timbermark.tracing.showing import RollClaim, RollOpening
from timbermark.verification.chain import load_chains
from timbermark.verification.journal import FIRST_LINE

FIXTURES = Path(__file__).parent / "fixtures"
RELEASES = sorted(path.name for path in FIXTURES.glob("release-*"))
KEY = tm.OwnerKey(KEY_BYTES)


@pytest.fixture(params=RELEASES)
def release(request, tmp_path, real_scrypt):
    """A copy of the folder of a release, and what its files were worth when they were made."""
    folder = tmp_path / request.param
    shutil.copytree(FIXTURES / request.param, folder)
    for file in folder.iterdir():
        file.chmod(0o600)  # secrets are for their owner alone, which git does not keep
    return folder, json.loads((folder / "worth.json").read_text())


def test_there_is_a_folder_for_every_release():
    assert "release-0.2" in RELEASES


def test_marks_and_models(release):
    folder, worth = release
    mark = tm.Mark.load(folder / "secret.mark")
    assert tm.Mark.load(folder / "secret-sealed.mark", PASSPHRASE) == mark
    assert tm.OwnerKey.load(folder / "owner.key") == KEY
    assert tm.OwnerKey.load(folder / "owner-sealed.key", PASSPHRASE) == KEY
    found = tm.verify(folder / "marked.timber", mark)
    assert found.bits == pytest.approx(worth["marked"], abs=0.01)
    assert tm.verify(tm.load(folder / "marked.timber"), mark).bits == found.bits
    assert tm.verify(folder / "model.timber", mark).level == "none"
    numbers = tm.verify(folder / "regressor.timber", tm.Mark.load(folder / "numbers.mark"))
    assert numbers.bits == pytest.approx(worth["numbers"], abs=0.01)


def test_claims_openings_and_packs(release):
    folder, worth = release
    claim = tm.Claim.load(folder / "model.claim")
    assert claim.key == KEY.claim_key
    assert Opening.load(folder / "mark.opening").judge == JUDGE
    judged = tm.judge(
        folder / "mark.opening", claim=claim, suspect=folder / "marked.timber", judge=JUDGE
    )
    assert judged.level == "conclusive"
    assert judged.bits == pytest.approx(worth["judged"], abs=0.01)
    again = tm.judge(folder / "evidence.zip", claim=claim, judge=JUDGE)
    assert (again.level, again.bits) == (judged.level, judged.bits)


def test_copies(release):
    folder, worth = release
    roll = tm.Roll.load(folder / "secret.roll")
    found = tm.trace(folder / "copy-of-eve.timber", roll)
    assert found.leakers == ("Eve",)
    assert found.bits == pytest.approx(worth["eve"], abs=0.01)
    claim = RollClaim.load(folder / "copies.roll-claim")
    opening = RollOpening.load(folder / "eve.roll-opening")
    shown = tm.trace(folder / "copy-of-eve.timber", opening, claim=claim, judge=JUDGE)
    assert shown.level == "conclusive"


def test_ledgers_and_chains(release):
    folder, worth = release
    assert read_summary(folder / "guard.db").entries == worth["drawn"]
    (chain,) = load_chains(folder / "acme.chain")
    assert len(chain.entries) == worth["drawn"]
    assert tm.Mark.load(folder / "acme.mark").n_leaves == worth["cells"]


def test_states_and_journals(release):
    folder, _ = release
    small = tm.TimberClassifier.load(folder / "small.timber")
    small.load_state(folder / "small.state")
    assert (folder / "run.journal").read_bytes().startswith(FIRST_LINE)
