"""Openings: drawn, not chosen; what is shown is enough, and no more than that is shown."""

import io
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.ownership import independent, independent_claims
from tests.ownership.making import (
    KEY,
    make_known_mark,
    make_mark,
    make_mixed_mark,
    marks,
    packed,
    unpacked,
)
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership import (
    Claim,
    Inquiry,
    OpenedMark,
    Opening,
    judge,
    judge_again,
    open_mark,
)
from timbermark.ownership.opening import N_PARTS, count_opened, draw_places

MARK = make_mark(k=40)
CLAIM = Claim.make(MARK, KEY, marked_digest="cd" * 32)
FIRST = b"timbermark opening 1\n"


def claim_of(mark):
    """A claim for a mark whose secret is from nowhere."""
    secret = KEY.mark_secret(mark.mark_id)
    mark = replace(mark, secret=secret)
    return mark, Claim.make(mark, KEY, marked_digest="cd" * 32)


@given(marks(), st.sampled_from([0.01, 0.25, 0.5, 0.51, 1]), st.text("abc é", min_size=1))
@settings(max_examples=60)
def test_any_part_of_any_mark_is_checked_alone(mark, share, name):
    if not name.strip():
        return
    mark, claim = claim_of(mark)
    opening = open_mark(mark, claim, judge=name, share=share)
    again = Opening.from_bytes(opening.to_bytes())
    assert again.digest == opening.digest
    opened = again.check(claim, name)
    places = list(opening.places)
    assert len(places) == count_opened(mark.n_triggers, math.ceil(share * 8))
    assert opened.symbols.tolist() == mark.symbols[places].tolist()
    assert opened.expected == tuple(mark.expected[i] for i in places)
    assert opened.digest == mark.digest
    rows, whole = opened.rows(), mark.rows()[places]
    assert [[x == x and x for x in row] for row in rows.tolist()] == [
        [x == x and x for x in row] for row in whole.tolist()
    ]
    # The order of questions is that of the whole mark.
    asked = [places[i] for i in opened.order]
    assert asked == [i for i in mark.order.tolist() if i in places]


@given(marks(), st.integers(1, 8))
@settings(max_examples=40)
def test_the_independent_judge_agrees(mark, eighths):
    mark, claim = claim_of(mark)
    opening = open_mark(mark, claim, judge="Judge", share=eighths / 8)
    meta, head, digest, arrays = independent_claims.read_opening(opening.to_bytes())
    assert digest == mark.digest
    seed = independent_claims.mark_seed(digest, n=2)
    drawn = independent_claims.draw(claim.digest, "Judge", eighths, seed, mark.n_triggers)
    assert meta["places"] == drawn[1] == list(opening.places)
    symbols = independent_claims.opened_symbols(head, seed, meta["places"], arrays["salts"])
    assert symbols == opening.check(claim).symbols.tolist()
    assert independent.root(list(mark.leaves)) == head["root"]


def test_the_draw_is_uniform_over_names():
    seen = np.zeros(40, int)
    parts = set()
    for i in range(600):
        places = draw_places(CLAIM, f"Judge {i}", 4)
        parts.add(places)
        seen[list(places)] += 1
        assert len(places) == 20
        assert places == tuple(sorted(set(places)))
    # Few parts can ever be drawn, so that their number can be paid for.
    assert 200 < len(parts) <= 256
    counts = np.zeros(40, int)
    for part in parts:
        counts[list(part)] += 1
    expected = len(parts) / 2
    assert chi2.sf(((counts - expected) ** 2 / (expected / 2)).sum(), 39) > 1e-6


def test_larger_shares_contain_smaller_ones():
    before = set()
    for eighths in range(1, 9):
        places = set(draw_places(CLAIM, "Judge", eighths))
        assert before < places
        before = places
    assert before == set(range(40))


