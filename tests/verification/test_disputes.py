"""Disputes: an honest owner against everything that a thief can bring."""

import hashlib
import json
import time
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest

from tests.ownership.authority import Authority, needs_openssl
from tests.verification.staircases import (
    JUDGE,
    House,
    build_house,
    embed,
    make_mark,
    others_model,
    party,
    scores,
    staircase,
)
from timbermark.errors import InputError
from timbermark.ownership import Claim, Mark, Opening, OwnerKey, open_mark
from timbermark.ownership.claim import MAX_STAMPS
from timbermark.ownership.opening import draw_places
from timbermark.ownership.seals import DrawnSeal, LeafSeal, take_triggers
from timbermark.trees.ensemble import digest
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification.disputes import Party, judge_dispute, share_of_thresholds
from timbermark.verification.judge import judge
from timbermark.verification.packs import CLAIM, OPENING, write_pack
from timbermark.verification.stamps import add_stamp, make_query


def codes(found):
    return [reason.code for reason in found.reasons]


def notes(found):
    return [note.code for note in found.notes]


def write_evidence(path, claim, opening):
    write_pack(path, {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()}, force=True)
    return path


@pytest.fixture(scope="module")
def ann(tmp_path_factory):
    """The first owner."""
    return build_house(tmp_path_factory.mktemp("disputes") / "ann", "Ann", staircase(1), seed=2)


@pytest.fixture
def thief(ann, tmp_path):
    """Took Ann's marked model and marked it again: his unmarked model is her marked one."""
    return build_house(tmp_path / "thief", "Thief", ann.trees, seed=7)


def test_a_mark_made_after_the_theft(ann, thief):
    """The thief's models carry both marks, even the one that he calls unmarked."""
    found = judge_dispute(party(ann), party(thief), judge=JUDGE)
    assert found.winner == "first"
    assert judge_dispute(party(thief), party(ann)).winner == "second"
    bits = {(cell.mark_of, cell.model): cell.bits for cell in found.cells}
    assert len(bits) == 8
    assert bits["first", "first marked"] >= 64 > 20 > bits["first", "first unmarked"]
    assert bits["first", "second unmarked"] >= 64
    assert bits["first", "second marked"] >= 64
    assert bits["second", "second marked"] >= 64
    assert bits["second", "first marked"] < 20
    assert codes(found) == ["same-model"]
    assert found.in_common["first marked | second marked"] == 1.0
    shown = str(found)
    assert shown.startswith("Ann was first")
    assert "second marked" in shown
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_dict()["owner"] == "Ann"


def test_a_back_dated_claim(ann, thief, monkeypatch):
    """A claim may say any time; only a verified stamp counts, and here nothing hangs on time."""

    class Past:
        @staticmethod
        def now(_):
            return datetime(2001, 1, 1)

    monkeypatch.setattr("timbermark.ownership.claim.datetime", Past)
    early = Claim.make(
        thief.mark, thief.key, marked_digest=thief.claim.marked_digest,
        marked_file=thief.claim.marked_file,
    )  # fmt: skip
    assert early.claimed == "2001-01-01T00:00:00Z"
    write_pack(
        thief.folder / "early",
        {
            CLAIM: early.to_bytes(),
            OPENING: open_mark(thief.mark, early, judge=JUDGE, share=1.0).to_bytes(),
        },
    )
    found = judge_dispute(party(ann), party(thief, evidence=thief.folder / "early", claim=None))
    assert found.winner == "first"
    assert found.parties[1].first_seen is None


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "tsa")


def with_stamp(house, response, name="stamped"):
    """The party with a stamp that was put beside its claim."""
    claim = house.claim.with_stamp(response)
    opening = (house.evidence / OPENING).read_bytes()
    write_pack(house.folder / name, {CLAIM: claim.to_bytes(), OPENING: opening}, force=True)
    return party(house, evidence=house.folder / name, claim=None)


