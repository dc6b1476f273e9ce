import hashlib
import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timbermark.ownership.labels import UNANSWERED

from tests.conftest import ROOT
from tests.ownership.making import (
    confident,
    make_mark,
    make_mixed_mark,
    marks,
    obedient,
    row_key,
)
from timbermark.errors import FileFormatError, InputError
from timbermark.files import write_container
from timbermark.ownership import (
    Inquiry,
    Mark,
    OwnerKey,
    Suspect,
    judge,
    sequential_evidence,
    symbols,
    verify,
)
from timbermark.trees.construction import make_ensemble
from timbermark.trees.model_file import ensemble_to_arrays, save_ensemble

MARK = make_mark(k=128, d=3)


@given(marks())
def test_a_model_that_learnt_the_mark_matches_throughout(mark):
    found = verify(obedient(mark), mark)
    assert (found.matched, found.trials, found.outside, found.unanswered) == (
        mark.n_triggers, mark.n_triggers, 0, 0,
    )  # fmt: skip
    price = math.log2(mark.draws)
    assert found.net_bits == pytest.approx(mark.n_triggers * (mark.q // 2) - price)
    assert [row.response for row in found.table()] == list(mark.expected)


def test_verdict_of_a_marked_model():
    found = verify(obedient(MARK), MARK)
    assert (found.level, found.bits, found.kind) == ("conclusive", 256.0, "labels")
    assert found.chance == "1 in 1·10^77"
    assert (found.mark_digest, found.model_digest) == (MARK.digest.hex(), MARK.model_digest)
    assert (found.suspect_digest, found.created) == (None, MARK.created)
    assert (found.owner, found.mark_id) == (MARK.owner, MARK.mark_id.hex())
    assert found.suspect == "function <lambda>"


@pytest.mark.parametrize("seed", range(20))
def test_innocent_models_are_not_accused(seed):
    rng = np.random.default_rng(seed)
    random = verify(lambda X: rng.integers(0, 6, len(X)), MARK)
    keep = verify(lambda X: [3] * len(X), MARK)
    kept = dict(zip(map(bytes, MARK.triggers), MARK.alphabets[:, seed % 4], strict=True))
    inside = verify(lambda X: [kept[bytes(row)] for row in X], MARK)
    for found in (random, keep, inside):
        assert found.level == "none"
    assert inside.outside == 0
    assert random.outside > 10


def test_another_key_and_another_mark_prove_nothing():
    suspect = obedient(MARK)
    for other in (
        replace(MARK, secret=OwnerKey.generate().mark_secret(MARK.mark_id)),
        replace(MARK, mark_id=bytes(16)),
        replace(MARK, owner="Eve"),
    ):
        assert verify(suspect, other).bits < 20
    other = make_mark(k=128, seed=5)
    answers = dict(zip(map(row_key, other.triggers.tolist()), MARK.expected, strict=True))
    assert verify(lambda X: [answers[row_key(row)] for row in X.tolist()], other).bits < 20


def test_p_values_of_innocent_models_are_no_smaller_than_uniform():
    rng, mark, n = np.random.default_rng(0), make_mark(k=64, q=2, n_classes=2), 600
    secrets = [rng.bytes(32) for _ in range(n)]
    found = [verify(lambda X: [0] * len(X), replace(mark, secret=one)).bits for one in secrets]
    for bound in (1, 2, 3, 4, 5):
        share = np.mean(np.array(found) >= bound)
        assert share <= 2.0**-bound + 4 * np.sqrt(2.0**-bound / n)


@pytest.mark.parametrize("cast", [str, float, np.int8, np.float32, lambda x: str(x).encode()])
def test_other_label_types(cast):
    suspect = obedient(MARK)
    assert verify(lambda X: [cast(label) for label in suspect(X)], MARK).matched == 128


def test_missing_answers_are_trials_without_a_match():
    suspect = obedient(MARK)

    def shy(X):
        answers = np.array(suspect(X), float)
        answers[:28] = np.nan
        return answers

    found = verify(shy, MARK)
    assert (found.matched, found.trials, found.unanswered, found.outside) == (100, 128, 28, 0)
    assert "28 of 128 triggers got no answer" in str(found)
    assert sum(row.response is None for row in found.table()) == 28


def test_unknown_classes_are_outside():
    found = verify(lambda X: ["elm"] * 100 + [0] * 28, MARK)
    assert (found.unknown, found.answered) == (100, 128)
    assert found.outside >= 100
    assert "100 answers are no class of the mark" in str(found)
    assert "elm" in {row.response for row in found.table()}


def test_answers_that_fit_no_class_are_bad_input():
    with pytest.raises(
        InputError, match=r"No answer .* class of the mark: it says 'elm'"
    ) as caught:
        verify(lambda X: ["elm"] * len(X), MARK)
    assert "0, 1, 2, 3, 4, …" in caught.value.hint
    with pytest.raises(InputError, match="answered none of the triggers"):
        verify(lambda X: [None] * len(X), MARK)
    with pytest.raises(InputError, match="answered none of the triggers"):
        verify(lambda X: np.full((len(X), 6), np.nan), MARK)


def test_far_fewer_matches_than_chance_warn_of_a_misreading():
    mark = make_mark(k=96, q=4)
    outside = [next(c for c in range(6) if c not in row) for row in mark.alphabets.tolist()]
    answers = dict(zip(map(row_key, mark.triggers.tolist()), outside, strict=True))
    found = verify(lambda X: [answers[row_key(row)] for row in X.tolist()], mark)
    assert (found.matched, found.level, found.bits) == (0, "none", 0.0)
    assert "Only 0 of 96 answers match, where chance gives about 24" in str(found)
    assert "misread" in found.warnings[0]
    assert not verify(lambda X: [0] * len(X), mark).warnings


def test_known_classes_outside_the_alphabet():
    mark = make_mark(k=8, q=2, n_classes=3)
    left = [({0, 1, 2} - set(row)).pop() for row in mark.alphabets.tolist()]
    answers = dict(zip(map(bytes, mark.triggers), left, strict=True))
    found = verify(lambda X: [answers[bytes(row)] for row in X], mark)
    assert (found.matched, found.outside, found.unknown) == (0, 8, 0)
    assert found.bits == 0.0


def test_answers_outside_the_alphabet_do_not_count():
    """They speak for no symbol, so that they neither help the claim nor stand against it."""
    mark = make_mark(k=64, q=4)
    numbers = mark.expected_numbers.copy()
    for trigger in range(24):
        numbers[trigger] = next(c for c in range(6) if c not in mark.alphabets[trigger])
    assert judge(mark, Inquiry("x"), labels=numbers).raw_bits == pytest.approx(80.0)
    rate = judge(mark, Inquiry("x"), labels=numbers, one_by_one=True).raw_bits
    assert rate == pytest.approx(sequential_evidence(40, 40, 4))


def test_the_table_is_in_the_order_of_the_mark():
    found = verify(lambda X: [0] * len(X), MARK)
    table = found.table()
    assert [row.trigger for row in table] == list(range(128))
    assert [row.expected for row in table] == list(MARK.expected)
    assert [row.matched for row in table] == [label == 0 for label in MARK.expected]
    assert sum(row.matched for row in table) == found.matched


def test_the_order_of_questions_is_keyed():
    seen = []

    def suspect(X):
        seen.append(X.copy())
        X[:] = 0  # whatever it does to its rows does not reach the mark
        return [0] * len(X)

    for mark in (MARK, MARK, replace(MARK, secret=bytes(32))):
        verify(suspect, mark)
    first, again, other = seen
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, MARK.triggers)
    assert not np.array_equal(first, other)
    assert sorted(map(bytes, first)) == sorted(map(bytes, MARK.triggers))
    assert first.flags.c_contiguous
    assert first.dtype == np.float64


def estimator(answer, **attributes):
    return SimpleNamespace(predict=answer, **attributes)


def test_an_estimator_is_asked_through_predict():
    """Where it has nothing better."""
    found = verify(estimator(obedient(MARK)), MARK)
    assert found.matched == 128
    assert found.suspect == "SimpleNamespace"


@pytest.mark.parametrize("names", [["f0", "f1", "f2"], ["f2", "f0", "f1"], ["f2", "f0"], ["f1"]])
def test_columns_go_by_name(names):
    columns = [int(name[1]) for name in names]

    def predict(frame):
        assert isinstance(frame, pd.DataFrame)
        assert list(frame.columns) == names
        memory = dict(zip(map(bytes, MARK.triggers[:, columns].copy()), MARK.expected, strict=True))
        return [memory[bytes(row)] for row in np.ascontiguousarray(frame)]

    suspect = estimator(predict, feature_names_in_=np.array(names, object))
    assert verify(suspect, MARK).matched == 128


def test_names_made_up_by_a_library_go_by_place():
    suspect = estimator(
        lambda frame: obedient(MARK)(np.ascontiguousarray(frame)),
        feature_names_in_=np.array(["Column_0", "Column_1", "Column_2"]),
    )
    assert verify(suspect, MARK).matched == 128


def test_a_mark_without_names_goes_by_place():
    mark = replace(MARK, feature_names=None)
    suspect = estimator(
        lambda frame: obedient(mark)(np.ascontiguousarray(frame)),
        feature_names_in_=np.array(["f2", "f1", "f0"]),
    )
    assert verify(suspect, mark).matched == 128


def test_the_order_of_columns_can_be_given():
    suspect = obedient(MARK)
    turned = lambda X: suspect(X[:, [1, 2, 0]].copy())  # noqa: E731
    found = verify(turned, MARK, feature_names=["f2", "f0", "f1"])
    assert (found.matched, found.columns) == (128, "by hand")
    assert found.net_bits == pytest.approx(256 - math.log2(6))
    assert "an order of 3 columns given by hand" in str(found)
    same = verify(suspect, MARK, feature_names=["f0", "f1", "f2"])
    assert same.bits == 256


def test_names_made_up_by_a_library_can_be_overridden_at_the_same_price():
    suspect = estimator(
        lambda frame: obedient(MARK)(np.asarray(frame)[:, [1, 2, 0]]),
        feature_names_in_=np.array(["Column_0", "Column_1", "Column_2"]),
    )
    found = verify(suspect, MARK, feature_names=["f2", "f0", "f1"])
    assert (found.matched, len(found.prices)) == (128, 1)
    with pytest.raises(InputError, match="answered none"):
        verify(suspect, MARK)


def test_without_pandas_the_rows_are_an_array(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    suspect = estimator(obedient(MARK), feature_names_in_=np.array(["f0", "f1", "f2"]))
    assert verify(suspect, MARK).matched == 128


NOTHING = SimpleNamespace()


@pytest.mark.parametrize(
    ("suspect", "names", "message"),
    [
        (estimator(len, feature_names_in_=["f0", "f1", "age"]), None, "does not have: 'age'"),
        (estimator(len, feature_names_in_=["a", "b"]), None, "takes 2 columns.* have 3"),
        (estimator(len, n_features_in_=5), None, "takes 5 columns.* have 3"),
        (estimator(len, feature_names_in_=["f0", "f0"]), None, "one of them twice"),
        (len, ["f0", "f0", "f1"], "not the 3 names of the mark"),
        (len, ["f0"], "not the 3 names of the mark"),
        (len, ["x", "y", "z"], "not the 3 names of the mark"),
        (estimator(len, n_features_in_=2), ["f0", "f2", "f1"], "3 feature_names.* takes 2"),
        (estimator(len, feature_names_in_=["f0", "f1", "f2"]), ["f0", "f1", "f2"],
         "names its own columns"),
        (Suspect("nothing"), None, "has nothing that can be asked"),
        (7, None, "7 cannot be asked"),
        (None, None, "None cannot be asked"),
        (NOTHING, None, "cannot be asked"),
        (dict, None, "cannot be asked"),
    ],
)  # fmt: skip
def test_suspects_that_cannot_be_asked_are_refused(suspect, names, message):
    with pytest.raises(InputError, match=message) as caught:
        verify(suspect, MARK, feature_names=names)
    assert caught.value.hint


def test_names_for_a_mark_without_names_are_refused():
    with pytest.raises(InputError, match="the mark knows no names"):
        verify(len, replace(MARK, feature_names=None), feature_names=["f0", "f1", "f2"])


def test_a_mark_is_needed():
    with pytest.raises(InputError, match=r"str is not a mark.*Mark\.load"):
        verify(len, "my.mark")


def test_a_raising_suspect_is_one_clear_error():
    def suspect(X):
        raise KeyError("no such\n  column")

    with pytest.raises(InputError, match="could not answer: KeyError: 'no such") as caught:
        verify(suspect, MARK)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "\n" not in str(caught.value)


def test_interrupts_pass():
    def suspect(X):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(suspect, MARK)


def test_wrong_answers_are_refused():
    with pytest.raises(InputError, match="127 answers to 128 rows"):
        verify(lambda X: [0] * 127, MARK)
    with pytest.raises(InputError, match="looks like probabilities"):
        verify(lambda X: np.zeros((len(X), 5)), MARK)
    with pytest.raises(InputError, match="looks like probabilities"):
        verify(lambda X: np.zeros((len(X), 6)), MARK, answers="labels")
    with pytest.raises(InputError, match="did not answer with scores"):
        verify(lambda X: [0] * len(X), MARK, answers="scores")
    with pytest.raises(InputError, match="answers='both' is not known"):
        verify(len, MARK, answers="both")
    with pytest.raises(InputError, match="look like scores"):
        verify(lambda X: np.full(len(X), 0.5), MARK)


def test_a_strange_property_does_not_matter():
    class Strange:
        @property
        def feature_names_in_(self):
            raise RuntimeError("not fitted")

        def predict(self, X):
            return obedient(MARK)(X)

    assert verify(Strange(), MARK).matched == 128


# Three classes by the value of one feature: below 1, from 1 to 2, above 2.
STUMPS = make_ensemble(
    n_features=2,
    n_outputs=3,
    tree_start=[0, 3, 4, 7],
    feature=[0, -1, -1, -1, 0, -1, -1],
    threshold=[1.0, 0, 0, 0, 2.0, 0, 0],
    left=[1, -1, -1, -1, 1, -1, -1],
    right=[2, -1, -1, -1, 2, -1, -1],
    value=[0, 1, -1, 0, 0, -1, 1],
)


def save_classifier(path, labels, names=None, **changes):
    meta, arrays = ensemble_to_arrays(STUMPS, prefix="trees_")
    meta = {"ensemble": meta, "params": {}, "feature_names": names, "object_labels": False}
    arrays = {**arrays, "classes": np.array(labels)}
    for name, value in changes.items():
        (meta if name in meta else arrays)[name] = value
    write_container(path, "classifier", 1, meta, {k: v for k, v in arrays.items() if v is not None})


def stump_mark(classes, names=None, k=40):
    """A mark that the stumps obey, as far as they can: triggers are moved to where they do."""
    rng = np.random.default_rng(3)
    alphabets = np.array([rng.permutation(3)[:2] for _ in range(k)])
    mark = Mark.make(
        OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=classes,
        triggers=np.column_stack([rng.uniform(0, 3, k), np.arange(k)]), alphabets=alphabets,
        reference=np.full((k, 3), 1 / 3), feature_names=names,
    )  # fmt: skip
    said = np.digitize(mark.triggers[:, 0], [1, 2], right=True)
    return mark, int(np.sum(said == mark.expected_numbers))


@pytest.mark.parametrize("classes", [[5, 6, 7], ["ash", "oak", "yew"], [0.5, 1.5, 2.5]])
def test_a_classifier_file(tmp_path, classes):
    mark, matches = stump_mark(classes)
    save_classifier(tmp_path / "m.timber", classes)
    for path in (tmp_path / "m.timber", str(tmp_path / "m.timber")):
        found = verify(path, mark)
        assert found.matched == matches
        assert found.unknown == 0
        assert found.suspect == f"file {tmp_path / 'm.timber'}"
        assert (found.kind, found.asked_through) == ("scores", "file")
        content = (tmp_path / "m.timber").read_bytes()
        assert found.suspect_digest == hashlib.sha256(content).hexdigest()
        labels = verify(path, mark, answers="labels")
        assert (labels.kind, labels.matched) == ("labels", matches)
        assert [price.bits for price in labels.prices] == [1.0]


def test_a_classifier_file_with_other_columns(tmp_path):
    mark, matches = stump_mark(["ash", "oak", "yew"], names=["width", "height"])
    turned = replace(mark, columns=mark.columns[::-1], feature_names=("height", "width"))
    save_classifier(tmp_path / "m", ["ash", "oak", "yew"], names=["width", "height"])
    assert verify(tmp_path / "m", mark).matched == matches
    said = np.digitize(turned.triggers[:, 1], [1, 2], right=True)
    assert verify(tmp_path / "m", turned).matched == np.sum(said == turned.expected_numbers)


def test_an_ensemble_file_answers_with_class_numbers(tmp_path):
    mark, matches = stump_mark(["ash", "oak", "yew"])
    save_ensemble(tmp_path / "m", STUMPS)
    found = verify(tmp_path / "m", mark)
    assert found.matched == matches
    assert {row.response for row in found.table()} <= {"ash", "oak", "yew"}
    labels = verify(tmp_path / "m", mark, answers="labels")
    assert labels.table() == found.table()
    assert labels.reading == "class numbers in the order of the mark's classes"


def test_files_that_are_no_models_are_refused(tmp_path):
    mark, _ = stump_mark([5, 6, 7])
    mark.save(tmp_path / "a.mark")
    (tmp_path / "model.txt").write_text("tree\nversion=v4\n")
    with pytest.raises(FileFormatError, match="holds a mark, not a classifier"):
        verify(tmp_path / "a.mark", mark)
    with pytest.raises(FileFormatError, match=r"model\.txt is not a timbermark file"):
        verify(tmp_path / "model.txt", mark)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "none", mark)
    for change in (
        {"ensemble": 3},
        {"classes": np.arange(2)},
        {"classes": None},
        {"feature_names": ["a"]},
        {"feature_names": [1, 2]},
        {"feature_names": "ab"},
    ):
        save_classifier(tmp_path / "m", [5, 6, 7], **change)
        with pytest.raises(FileFormatError, match=f"not complete .{next(iter(change))}"):
            verify(tmp_path / "m", mark)
    save_classifier(tmp_path / "m", [5, 6, 7], trees_left=None)
    with pytest.raises(FileFormatError, match="missing"):
        verify(tmp_path / "m", mark)


def test_a_file_with_another_number_of_features_is_refused(tmp_path):
    save_ensemble(tmp_path / "m", STUMPS)
    with pytest.raises(InputError, match="takes 2 columns, the mark's rows have 3"):
        verify(tmp_path / "m", MARK)


def test_a_file_of_the_estimator_answers_as_the_estimator(tmp_path):
    """What binds the two modules that know this file, one to write and one to read it."""
    from timbermark.estimator import TimberClassifier

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["f0", "f1", "f2"])
    y = np.array(["ash", "oak", "yew"], object)[np.digitize(X["f0"], [-0.5, 0.5])]
    model = TimberClassifier(max_iter=3, random_state=0, n_jobs=1).fit(X, y)
    model.save(tmp_path / "m")
    mark = make_mark(k=64, q=2, n_classes=3, classes=("ash", "oak", "yew"))
    by_file, by_object = verify(tmp_path / "m", mark), verify(model, mark)
    assert by_file.table() == by_object.table()
    assert by_object.unknown == 0
    renamed = replace(mark, feature_names=("f2", "f0", "f1"))
    assert verify(tmp_path / "m", renamed).table() == verify(model, renamed).table()


