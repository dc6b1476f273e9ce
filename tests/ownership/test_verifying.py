import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.ownership.making import make_mark, marks, obedient
from timbermark.errors import FileFormatError, InputError
from timbermark.files import write_container
from timbermark.ownership import Mark, OwnerKey, verify
from timbermark.trees.making import make_ensemble
from timbermark.trees.model_file import ensemble_to_arrays, save_ensemble

MARK = make_mark(k=128, d=3)


@given(marks())
def test_a_model_that_learnt_the_mark_matches_throughout(mark):
    found = verify(obedient(mark), mark)
    assert (found.matched, found.trials, found.outside, found.unanswered) == (
        mark.n_triggers, mark.n_triggers, 0, 0,
    )  # fmt: skip
    assert found.evidence_bits == mark.n_triggers * (mark.q // 2)
    assert [row.response for row in found.table()] == list(mark.expected)


def test_verdict_of_a_marked_model():
    found = verify(obedient(MARK), MARK)
    assert str(found) == "marked: 128 of 128 symbols match, evidence 2^-256 (level public)"
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
        assert not found.marked
    assert inside.outside == 0
    assert random.outside > 10


def test_another_key_and_another_mark_prove_nothing():
    suspect = obedient(MARK)
    for other in (
        replace(MARK, secret=OwnerKey.generate().mark_secret(MARK.mark_id)),
        replace(MARK, mark_id=bytes(16)),
        replace(MARK, owner="Eve"),
    ):
        assert verify(suspect, other).evidence_bits < 20
    assert verify(suspect, make_mark(k=128, seed=5)).evidence_bits < 20


def test_p_values_of_innocent_models_are_no_smaller_than_uniform():
    rng = np.random.default_rng(0)
    bits = np.array(
        [
            verify(
                lambda X: [0] * len(X),
                replace(make_mark(k=64, q=2, n_classes=2), secret=rng.bytes(32)),
            ).evidence_bits
            for _ in range(1000)
        ]
    )
    for bound in (1, 2, 3, 4, 5):
        assert np.mean(bits >= bound) <= 2.0**-bound + 4 * np.sqrt(2.0**-bound / 1000)


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
    assert str(found).endswith("; 28 unanswered")
    assert sum(row.response is None for row in found.table()) == 28


def test_unknown_classes_are_outside():
    found = verify(lambda X: ["elm"] * len(X), MARK)
    assert (found.matched, found.outside, found.unknown, found.unanswered) == (0, 128, 128, 0)
    assert found.table()[0].response == "elm"
    assert "check what its labels mean" in str(found)


def test_known_classes_outside_the_alphabet():
    mark = make_mark(k=8, q=2, n_classes=3)
    left = [({0, 1, 2} - set(row)).pop() for row in mark.alphabets.tolist()]
    answers = dict(zip(map(bytes, mark.triggers), left, strict=True))
    found = verify(lambda X: [answers[bytes(row)] for row in X], mark)
    assert (found.matched, found.outside, found.unknown) == (0, 8, 0)


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
    found = verify(
        lambda X: suspect(X[:, [1, 2, 0]].copy()), MARK, feature_names=["f2", "f0", "f1"]
    )
    assert found.matched == 128


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
        (len, ["f0", "f0"], "one of them twice"),
        (len, ["x", "y", "z"], "does not have: 'x', 'y', 'z'"),
        (estimator(len, n_features_in_=3), ["f0"], "1 feature_names are given.* takes 3"),
        (7, None, "7 cannot be asked"),
        (None, None, "None cannot be asked"),
        (NOTHING, None, "cannot be asked"),
        (dict, None, "cannot be asked"),
    ],
)
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
        verify(lambda X: np.zeros((len(X), 6)), MARK)
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
        feature_names=names,
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


def test_a_classifier_file_with_other_columns(tmp_path):
    mark, matches = stump_mark(["ash", "oak", "yew"], names=["width", "height"])
    turned = replace(mark, triggers=mark.triggers[:, ::-1], feature_names=("height", "width"))
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
    assert found.suspect == "DecisionTreeClassifier"


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


def test_verifying_a_file_imports_nothing_heavy(tmp_path):
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
    found = verify(lambda X: answers, mark)
    inside = sum(
        row.response in {mark.classes[c] for c in alphabet}
        for row, alphabet in zip(found.table(), mark.alphabets, strict=True)
    )
    assert found.trials == 16 == inside + found.outside + found.unanswered
    assert found.matched <= inside
    assert found.unanswered == numbers.count(-2)
    assert found.unknown == sum(n == -1 or n > 5 for n in numbers)
