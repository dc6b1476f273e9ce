"""Disputes with a thief who changed the stolen model until it looks like another one."""

import time
from dataclasses import replace

import numpy as np
import pytest

from tests.ownership.authority import Authority, needs_openssl
from tests.verification.staircases import (
    JUDGE,
    N_CLASSES,
    build_house,
    embed,
    others_model,
    party,
    scores,
    staircase,
)
from timbermark.ownership import Claim, Opening, OwnerKey
from timbermark.ownership.encoding import encode
from timbermark.ownership.stamps import make_query
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble, digest
from timbermark.trees.model_file import save_ensemble
from timbermark.verification.disputes import Party, judge_dispute
from timbermark.verification.packs import CLAIM, OPENING, write_pack

PER_NODE = ("feature", "threshold", "left", "right", "value")


@pytest.fixture(scope="module")
def ann(tmp_path_factory, cheap_houses):
    """The first owner."""
    return build_house(tmp_path_factory.mktemp("attacks") / "ann", "Ann", staircase(1), seed=2)


@pytest.fixture(scope="module")
def schemer(tmp_path_factory, cheap_houses):
    """Has a model, a mark and a claim of his own, made without Ann's."""
    folder = tmp_path_factory.mktemp("attacks") / "schemer"
    return build_house(folder, "Schemer", others_model(5), seed=5)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "tsa")


def joined(*models: Ensemble) -> Ensemble:
    """One model of all trees, which adds up the scores."""
    parts = {name: np.concatenate([getattr(model, name) for model in models]) for name in PER_NODE}
    starts = [0]
    for model in models:
        starts += (model.tree_start[1:] + starts[-1]).tolist()
    return make_ensemble(n_features=2, n_outputs=N_CLASSES, tree_start=starts, **parts)


def scaled(trees: Ensemble, factor: float) -> Ensemble:
    return replace(trees, value=trees.value * factor)


def pick_trees(trees: Ensemble, order) -> Ensemble:
    """The trees in another order, or some of them."""
    pieces = [slice(*trees.tree_start[i : i + 2]) for i in order]
    parts = {
        name: np.concatenate([getattr(trees, name)[piece] for piece in pieces]) for name in PER_NODE
    }
    starts = np.cumsum([0, *(piece.stop - piece.start for piece in pieces)])
    return make_ensemble(n_features=2, n_outputs=N_CLASSES, tree_start=starts, **parts)


def renumbered(trees: Ensemble) -> Ensemble:
    """The same trees with all nodes but the roots in the opposite order."""
    parts = {name: getattr(trees, name).copy() for name in PER_NODE}
    for start, end in zip(trees.tree_start[:-1], trees.tree_start[1:], strict=True):
        size = int(end - start)
        order = np.array([0, *range(size - 1, 0, -1)])
        for name in PER_NODE:
            parts[name][start:end] = getattr(trees, name)[start:end][order]
        for name in ("left", "right"):
            child = parts[name][start:end]
            parts[name][start:end] = np.where(child >= 0, order[child], child)
    return make_ensemble(n_features=2, n_outputs=N_CLASSES, tree_start=trees.tree_start, **parts)


def with_roots(trees: Ensemble) -> Ensemble:
    """Each tree below a new root that every row passes on the same side."""
    parts = {name: [] for name in PER_NODE}
    starts = [0]
    for start, end in zip(trees.tree_start[:-1], trees.tree_start[1:], strict=True):
        for name in ("left", "right"):
            child = getattr(trees, name)[start:end]
            parts[name].append(np.where(child >= 0, child + 2, child))
        for name in ("feature", "threshold", "value"):
            parts[name].append(getattr(trees, name)[start:end])
        for name, first in (
            ("feature", [1, -1]), ("threshold", [-1e9, 0.0]), ("left", [1, -1]),
            ("right", [2, -1]), ("value", np.zeros((2, N_CLASSES))),
        ):  # fmt: skip
            parts[name].insert(-1, np.asarray(first))
        starts.append(starts[-1] + int(end - start) + 2)
    joined_parts = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    return make_ensemble(n_features=2, n_outputs=N_CLASSES, tree_start=starts, **joined_parts)


def moved(trees: Ensemble, by: float) -> Ensemble:
    """All thresholds moved by up to a share of themselves."""
    noise = np.random.default_rng(0).uniform(-by, by, size=len(trees.threshold))
    return replace(trees, threshold=trees.threshold * (1 + noise))


def nudged(trees: Ensemble) -> Ensemble:
    """All thresholds moved by the smallest step there is."""
    return replace(trees, threshold=np.nextafter(trees.threshold, np.inf))