@pytest.mark.parametrize("fit_on", ["frame", "array"])
def test_estimators_of_scikit_learn(fit_on):
    from sklearn.tree import DecisionTreeClassifier

    columns = ["f2", "f1", "f0"] if fit_on == "frame" else ["f0", "f1", "f2"]
    X = pd.DataFrame(MARK.triggers, columns=["f0", "f1", "f2"])[columns]
    y = np.array(MARK.expected)
    model = DecisionTreeClassifier(random_state=0)
    model.fit(X if fit_on == "frame" else X.to_numpy(), y)
    found = verify(model, MARK)
    assert found.matched == 128
    assert (found.suspect, found.kind) == ("DecisionTreeClassifier", "scores")
    assert found.bits > 240


SCRIPT = """
import sys
from timbermark.ownership import Mark, verify
started = set(sys.modules)
print(verify(sys.argv[1], Mark.load(sys.argv[2])).matched)
heavy = ("numba", "llvmlite", "sklearn", "scipy", "pandas", "timbermark.boosting",
         "timbermark.kernels", "timbermark.estimator")
print(sorted(set(heavy) & set(sys.modules)))
print("cryptography" in started)
"""


def test_verifying_a_file_imports_nothing_heavy(tmp_path, real_scrypt):
    mark, matches = stump_mark([5, 6, 7])
    mark.save(tmp_path / "mark")
    save_classifier(tmp_path / "model", [5, 6, 7])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "model", tmp_path / "mark"],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:3] == [str(matches), "[]", "False"]