@needs_openssl
def test_the_stamp_of_another_claim(ann, thief, authority):
    response = authority.stamp(make_query(ann.claim))
    found = judge_dispute(
        with_stamp(ann, response), with_stamp(thief, response), roots=[authority.root]
    )
    assert found.winner == "first"
    assert [stamp.reason for stamp in found.parties[1].stamps] == ["foreign"]
    assert found.parties[1].refused == ""
    assert found.parties[0].first_seen is not None
    # Without roots it is found out, too.
    again = judge_dispute(with_stamp(ann, response), with_stamp(thief, response))
    assert again.winner == "first"
    assert again.parties[0].first_seen is None


@needs_openssl
def test_a_mark_registered_before_the_theft_and_embedded_later(ann, tmp_path, authority):
    """The schemer has an early stamp, on a claim for a model of his own."""
    schemer = build_house(tmp_path / "schemer", "Schemer", others_model(5), seed=5)
    early = authority.stamp(make_query(schemer.claim))
    time.sleep(1.1)
    late = authority.stamp(make_query(ann.claim))
    stolen = embed(ann.trees, schemer.mark)
    save_ensemble(tmp_path / "suspect.timber", stolen)
    parties = with_stamp(ann, late), with_stamp(schemer, early)
    found = judge_dispute(*parties, suspect=tmp_path / "suspect.timber", roots=[authority.root])
    assert found.parties[1].first_seen < found.parties[0].first_seen
    inside = {cell.mark_of: cell.level for cell in found.cells if cell.model == "suspect"}
    assert inside == {"first": "conclusive", "second": "conclusive"}
    # Who registers a mark first and embeds it later has the earlier stamp; nothing else tells.
    assert (found.winner, codes(found)[0]) == ("second", "suspect-carries-both")
    without = judge_dispute(*parties, suspect=tmp_path / "suspect.timber")
    assert (without.winner, "no-stamps" in codes(without)) == ("undecided", True)
    # Handing over the stolen model as the one of the claim does not help: it is left out.
    cheating = replace(parties[1], marked=tmp_path / "suspect.timber")
    again = judge_dispute(parties[0], cheating, roots=[authority.root])
    assert again.winner == "undecided"
    assert "left-out" in notes(again)


def picked(house, places):
    """An opening of chosen triggers, made with all that the owner knows."""
    mark = house.mark
    whole = open_mark(mark, house.claim, judge=JUDGE, share=1.0)
    chosen = list(places)
    return replace(
        whole, places=tuple(chosen), salts=tuple(mark.salts[i] for i in chosen),
        leaves=take_triggers(whole.leaves, chosen),
        paths=tuple(whole.paths[i] for i in chosen),
    )  # fmt: skip


def test_a_cherry_picked_opening(ann, tmp_path):
    """A forger marks nothing, commits to many triggers and shows those that fit by chance."""
    forger = build_house(tmp_path / "forger", "Forger", ann.trees, seed=9, k=300)
    mark = forger.mark
    said = scores(ann.trees, mark.rows()).argmax(axis=1)
    fits = np.flatnonzero(said == mark.expected_numbers)
    assert len(fits) > 40
    opening = picked(forger, fits.tolist())
    write_pack(
        forger.folder / "picked",
        {CLAIM: forger.claim.to_bytes(), OPENING: opening.to_bytes()},
    )
    save_ensemble(tmp_path / "sold.timber", replace(ann.trees, value=ann.trees.value * 1.01))
    found = judge_dispute(
        party(ann), Party(forger.folder / "picked"), suspect=tmp_path / "sold.timber"
    )
    assert found.winner == "first"
    assert found.parties[1].refused
    # The triggers that the draw gives show nothing in her model.
    honest = picked(forger, draw_places(forger.claim, JUDGE, 3))
    honest.check(forger.claim)
    write_pack(
        forger.folder / "drawn",
        {CLAIM: forger.claim.to_bytes(), OPENING: honest.to_bytes()},
    )
    drawn = judge_dispute(
        party(ann), Party(forger.folder / "drawn"), suspect=tmp_path / "sold.timber"
    )
    assert (drawn.winner, codes(drawn)[0]) == ("first", "same-model")
    found = {(cell.mark_of, cell.model): cell.level for cell in drawn.cells}
    assert found["second", "suspect"] == "none"