def test_a_part_pays_for_the_choice_among_all_parts():
    half = open_mark(MARK, CLAIM, judge="Judge", share=0.5)
    opened = half.check(CLAIM)
    verdict = judge(opened, Inquiry("x"), labels=opened.expected_numbers)
    assert verdict.raw_bits == 40
    assert verdict.net_bits == pytest.approx(40 - math.log2(N_PARTS))
    assert half.full_bits == pytest.approx(verdict.net_bits)
    assert "1792 parts" in str(verdict)
    whole = open_mark(MARK, CLAIM, judge="Judge", share=1.0)
    opened = whole.check(CLAIM)
    verdict = judge(opened, Inquiry("x"), labels=opened.expected_numbers)
    assert (verdict.bits, verdict.prices, whole.full_bits) == (80, (), 80)


def test_searching_for_a_name_gains_less_than_the_price():
    """An innocent suspect, a mark that fits it as well as chance allows, and every part of it."""
    rng = np.random.default_rng(5)
    best = []
    for _ in range(60):
        mark, claim = claim_of(make_mark(k=40, mark_id=rng.bytes(16)))
        said = rng.permuted(mark.alphabets, axis=1)[:, 0]
        found = []
        for eighths in (2, 4, 6):
            for name in range(40):
                chosen = list(draw_places(claim, str(name), eighths))
                matched = int((said == mark.expected_numbers)[chosen].sum())
                tail = independent.labels_bits(matched, len(chosen), 4)
                found.append(tail - math.log2(N_PARTS))
        best.append(max(found))
    for b in (0, 1, 2):
        assert np.mean(np.array(best) >= b) <= 2.0**-b


def test_texts_that_are_all_missing_in_a_part_stay_texts():
    texts = [None] * 23 + ["red"]
    mark = make_mark(24, columns=(np.arange(24.0), texts, np.arange(24.0)))
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    for i in range(30):
        opening = open_mark(mark, claim, judge=f"Judge {i}", share=0.25)
        opened = Opening.from_bytes(opening.to_bytes()).check(claim)
        if 23 not in opening.places:
            assert opened.columns[1] == (None,) * 6
            return
    pytest.fail("no draw left the text out")


def test_opened_triggers_are_judged_but_are_no_mark():
    opened = open_mark(MARK, CLAIM, judge="Judge", share=0.5).check(CLAIM)
    assert isinstance(opened, OpenedMark)
    assert not opened.made_with(KEY)
    with pytest.raises(InputError, match="no mark of its own"):
        opened.to_bytes()
    with pytest.raises(InputError, match="whole mark"):
        open_mark(opened, CLAIM, judge="Judge")
    with pytest.raises(EvidenceError, match="shape that the mark commits to"):
        opened.with_draws(2)
    verdict = judge(opened, Inquiry("x"), labels=opened.expected_numbers)
    assert judge_again(opened, verdict.transcript) == verdict
    assert verdict.mark_digest == MARK.digest.hex()


@pytest.mark.parametrize("share", [0, -1, 1.01, math.nan, "0.5", True, None])
def test_shares_out_of_bounds_are_refused(share):
    with pytest.raises(InputError, match="not from above 0 to 1"):
        open_mark(MARK, CLAIM, judge="Judge", share=share)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "\ud800", None, 7])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(InputError, match="name"):
        open_mark(MARK, CLAIM, judge=name)


def test_a_claim_for_another_mark_opens_nothing():
    with pytest.raises(EvidenceError, match="another mark"):
        open_mark(make_mark(k=40, seed=1), CLAIM, judge="Judge")


def test_names_are_the_same_however_they_are_typed():
    composed = open_mark(MARK, CLAIM, judge="Zo\u00eb")
    decomposed = open_mark(MARK, CLAIM, judge=" Zoe\u0308")
    assert composed.digest == decomposed.digest
    composed.check(CLAIM, "Zoe\u0308")


@pytest.mark.skipif(os.name != "posix", reason="there are no such modes")
def test_an_opening_is_for_the_judge_alone(tmp_path):
    opening = open_mark(MARK, CLAIM, judge="Judge")
    opening.save(tmp_path / "x.opening")
    assert (tmp_path / "x.opening").stat().st_mode & 0o777 == 0o600
    assert Opening.load(tmp_path / "x.opening").digest == opening.digest