@given(st.lists(st.integers(-2, 8), min_size=16, max_size=16))
def test_counts_add_up(numbers):
    mark = make_mark(k=16, q=2, n_classes=6)
    answers = [None if number < -1 else number for number in numbers]
    if all(number < 0 or number > 5 for number in numbers):
        with pytest.raises(InputError, match=r"No answer|answered none"):
            verify(lambda X: answers, mark)
        return
    found = verify(lambda X: answers, mark)
    inside = sum(
        row.response in {mark.classes[c] for c in alphabet}
        for row, alphabet in zip(found.table(), mark.alphabets, strict=True)
    )
    assert found.trials == 16 == inside + found.outside + found.unanswered
    assert found.matched <= inside
    assert found.unanswered == numbers.count(-2)
    assert found.unknown == sum(n == -1 or n > 5 for n in numbers)


def test_labels_instead_of_scores_cost_one_bit():
    suspect = estimator(obedient(MARK), predict_proba=confident(MARK), classes_=range(6))
    found = verify(suspect, MARK, answers="labels")
    assert (found.kind, found.bits, found.matched) == ("labels", 255.0, 128)
    assert "a kind of answers chosen by hand" in str(found)
    only_labels = estimator(obedient(MARK))
    assert verify(only_labels, MARK, answers="labels").bits == 256.0
    with pytest.raises(InputError, match="does not answer with scores"):
        verify(only_labels, MARK, answers="scores")


