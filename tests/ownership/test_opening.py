"""Openings: drawn, not chosen; what is shown is enough, and no more than that is shown."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.ownership.making import (
    KEY,
    carried,
    make_both,
    make_known_mark,
    make_mark,
    make_mixed_mark,
    make_number_mark,
    make_splits,
    marks,
    packed,
    resigned,
    unpacked,
)
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership import Answers, Claim, OpenedMark, Opening, open_mark, weigh
from timbermark.ownership.columns import split_columns
from timbermark.ownership.evidence import level, sum_prices, total_bits
from timbermark.ownership.opening import N_PARTS, clean_name, count_opened, draw_places, is_enough
from timbermark.ownership.seals import SCORE_FLOOR

MARK = make_both(40, 24)
CLAIM = Claim.make(MARK, KEY, marked_digest="cd" * 32)
FIRST = b"timbermark opening 3\n"


def claim_of(mark):
    """A claim for a mark whose secret is from nowhere."""
    mark = replace(mark, secret=KEY.mark_secret(mark.mark_id))
    return mark, Claim.make(mark, KEY, marked_digest="cd" * 32)


def opened_by(mark, claim, share=0.5, judge="Judge"):
    return open_mark(mark, claim, judge=judge, share=share, force=True)


def net_bits(mark, answers):
    seals = [seal.bits for seal in weigh(mark, answers)]
    return total_bits(seals, len(mark.seals)) - sum_prices(mark.prices)


@given(marks(), st.sampled_from([0.01, 0.25, 0.5, 0.51, 1]), st.text("abc é", min_size=1))
@settings(max_examples=60)
def test_any_part_of_any_mark_is_checked_alone(mark, share, name):
    if not name.strip():
        return
    mark, claim = claim_of(mark)
    opening = opened_by(mark, claim, share, name)
    again = Opening.from_bytes(opening.to_bytes())
    assert again.digest == opening.digest
    assert again.to_bytes() == opening.to_bytes()
    opened = again.check(claim, name)
    places = list(opening.places)
    assert len(places) == count_opened(mark.n_triggers, math.ceil(share * 8))
    assert opened.symbols.tolist() == mark.symbols[places].tolist()
    leaves = [place for place in places if place < mark.n_leaves]
    assert opened.expected == tuple(mark.expected[i] for i in leaves)
    assert (opened.n_leaves, opened.kinds) == (len(leaves), mark.kinds)
    assert opened.digest == mark.digest
    first = mark.n_leaves
    rows = [
        *leaves,
        *(first + 3 * (p - first) + i for p in places[len(leaves) :] for i in range(3)),
    ]
    assert str(opened.rows().tolist()) == str(mark.rows()[rows].tolist())
    for seal, offset in (("leaves", 0), ("splits", first)):
        # The order of questions is that of the whole mark.
        own = places[len(leaves) :] if offset or seal == "splits" else leaves
        whole = [int(i) + offset for i in mark.order(seal)]
        assert [own[i] for i in opened.order(seal)] == [i for i in whole if i in own]


def test_the_draw_is_uniform_over_names():
    parts = set()
    for i in range(600):
        places = draw_places(CLAIM, f"Judge {i}", 4)
        parts.add(places)
        assert len(places) == 32
        assert places == tuple(sorted(set(places)))
    # Few parts can ever be drawn, so that their number can be paid for.
    assert 200 < len(parts) <= 256
    counts = np.zeros(64, int)
    for part in parts:
        counts[list(part)] += 1
    expected = len(parts) / 2
    assert chi2.sf(((counts - expected) ** 2 / (expected / 2)).sum(), 63) > 1e-6


def test_larger_shares_contain_smaller_ones():
    before = set()
    for eighths in range(1, 9):
        places = set(draw_places(CLAIM, "Judge", eighths))
        assert before < places
        before = places
    assert before == set(range(64))


def test_a_part_pays_for_the_choice_among_all_parts():
    half = opened_by(MARK, CLAIM)
    opened = half.check(CLAIM)
    assert [(price.code, price.facts) for price in opened.prices] == [("part", {"parts": N_PARTS})]
    answers = carried(opened, "scores")
    found = net_bits(opened, answers)
    assert half.full_bits == opened.full_bits
    assert half.full_bits - 6 < found <= half.full_bits
    whole = opened_by(MARK, CLAIM, 1.0)
    assert whole.check(CLAIM).prices == ()
    assert whole.full_bits == MARK.full_bits
    mark, claim = claim_of(MARK.with_draws(4))
    prices = opened_by(mark, claim).check(claim).prices
    assert [price.code for price in prices] == ["draws", "part"]
    assert sum_prices(prices) == pytest.approx(2 + math.log2(N_PARTS))


def test_searching_for_a_name_gains_less_than_the_price():
    """An innocent suspect, and the best of many parts of a mark."""
    rng = np.random.default_rng(5)
    best = []
    for _ in range(40):
        mark, claim = claim_of(make_mark(k=40, mark_id=rng.bytes(16)))
        said = rng.permuted(mark.leaves.alphabets, axis=1)[:, 0]
        found = []
        for share in (0.25, 0.5, 0.75):
            for name in range(12):
                opened = opened_by(mark, claim, share, str(name)).check(claim)
                answers = Answers("labels", said[list(opened.places)])
                found.append(net_bits(opened, answers))
        best.append(max(found))
    for b in (0, 1, 2):
        assert np.mean(np.array(best) >= b) <= 2.0**-b


def test_texts_that_are_all_missing_in_a_part_stay_texts():
    texts = [None] * 23 + ["red"]
    rows = [[float(i), text, float(i)] for i, text in enumerate(texts)]
    mark = make_mark(24, columns=split_columns(rows))
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    for i in range(30):
        opening = opened_by(mark, claim, 0.25, f"Judge {i}")
        opened = Opening.from_bytes(opening.to_bytes()).check(claim)
        if 23 not in opening.places:
            assert opened.columns[1] == (None,) * 6
            return
    pytest.fail("no draw left the text out")


@pytest.mark.parametrize(("k", "n"), [(1, 63), (63, 1)])
def test_a_seal_of_which_nothing_is_drawn_is_not_shown(k, n):
    mark = make_both(k, n)
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    found = [opened_by(mark, claim, 0.125, f"Judge {i}") for i in range(20)]
    alone = [opening for opening in found if None in (opening.leaves, opening.splits)]
    assert alone
    for opening in alone:
        opened = Opening.from_bytes(opening.to_bytes()).check(claim)
        assert len(opened.seals) == 1
        assert opened.symbols.tolist() == mark.symbols[list(opening.places)].tolist()
        assert net_bits(opened, carried(opened, "scores")) <= opening.full_bits + 1e-9


def test_opened_triggers_are_judged_but_are_no_mark():
    opened = opened_by(MARK, CLAIM).check(CLAIM)
    assert isinstance(opened, OpenedMark)
    assert not opened.made_with(KEY)
    for use in (opened.to_bytes, lambda: open_mark(opened, CLAIM, judge="Judge")):
        with pytest.raises(InputError) as caught:
            use()
        assert caught.value.code == "opening.part"
    for change in ({"draws": 2}, {"owner": "Eve"}, {"splits": None}, {"opened_places": (0,)}):
        with pytest.raises(EvidenceError) as caught:
            replace(opened, **change)
        assert caught.value.code == "opening.shape"


@pytest.mark.parametrize("share", [0, -1, 1.01, math.nan, "0.5", True])
def test_shares_out_of_bounds_are_refused(share):
    with pytest.raises(InputError) as caught:
        open_mark(MARK, CLAIM, judge="Judge", share=share)
    assert (caught.value.code, caught.value.parameter) == ("opening.share", "share")


def test_by_default_as_much_is_opened_as_convinces():
    mark = make_both(96, 96)
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    opening = open_mark(mark, claim, judge="Judge")
    assert is_enough(opening.full_bits)
    assert 0 < opening.n_opened < mark.n_triggers
    opened = opening.check(claim)
    assert level(net_bits(opened, carried(opened, "scores"))) == "conclusive"
    smaller = (math.ceil(opening.n_opened / 192 * 8) - 1) / 8
    with pytest.raises(InputError) as caught:
        open_mark(mark, claim, judge="Judge", share=smaller)
    assert (caught.value.code, caught.value.parameter) == ("opening.too-little", "share")
    assert open_mark(mark, claim, judge="Judge", share=smaller, force=True).n_opened


def test_a_mark_that_is_worth_too_little_is_opened_by_force_alone():
    mark = make_mark(16)
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    for share in (None, 1.0):
        with pytest.raises(InputError) as caught:
            open_mark(mark, claim, judge="Judge", share=share)
        assert caught.value.code == "opening.too-little"
    assert open_mark(mark, claim, judge="Judge", force=True).n_opened == 16


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "\ud800", None, 7])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(InputError) as caught:
        open_mark(MARK, CLAIM, judge=name)
    assert (caught.value.code, caught.value.parameter) == ("field.judge", "judge")


def test_a_claim_for_another_mark_opens_nothing():
    with pytest.raises(EvidenceError) as caught:
        open_mark(make_both(40, 24, seed=1), CLAIM, judge="Judge")
    assert caught.value.code == "claim.other-mark"


def test_names_are_the_same_however_they_are_typed():
    assert clean_name(" Zoe\u0308") == "Zo\u00eb"
    composed = opened_by(MARK, CLAIM, judge="Zo\u00eb")
    decomposed = opened_by(MARK, CLAIM, judge=" Zoe\u0308")
    assert composed.digest == decomposed.digest
    composed.check(CLAIM, "Zoe\u0308")


@pytest.mark.skipif(os.name != "posix", reason="there are no such modes")
def test_an_opening_is_for_the_judge_alone(tmp_path):
    opening = opened_by(MARK, CLAIM)
    opening.save(tmp_path / "x.opening")
    assert (tmp_path / "x.opening").stat().st_mode & 0o777 == 0o600
    assert Opening.load(tmp_path / "x.opening").digest == opening.digest
    with pytest.raises(InputError) as caught:
        opening.save(tmp_path / "x.opening")
    assert caught.value.code == "file.exists"


def test_what_a_judge_refuses():
    opening = opened_by(MARK, CLAIM)
    other = Claim.make(MARK, KEY, marked_digest="ce" * 32)
    places = list(opening.places)
    missing = next(place for place in range(64) if place not in places)
    picked = replace(opening, places=tuple(sorted([*places[1:], missing])))
    cases = [
        (opening, other, "Judge", "opening.other-claim"),
        (opening, CLAIM, "Another judge", "opening.other-judge"),
        (picked, CLAIM, "Judge", "opening.picked"),
        (replace(opening, judge="Court"), CLAIM, "Court", "opening.picked"),
        (replace(opening, head=replace(opening.head, draws=2)), CLAIM, None, "claim.other-mark"),
        (replace(opening, salts=opening.salts[::-1]), CLAIM, None, "opening.record"),
        (replace(opening, paths=opening.paths[::-1]), CLAIM, None, "opening.record"),
        (replace(opening, leaves=None), CLAIM, None, "opening.shape"),
        (replace(opening, leaves=None, splits=None), CLAIM, None, "seals.none"),
    ]
    for shown, claim, judge, code in cases:
        with pytest.raises(EvidenceError) as caught:
            shown.check(claim, judge)
        assert caught.value.code == code
        assert caught.value.hint


FOREIGN = {
    "extra": (lambda meta: {**meta, "x": 1}, "file.parts"),
    "name": (lambda meta: {**meta, "for": ""}, "field.judge"),
    "claim": (lambda meta: {**meta, "claim": "00"}, "field.claim"),
    "no head": (lambda meta: {**meta, "head": []}, "field.head"),
    "places twice": (lambda meta: {**meta, "places": [1] * 32}, "field.places"),
    "places too large": (lambda meta: {**meta, "places": [*range(31), 64]}, "field.places"),
    "no places": (lambda meta: {**meta, "places": []}, "field.places"),
    "fewer places": (lambda meta: {**meta, "places": meta["places"][1:]}, "field.salts"),
    "texts": (lambda meta: {**meta, "texts": {"leaves": [["a"]], "splits": []}}, "triggers.shape"),
    "texts of no seal": (lambda meta: {**meta, "texts": {}}, "file.parts"),
}
FOREIGN_HEAD = {
    "q": (3, "field.q"),
    "n_leaves": (-1, "field.n_leaves"),
    "n_splits": (1 << 40, "field.n_splits"),
    "draws": (0, "field.draws"),
    "root": ("00", "field.root"),
    "claim_key": ("00", "field.claim_key"),
    "secret_digest": ("0g", "field.secret_digest"),
    "about_digest": (None, "field.about_digest"),
    "mark_id": ("00", "field.mark_id"),
    "columns": (["numbers", "numbers", "poems"], "field.columns"),
    "columns more": (["numbers"] * 4, "field.feature_names"),
    "classes": ([1], "field.classes"),
    "answers": ("numbers", "field.classes"),
    "feature_names": (["a"], "field.feature_names"),
    "protocol": (2, "field.protocol"),
    "owner": ("", "field.owner"),
    "model_digest": ("", "field.model_digest"),
    "created": ("", "field.created"),
}


@pytest.mark.parametrize("case", [*FOREIGN, *FOREIGN_HEAD])
def test_foreign_openings_are_refused(case):
    meta, members = unpacked(opened_by(MARK, CLAIM).to_bytes())
    if case in FOREIGN:
        change, code = FOREIGN[case]
        meta = change(meta)
    else:
        value, code = FOREIGN_HEAD[case]
        meta["head"][case.split()[0]] = value
    with pytest.raises(FileFormatError) as caught:
        Opening.from_bytes(packed(FIRST, meta, members))
    assert caught.value.code == code


def test_every_part_of_the_head_is_among_them():
    meta, _ = unpacked(opened_by(MARK, CLAIM).to_bytes())
    assert {case.split()[0] for case in FOREIGN_HEAD} == meta["head"].keys()


SMALL = make_known_mark(6, n_models=1, splits=make_splits(5))
SMALL_CLAIM = Claim.make(SMALL, KEY, marked_digest="cd" * 32)
SMALL_FILE = opened_by(SMALL, SMALL_CLAIM, 0.75).to_bytes()


def test_every_changed_byte_is_refused():
    for position in range(len(SMALL_FILE)):
        bad = bytearray(SMALL_FILE)
        bad[position] ^= 1 << position % 8
        with pytest.raises(FileFormatError):
            Opening.from_bytes(bytes(bad))


def test_every_truncation_is_refused():
    for length in range(0, len(SMALL_FILE), 11):
        with pytest.raises(FileFormatError) as caught:
            Opening.from_bytes(SMALL_FILE[:length])
        assert caught.value.code in ("file.empty", "file.foreign", "file.truncated")


STORED = packed(FIRST, *unpacked(SMALL_FILE))


@given(position=st.integers(len(FIRST) + 65, len(STORED) - 1), change=st.integers(1, 255))
@settings(max_examples=300)
def test_with_a_repaired_checksum_a_changed_opening_is_refused_or_the_same(position, change):
    bad = bytearray(STORED)
    bad[position] ^= change
    try:
        opening = Opening.from_bytes(resigned(bytes(bad)))
        opened = opening.check(SMALL_CLAIM)
    except (FileFormatError, EvidenceError):
        return
    whole = Opening.from_bytes(SMALL_FILE)
    assert opening.digest == whole.digest
    assert opened.rows().tobytes() == whole.check(SMALL_CLAIM).rows().tobytes()


MEMBERS = sorted(unpacked(SMALL_FILE)[1])


def _is_least(array, position):
    """Return whether the score at a place in a file of NumPy is between 0 and the least one."""
    start = 128 + (position - 128) // 8 * 8
    return 0.0 <= np.frombuffer(bytes(array[start : start + 8]), "<f8")[0] <= SCORE_FLOOR


@pytest.mark.parametrize("member", MEMBERS)
def test_every_changed_value_is_held_to_the_claim(member):
    """With the checksums of the archive repaired too."""
    meta, members = unpacked(SMALL_FILE)
    raw = members[member]
    for position in range(128, len(raw), 5):
        bad = bytearray(raw)
        bad[position] ^= 1
        data = packed(FIRST, meta, {**members, member: bytes(bad)})
        scores = (raw, bad) if member.endswith("reference.npy") else ()
        if scores and all(_is_least(array, position) for array in scores):
            # What is below the least score is read as that: the same content.
            files = (Opening.from_bytes(given).check(SMALL_CLAIM) for given in (data, SMALL_FILE))
            for changed, own in zip(*(opened.seals for opened in files), strict=True):
                assert changed.reference.tobytes() == own.reference.tobytes()
            continue
        with pytest.raises((EvidenceError, FileFormatError)):
            Opening.from_bytes(data).check(SMALL_CLAIM)
    del members[member]
    with pytest.raises(FileFormatError) as caught:
        Opening.from_bytes(packed(FIRST, meta, members))
    assert caught.value.code == "file.parts"


@pytest.mark.parametrize(("version", "wrote"), [(1, "before 0.2"), (2, "before 0.2"), (4, "newer")])
def test_other_versions_say_what_wrote_them_and_what_reads_them(version, wrote):
    first = f"timbermark opening {version}\n".encode()
    with pytest.raises(FileFormatError) as caught:
        Opening.from_bytes(packed(first, *unpacked(SMALL_FILE)))
    said = caught.value
    assert (said.code, bool(said.hint)) == ("file.version", True)
    assert all(word in said.message for word in (wrote, f"format {version}", "format 3"))


@pytest.mark.parametrize("mark", [make_mixed_mark(24, 12), make_number_mark(30)])
def test_other_kinds_of_marks_are_opened_and_read(mark):
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    opened = Opening.from_bytes(opened_by(mark, claim, 1).to_bytes()).check(claim)
    assert str(opened.rows().tolist()) == str(mark.rows().tolist())
    assert opened.symbols.tolist() == mark.symbols.tolist()