FOREIGN = {
    "extra": (lambda meta: {**meta, "x": 1}, "exactly the parts"),
    "name": (lambda meta: {**meta, "for": ""}, "not a name"),
    "claim": (lambda meta: {**meta, "claim": "00"}, "not 32 bytes"),
    "no head": (lambda meta: {**meta, "head": []}, "no head"),
    "places twice": (lambda meta: {**meta, "places": [1] * 20}, "ascending"),
    "places too large": (lambda meta: {**meta, "places": [*range(19), 40]}, "ascending"),
    "no places": (lambda meta: {**meta, "places": []}, "ascending"),
    "fewer places": (lambda meta: {**meta, "places": meta["places"][1:]}, "shape"),
    "texts": (lambda meta: {**meta, "texts": [["a"] * 20]}, "columns of texts"),
}
FOREIGN_HEAD = {
    "q": (3, "neither 2 nor 4"),
    "n_triggers": (0, "out of bounds"),
    "n_triggers large": (1 << 40, "out of bounds"),
    "draws": (0, "draws=0"),
    "root": ("00", "root is not 32 bytes"),
    "columns": (["numbers", "numbers", "poems"], "neither numbers nor texts"),
    "columns more": (["numbers"] * 4, "feature_names|shape"),
    "classes": ([1], "not enough"),
    "feature_names": (["a"], "distinct texts"),
    "protocol": (3, "protocol=3"),
    "owner": ("", "not a name"),
}


@pytest.mark.parametrize("case", [*FOREIGN, *FOREIGN_HEAD])
def test_foreign_openings_are_refused(case):
    opening = open_mark(MARK, CLAIM, judge="Judge")
    meta, members = unpacked(opening.to_bytes())
    if case in FOREIGN:
        change, reason = FOREIGN[case]
        meta = change(meta)
    else:
        value, reason = FOREIGN_HEAD[case]
        meta["head"][case.split()[0]] = value
    with pytest.raises(FileFormatError, match=f"(?i){reason}"):
        Opening.from_bytes(packed(FIRST, meta, members))


def test_mixed_columns_are_opened_and_read():
    mark = make_mixed_mark(k=24)
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    opening = open_mark(mark, claim, judge="Judge", share=1)
    opened = Opening.from_bytes(opening.to_bytes()).check(claim)
    assert opened.rows().tolist() == mark.rows().tolist()
    assert opened.symbols.tolist() == mark.symbols.tolist()


def test_alternatives_are_opened_in_format_2():
    mark = make_known_mark(k=40)
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    opening = open_mark(mark, claim, judge="Judge", share=0.5)
    data = opening.to_bytes()
    assert data.startswith(b"timbermark opening 2\n")
    opened = Opening.from_bytes(data).check(claim, "Judge")
    np.testing.assert_array_equal(opened.alternatives, mark.alternatives[list(opening.places)])
    meta, members = unpacked(data)
    raw = bytearray(members["alternatives.npy"])
    raw[-1] ^= 1
    changed = packed(b"timbermark opening 2\n", meta, {**members, "alternatives.npy": bytes(raw)})
    with pytest.raises(EvidenceError, match="not the one that the claim commits to"):
        Opening.from_bytes(changed).check(claim, "Judge")
    less = {name: part for name, part in members.items() if name != "alternatives.npy"}
    with pytest.raises(EvidenceError, match="not the one that the claim commits to"):
        Opening.from_bytes(packed(FIRST, meta, less)).check(claim, "Judge")
    with pytest.raises(FileFormatError, match="exactly the parts"):
        Opening.from_bytes(packed(FIRST, meta, members))
    flat = npy_bytes(mark.alternatives[list(opening.places)][:, 0])
    with pytest.raises(FileFormatError, match="Alternatives has the shape"):
        Opening.from_bytes(
            packed(b"timbermark opening 2\n", meta, {**members, "alternatives.npy": flat})
        )


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