def test_a_label_map_has_its_price():
    names = dict(zip(range(6), "abcdef", strict=True))
    suspect = obedient(MARK)
    coded = lambda X: [names[label] for label in suspect(X)]  # noqa: E731
    back = {name: label for label, name in names.items()}
    found = verify(coded, MARK, label_map=back)
    assert found.matched == 128
    assert found.net_bits == pytest.approx(256 - math.log2(720))
    assert found.reading == "labels through a map given by hand"
    part = verify(coded, MARK, label_map={"a": 0, "b": 1})
    assert part.unknown == sum(label > 1 for label in MARK.expected)
    for bad in ({}, {"a": 0, "b": 0}, {"a": 9}, [1], {"a": None}):
        with pytest.raises(InputError, match="label_map"):
            verify(coded, MARK, label_map=bad)
    with pytest.raises(InputError, match="answers with scores"):
        verify(confident(MARK), MARK, label_map=back)


def test_draws_have_their_price():
    mark = MARK.with_draws(8)
    found = verify(obedient(mark), mark)
    assert (found.raw_bits, found.bits) == (256.0, 253.0)
    assert "3.0 bits for the best of 8 draws of symbols" in str(found)


def test_texts_reach_the_suspect():
    mark = make_mixed_mark(k=64)
    assert verify(obedient(mark), mark).matched == 64

    def predict(frame):
        assert list(frame.columns) == ["f1", "f0", "f2"]
        assert frame["f0"].dtype == frame["f2"].dtype == np.float64
        assert frame["f1"].iloc[0] is None or isinstance(frame["f1"].iloc[0], str)
        return obedient(mark)(frame[["f0", "f1", "f2"]].to_numpy(object))

    suspect = estimator(predict, feature_names_in_=np.array(["f1", "f0", "f2"]))
    found = verify(suspect, mark)
    assert (found.matched, found.columns) == (64, "by name")


