"""From a ledger to a judge: marks, claims, stamps of heads, and what they count for."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import timbermark as tm
from tests.ownership.authority import Authority, needs_openssl
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.guard.drawing import claim_guard, guard_secret, make_mark
from timbermark.guard.ledger_file import (
    add_stamp,
    read_chains,
    read_questions,
    read_summary,
    request_stamps,
)
from timbermark.ownership.claim import Claim
from timbermark.ownership.columns import split_columns
from timbermark.ownership.seals import DrawnSeal
from timbermark.verification import chain as chains
from timbermark.verification.chain import Chain, find_coverage, load_chains, next_head, save_chains
from timbermark.verification.packs import Pack
from timbermark.verification.stamps import make_query


def open_all(mark, key):
    claim = claim_guard(mark, key)
    return Pack("evidence", claim, tm.open_mark(mark, claim, judge="Judy", share=1.0))


@pytest.fixture
def accused(guard, world):
    _, X, _ = world
    labels = guard.predict(X, client="acme")
    return guard, RandomForestClassifier(random_state=0).fit(X, labels)


def test_without_a_stamp_a_judge_finds_it_indicative_at_most(accused, key, tmp_path):
    guard, student = accused
    pack = open_all(guard.mark("acme"), key)
    judgment = tm.judge(pack, suspect=student)
    assert judgment.verdict.level == "conclusive"
    assert judgment.level == "indicative"
    assert judgment.to_dict()["level"] == "indicative"
    assert "guard-unstamped" in [note.code for note in judgment.notes]
    # A chain without stamps helps as little.
    save_chains(tmp_path / "a.chain", read_chains(guard._ledger.path))
    assert tm.judge(pack, suspect=student, chain=tmp_path / "a.chain").level == "indicative"
    judgment.save(tmp_path / "pack")
    assert tm.judge(tmp_path / "pack").level == "indicative"


@needs_openssl
def test_questions_before_a_verified_stamp_count_fully(accused, world, key, tmp_path):
    guard, student = accused
    _, X, y = world
    authority = Authority(tmp_path / "tsa")
    guard.flush()
    (head,) = request_stamps(guard._ledger.path)
    # The server goes on while the query is under way.
    guard.predict(X[:300] + 0.01, client="acme")
    guard.flush()
    assert add_stamp(guard._ledger.path, authority.stamp(make_query(head))).count == head.count
    chain = tmp_path / "a.chain"
    save_chains(chain, read_chains(guard._ledger.path))
    early, all_of_it = guard.mark("acme", stamped=True), guard.mark("acme")
    assert early.n_triggers < all_of_it.n_triggers
    asked = {"suspect": student, "chain": chain, "rows": (X[:300], y[:300])}
    found = tm.judge(open_all(early, key), **asked, roots=[authority.root])
    assert found.level == "conclusive"
    assert "guard-fixed" in [note.code for note in found.notes]
    late = tm.judge(open_all(all_of_it, key), **asked, roots=[authority.root])
    assert late.level == "indicative"
    # Nobody trusts an authority that was not named, or an owner without a second opinion.
    assert tm.judge(open_all(early, key), **asked).level == "indicative"
    alone = tm.judge(open_all(early, key), **asked | {"rows": None}, roots=[authority.root])
    assert (alone.verdict.level, alone.level) == ("conclusive", "indicative")
    assert "guard-alone" in [note.code for note in alone.notes]
    with pytest.raises(EvidenceError) as caught:
        add_stamp(guard._ledger.path, authority.stamp(make_query(Chainless())))
    assert caught.value.code == "stamp.other"


class Chainless:
    stamped, stamps = b"something else", ()


@needs_openssl
def test_a_chain_that_was_made_up_later_covers_nothing(accused, key, tmp_path):
    guard, student = accused
    authority = Authority(tmp_path / "tsa")
    mark = guard.mark("acme", stamped=False)
    (head,) = request_stamps(guard._ledger.path)
    response = authority.stamp(make_query(head))
    (true,) = read_chains(guard._ledger.path)
    # Another question in front of the stamped head: the head is another one.
    forged = Chain(
        true.commitment, true.chain_id, true.first, next_head(true.start, bytes(32)),
        true.entries, ((head.count, response),),
    )  # fmt: skip
    save_chains(tmp_path / "forged.chain", [forged])
    pack = open_all(mark, key)
    options = {"suspect": student, "roots": [authority.root]}
    assert tm.judge(pack, chain=tmp_path / "forged.chain", **options).level == "indicative"
    other = Chain(
        bytes(32), true.chain_id, true.first, true.start, true.entries, ((head.count, response),)
    )
    save_chains(tmp_path / "other.chain", [other])
    assert tm.judge(pack, chain=tmp_path / "other.chain", **options).level == "indicative"


def test_an_empty_ledger_commits_to_the_guard(guard, world, key):
    (empty,) = request_stamps(guard._ledger.path)
    assert empty.count == 0
    assert empty.commitment.hex() in empty.stamped.hex()
    with pytest.raises(EvidenceError):
        add_stamp(guard._ledger.path, b"no response")


def test_chains_come_back_from_their_file(guard, world, tmp_path):
    _, X, _ = world
    guard.predict(X, client="acme")
    guard.flush()
    chains = read_chains(guard._ledger.path)
    save_chains(tmp_path / "a.chain", chains)
    (read,) = load_chains(tmp_path / "a.chain")
    assert read.entries == chains[0].entries
    assert read.head(len(read.entries)).stamped == chains[0].head(len(read.entries)).stamped
    content = bytearray((tmp_path / "a.chain").read_bytes())
    content[-30] ^= 1
    (tmp_path / "b.chain").write_bytes(content)
    with pytest.raises(FileFormatError):
        load_chains(tmp_path / "b.chain")


def test_keys_and_marks_that_are_not_the_guards(guard, world, key):
    _, X, _ = world
    guard.predict(X, client="acme")
    with pytest.raises(InputError) as caught:
        guard_secret(guard.statement, tm.OwnerKey.generate())
    assert caught.value.code == "ledger.key"
    mark = tm.Mark.make(
        key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
        alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        claim_guard(mark, key)
    assert caught.value.code == "claim.type"


def test_the_second_opinion_shows_a_ledger_that_was_picked(world, key, tmp_path):
    """An owner who keeps only questions on which natural models agree with the key."""
    model, X, y = world
    natural = RandomForestClassifier(random_state=1).fit(X[:600], y[:600])
    guard = tm.Guard(
        model, X, key=key, owner="Ann", share=0.25, ledger=tmp_path / "picked.db", lead=0.4
    )
    rows = X[600:]
    agree = guard.predict(rows) == natural.predict(rows)
    guard.predict(rows[agree], client="picked")
    mark = guard.mark("picked")
    guard.close()
    claim = claim_guard(mark, key)
    pack = Pack("evidence", claim, tm.open_mark(mark, claim, judge="Judy", share=1.0, force=True))
    found = tm.judge(pack, suspect=natural, rows=(X[:600], y[:600]))
    assert found.bits > 20
    assert max(reference.bits for reference in found.references) > 10
    assert np.isfinite([reference.bits for reference in found.references]).all()


@needs_openssl
def test_questions_that_every_model_answers_alike_convince_no_judge_who_has_rows(key, tmp_path):
    """An owner makes up a ledger, in which the right answers are those that a key drew."""
    X, y = make_classification(1200, 8, n_informative=6, class_sep=2.0, flip_y=0, random_state=0)
    natural = RandomForestClassifier(random_state=1).fit(X[600:], y[600:])
    sure = np.flatnonzero(natural.predict_proba(X[:300]).max(axis=1) > 0.9)[:120]
    k = len(sure)
    seal = DrawnSeal(
        split_columns(X[sure]), np.tile([0, 1], (k, 1)), np.full((k, 2), 0.5),
        np.zeros((k, 0, 2)), y[sure].astype(np.uint8), np.zeros((k, 32), np.uint8),
    )  # fmt: skip
    mark = tm.Mark.make(key, owner="Ann", model_digest="0" * 64, classes=[0, 1], guarded=seal)
    claim = Claim.make(mark, key, marked_digest="1" * 64)
    authority = Authority(tmp_path / "tsa")
    claim = claim.with_stamp(authority.stamp(make_query(claim)))
    pack = Pack("evidence", claim, tm.open_mark(mark, claim, judge="Judy", share=1.0))
    asked = {"suspect": natural, "roots": [authority.root]}
    assert "guard" in [note.code for note in tm.verify(natural, mark).context.conditions]
    found = tm.judge(pack, **asked, rows=(X[300:600], y[300:600]))
    assert found.verdict.level == "conclusive"
    assert found.level == "indicative"


def test_a_chain_is_passed_once_however_many_stamps_it_has(tmp_path, monkeypatch):
    """Each stamp cost a pass over all entries: a file of a few megabytes took hours."""
    entries = tuple(bytes([i]) * 32 for i in range(200))
    made = Chain(bytes(32), bytes(16), 0, bytes(32), entries, tuple((i, b"x") for i in range(201)))
    passed = []
    monkeypatch.setattr(chains, "next_head", lambda head, entry: passed.append(entry) or head)
    assert made.stamped_entries([]) == {}
    assert len(passed) == len(entries)
    monkeypatch.setattr(chains, "MOST_STAMPS", 10_000)
    save_chains(tmp_path / "a.chain", [replace(made, stamps=((1, b"x"),) * 5000)])
    monkeypatch.undo()
    with pytest.raises(FileFormatError) as caught:
        load_chains(tmp_path / "a.chain")
    assert caught.value.code == "file.parts"
    save_chains(tmp_path / "b.chain", [replace(made, stamps=((1, b"x"),) * 5000)])
    assert len(load_chains(tmp_path / "b.chain")[0].stamps) == chains.MOST_STAMPS


@needs_openssl
def test_the_earliest_verified_stamp_of_an_entry_counts(tmp_path):
    authority = Authority(tmp_path / "tsa")
    entries = tuple(bytes([i]) * 32 for i in range(4))
    made = Chain(bytes(32), bytes(16), 7, bytes(32), entries)
    stamps = tuple((n, authority.stamp(make_query(made.head(n)))) for n in (9, 7, 10))
    found = replace(made, stamps=(*stamps, (10, b"junk"))).stamped_entries([authority.root])
    assert set(found) == set(entries[:3])
    assert found[entries[0]] <= found[entries[2]]
    assert replace(made, stamps=stamps).stamped_entries([]) == {}


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO counts VALUES ('00', '00', x'ff', 1)",
        "UPDATE entries SET content = '[]' WHERE kind = 1",
        "UPDATE entries SET content = '\"x\"' WHERE kind = 1",
    ],
)
def test_a_ledger_with_values_of_other_types_is_refused(guard, world, change):
    guard.predict(world[1], client="acme")
    guard.close()
    with closing(sqlite3.connect(guard._ledger.path)) as file, file:
        file.execute(change)
    with pytest.raises(FileFormatError) as caught:
        read_summary(guard._ledger.path)
    assert caught.value.code == "ledger.foreign"


@needs_openssl
def test_leaving_out_stamped_questions_must_be_paid_for(guard, world, key, tmp_path):
    """Whoever opens only those on which an innocent model agrees with the key proves nothing."""
    _, X, y = world
    innocent = RandomForestClassifier(min_samples_leaf=3, random_state=1).fit(X, y)
    for client in ("acme", "other"):
        guard.predict(X, client=client)
    guard.flush()
    authority = Authority(tmp_path / "tsa")
    (head,) = request_stamps(guard._ledger.path)
    add_stamp(guard._ledger.path, authority.stamp(make_query(head)))
    chain = tmp_path / "a.chain"
    save_chains(chain, read_chains(guard._ledger.path))
    questions = read_questions(guard._ledger.path, guard._secret, clients=["acme"])
    said = innocent.predict(np.array([q.row for q in questions], np.float64))
    classes = guard.classes_
    fits = [q for q, label in zip(questions, said, strict=True)
            if classes[q.alphabet[q.symbol]] == label]  # fmt: skip
    assert 0 < len(fits) < len(questions)
    picked = make_mark(fits, guard._statement, key)
    claim = claim_guard(picked, key)
    opening = tm.open_mark(picked, claim, judge="Judy", share=1.0, force=True)
    asked = {"suspect": lambda rows: innocent.predict(rows), "chain": chain}
    found = tm.judge(Pack("evidence", claim, opening), **asked, roots=[authority.root])
    (note,) = (note for note in found.notes if note.code == "guard-chains")
    assert note.facts == {"chains": 1, "dropped": 0}
    (note,) = (note for note in found.notes if note.code == "guard-chosen")
    assert note.facts["left_out"] == len(questions) - len(fits)
    assert note.facts["of"] == len(questions)
    assert (note.facts["chosen"], note.facts["clients"]) == (1, 2)
    assert found.bits - note.facts["bits"] < 20
    assert found.level != "conclusive"
    # All cells of a client cost no more than the choice of the client.
    whole = make_mark(questions, guard._statement, key)
    judged = tm.judge(open_all(whole, key), **asked, roots=[authority.root])
    (note,) = (note for note in judged.notes if note.code == "guard-chosen")
    assert (note.facts["left_out"], note.facts["bits"]) == (0, 1.0)


def test_of_two_questions_of_a_cell_the_first_one_counts(guard, world, key, monkeypatch):
    _, X, _ = world
    guard.predict(X, client="acme")
    guard.predict(X, client="acme")
    guard.flush()
    (chain,) = read_chains(guard._ledger.path)
    monkeypatch.setattr(
        Chain, "stamped_entries", lambda self, roots: dict.fromkeys(self.entries, "t")
    )
    commitment = chain.commitment.hex()
    mark = guard.mark("acme")
    found = find_coverage(mark.leaves, mark.n_leaves, commitment, [chain], [])
    assert (found.unstamped, found.cells, found.left_out, found.price) == (0, mark.n_leaves, 0, 0.0)
    # What is missing at the beginning of a chain is counted.
    later = replace(chain, first=5, entries=chain.entries[5:])
    found = find_coverage(mark.leaves, mark.n_leaves, commitment, [later], [])
    assert (found.chains, found.dropped) == (1, 5)
    # The same questions in another order: those of the mark come second.
    half = len(chain.entries) // 2
    turned = replace(chain, entries=chain.entries[half:] + chain.entries[:half])
    assert find_coverage(mark.leaves, mark.n_leaves, commitment, [turned], []).unstamped > 0


@needs_openssl
@pytest.mark.parametrize("chosen", ["alternatives", "reference"])
def test_what_an_owner_chooses_after_a_suspect_answered_convicts_nobody(
    guard, world, key, tmp_path, chosen
):
    """Neither other models' answers nor the model's own can be made up when answers are known."""
    _, X, y = world
    innocent = RandomForestClassifier(min_samples_leaf=3, random_state=1).fit(X, y)
    guard.predict(X, client="acme")
    guard.flush()
    authority = Authority(tmp_path / "tsa")
    (head,) = request_stamps(guard._ledger.path)
    add_stamp(guard._ledger.path, authority.stamp(make_query(head)))
    save_chains(tmp_path / "a.chain", read_chains(guard._ledger.path))
    questions = read_questions(guard._ledger.path, guard._secret)
    rows = np.array([q.row for q in questions], np.float64)
    each, labels = np.arange(len(rows)), np.array([q.alphabet for q in questions])
    # As if the innocent model had moved a little from these towards every drawn symbol.
    scores = np.log(np.clip(innocent.predict_proba(rows), 0.02, 1.0))
    drawn = labels[each, [q.symbol for q in questions]]
    scores[each, drawn] -= 0.5
    made_up = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    if chosen == "reference":
        questions = [
            replace(q, reference=tuple(row)) for q, row in zip(questions, made_up, strict=True)
        ]

    def others(asked, *_):
        where = {row.tobytes(): i for i, row in enumerate(rows)}
        return made_up[[where[row.tobytes()] for row in np.ascontiguousarray(asked)]][np.newaxis]

    mark = make_mark(
        questions, guard._statement, key, others=others if chosen == "alternatives" else None
    )
    if chosen == "alternatives":
        # The owner is free to believe in what nobody else has to.
        assert tm.verify(innocent, mark).level == "conclusive"
    found = tm.judge(
        open_all(mark, key), suspect=innocent, chain=tmp_path / "a.chain", roots=[authority.root]
    )
    assert found.level != "conclusive"
    if chosen == "alternatives":
        assert found.verdict.bits < 10
    else:
        assert "guard-unstamped" in [note.code for note in found.notes]
