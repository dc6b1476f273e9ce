"""Disputes: an honest owner against everything that a thief can bring."""

import hashlib
import json
import time
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from tests.ownership.authority import Authority, needs_openssl
from tests.verification.staircases import (
    JUDGE,
    build_house,
    embed,
    make_mark,
    others_model,
    party,
    scores,
    staircase,
)
from timbermark.errors import InputError
from timbermark.ownership import Claim, Opening, OwnerKey, open_mark
from timbermark.ownership.opening import draw_places
from timbermark.ownership.stamps import add_stamp, make_query
from timbermark.trees.ensemble import digest
from timbermark.trees.model_file import save_ensemble
from timbermark.verification.disputes import Party, judge_dispute
from timbermark.verification.judging_claims import judge
from timbermark.verification.packs import CLAIM, OPENING, write_pack


@pytest.fixture(scope="module")
def ann(tmp_path_factory, cheap_houses):
    """The first owner."""
    return build_house(tmp_path_factory.mktemp("disputes") / "ann", "Ann", staircase(1), seed=2)


@pytest.fixture
def thief(ann, tmp_path):
    """Took Ann's marked model and marked it again: his unmarked model is her marked one."""
    return build_house(tmp_path / "thief", "Thief", ann.trees, seed=7)


def test_a_mark_made_after_the_theft(ann, thief):
    """The thief's models carry both marks, even the one that he calls unmarked."""
    found = judge_dispute(party(ann), party(thief), judge_name=JUDGE)
    assert found.winner == "first"
    assert judge_dispute(party(thief), party(ann)).winner == "second"
    bits = {(cell.mark_of, cell.model): cell.bits for cell in found.cells}
    assert len(bits) == 8
    assert bits["first", "first marked"] >= 64 > 20 > bits["first", "first unmarked"]
    assert bits["first", "second unmarked"] >= 64
    assert bits["first", "second marked"] >= 64
    assert bits["second", "second marked"] >= 64
    assert bits["second", "first marked"] < 20
    assert "even before it was marked, carries the mark of Ann" in " ".join(found.reasons)
    assert found.kinship["first marked | second marked"] == 1.0
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
    assert "something else than this claim" in found.parties[1].refused
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
    assert found.winner == "first"
    assert "added later" in " ".join(found.reasons)
    # Handing over the stolen model as the one of the claim does not help: it is left out.
    cheating = replace(parties[1], marked=tmp_path / "suspect.timber")
    again = judge_dispute(parties[0], cheating, roots=[authority.root])
    assert again.winner == "undecided"
    assert "not the one that the claim names" in " ".join(again.notes)


def picked(house, places):
    """An opening of chosen triggers, made with all that the owner knows."""
    mark = house.mark
    whole = open_mark(mark, house.claim, judge=JUDGE, share=1.0)
    chosen = list(places)
    return replace(
        whole, places=tuple(chosen), salts=tuple(mark.salts[i] for i in chosen),
        columns=tuple(column[chosen] for column in whole.columns),
        alphabets=whole.alphabets[chosen], reference=whole.reference[chosen],
        alternatives=whole.alternatives[chosen],
        paths=tuple(whole.paths[i] for i in chosen),
    )  # fmt: skip


def test_a_cherry_picked_opening(ann, tmp_path):
    """A forger marks nothing, commits to many triggers and shows those that fit by chance."""
    forger = build_house(tmp_path / "forger", "Forger", ann.trees, seed=9, k=300)
    mark = forger.mark
    said = scores(ann.trees, mark.triggers).argmax(axis=1)
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
    assert "picked by hand" in found.parties[1].refused
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
    assert drawn.winner == "first"
    assert "the suspect carries the mark of Ann and not the other" in " ".join(drawn.reasons)


def test_a_claim_on_a_model_without_the_mark(ann, tmp_path):
    """Whoever only registers a mark and never embeds it claims nothing."""
    idle = build_house(tmp_path / "idle", "Idle", ann.trees, seed=11)
    other = replace(ann.trees, value=ann.trees.value * 1.01)
    save_ensemble(tmp_path / "other.timber", other)
    claim = Claim.make(idle.mark, idle.key, marked_digest=digest(other))
    opening = open_mark(idle.mark, claim, judge=JUDGE, share=1.0)
    write_pack(tmp_path / "idle-pack", {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()})
    found = judge_dispute(
        party(ann), Party(tmp_path / "idle-pack", None, None, tmp_path / "other.timber")
    )
    assert found.winner == "first"
    assert "does not carry the mark of the claim" in " ".join(found.reasons)


@needs_openssl
def test_a_washed_model_is_decided_by_the_stamps_of_the_models(ann, tmp_path, authority):
    """The same trees, the first mark washed out: whose claim named its model first?"""
    washer = build_house(tmp_path / "washer", "Washer", staircase(1), seed=13)
    early = authority.stamp(make_query(ann.claim))
    time.sleep(1.1)
    late = authority.stamp(make_query(washer.claim))
    found = judge_dispute(with_stamp(ann, early), with_stamp(washer, late), roots=[authority.root])
    assert found.winner == "first"
    assert "stamped first" in " ".join(found.reasons)
    without = judge_dispute(with_stamp(ann, early), with_stamp(washer, late))
    assert without.winner == "undecided"
    assert "undecided" in str(without)