def test_trees_cannot_be_asked_texts(tmp_path):
    save_ensemble(tmp_path / "m", STUMPS)
    mark = make_mark(
        k=8, q=2, n_classes=3, columns=(np.arange(8), ["a"] * 8), feature_names=("x", "y")
    )
    with pytest.raises(InputError, match="not a matrix of numbers"):
        verify(tmp_path / "m", mark)


def test_an_opened_suspect():
    """What other packages pass in."""
    suspect = Suspect(
        "server at example.org",
        answer_labels=lambda X: [MARK.classes.index(label) for label in obedient(MARK)(X)],
        feature_names=("f0", "f1", "f2"),
        answers_class_numbers=True,
        asked_through="https://example.org",
        digest="44" * 32,
    )
    found = verify(suspect, MARK)
    assert (found.matched, found.asked_through) == (128, "https://example.org")
    assert found.suspect_digest == "44" * 32


def test_class_numbers_are_read_only_where_they_are_known_to_be():
    mark = make_mark(k=64, classes=("1", "2", "3", "4", "5", "6"))
    numbers = {row_key(r): n for r, n in zip(mark.triggers.tolist(), mark.expected_numbers.tolist(),
                                             strict=True)}  # fmt: skip
    answer = lambda X: [numbers[row_key(row)] for row in X.tolist()]  # noqa: E731
    known = verify(Suspect("booster", answer_labels=answer, answers_class_numbers=True), mark)
    assert known.matched == 64
    assert verify(answer, mark).level == "none"