def test_a_claim_on_a_model_without_the_mark(ann, tmp_path):
    """Whoever only registers a mark and never embeds it claims nothing."""
    idle = build_house(tmp_path / "idle", "Idle", ann.trees, seed=11)
    other = replace(ann.trees, value=ann.trees.value * 1.01)
    save_ensemble(tmp_path / "other.timber", other)
    claim = Claim.make(idle.mark, idle.key, marked_digest=digest(other))
    opening = open_mark(idle.mark, claim, judge=JUDGE, share=1.0)
    write_pack(tmp_path / "idle-pack", {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()})
    idle_side = Party(tmp_path / "idle-pack", None, None, tmp_path / "other.timber")
    found = judge_dispute(party(ann), idle_side)
    assert (found.winner, codes(found)[0]) == ("first", "same-model")
    # Without a model of hers in his hands, it is a fact that his claim proves nothing.
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    save_ensemble(tmp_path / "sold.timber", replace(bob.trees, value=bob.trees.value * 1.01))
    found = judge_dispute(party(bob), idle_side, suspect=tmp_path / "sold.timber")
    assert (found.winner, codes(found)) == ("first", ["suspect-carries", "own-missing"])


def test_a_refused_side_does_not_make_the_other_first(ann, tmp_path):
    """Evidence that holds but finds nothing outside the own house proves nothing."""
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    other = ann.open(name="Somebody else")
    write_pack(tmp_path / "other", {CLAIM: ann.claim.to_bytes(), OPENING: other.to_bytes()})
    for suspect in (ann.unmarked, bob.marked, None):
        found = judge_dispute(
            party(ann, evidence=tmp_path / "other"), party(bob), suspect=suspect, judge=JUDGE
        )
        assert found.parties[0].refused
        assert found.winner == "undecided"


@needs_openssl
def test_an_unknown_authority_refuses_nobody(ann, tmp_path, authority):
    """The judge trusts the thief's authority only; her stamp does not count, her mark does."""
    other = Authority(tmp_path / "other", "Other")
    thief = build_house(tmp_path / "thief", "Thief", ann.trees, seed=7)
    found = judge_dispute(
        with_stamp(ann, other.stamp(make_query(ann.claim))),
        with_stamp(thief, authority.stamp(make_query(thief.claim))),
        roots=[authority.root],
    )
    assert found.winner == "first"
    assert (found.parties[0].refused, found.parties[0].first_seen) == ("", None)
    assert found.parties[1].first_seen is not None


def test_two_honest_owners_have_nothing_to_dispute(ann, tmp_path):
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    found = judge_dispute(party(ann), party(bob))
    assert found.winner == "undecided"
    assert codes(found) == ["nothing-in-common"]
    save_ensemble(tmp_path / "sold.timber", replace(bob.trees, value=bob.trees.value * 1.01))
    against = judge_dispute(party(ann), party(bob), suspect=tmp_path / "sold.timber")
    assert against.winner == "second"
    # That somebody's own model carries his own mark shows nothing.
    own = judge_dispute(party(ann), party(bob), suspect=bob.marked)
    assert (own.winner, codes(own)) == ("undecided", ["own-model"])


def test_under_opening_does_not_help_the_thief(ann, thief):
    """He opens little, although his "unmarked" model is her marked one by its digest."""
    small = open_mark(thief.mark, thief.claim, judge=JUDGE, share=0.125, force=True)
    evidence = write_evidence(thief.folder / "small", thief.claim, small)
    for changes in ({}, {"unmarked": None}, {"unmarked": None, "marked": None}):
        found = judge_dispute(party(ann), party(thief, evidence=evidence, **changes))
        assert (found.winner, codes(found)) == ("first", ["same-model", "opened-too-little"])
        assert judge_dispute(party(thief, evidence=evidence, **changes), party(ann)).winner == (
            "second"
        )