def test_a_washed_and_marked_suspect_is_not_the_thiefs(ann, tmp_path):
    """The thief washed her mark out of a copy and put his in, and claims a model of his own."""
    schemer = build_house(tmp_path / "schemer", "Schemer", others_model(5), seed=5)
    washed = embed(staircase(1), schemer.mark)
    save_ensemble(tmp_path / "suspect.timber", washed)
    found = judge_dispute(party(ann), party(schemer), suspect=tmp_path / "suspect.timber")
    inside = {cell.mark_of: cell.level for cell in found.cells if cell.model == "suspect"}
    assert inside == {"first": "none", "second": "conclusive"}
    assert found.winner == "first"
    # Without her model nobody can tell, and the thief is not believed.
    alone = judge_dispute(Party(ann.evidence), party(schemer), suspect=tmp_path / "suspect.timber")
    assert alone.kinship["suspect | second marked"] < 0.25
    assert alone.winner == "undecided"
    assert "Ann handed over no marked model" in " ".join(alone.reasons)
    # Nor does it help him to hand over none of his own.
    hidden = judge_dispute(
        Party(ann.evidence), Party(schemer.evidence), suspect=tmp_path / "suspect.timber"
    )
    assert hidden.winner == "undecided"


def test_a_refused_side_does_not_make_the_other_first(ann, tmp_path):
    """Evidence that holds but finds nothing outside the own house proves nothing."""
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    other = ann.open(name="Somebody else")
    write_pack(tmp_path / "other", {CLAIM: ann.claim.to_bytes(), OPENING: other.to_bytes()})
    for suspect in (ann.unmarked, bob.marked, None):
        found = judge_dispute(
            party(ann, evidence=tmp_path / "other"), party(bob), suspect=suspect, judge_name=JUDGE
        )
        assert "The opening is for" in found.parties[0].refused
        assert found.winner == "undecided"
        assert "was found in no model but its own" in " ".join(found.reasons)


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
    assert "different models" in " ".join(found.reasons)
    save_ensemble(tmp_path / "sold.timber", replace(bob.trees, value=bob.trees.value * 1.01))
    against = judge_dispute(party(ann), party(bob), suspect=tmp_path / "sold.timber")
    assert against.winner == "second"
    # That somebody's own model carries his own mark shows nothing.
    own = judge_dispute(party(ann), party(bob), suspect=bob.marked)
    assert own.winner == "undecided"
    assert "the very model that Bob claims" in " ".join(own.reasons)


def test_an_opening_that_is_too_small_decides_nothing(ann, thief):
    small = open_mark(thief.mark, thief.claim, judge=JUDGE, share=0.2)
    write_pack(thief.folder / "small", {CLAIM: thief.claim.to_bytes(), OPENING: small.to_bytes()})
    found = judge_dispute(party(ann), party(thief, evidence=thief.folder / "small"))
    assert found.winner == "undecided"
    assert "more of them must be opened" in " ".join(found.reasons)


def test_both_refused_is_undecided(ann, thief):
    found = judge_dispute(party(ann), party(thief), judge_name="Somebody else")
    assert found.winner == "undecided"
    assert all("The opening is for" in p.refused for p in found.parties)


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
        found = judge_dispute(party(ann, **changes), party(thief), judge_name=JUDGE)
        assert found.winner == "first"
        assert found.parties[0].refused == ""
        assert sum("is left out" in note for note in found.notes) == len(changes)


def test_a_wrong_file_of_the_thief_does_not_help_him_either(ann, thief):
    found = judge_dispute(party(ann), party(thief, unmarked=ann.unmarked), judge_name=JUDGE)
    assert found.winner == "first"
    assert "is left out" in " ".join(found.notes)


def test_the_same_claim_twice_is_bad_input(ann):
    with pytest.raises(InputError, match="same claim"):
        judge_dispute(party(ann), party(ann))


def test_without_models_both_marks_in_a_suspect_stay_undecided(ann, thief):
    found = judge_dispute(Party(ann.evidence), Party(thief.evidence), suspect=thief.marked)
    assert found.winner == "undecided"
    assert "carries both marks" in " ".join(found.reasons)


def test_a_model_of_another_task_carries_no_mark(ann, tmp_path):
    """Other columns cannot be asked; that is a note, not an error."""
    bob = build_house(tmp_path / "bob", "Bob", others_model(3), seed=4)
    found = judge_dispute(party(ann), party(bob), suspect=lambda X: ["z"] * len(X))
    assert found.winner == "undecided"
    assert "cannot be asked" in " ".join(found.notes)


def test_a_key_of_another_owner_does_not_sign_for_ann(ann):
    eve = OwnerKey(hashlib.sha256(b"Eve").digest())
    with pytest.raises(InputError, match="not made with this owner key"):
        Claim.make(ann.mark, eve, marked_digest="0" * 64)


def test_what_is_opened_once_cannot_be_claimed_by_the_judge(ann):
    """Who saw an opening cannot make a mark of his own out of it: it commits to other secrets."""
    opened = Opening.load(ann.evidence / OPENING).check(ann.claim)
    eve = OwnerKey(hashlib.sha256(b"Eve").digest())
    with pytest.raises(InputError, match="not made with this owner key"):
        Claim.make(opened, eve, marked_digest="0" * 64)
    own = make_mark(ann.trees, eve, "Eve", seed=2)
    assert np.mean(own.symbols == ann.mark.symbols) < 0.6


@needs_openssl
def test_stamps_are_added_to_evidence_later(ann, authority):
    """The pack was written before the stamp came; the published claim has it."""
    stamped = add_stamp(ann.claim, authority.stamp(make_query(ann.claim)))
    found = judge(ann.evidence, suspect=ann.marked, claim=stamped, roots=[authority.root])
    assert found.first_seen is not None
    assert "1 time stamps hold" in " ".join(found.checks)
    unchecked = judge(ann.evidence, suspect=ann.marked, claim=stamped)
    assert unchecked.first_seen is None
    assert "not checked" in str(unchecked)
    assert "valid" not in str(unchecked)