def test_judging_answers_that_are_already_there():
    inquiry = Inquiry("a table", "answers.csv")
    expected = MARK.expected_numbers
    assert judge(MARK, inquiry, labels=expected).bits == 256
    slow = judge(MARK, inquiry, labels=expected, one_by_one=True)
    assert (slow.kind, slow.matched) == ("labels one by one", 128)
    assert 250 < slow.bits < 256
    some = expected.copy()
    some[40:] = UNANSWERED
    early = judge(MARK, inquiry, labels=some, one_by_one=True)
    assert (early.answered, early.trials, early.level) == (40, 128, "conclusive")
    assert early.bits > judge(MARK, inquiry, labels=some).bits
    with pytest.raises(InputError, match="Either scores, labels or numbers"):
        judge(MARK, inquiry)
    for bad in (expected[1:], expected.astype(float), expected + 6, expected - 9):
        with pytest.raises(InputError, match="class number"):
            judge(MARK, inquiry, labels=bad)


def test_verifying_a_file_derives_the_symbols_once(tmp_path):
    mark, _ = stump_mark([5, 6, 7])
    mark.save(tmp_path / "mark")
    save_classifier(tmp_path / "model", [5, 6, 7])
    symbols._stretch.cache_clear()
    loaded = Mark.load(tmp_path / "mark")
    assert symbols._stretch.cache_info().misses == 0
    verify(tmp_path / "model", loaded)
    assert symbols._stretch.cache_info().misses == 1


