"""Marks of numbers: pairs of rows, levels of differences, evidence that no suspect can reach by
chance, and a second verifier that agrees."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timbermark.ownership.numbers import are_unlike, compare_pairs, read_numbers

from tests.ownership import independent
from tests.ownership.making import make_mark
from timbermark.errors import FileFormatError, InputError
from timbermark.files import write_container
from timbermark.ownership import Inquiry, Mark, OwnerKey, judge, numbers_evidence, verify
from timbermark.ownership.evidence import rescale_numbers
from timbermark.trees.model_file import ensemble_to_arrays

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "mark-format.md").read_text()
VECTORS, VECTOR = (json.loads(found) for found in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
K = 96
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2 * K, 3))
ANSWERS = 100.0 + 20.0 * RNG.normal(size=(K, 2))
STEP = RNG.uniform(0.5, 2.0, size=K)
LEVELS = (ANSWERS[:, 1] - ANSWERS[:, 0])[:, None] + STEP[:, None] * [-1.5, -0.5, 0.5, 1.5]


def make(**changes):
    parts = {
        "owner": "Ann",
        "model_digest": "0" * 64,
        "answers": "numbers",
        "triggers": ROWS,
        "alphabets": LEVELS,
        "reference": ANSWERS,
    }
    return Mark.make(OwnerKey(bytes(range(32))), **(parts | changes))


MARK = make()


def marked_answers(mark=MARK):
    """Return what a model with the mark answers to its rows, [2k]."""
    answers = mark.reference.copy()
    move = mark.expected_levels - (answers[:, 1] - answers[:, 0])
    return (answers + 0.5 * move[:, None] * [-1.0, 1.0]).ravel()


def suspect(answers, mark=MARK):
    """Return a function that knows the answers by row."""
    memory = {row.tobytes(): y for row, y in zip(np.asarray(mark.triggers), answers, strict=True)}
    return lambda X: [memory[np.ascontiguousarray(row).tobytes()] for row in X]


def test_a_copy_proves_nearly_all_and_the_unmarked_model_nothing():
    verdict = verify(suspect(marked_answers()), MARK)
    assert (verdict.kind, verdict.level, verdict.matched) == ("numbers", "conclusive", K)
    assert 2 * K - 9 < verdict.bits <= 2 * K
    assert "levels" in str(verdict)
    unmarked = verify(suspect(ANSWERS.ravel()), MARK)
    assert unmarked.level == "none"
    assert unmarked.bits < 5.0


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 5.0), (7.8, -3.0), (0.01, 0.0)])
def test_another_unit_or_offset_changes_little(factor, offset):
    answers = factor * marked_answers() + offset
    # Symbols that happen to rise with the answers turn the line by which the unit is found.
    assert verify(suspect(answers), MARK).bits > 2 * K - 75


def test_what_moves_both_rows_of_a_pair_alike_does_not_matter():
    common = np.repeat(50.0 * RNG.normal(size=K), 2)
    assert verify(suspect(marked_answers() + common), MARK).bits > 2 * K - 9


def test_half_of_every_change_still_proves_the_mark():
    other = ANSWERS.ravel() + np.repeat(30.0 * RNG.normal(size=K), 2)
    assert verify(suspect(0.5 * (marked_answers() + other)), MARK).level == "conclusive"


def test_questions_to_the_rows_of_a_pair_are_far_from_each_other():
    order = MARK.row_order
    assert sorted(order.tolist()) == list(range(2 * K))
    place = np.argsort(order)
    assert (place[1::2] - place[::2] == K).all()


def test_missing_answers_do_not_count():
    answers = list(marked_answers())
    answers[0], answers[5] = None, "nan"
    verdict = verify(suspect(answers), MARK)
    assert (verdict.answered, verdict.unanswered) == (K - 2, 2)
    assert "2 of 96 pairs got no answer" in " ".join(verdict.warnings)


def test_answers_of_another_model_are_called_misread():
    verdict = verify(suspect(-marked_answers()), MARK)
    assert verdict.level == "none"
    assert "misread" in " ".join(verdict.warnings)
    assert not are_unlike(marked_answers(), MARK.reference)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 4]), st.sampled_from([0.1, 1.0, 5.0]))
def test_the_mean_of_e_over_all_symbols_is_one(seed, q, spread):
    """Under the null symbols are uniform: whatever the answers are, E has the mean 1."""
    rng = np.random.default_rng(seed)
    k = 3 if q == 4 else 5
    levels = np.sort(rng.normal(size=(k, q)) * spread, axis=1) + rng.normal(size=(k, 1))
    levels += np.arange(q) * 1e-3
    values = rng.normal(size=k) * spread
    every = np.stack(np.meshgrid(*[np.arange(q)] * k), axis=-1).reshape(-1, k)
    total = sum(2.0 ** numbers_evidence(values, levels, symbols) for symbols in every)
    assert total / q**k == pytest.approx(1.0, rel=1e-9)


def test_innocent_answers_stay_far_below_any_level():
    rng, most = np.random.default_rng(1), 0.0
    for trial in range(300):
        answers = ANSWERS.ravel() * rng.uniform(0.5, 2.0) + 10.0 * rng.normal(size=2 * K)
        if trial % 3 == 0:
            answers = np.rint(answers)
        symbols = rng.integers(0, 4, K)
        steps = answers[1::2] - answers[::2]
        most = max(most, numbers_evidence(steps, LEVELS, symbols))
    assert most < 12.0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 30.0))
def test_the_second_verifier_agrees(seed, noise):
    rng = np.random.default_rng(seed)
    answers = (marked_answers() + noise * rng.normal(size=2 * K)).tolist()
    answers[7] = None
    symbols = MARK.symbols.tolist()
    theirs = independent.numbers_bits(answers, LEVELS.tolist(), symbols)
    ours = judge(MARK, Inquiry("a table"), numbers=np.array(answers, float))
    assert ours.raw_bits == pytest.approx(theirs, abs=1e-6)


def test_the_second_verifier_reads_the_file_and_derives_the_same_symbols(real_scrypt):
    mark = make()  # whose symbols nobody has derived cheaply
    again = independent.read_mark(mark.to_bytes())
    secret = bytes.fromhex(again["secret"])
    digest = independent.digest(again, secret)
    assert digest == mark.digest
    seed = independent.seed(digest)
    assert independent.symbols(seed, independent.salts(secret, K), 4) == mark.symbols.tolist()


def test_the_vector_of_the_page(real_scrypt):
    vector = VECTOR
    secret = bytes.fromhex(VECTORS["mark_secret"])
    columns = [
        tuple(c) if any(isinstance(x, str) for x in c) else np.array(c, float)
        for c in vector["columns"]
    ]
    words = ("protocol", "owner", "model_digest", "answers", "draws", "created", "about")
    mark = Mark(
        **{word: vector[word] for word in words},
        mark_id=bytes.fromhex(vector["mark_id"]),
        secret=secret,
        feature_names=tuple(vector["feature_names"]),
        classes=(),
        columns=tuple(columns),
        alphabets=np.array(vector["alphabets"]),
        reference=np.array(vector["reference"]),
    )
    assert mark.digest.hex() == vector["digest"] == independent.digest(vector, secret).hex()
    assert mark.symbols.tolist() == vector["symbols"]
    assert mark.order.tolist() == vector["order"]
    assert mark.row_order.tolist() == vector["row_order"]
    assert list(mark.expected) == vector["expected"]
    answers = np.array(vector["numbers"], float)
    assert judge(mark, Inquiry("x"), numbers=answers).bits == vector["bits"]
    raw = independent.numbers_bits(vector["numbers"], vector["alphabets"], vector["symbols"])
    assert independent.reported(raw) == vector["bits"]


def test_a_file_gives_the_same_mark():
    again = Mark.from_bytes(MARK.to_bytes())
    assert again == MARK
    assert (again.in_pairs, again.classes, again.n_triggers, again.q) == (True, (), K, 4)
    np.testing.assert_array_equal(again.levels, LEVELS)


@pytest.mark.parametrize("part", ["alphabets", "reference", "columns"])
def test_whatever_is_changed_gives_other_symbols(part):
    changed = getattr(MARK, part)
    if part == "columns":
        first = changed[0].copy()
        first[3] += 1.0
        changed = (first, *changed[1:])
    else:
        changed = changed.copy()
        changed[3] += 0.25
    other = replace(MARK, **{part: changed})
    assert other.digest != MARK.digest
    assert (other.symbols != MARK.symbols).mean() > 0.5
    assert verify(suspect(marked_answers()), replace(MARK, draws=2)).bits < 20


BAD = {
    "odd rows": ({"triggers": ROWS[:-1]}, "no pairs"),
    "levels that fall": ({"alphabets": LEVELS[:, ::-1]}, "do not rise"),
    "levels that are equal": ({"alphabets": np.zeros((K, 4))}, "do not rise"),
    "three levels": ({"alphabets": LEVELS[:, :3]}, "3 levels"),
    "no numbers": ({"reference": np.full((K, 2), np.nan)}, "finite"),
    "too few levels": ({"alphabets": LEVELS[:-1]}, "no levels of 96"),
    "classes": ({"classes": [0, 1]}, "has classes"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_mark_of_numbers_is_refused(case):
    changes, reason = BAD[case]
    with pytest.raises(InputError, match=reason) as caught:
        make(**changes)
    assert caught.value.hint


def test_answers_of_the_wrong_kind_are_refused():
    classes = Mark.make(
        OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
        triggers=ROWS, alphabets=[[0, 1]] * (2 * K), reference=np.full((2 * K, 2), 0.5),
    )  # fmt: skip
    with pytest.raises(InputError, match="one of numbers"):
        judge(MARK, Inquiry("a table"), labels=np.zeros(K, int))
    with pytest.raises(InputError, match="one of classes"):
        judge(classes, Inquiry("a table"), numbers=np.zeros(4 * K))
    with pytest.raises(InputError, match="not two for each"):
        judge(MARK, Inquiry("a table"), numbers=np.zeros(K))
    with pytest.raises(InputError, match="asked for labels"):
        verify(suspect(marked_answers()), MARK, answers="labels")
    with pytest.raises(InputError, match="label_map"):
        verify(suspect(marked_answers()), MARK, label_map={0: 1})
    with pytest.raises(InputError, match="one of labels"):
        verify(lambda X: X[:, 0], classes, answers="numbers")
    with pytest.raises(InputError, match="one of classes"):
        classes.levels  # noqa: B018
    with pytest.raises(InputError, match="is a number"):
        verify(lambda X: ["red"] * len(X), MARK)
    with pytest.raises(InputError, match="none of the triggers"):
        judge(MARK, Inquiry("a table"), numbers=np.full(2 * K, np.nan))


def test_a_damaged_file_is_refused():
    data = bytearray(MARK.to_bytes())
    data[len(data) // 2] ^= 1
    with pytest.raises(FileFormatError):
        Mark.from_bytes(bytes(data))


def test_reading_numbers():
    np.testing.assert_array_equal(read_numbers([[1], ["2.5"], [None]], 3), [1.0, 2.5, np.nan])
    np.testing.assert_array_equal(read_numbers(np.array([1, np.inf]), 2), [1.0, np.nan])
    with pytest.raises(InputError, match="3 answers to 2 rows"):
        read_numbers([1, 2, 3], 2)


def test_pairs_are_compared():
    pairs = compare_pairs([0.0, 1.0, 5.0, 5.0], np.array([[0.0, 1.0], [-1.0, 0.2]]), [1, 1])
    assert pairs.matched.tolist() == [True, True]


def test_numbers_that_fall_where_they_should_rise_say_nothing():
    centres = np.arange(5.0)
    np.testing.assert_array_equal(rescale_numbers(-centres, centres, np.ones(5)), centres)
    np.testing.assert_array_equal(rescale_numbers(np.ones(5), centres, np.ones(5)), centres)


def test_a_file_of_the_regressor_answers_as_the_regressor(tmp_path):
    """What binds the two modules that know this file, one to write and one to read it."""
    from timbermark.estimator import TimberRegressor

    X = pd.DataFrame(ROWS, columns=["f0", "f1", "f2"])
    model = TimberRegressor(max_iter=20, random_state=0, n_jobs=1).fit(X, marked_answers())
    model.save(tmp_path / "m")
    mark = make(feature_names=["f0", "f1", "f2"])
    by_file, by_object = verify(tmp_path / "m", mark), verify(model, mark)
    assert by_file.kind == "numbers"
    assert by_file.table() == by_object.table()
    assert by_file.raw_bits == by_object.raw_bits
    content = (tmp_path / "m").read_bytes()
    assert by_file.suspect_digest == hashlib.sha256(content).hexdigest()
    with pytest.raises(InputError):
        verify(tmp_path / "m", make_mark(k=16, d=3))


def test_a_file_whose_trees_are_of_another_kind_is_refused(tmp_path):
    from timbermark.estimator import TimberClassifier, TimberRegressor

    for wrong, kind in ((TimberClassifier, "regressor"), (TimberRegressor, "classifier")):
        model = wrong(max_iter=1, n_jobs=1).fit(ROWS, np.arange(2 * K) % 2)
        trees, arrays = ensemble_to_arrays(model.ensemble_, prefix="trees_")
        meta = {"ensemble": trees, "params": {}, "feature_names": None, "object_labels": False}
        arrays = {**arrays, "classes": np.arange(model.ensemble_.n_classes)}
        write_container(tmp_path / "m", kind, 1, meta, arrays)
        with pytest.raises(FileFormatError, match=r"not complete \(objective"):
            verify(tmp_path / "m", MARK)


def test_a_mark_of_numbers_has_no_alternatives():
    k, q = MARK.alphabets.shape
    with pytest.raises(InputError, match="mark of numbers has alternatives"):
        replace(MARK, alternatives=np.full((k, 1, q), 0.5))
