"""`timbermark claim`, `open`, `judge` and `marks`, as people use them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import timbermark as tm
from tests.ownership.authority import Authority, needs_openssl
from tests.verification.staircases import JUDGE, N_STEPS, build_house, staircase
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.ownership import Claim
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification.records import ledger_path
from timbermark.verification.stamps import make_query


@pytest.fixture
def ann(tmp_path):
    return build_house(tmp_path / "ann", "Ann Ltd", staircase(1), seed=2, k=128)


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def claim_words(house, out, *more):
    return (
        "claim", house.marked, house.folder / "secret.mark", "--key", house.folder / "owner.key",
        "--out", out, *more,
    )  # fmt: skip


def opened(run, house, *more):
    code, _, err = run(
        "open", house.folder / "secret.mark", "--claim", house.folder / "model.claim",
        "--for", JUDGE, "--out", house.folder / "for-judge", *more,
    )  # fmt: skip
    assert code == 0, err
    return house.folder / "for-judge"


def test_from_claim_to_judgment(ann, run, tmp_path):
    out = tmp_path / "new.claim"
    code, shown, err = run(*claim_words(ann, out))
    assert code == 0
    assert "publish it" in shown
    assert "not when" in err
    assert Claim.load(out).marked_digest == ann.claim.marked_digest
    assert Claim.load(out).marked_file == ann.claim.marked_file
    mark = ann.folder / "secret.mark"
    code, shown, _ = run(
        "open", mark, "--claim", out, "--for", JUDGE, "--share", "0.5", "--out", tmp_path / "e"
    )
    assert code == 0
    assert "64 of 128 triggers for Judge Judy, worth 117 bits at most" in shown
    assert "64 triggers nobody has seen, worth 117 bits" in shown
    code, shown, _ = run("inspect", mark, "--json")
    facts = json.loads(shown)
    assert (facts["unopened"], round(facts["bits_left"])) == (64, 117)
    assert (facts["can_convince"], facts["next_share"]) == (True, 0.75)
    assert (facts["leaves"], facts["splits"]) == (128, 0)
    assert facts["openings"][0].startswith("Judge Judy (64 triggers, 20")
    code, shown, _ = run(
        "judge", tmp_path / "e", "--claim", out, "--suspect", ann.marked, "--for", JUDGE,
        "--out", tmp_path / "pack.zip",
    )  # fmt: skip
    assert code == 0
    assert "conclusive: the suspect carries the mark of Ann Ltd" in shown
    code, shown, _ = run("judge", tmp_path / "pack.zip", "--json")
    assert code == 0
    found = json.loads(shown)
    assert found["verdict"]["level"] == "conclusive"
    assert found["opened"] == 64
    assert len(found["curve"]) == 64
    assert run("judge", tmp_path / "e", "--suspect", ann.unmarked)[0] == 1


def test_opening_again_burns_no_more(ann, run):
    opened(run, ann)
    first = ledger_path(ann.folder / "secret.mark").read_text()
    opened(run, ann, "--force")
    assert ledger_path(ann.folder / "secret.mark").read_text() == first


def test_nothing_is_shown_without_a_trace(ann, run, monkeypatch):
    """The record is written first: a full disk afterwards leaves a record too many."""

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("timbermark.verification.packs.write_pack", fail)
    code, _, err = run(
        "open", ann.folder / "secret.mark", "--claim", ann.folder / "model.claim", "--for", JUDGE,
        "--out", ann.folder / "x",
    )  # fmt: skip
    assert code == 2
    assert "No space left" in err
    assert JUDGE in ledger_path(ann.folder / "secret.mark").read_text()


@needs_openssl
def test_a_stamp_comes_later_and_offline(ann, run, tmp_path):
    authority = Authority(tmp_path / "tsa")
    out, query = tmp_path / "new.claim", tmp_path / "new.tsq"
    code, shown, _ = run(*claim_words(ann, out, "--query", query))
    assert code == 0
    assert "query for a time-stamping authority" in shown
    before = Claim.load(out)
    (tmp_path / "new.tsr").write_bytes(authority.stamp(query.read_bytes()))
    code, shown, _ = run(*claim_words(ann, out, "--stamp", tmp_path / "new.tsr"))
    assert code == 0
    assert "CN=Test stamps" in shown
    after = Claim.load(out)
    assert (after.digest, len(after.stamps)) == (before.digest, 1)
    code, shown, _ = run("inspect", out)
    assert code == 0
    assert "not checked" in shown
    (tmp_path / "root.pem").write_bytes(authority.root)
    words = ("open", ann.folder / "secret.mark", "--claim", out, "--for", JUDGE)
    assert run(*words, "--out", tmp_path / "e")[0] == 0
    words = ("judge", tmp_path / "e", "--suspect", ann.marked)
    code, shown, _ = run(*words, "--roots", tmp_path / "root.pem")
    assert code == 0
    assert "time stamp: verified" in shown
    code, shown, _ = run(*words)
    assert code == 0
    assert "time stamp: not checked" in shown
    assert "verified:" not in shown
    stranger = Authority(tmp_path / "stranger", "Stranger")
    (tmp_path / "stranger.pem").write_bytes(stranger.root)
    # A stamp that does not hold refuses nobody: it does not count.
    code, shown, _ = run(*words, "--roots", tmp_path / "stranger.pem")
    assert code == 0
    assert "time stamp: not checked" in shown


@needs_openssl
def test_a_stamp_of_something_else_changes_nothing(ann, run, tmp_path):
    authority = Authority(tmp_path / "tsa")
    out = ann.folder / "model.claim"
    before = out.read_bytes()
    eve = build_house(tmp_path / "eve", "Eve", staircase(3), seed=3)
    (tmp_path / "b.tsr").write_bytes(authority.stamp(make_query(eve.claim)))
    code, _, err = run(*claim_words(ann, out, "--stamp", tmp_path / "b.tsr"))
    assert code == 2
    assert "something else than this claim" in err
    assert out.read_bytes() == before


def test_an_authority_that_is_not_there_loses_nothing(ann, run, tmp_path):
    out = tmp_path / "new.claim"
    code, _, err = run(*claim_words(ann, out, "--tsa", "http://127.0.0.1:9/"))
    assert code == 2
    assert "did not answer" in err
    assert Claim.load(out).stamps == ()


def washed(house):
    """A file of the owner's trees without the mark."""
    path = house.folder.parent / "washed.timber"
    if not path.exists():
        unmarked = staircase(1)
        save_ensemble(path, replace(unmarked, value=unmarked.value * 1.01))
    return path