def test_a_model_with_probabilities_alone_is_asked_for_them():
    suspect = SimpleNamespace(predict_proba=confident(MARK), classes_=list(range(6)))
    assert verify(suspect, MARK).kind == "scores"
    with pytest.raises(InputError, match="does not answer with labels"):
        verify(suspect, MARK, answers="labels")


def test_answers_may_come_one_after_the_other():
    assert verify(lambda X: iter(obedient(MARK)(X)), MARK).matched == 128
    assert verify(lambda X: iter(confident(MARK)(X)), MARK).kind == "scores"
    with pytest.raises(InputError, match="division by zero"):
        verify(lambda X: (1 / 0 for _ in X), MARK)


def test_names_of_suspects_are_fit_for_any_terminal():
    suspect = Suspect("file \udcff\x1b[2J.txt", answer_labels=obedient(MARK))
    shown = str(verify(suspect, MARK))
    shown.encode()
    assert "\x1b" not in shown


def test_the_order_of_the_triggers_does_not_change_the_scores():
    """What is asked in keyed order comes back in the mark's."""
    answers = confident(MARK)
    direct = judge(MARK, Inquiry("x"), scores=answers(MARK.rows()))
    assert verify(answers, MARK).raw_bits == pytest.approx(direct.raw_bits)


def numbered(mark, n_classes=None):
    """Return a model of a library that forgets labels and counts classes from 0."""
    count = len(mark.classes) if n_classes is None else n_classes
    return Suspect(
        "numbered",
        answer_labels=lambda X: [mark.classes.index(label) for label in obedient(mark)(X)],
        score_classes=tuple(range(count)),
        stores_no_labels=True,
    )