DISGUISES = {
    "none": lambda trees: scaled(trees, 1.001),
    "one ulp": nudged,
    "jitter of 1e-6": lambda trees: moved(trees, 1e-6),
    "jitter of 1e-4": lambda trees: moved(trees, 1e-4),
    "jitter of 1e-3": lambda trees: moved(trees, 5e-4),
    "other order of trees": lambda trees: pick_trees(trees, [3, 1, 0, 7, 5, 6, 2, 4]),
    "other order of nodes": renumbered,
    "roots that do nothing": with_roots,
    "all of it": lambda t: with_roots(renumbered(nudged(pick_trees(t, [7, 6, 5, 4, 3, 2, 1, 0])))),
}


def sold(trees, tmp_path):
    """The file of a suspect."""
    save_ensemble(tmp_path / "suspect.timber", trees)
    return tmp_path / "suspect.timber"


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_mark_registered_early_and_embedded_into_a_disguised_copy(
    ann, schemer, tmp_path, disguise
):
    """Both marks are in it, and its trees are Ann's."""
    stolen = DISGUISES[disguise](embed(ann.trees, schemer.mark))
    found = judge_dispute(party(ann), party(schemer), suspect=sold(stolen, tmp_path))
    inside = {cell.mark_of: cell.level for cell in found.cells if cell.model == "suspect"}
    assert inside == {"first": "conclusive", "second": "conclusive"}
    assert found.winner == "first"
    assert "added later" in " ".join(found.reasons)
    again = judge_dispute(party(schemer), party(ann), suspect=tmp_path / "suspect.timber")
    assert again.winner == "second"


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_washed_and_disguised_copy_with_another_mark(ann, schemer, tmp_path, disguise):
    stolen = DISGUISES[disguise](embed(staircase(1), schemer.mark))
    found = judge_dispute(party(ann), party(schemer), suspect=sold(stolen, tmp_path))
    inside = {cell.mark_of: cell.level for cell in found.cells if cell.model == "suspect"}
    assert inside == {"first": "none", "second": "conclusive"}
    assert found.winner == "first"