def test_a_model_without_the_mark_is_claimed_by_force_only(ann, run, tmp_path):
    words = (
        "claim", washed(ann), ann.folder / "secret.mark", "--key", ann.folder / "owner.key",
        "--out", tmp_path / "washed.claim",
    )  # fmt: skip
    assert run(*words)[0] == 2
    assert not (tmp_path / "washed.claim").exists()
    assert run(*words, "--force")[0] == 0
    with pytest.raises(InputError) as caught:
        tm.claim(washed(ann), ann.mark, key=ann.key)
    assert caught.value.code == "claim.not-carried"
    assert tm.claim(washed(ann), ann.mark, key=ann.key, force=True).owner == "Ann Ltd"


def test_pages_with_answers_are_for_their_owner_only(ann, run, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    page.write_text("old")
    page.chmod(0o644)
    words = ("judge", ann.evidence, "--suspect", ann.marked, "--report", page, "--force")
    assert run(*words)[0] == 0
    assert page.stat().st_mode & 0o777 == 0o600


BAD = {
    "the unmarked model": (
        lambda h, t: ("claim", h.unmarked, h.folder / "secret.mark", "--key",
                      h.folder / "owner.key", "--out", t / "x"), "unmarked one"),
    "a model without the mark": (
        lambda h, t: ("claim", washed(h), h.folder / "secret.mark", "--key",
                      h.folder / "owner.key", "--out", t / "x"), "does not carry the mark"),
    "another key": (
        lambda h, t: ("claim", h.marked, h.folder / "secret.mark", "--key", t / "other.key",
                      "--out", t / "x"), "not made with this owner key"),
    "an existing claim": (
        lambda h, t: claim_words(h, h.folder / "model.claim"), "--force"),
    "two sources": (
        lambda h, t: claim_words(h, t / "x", "--tsa", "http://a", "--stamp", h.marked),
        "exclude each other"),
    "nothing to stamp": (
        lambda h, t: claim_words(h, t / "x", "--stamp", h.marked), "nothing that the stamp"),
    "a claim over the mark": (
        lambda h, t: claim_words(h, h.folder / "secret.mark", "--force"), "same file"),
    "a share that is too small": (
        lambda h, t: ("open", h.folder / "secret.mark", "--claim", h.folder / "model.claim",
                      "--for", "J", "--share", "0.25", "--out", t / "x"),
        "--share 0.25 opens 53 bits"),
    "a share of 0": (
        lambda h, t: ("open", h.folder / "secret.mark", "--claim", h.folder / "model.claim",
                      "--for", "J", "--share", "0", "--out", t / "x"), "--share 0.0 is not"),
    "no name": (
        lambda h, t: ("open", h.folder / "secret.mark", "--claim", h.folder / "model.claim",
                      "--for", " ", "--out", t / "x"), "not a name"),
    "evidence there already": (
        lambda h, t: ("open", h.folder / "secret.mark", "--claim", h.folder / "model.claim",
                      "--for", "J", "--out", h.evidence), "--force"),
    "a mark for a claim": (
        lambda h, t: ("open", h.folder / "secret.mark", "--claim", h.folder / "secret.mark",
                      "--for", "J", "--out", t / "x"), "holds a mark, not a claim"),
    "no evidence": (lambda h, t: ("judge", t / "none"), "No such file"),
    "a claim for evidence": (
        lambda h, t: ("judge", h.folder / "model.claim", "--suspect", h.marked),
        "claim without its opening"),
    "another judge": (
        lambda h, t: ("judge", h.evidence, "--suspect", h.marked, "--for", "Dredd"),
        "not for 'Dredd'"),
    "a suspect that is not there": (
        lambda h, t: ("judge", h.evidence, "--suspect", t / "none"), "No such file"),
    "a suspect that is no model": (
        lambda h, t: ("judge", h.evidence, "--suspect", h.folder / "owner.key"), "an owner key"),
    "no suspect": (lambda h, t: ("judge", h.evidence), "--suspect …"),
    "roots that are none": (
        lambda h, t: ("judge", h.evidence, "--suspect", h.marked, "--roots", h.marked),
        "root certificates cannot be read"),
    "rows without labels": (
        lambda h, t: ("judge", h.evidence, "--suspect", h.marked, "--rows", t / "rows.csv"),
        "without --label"),
    "labels without rows": (
        lambda h, t: ("judge", h.evidence, "--suspect", h.marked, "--label", "y"),
        "without --rows"),
    "models without a dispute": (
        lambda h, t: ("judge", h.evidence, "--marked", h.marked), "without --against"),
    "a pack of a dispute": (
        lambda h, t: ("judge", h.evidence, "--against", h.evidence, "--out", t / "x"),
        "exclude each other"),
    "the same evidence twice": (
        lambda h, t: ("judge", h.evidence, "--against", h.evidence), "same claim"),
    "no folder of marks": (lambda h, t: ("marks", t / "none"), "is no folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_changes_nothing(ann, run, tmp_path, case):
    words, reason = BAD[case]
    assert run("keygen", tmp_path / "other.key")[0] == 0
    np.savetxt(tmp_path / "rows.csv", np.zeros((3, 3)), "%g", ",", header="height,noise,y",
               comments="")  # fmt: skip
    words = words(ann, tmp_path)
    before = snapshot(tmp_path)
    code, shown, err = run(*words)
    assert (code, shown) == (2, "")
    assert reason in err
    assert "Hint: " in err
    assert len(err.strip().splitlines()) == 2
    assert snapshot(tmp_path) == before


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dispute_on_the_command_line(ann, run, tmp_path):
    thief = build_house(tmp_path / "thief", "Thief", ann.trees, seed=7)
    words = [
        "judge", ann.evidence, "--unmarked", ann.unmarked, "--marked", ann.marked,
        "--against", thief.evidence, "--against-unmarked", thief.unmarked,
        "--against-marked", thief.marked, "--against-claim", thief.folder / "model.claim",
    ]  # fmt: skip
    code, shown, _ = run(*words)
    assert code == 0
    assert shown.startswith("Ann Ltd was first")
    code, shown, _ = run(*words, "--json")
    assert json.loads(shown)["winner"] == "first"
    swapped = [
        "judge", thief.evidence, "--unmarked", thief.unmarked, "--marked", thief.marked,
        "--against", ann.evidence, "--against-unmarked", ann.unmarked,
        "--against-marked", ann.marked,
    ]  # fmt: skip
    assert run(*swapped)[0] == 1
    assert run("judge", ann.evidence, "--against", thief.evidence)[0] == 3


def test_a_second_opinion_on_the_command_line(ann, run, tmp_path):
    rng = np.random.default_rng(0)
    with open(tmp_path / "rows.csv", "w") as file:
        file.write("noise,species,height\n")
        for x in rng.uniform(0, N_STEPS, 300):
            file.write(f"{rng.normal()},c{int(x) % 5},{x}\n")
    code, shown, _ = run(
        "judge", ann.evidence, "--suspect", ann.marked, "--rows", tmp_path / "rows.csv",
        "--label", "species",
    )  # fmt: skip
    assert code == 0
    assert "nearest neighbours" in shown


def test_marks_are_listed(ann, run, tmp_path):
    opened(run, ann)
    code, shown, _ = run("marks", ann.folder)
    assert code == 0
    for part in ("secret.mark", "of Ann Ltd", "128 triggers, at most 256 bits",
                 "opened for Judge Judy", "80 triggers, at most 149 bits are left",
                 "can convince another judge", "model.claim", "0 time stamps",
                 f"on the marked model marked.timber, {ann.claim.marked_digest[:16]}"):  # fmt: skip
        assert part in shown
    code, shown, _ = run("marks", ann.folder, "--json")
    (listed,) = json.loads(shown)["marks"]
    assert (listed["unopened"], listed["can_convince"]) == (80, True)
    (claim,) = listed["claims"]  # the copies in packs are no further claims
    assert claim["path"] == "model.claim"
    assert claim["model"] == "marked.timber"
    assert claim["marked_digest"] == ann.claim.marked_digest
    assert sorted(Path(copy).parent.name for copy in claim["copies"]) == ["evidence", "for-judge"]
    assert run("marks", tmp_path / "ann" / "evidence")[1].startswith("no marks in")


def test_inspect_shows_claims_and_openings_without_secrets(ann, run):
    code, shown, _ = run("inspect", ann.folder / "model.claim")
    assert code == 0
    assert ann.claim.digest.hex() in shown
    code, shown, _ = run("inspect", ann.evidence / "mark.opening", "--json")
    assert code == 0
    facts = json.loads(shown)
    assert (facts["for"], facts["opened"], facts["bits"]) == (JUDGE, 128, 256)
    for secret in (*ann.mark.salts, ann.mark.secret):
        assert secret.hex() not in shown
    code, shown, _ = run("inspect", ann.evidence)
    assert code == 0
    assert "claim, opening" in shown
    pack = ann.folder / "pack.zip"
    assert run("judge", ann.evidence, "--suspect", ann.marked, "--out", pack)[0] == 0
    code, shown, _ = run("inspect", pack, "--json")
    holds = json.loads(shown)["holds"]
    assert holds[:4] == ["claim", "opening", "transcript", "verdict"]


def test_inspect_shows_a_record_of_openings(ann, run, tmp_path):
    mark, claim = ann.folder / "secret.mark", ann.folder / "model.claim"
    out = tmp_path / "e"
    assert run("open", mark, "--claim", claim, "--for", JUDGE, "--out", out)[0] == 0
    code, shown, _ = run("inspect", ledger_path(mark), "--json")
    facts = json.loads(shown)
    assert (code, facts["kind"]) == (0, "record of openings")
    assert facts["marks"] == [ann.mark.digest.hex()]
    assert [opening.startswith(JUDGE) for opening in facts["openings"]] == [True]


def test_by_default_as_much_is_opened_as_convinces(ann, run, tmp_path):
    """Half of a two-class mark: 60 bits, "indicative", half of the questions gone."""
    mark, claim = ann.folder / "secret.mark", ann.folder / "model.claim"
    words = ("open", mark, "--claim", claim, "--for", JUDGE)
    code, _, err = run(*words, "--share", "0.25", "--out", tmp_path / "x")
    assert code == 2
    assert "--force" in err
    assert not ledger_path(mark).exists()  # no question was spent
    assert run(*words, "--out", tmp_path / "e", "--json")[0] == 0
    assert run("judge", tmp_path / "e", "--suspect", ann.marked, "--answers", "labels")[0] == 0
    code, shown, err = run(*words, "--share", "0.25", "--force", "--out", tmp_path / "x", "--json")
    assert code == 0
    assert json.loads(shown)["opened"] == 32
    code, shown, _ = run("inspect", mark)
    assert "can convince" in shown