def test_a_claimed_digest_counts_only_with_the_mark_in_the_model(ann, tmp_path):
    """Digests are public: Eve claims that Ann's unmarked model is her marked one."""
    eve = build_house(tmp_path / "eve", "Eve", others_model(5), seed=5)
    claim = Claim.make(eve.mark, eve.key, marked_digest=ann.claim.model_digest)
    opening = open_mark(eve.mark, claim, judge=JUDGE, share=1.0)
    evidence = write_evidence(tmp_path / "forged", claim, opening)
    sold = tmp_path / "sold.timber"
    save_ensemble(sold, replace(ann.trees, value=ann.trees.value * 1.01))
    for models in (
        {},
        {"marked": ann.unmarked},
        {"marked": ann.unmarked, "unmarked": eve.unmarked},
    ):
        found = judge_dispute(party(ann), Party(evidence, **models))
        assert found.winner == "undecided"
        found = judge_dispute(party(ann), Party(evidence, **models), suspect=sold)
        assert found.winner == "first"


def test_half_of_a_two_class_mark_is_not_a_missing_mark(tmp_path):
    """64.2 bits at most, and a perfect copy shows 61 to 65: "does not carry the mark"."""
    ann = build_house(tmp_path / "ann", "Ann", staircase(1), seed=2, k=150, q=2, share=0.5)
    bob = build_house(tmp_path / "bob", "Bob", others_model(5), seed=5)
    assert 64 < Opening.load(ann.evidence / OPENING).full_bits < 65
    for suspect in (None, ann.marked, bob.marked):
        found = judge_dispute(party(ann), party(bob), suspect=suspect)
        assert "own-missing" not in codes(found)
        assert found.winner == "undecided"
    with pytest.raises(InputError) as caught:
        open_mark(ann.mark, ann.claim, judge=JUDGE, share=0.5)
    assert caught.value.parameter == "share"
    whole = open_mark(ann.mark, ann.claim, judge=JUDGE)
    evidence = write_evidence(tmp_path / "whole", ann.claim, whole)
    assert judge(evidence, suspect=ann.marked).level == "conclusive"


def permuted(trees):
    """The same trees with their columns exchanged."""
    return replace(trees, feature=np.where(trees.feature == 0, 1, trees.feature))


def build_permuted(folder, ann):
    """A thief who exchanged and renamed the columns of Ann's model, and marked it."""
    folder.mkdir()
    key = OwnerKey(hashlib.sha256(b"Thief").digest())
    mark = make_mark(ann.trees, key, "Thief Inc", seed=7)
    leaves = replace(mark.leaves, columns=mark.leaves.columns[::-1])
    unmarked = permuted(ann.trees)
    mark = replace(mark, leaves=leaves, feature_names=("b", "a"), model_digest=digest(unmarked))
    turned = SimpleNamespace(
        rows=lambda: mark.rows()[:, ::-1], expected_numbers=mark.expected_numbers
    )
    marked = permuted(embed(ann.trees, turned))
    save_ensemble(folder / "unmarked.timber", unmarked)
    save_ensemble(folder / "marked.timber", marked)
    claim = Claim.make(mark, key, marked_digest=digest(marked))
    claim.save(folder / "model.claim")
    opening = open_mark(mark, claim, judge=JUDGE, share=1.0)
    evidence = write_evidence(folder / "evidence", claim, opening)
    return House(folder, key, mark, claim, folder / "unmarked.timber", folder / "marked.timber",
                 evidence, marked)  # fmt: skip


@needs_openssl
def test_permuted_and_renamed_columns_do_not_make_the_thief_first(ann, tmp_path, authority):
    """He stamped after her and was "first … 100 % trees of Thief Inc"."""
    thief = build_permuted(tmp_path / "thief", ann)
    early = authority.stamp(make_query(ann.claim))
    time.sleep(1.1)
    late = authority.stamp(make_query(thief.claim))
    sides = with_stamp(ann, early), with_stamp(thief, late)
    sold = tmp_path / "sold.timber"
    save_ensemble(sold, replace(thief.trees, value=thief.trees.value * 1.01))
    for suspect in (None, thief.marked, ann.marked, sold):
        found = judge_dispute(*sides, suspect=suspect, roots=[authority.root])
        bits = {(cell.mark_of, cell.model): cell.bits for cell in found.cells}
        assert bits["second", "second marked"] >= 64 > 20 > bits["first", "second marked"]
        assert found.winner != "second"
        assert judge_dispute(*sides[::-1], suspect=suspect, roots=[authority.root]).winner != (
            "first"
        )
        # The fact stands in the table, for people: columns are matched by their thresholds.
        assert found.in_common["first marked | second marked"] == 1.0


