"""What a dishonest claimant may try without a marked model: nothing pays more than it costs.

Each attempt chooses the best among several and must pay for the choice: of many attempts, the share
that still reaches b bits may not exceed 2^-b.
"""

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership.making import KEY, confident, make_mark, obedient, packed, unpacked
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership import Inquiry, Mark, Suspect, judge, symbols, verify
from timbermark.ownership.columns import split_columns

FLIPPED = make_mark(k=96, q=4)


def check_share(best, bounds=(1, 2, 3)):
    """No more attempts reach b bits than 2^-b of them, beyond four standard deviations."""
    best = np.array(best)
    for bits in bounds:
        share = 2.0**-bits
        assert np.mean(best >= bits) <= share + 4 * np.sqrt(share * (1 - share) / len(best))


def innocent(rng, d, n_classes):
    """A model of its own: linear scores, no knowledge of any mark."""
    weights = rng.normal(size=(d, n_classes))
    return lambda X: (np.asarray(X) @ weights).argmax(axis=1)


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def test_permutations_of_columns_are_paid_for(rng):
    best, gained = [], []
    for seed in range(40):
        mark = make_mark(k=32, d=4, q=4, n_classes=4, seed=seed, secret=rng.bytes(32))
        model = innocent(rng, 4, 4)
        found = [
            verify(model, mark, feature_names=names) for names in permutations(mark.feature_names)
        ]
        best.append(max(verdict.net_bits for verdict in found))
        gained.append(max(verdict.raw_bits for verdict in found))
    assert np.mean(gained) > 3  # the search does find something, but not for nothing
    check_share(best)


def test_a_choice_among_many_columns_is_refused(rng):
    """A mark of 2,325 columns against a model of 30 gave 2^-72 on an innocent model."""
    names = tuple(f"c{i}" for i in range(2325))
    columns = split_columns(rng.normal(size=(64, 2325)))
    mark = make_mark(k=64, q=2, n_classes=2, columns=columns, feature_names=names)
    model = innocent(rng, 30, 2)
    for suspect in (
        Suspect("a model", answer_labels=model, n_features=30),
        Suspect("a model", answer_labels=model, n_features=30,
                feature_names=tuple(f"f{i}" for i in range(30))),
    ):  # fmt: skip
        for chosen in (None, names[:30], names[40:70]):
            with pytest.raises(InputError, match=r"takes 30 columns|not the 2325 names"):
                verify(suspect, mark, feature_names=chosen)
    # A function can be told, and the price leaves nothing of any evidence.
    found = verify(lambda X: model(X[:, :30]), mark, feature_names=names[::-1])
    assert found.prices[0].bits > 20_000
    assert found.bits == 0.0


def test_a_suspect_with_names_is_matched_by_them_whatever_is_said(rng):
    mark = make_mark(k=32, d=4, q=2, n_classes=2)
    model = innocent(rng, 4, 2)
    suspect = Suspect("a model", answer_labels=model, feature_names=("f3", "f1", "f0", "f2"))
    for names in permutations(mark.feature_names):
        with pytest.raises(InputError, match="names its own columns"):
            verify(suspect, mark, feature_names=names)
    assert verify(suspect, mark).columns == "by name"


def test_label_maps_are_paid_for(rng):
    best, gained = [], []
    for seed in range(60):
        mark = make_mark(k=24, q=4, n_classes=4, seed=seed, secret=rng.bytes(32))
        model = innocent(rng, 3, 4)
        found = [
            verify(
                lambda X, model=model: model(X),
                mark,
                label_map=dict(zip(range(4), classes, strict=True)),
            )
            for classes in permutations(range(4))
        ]
        best.append(max(verdict.net_bits for verdict in found))
        gained.append(max(verdict.raw_bits for verdict in found))
    assert np.mean(gained) > 2
    check_share(best)


def test_a_map_of_some_of_many_labels_is_paid_for(rng):
    """Of a model with many labels a map could choose which answers count, for log₂ K! bits."""
    best, gained = [], []
    for seed in range(60):
        mark = make_mark(k=64, q=2, n_classes=2, seed=seed, secret=rng.bytes(32))
        answers = rng.permutation(np.arange(64) % 16)
        wanted = mark.expected_numbers[mark.order]
        share = np.array([wanted[answers == label].mean() for label in range(16)])
        order = np.argsort(share)
        label_map = {int(order[0]): mark.classes[0], int(order[-1]): mark.classes[1]}
        found = verify(lambda X, said=answers: said.tolist(), mark, label_map=label_map)
        best.append(found.net_bits)
        gained.append(found.raw_bits)
    assert np.mean(gained) > 4
    check_share(best)
    # A map of all labels that are given costs no more than the number of such maps.
    whole = verify(obedient(mark), mark, label_map={c: c for c in mark.classes})
    assert whole.prices[-1].bits == 1.0


def test_redraws_are_paid_for(rng):
    best, gained = [], []
    for seed in range(150):
        marks = [
            make_mark(k=24, q=4, n_classes=4, seed=seed, secret=rng.bytes(32), draws=16)
            for _ in range(16)
        ]
        answers = rng.integers(0, 4, 24)
        found = [judge(mark, Inquiry("x"), labels=answers) for mark in marks]
        best.append(max(verdict.net_bits for verdict in found))
        gained.append(max(verdict.raw_bits for verdict in found))
    assert np.mean(gained) > 3
    check_share(best)