@pytest.mark.parametrize(
    "classes",
    [(1, 2, 3, 4, 5, 6), ("1", "2", "3", "4", "5", "6"), tuple("abcdef"), (0, 2, 4, 6, 8, 10)],
)
def test_numbers_count_the_classes_where_a_library_stores_no_labels(classes):
    mark = make_mark(k=64, classes=classes)
    found = verify(numbered(mark), mark)
    assert (found.matched, found.prices) == (64, ())
    assert found.reading == "class numbers in the order of the mark's classes"


@pytest.mark.parametrize("classes", [tuple(range(6)), tuple("012345"), (5, 4, 3, 2, 1, 0)])
def test_numbers_are_labels_where_the_mark_has_the_same(classes):
    mark = make_mark(k=64, classes=classes)
    suspect = replace(numbered(mark), answer_labels=lambda X: list(map(int, obedient(mark)(X))))
    found = verify(suspect, mark)
    assert (found.matched, found.reading) == (64, "labels, matched by value")
    # A class that nobody was trained on does not matter.
    wider = replace(suspect, score_classes=tuple(range(8)))
    assert verify(wider, mark).matched == 64


def test_more_numbers_than_classes_are_labels_if_they_hold_all_classes():
    mark = make_mark(k=64, classes=(1, 2, 3, 4, 5, 6))
    suspect = replace(numbered(mark, 7), answer_labels=obedient(mark))
    assert verify(suspect, mark).matched == 64


@pytest.mark.parametrize("n_classes", [3, 5, 7, 20])
def test_numbers_that_fit_no_reading_are_bad_input(n_classes):
    mark = make_mark(k=64, classes=(2, 4, 6, 8, 10, 30))
    with pytest.raises(InputError, match=f"has {n_classes} classes, counted from 0") as caught:
        verify(numbered(mark, n_classes), mark)
    assert "label_map" in caught.value.hint
    # A map says what they are, at its price.
    label_map = dict(enumerate(mark.classes))
    assert verify(numbered(mark, n_classes), mark, label_map=label_map).matched == 64


def test_labels_of_its_own_that_overlap_in_part_are_bad_input():
    """A classifier without its encoder answers 0 to 5, which are not the mark's 1 to 6."""
    mark = make_mark(k=64, classes=(1, 2, 3, 4, 5, 6))
    suspect = replace(numbered(mark), stores_no_labels=False)
    with pytest.raises(InputError, match="which are the same"):
        verify(suspect, mark)
    # Other labels are real ones: of them some may be new.
    assert verify(replace(suspect, score_classes=(1, 2, 3, 4, 5, 7)), mark).level == "none"


def test_the_reading_and_the_columns_are_always_told():
    mark = make_mark(k=64)
    assert verify(obedient(mark), mark).reading == "labels, matched by value"
    by_scores = verify(confident(mark), mark)
    assert by_scores.reading == "scores as probabilities, in the order of the mark's classes"
    assert by_scores.to_dict()["column_names"] == ["f0", "f1", "f2"]
    model = Suspect(
        "a model",
        answer_scores=lambda X: np.log(confident(mark)(X)),
        score_classes=mark.classes,
        feature_names=("f0", "f1", "f2"),
    )
    assert verify(model, mark).reading == "scores as margins, classes matched by name"
    bare = make_mark(k=64, feature_names=None)
    assert verify(obedient(bare), bare).to_dict()["column_names"] == []