def test_innocent_models_with_the_same_thresholds_are_not_washed_out_of_each_other(ann, tmp_path):
    """Models of small trees share most of them; that decides nothing."""
    bob = build_house(tmp_path / "bob", "Bob", staircase(5), seed=5)
    found = judge_dispute(party(ann), party(bob))
    assert found.in_common["first marked | second marked"] == 1.0
    assert (found.winner, codes(found)) == ("undecided", ["nothing-in-common"])


def test_columns_with_few_thresholds_are_not_compared():
    stumps = [{0.5}, {1.5}, set(map(float, range(7)))]
    assert share_of_thresholds(stumps, stumps) == 0.0
    many = [set(map(float, range(100))), {0.5}]
    assert share_of_thresholds(many, many[::-1]) == 1.0


@needs_openssl
def test_junk_stamps_refuse_nobody(ann, thief, authority):
    """Eight of them on a copy of her public claim pushed her real stamp over the limit."""
    real = authority.stamp(make_query(ann.claim))
    junk = [b"junk %d" % i for i in range(MAX_STAMPS)]
    for published, packed in (([real], junk), (junk, [real]), (junk, junk)):
        claims = [replace(ann.claim, stamps=tuple(stamps)) for stamps in (published, packed)]
        opening = Opening.load(ann.evidence / OPENING)
        evidence = write_evidence(ann.folder / "junk", claims[1], opening)
        side = party(ann, evidence=evidence, claim=claims[0])
        found = judge_dispute(side, party(thief), roots=[authority.root])
        assert (found.winner, found.parties[0].refused) == ("first", "")
        assert (found.parties[0].first_seen is not None) == (real in (*published, *packed))
        assert judge(
            evidence, claim=claims[0], suspect=ann.marked, roots=[authority.root]
        ).level == ("conclusive")