@pytest.mark.parametrize("disguise", ["none", "one ulp", "jitter of 1e-4", "all of it"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_an_average_of_two_models_belongs_to_neither(ann, schemer, tmp_path, disguise, share):
    stolen = DISGUISES[disguise](scaled(ann.trees, 1 - share))
    mean = joined(stolen, scaled(schemer.trees, share))
    found = judge_dispute(party(ann), party(schemer), suspect=sold(mean, tmp_path))
    assert found.winner == "undecided"


def test_trees_that_do_nothing_do_not_drown_the_stolen_ones(ann, schemer, tmp_path):
    """A thousand trees without weight, and trees that cancel each other out."""
    stolen = nudged(embed(ann.trees, schemer.mark))
    idle = joined(stolen, *[scaled(schemer.trees, 0.0)] * 20)
    found = judge_dispute(party(ann), party(schemer), suspect=sold(idle, tmp_path))
    assert found.winner == "first"
    loud = scaled(schemer.trees, 100.0)
    cancelled = joined(stolen, loud, scaled(loud, -1.0))
    found = judge_dispute(party(ann), party(schemer), suspect=sold(cancelled, tmp_path))
    assert found.kinship["suspect | second marked"] > 0.9
    assert found.kinship["first marked | suspect"] > 0.9
    assert found.winner == "undecided"


def test_thresholds_between_the_old_and_the_new_ones_do_not_mislead(ann, tmp_path):
    """The thief puts idle trees into his claimed model, to have rows drawn where trees differ."""
    stolen = moved(staircase(1), 5e-4)
    lure = scaled(replace(stolen, threshold=(stolen.threshold + staircase(1).threshold) / 2), 1e-9)
    thief = build_house(tmp_path / "thief", "Thief", joined(stolen, lure), seed=13)
    found = judge_dispute(party(ann), party(thief))
    assert max(found.kinship.values()) > 0.9


WASHED = {
    **DISGUISES,
    "some trees dropped": lambda trees: pick_trees(trees, [0, 1, 2, 4, 5, 7]),
    "a new tail": lambda trees: joined(pick_trees(trees, range(5)), others_model(9)),
    "averaged with an own model": lambda trees: joined(trees, others_model(9)),
}


@needs_openssl
@pytest.mark.parametrize("disguise", WASHED)
def test_a_washed_and_disguised_model_that_is_claimed_later(ann, tmp_path, authority, disguise):
    thief = build_house(tmp_path / "thief", "Thief", WASHED[disguise](staircase(1)), seed=13)
    early = ann.claim.with_stamp(authority.stamp(make_query(ann.claim)))
    hers = party(ann, claim=early)
    # He withholds his stamp, or has none.
    found = judge_dispute(hers, party(thief), roots=[authority.root], judge_name=JUDGE)
    assert found.winner == "first"
    assert "only the claim of Ann has a verified time stamp" in " ".join(found.reasons)
    time.sleep(1.1)
    late = thief.claim.with_stamp(authority.stamp(make_query(thief.claim)))
    for suspect in (None, thief.marked):
        found = judge_dispute(
            hers, party(thief, claim=late), suspect=suspect, roots=[authority.root]
        )
        assert found.winner == "first"
        assert "stamped first" in " ".join(found.reasons)
    # Without roots no time is known; that the suspect carries his mark does not make it his.
    unknown = judge_dispute(hers, party(thief, claim=late), suspect=thief.marked)
    assert unknown.winner == "undecided"


@needs_openssl
def test_a_stamp_that_is_not_verified_counts_as_none_and_is_named(ann, tmp_path, authority):
    washer = build_house(tmp_path / "washer", "Washer", staircase(1), seed=13)
    home_made = Authority(tmp_path / "home", "Home-made")
    claim = washer.claim.with_stamp(home_made.stamp(make_query(washer.claim)))
    hers = party(ann, claim=ann.claim.with_stamp(authority.stamp(make_query(ann.claim))))
    found = judge_dispute(hers, party(washer, claim=claim), roots=[authority.root])
    assert found.winner == "first"
    assert "the time stamps of Washer were not verified" in " ".join(found.reasons)


def claimed_again(house, tmp_path):
    """The side of somebody who saw an opening and signs a claim of his own for the same mark."""
    eve = OwnerKey(bytes(32))
    model = scaled(house.trees, 1.01)
    save_ensemble(tmp_path / "eve.timber", model)
    statement = {**house.claim.statement, "key": eve.claim_key, "marked_digest": digest(model)}
    statement["marked_file"] = None
    signature = eve.sign_claim(b"timbermark/claim/1" + encode(statement))
    claim = Claim(**statement, signature=signature)
    opening = replace(Opening.load(house.evidence / OPENING), claim_digest=claim.digest)
    write_pack(tmp_path / "eve", {CLAIM: claim.to_bytes(), OPENING: opening.to_bytes()})
    return Party(tmp_path / "eve", claim, None, tmp_path / "eve.timber")


@needs_openssl
def test_a_mark_that_is_claimed_again_by_somebody_who_saw_it(ann, tmp_path, authority):
    """The opening shows enough to sign another claim; only the stamps tell which was first."""
    eve = claimed_again(ann, tmp_path)
    unknown = judge_dispute(party(ann), eve, judge_name=JUDGE)
    assert unknown.winner == "undecided"
    assert "same mark" in " ".join(unknown.reasons)
    hers = party(ann, claim=ann.claim.with_stamp(authority.stamp(make_query(ann.claim))))
    found = judge_dispute(hers, eve, roots=[authority.root])
    assert found.winner == "first"
    assert "only the claim of Ann" in " ".join(found.reasons)
    time.sleep(1.1)
    late = eve.claim.with_stamp(authority.stamp(make_query(eve.claim)))
    for sides, winner in (((hers, replace(eve, claim=late)), "first"),
                          ((replace(eve, claim=late), hers), "second")):  # fmt: skip
        found = judge_dispute(*sides, suspect=ann.marked, roots=[authority.root])
        assert found.winner == winner
        assert "stamped first" in " ".join(found.reasons)


def test_a_suspect_without_trees_is_undecided(ann, schemer):
    """Behind an endpoint a washed copy looks like a model of the thief's own."""
    trees = embed(staircase(1), schemer.mark)
    found = judge_dispute(party(ann), party(schemer), suspect=lambda X: scores(trees, X))
    assert "carries the mark of Schemer and not the other" in found.reasons[0]
    assert found.winner == "undecided"


def test_an_honest_owner_still_wins(ann, schemer, tmp_path):
    """Ann's own mark alone, in a copy of her model with a tail of new trees."""
    for trees in (
        scaled(ann.trees, 1.001),
        nudged(ann.trees),
        joined(ann.trees, scaled(staircase(9, n_trees=10), 0.2)),
    ):
        found = judge_dispute(party(ann), party(schemer), suspect=sold(trees, tmp_path))
        assert found.winner == "first"
        without = judge_dispute(
            party(ann), Party(schemer.evidence), suspect=tmp_path / "suspect.timber"
        )
        assert without.winner == "first"