def test_the_kind_of_answers_is_paid_for(rng):
    best = []
    for seed in range(200):
        mark = make_mark(k=24, q=4, n_classes=4, seed=seed, secret=rng.bytes(32))
        scores = rng.dirichlet(np.ones(4), size=24)
        model = Suspect(
            "a model",
            answer_scores=lambda X, scores=scores: scores,
            answer_labels=lambda X, scores=scores: scores.argmax(axis=1),
        )
        by_scores, by_labels = verify(model, mark), verify(model, mark, answers="labels")
        assert [price.bits for price in by_labels.prices] == [1.0]
        assert not by_scores.prices
        best.append(max(by_scores.net_bits, by_labels.net_bits))
    # The rule itself is free, the other kind costs 1 bit: together at most 1.5 times the share.
    check_share(np.array(best) - np.log2(1.5))


@pytest.mark.parametrize("kind", ["scores", "labels", "one by one"])
def test_innocent_suspects_are_accused_no_more_often_than_stated(rng, kind):
    """Suspects that resemble the unmarked model, which is what alphabets and reference know."""
    bits = []
    for seed in range(400):
        mark = make_mark(k=24, q=4, n_classes=5, seed=seed % 20, secret=rng.bytes(32))
        noise = rng.dirichlet(np.ones(5), size=24)
        scores = 0.7 * mark.reference + 0.3 * noise
        answers = scores.argmax(axis=1)
        given = {"scores": scores} if kind == "scores" else {"labels": answers}
        verdict = judge(mark, Inquiry("x"), **given, one_by_one=kind == "one by one")
        bits.append(verdict.net_bits)
    check_share(bits, range(1, 6))


def test_every_trial_of_a_search_pays_scrypt(monkeypatch):
    paid = []
    derive = symbols.derive_seed

    def counted(digest):
        paid.append(digest)
        return derive(digest)

    monkeypatch.setattr("timbermark.ownership.mark.derive_seed", counted)
    mark = make_mark(k=16)
    trials = [
        mark,
        make_mark(k=16, secret=KEY.mark_secret(bytes(16))),
        make_mark(k=16, owner="Eve"),
        make_mark(k=16, about={"nonce": 1}),
        mark.with_draws(2),
        make_mark(k=16, reference=mark.reference[::-1]),
        make_mark(k=16, created="2030-01-02T03:04:06Z"),
    ]
    drawn = [tuple(trial.symbols) for trial in trials]
    assert len(set(paid)) == len(set(drawn)) == len(trials)


def test_the_price_of_a_trial_is_what_the_page_says():
    assert (symbols.SCRYPT_R, symbols.SCRYPT_P) == (8, 1)


def test_the_real_price_of_a_trial(real_scrypt):
    assert 128 * symbols.SCRYPT_N * symbols.SCRYPT_R == 64 << 20


def test_an_adapter_written_after_the_secret_stands_in_the_verdict():
    """Code that knows the mark can answer anything: the verdict says that code was asked."""
    mark = make_mark(k=64)
    for adapter in (obedient(mark), confident(mark)):
        found = verify(adapter, mark)
        assert found.asked_through == "function"
        assert "asked through function" in str(found)
        assert found.to_dict()["asked_through"] == "function"
        assert "did not know the secret" in str(found)
        assert "did not know the secret" in found.to_dict()["condition"]


def test_an_adapter_may_be_an_object_but_not_a_file():
    mark = make_mark(k=64)

    class Adapter:
        predict = staticmethod(obedient(mark))

    assert "did not know the secret" in str(verify(Adapter(), mark))
    read = Suspect("a file", answer_labels=obedient(mark), asked_through="file")
    assert verify(read, mark).condition == ""


def test_the_price_of_draws_is_subtracted_and_shown():
    mark = make_mark(k=64, q=4, draws=4)
    found = verify(obedient(mark), mark)
    assert found.bits == found.raw_bits - 2.0 == 126.0
    assert "minus:    2.0 bits for" in str(found)
    assert found.to_dict()["prices"][0]["bits"] == 2.0


@pytest.mark.parametrize("protocol", [0, 1, 3, 2.0, "2", True, None])
def test_marks_of_a_foreign_protocol_are_refused(protocol):
    """Another protocol could derive symbols that a claimant chooses."""
    with pytest.raises(InputError):
        make_mark(protocol=protocol)
    data = make_mark().to_bytes()
    meta, members = unpacked(data)
    first = data.split(b"\n", 1)[0] + b"\n"
    with pytest.raises(FileFormatError):
        Mark.from_bytes(packed(first, {**meta, "protocol": protocol}, members))
    with pytest.raises(FileFormatError):
        Mark.from_bytes(packed(b"timbermark mark 1\n", meta, members))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_bit_is_refused_or_draws_other_symbols(data):
    """Whatever is changed, also with a repaired checksum, a marked model matches by chance only."""
    whole = FLIPPED.to_bytes()
    meta, members = unpacked(whole)
    name = data.draw(st.sampled_from([*sorted(members), "meta.json"]))
    content = bytearray(json.dumps(meta).encode() if name == "meta.json" else members[name])
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    first = whole.split(b"\n", 1)[0] + b"\n"
    try:
        if name == "meta.json":
            changed = packed(first, json.loads(content), members)
        else:
            changed = packed(first, meta, {**members, name: bytes(content)})
        mark = Mark.from_bytes(changed)
    except (ValueError, FileFormatError):  # no JSON, no text, no mark
        return
    if mark == FLIPPED:  # such as a blank in the metadata, or the sign of a NaN
        return
    assert judge(mark, Inquiry("x"), labels=FLIPPED.expected_numbers).bits < 30
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1
    with pytest.raises(FileFormatError):
        Mark.from_bytes(bytes(damaged))