def test_a_file_with_two_million_features_does_not_hang_the_comparison(ann, thief, tmp_path):
    """7 KB of XGBoost: rows were drawn for all of its features."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, X[:, 0] > 0)
    path = tmp_path / "wide.json"
    model.save_model(path)
    record = json.loads(path.read_text())
    record["learner"]["learner_model_param"]["num_feature"] = "2000000"
    for tree in record["learner"]["gradient_booster"]["model"]["trees"]:
        tree["tree_param"]["num_feature"] = "2000000"
    path.write_text(json.dumps(record))
    found = judge_dispute(party(ann), party(thief), suspect=path)
    assert found.winner == "first"
    assert "cannot-ask" in notes(found)


def test_both_refused_is_undecided(ann, thief):
    found = judge_dispute(party(ann), party(thief), judge="Somebody else")
    assert found.winner == "undecided"
    assert all(p.refused for p in found.parties)


def test_a_wrong_file_of_the_owner_does_not_help_the_thief(ann, thief, tmp_path):
    """A model that the claim does not name is left out; the opening holds all the same."""
    resaved = replace(ann.trees, value=ann.trees.value * (1 + 1e-15))
    save_ensemble(tmp_path / "resaved.timber", resaved)
    (tmp_path / "broken.timber").write_bytes(b"timbermark model 1\nnothing")
    for changes in (
        {"marked": tmp_path / "resaved.timber"},
        {"unmarked": thief.marked},
        {"unmarked": thief.marked, "marked": thief.marked},
        {"marked": tmp_path / "broken.timber"},
    ):
        found = judge_dispute(party(ann, **changes), party(thief), judge=JUDGE)
        assert found.winner == "first"
        assert found.parties[0].refused == ""
        assert notes(found).count("left-out") == len(changes)


def test_a_wrong_file_of_the_thief_does_not_help_him_either(ann, thief):
    found = judge_dispute(party(ann), party(thief, unmarked=ann.unmarked), judge=JUDGE)
    assert found.winner == "first"
    assert "left-out" in notes(found)


def test_the_same_claim_twice_is_bad_input(ann):
    with pytest.raises(InputError) as caught:
        judge_dispute(party(ann), party(ann))
    assert caught.value.code == "dispute.same-claim"


def test_without_models_both_marks_in_a_suspect_stay_undecided(ann, thief):
    found = judge_dispute(Party(ann.evidence), Party(thief.evidence), suspect=thief.marked)
    assert found.winner == "undecided"
    assert codes(found) == ["suspect-carries-both", "no-stamps"]


def test_a_model_of_another_task_carries_no_mark(ann, tmp_path):
    """Other columns cannot be asked; that is a note, not an error."""
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    found = judge_dispute(party(ann), party(bob), suspect=lambda X: ["z"] * len(X))
    assert found.winner == "undecided"
    assert "cannot-ask" in notes(found)


def test_a_key_of_another_owner_does_not_sign_for_ann(ann):
    eve = OwnerKey(hashlib.sha256(b"Eve").digest())
    with pytest.raises(InputError):
        Claim.make(ann.mark, eve, marked_digest="0" * 64)


def test_what_is_opened_once_cannot_be_claimed_by_the_judge(ann):
    """Who saw an opening cannot make a mark of his own out of it: it commits to other secrets."""
    opened = Opening.load(ann.evidence / OPENING).check(ann.claim)
    eve = OwnerKey(hashlib.sha256(b"Eve").digest())
    with pytest.raises(InputError):
        Claim.make(opened, eve, marked_digest="0" * 64)
    own = make_mark(ann.trees, eve, "Eve", seed=2)
    assert np.mean(own.symbols == ann.mark.symbols) < 0.6


@needs_openssl
def test_stamps_are_added_to_evidence_later(ann, authority):
    """The pack was written before the stamp came; the published claim has it."""
    stamped = add_stamp(ann.claim, authority.stamp(make_query(ann.claim)))
    found = judge(ann.evidence, suspect=ann.marked, claim=stamped, roots=[authority.root])
    assert found.first_seen is not None
    assert "stamps" in [check.code for check in found.checks]
    unchecked = judge(ann.evidence, suspect=ann.marked, claim=stamped)
    assert unchecked.first_seen is None
    assert "not checked" in str(unchecked)
    assert "valid" not in str(unchecked)


def test_the_mark_of_a_guard_decides_nothing(ann, tmp_path):
    """Its symbols are stored, so that anybody can make one that fits a model of somebody else."""
    rows = np.column_stack([np.arange(1.0, 101.0) + 0.5, np.zeros(100)])
    known = scores(ann.trees, rows)
    alphabets = np.argsort(-known, axis=1)[:, :2]
    seal = DrawnSeal(
        LeafSeal.make(rows, alphabets, known).columns, alphabets, known, np.zeros((100, 0, 2)),
        np.zeros(100, np.uint8), np.zeros((100, 32), np.uint8),
    )  # fmt: skip
    key = OwnerKey(bytes(32))
    mark = Mark.make(
        key, owner="Thief", model_digest="0" * 64, classes=ann.mark.classes, guarded=seal
    )
    claim = Claim.make(mark, key, marked_digest="1" * 64)
    opening = open_mark(mark, claim, judge=JUDGE, share=1.0)
    evidence = write_evidence(tmp_path / "thief", claim, opening)
    assert judge(evidence, suspect=ann.marked).level == "indicative"
    found = judge_dispute(Party(evidence), party(ann), suspect=ann.marked)
    assert found.winner == "undecided"
    assert codes(found) == ["own-model", "refused"]
    assert {cell.mark_of for cell in found.cells} == {"second"}
