"""The paper's marks on the command line: made, verified, rotated, and refused in one sentence."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_classification

from timbermark import Mark, OwnerKey, TimberClassifier
from timbermark.cli import main
from timbermark.estimator import load_estimator
from timbermark.marking.in_place import forget_mark
from timbermark.trees.ensemble import digest

NAMES = [f"c{i}" for i in range(8)]


def write_csv(path, X, y):
    lines = [",".join([*NAMES, "kind"])]
    lines += [",".join([*map(repr, row), str(k)]) for row, k in zip(X.tolist(), y, strict=True)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A model with its state, tables and a key, as a user has them."""
    place = tmp_path_factory.mktemp("house")
    X, y = make_classification(
        3200, 8, n_informative=6, n_redundant=0, n_classes=4, n_clusters_per_class=1,
        class_sep=1.5, random_state=3,
    )  # fmt: skip
    X = X.round(4)
    model = TimberClassifier(
        max_iter=60, learning_rate=0.3, min_samples_leaf=3, random_state=0, n_jobs=1
    ).fit(X[:2400], y[:2400])
    model.save(place / "model.timber")
    model.save_state(place / "model.state")
    TimberClassifier(max_iter=2, n_jobs=1).fit(X[:200], y[:200]).save(place / "other.timber")
    write_csv(place / "train.csv", X[:2400], y[:2400])
    write_csv(place / "more.csv", X[2400:], y[2400:])
    OwnerKey.generate().save(place / "key")
    OwnerKey.generate().save(place / "second.key")
    return place


def run(*words):
    return main([str(word) for word in words])


def embedding(house, out, model="model.timber"):
    return [
        "embed", house / model, "--key", house / "key", "--owner", "Ann Ltd", "--out",
        out / "marked.timber", "--mark", out / "a.mark", "--method", "in-place",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def marked(house, tmp_path_factory):
    """The folder of a mark made from the state alone, and what the command told of it."""
    place = tmp_path_factory.mktemp("marked")
    words = [
        *embedding(house, place), "--state", house / "model.state", "--candidates",
        house / "more.csv", "--label", "kind", "--strategy", "cluster", "--selection", "distance",
        "--ratio", "0.04",
    ]  # fmt: skip
    assert run(*words) == 0
    return place


def test_a_mark_in_place_is_verified_and_leaves_its_state(house, marked, capsys):
    assert run("verify", marked / "marked.timber", marked / "a.mark") == 0
    assert run("verify", house / "model.timber", marked / "a.mark") == 1
    mark = Mark.load(marked / "a.mark")
    assert mark.about["strategy"] == "cluster"
    model = load_estimator(marked / "marked.timber").load_state(marked / "marked.state")
    assert (marked / "marked.state").stat().st_mode & 0o777 == 0o600
    unmarked = load_estimator(house / "model.timber")
    assert digest(forget_mark(model, mark).ensemble_) == digest(unmarked.ensemble_)
    capsys.readouterr()


def test_rotation_replaces_the_mark(house, marked, tmp_path, capsys):
    words = [
        "rotate", marked / "marked.timber", marked / "a.mark", "--state", marked / "marked.state",
        "--key", house / "second.key", "--out", tmp_path / "new.timber", "--mark",
        tmp_path / "b.mark", "--candidates", house / "more.csv", "--label", "kind", "--json",
    ]  # fmt: skip
    assert run(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["owner"] == "Ann Ltd"
    assert told["state"] == str(tmp_path / "new.state")
    assert told["triggers"] == {"splits": 0, "leaves": 96}
    assert run("verify", tmp_path / "new.timber", tmp_path / "b.mark") == 0
    assert run("verify", tmp_path / "new.timber", marked / "a.mark") == 1
    new, old = Mark.load(tmp_path / "b.mark"), Mark.load(marked / "a.mark")
    assert new.made_with(OwnerKey.load(house / "second.key"))
    assert new.model_digest == old.model_digest
    capsys.readouterr()


def test_training_rows_rebuild_the_state_and_limits_refuse_only_where_they_are_set(
    house, tmp_path, capsys
):
    words = [
        *embedding(house, tmp_path), "--train", house / "train.csv", "--label", "kind", "--ratio",
        "0.04", "--mode", "lazy", "--weak",
    ]  # fmt: skip
    assert run(*words, "--max-drift", "0.00001") == 2
    assert "--max-drift" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert run(*words, "--state-out", tmp_path / "own.state") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.mark", "marked.timber", "own.state",
    ]  # fmt: skip
    capsys.readouterr()


def test_a_plan_in_place_writes_nothing(house, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "plan", house / "model.timber", "--method", "in-place", "--state", house / "model.state",
        "--candidates", house / "more.csv", "--label", "kind", "--ratio", "0.04", "--mode", "lazy",
    ]  # fmt: skip
    assert run(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["triggers"] == {"splits": 0, "leaves": 96}
    assert run(*words, "--state-out", tmp_path / "new.state") == 2
    assert "--state-out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


BAD = {
    "no state and no rows": (["--candidates", "more.csv", "--label", "kind"], "no training state"),
    "another state": (["--train", "train.csv", "--label", "kind", "--state", "model.state"], ""),
    "no labels": (["--train", "train.csv", "--ratio", "0.04"], "--label"),
    "unknown strategy": (["--train", "train.csv", "--strategy", "auto"], "--strategy auto"),
    "a strange ratio": (["--train", "train.csv", "--ratio", "7"], "--ratio 7"),
    "seals": (["--train", "train.csv", "--label", "kind", "--seals", "leaves"], "--method edit"),
    "an edit": (["--train", "train.csv", "--method", "edit", "--state", "model.state"], "--state"),
    "one candidate": (
        ["--train", "train.csv", "--label", "kind", "--ratio", "0.0001"], "--ratio gives one"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(house, tmp_path, case, capsys):
    more, shown = BAD[case]
    files = [house / word if (house / word).exists() else word for word in more]
    model = "other.timber" if case == "another state" else "model.timber"
    assert run(*embedding(house, tmp_path, model), *files) == 2
    said = capsys.readouterr().err
    assert shown in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_an_edit_is_not_rotated_without_the_unmarked_model(house, tmp_path, capsys):
    words = [
        "embed", house / "model.timber", "--key", house / "key", "--owner", "Ann", "--out",
        tmp_path / "e.timber", "--mark", tmp_path / "e.mark", "--train", house / "train.csv",
        "--label", "kind", "--seals", "splits", "--weak",
    ]  # fmt: skip
    assert run(*words) == 0
    again = ["rotate", tmp_path / "e.timber", tmp_path / "e.mark", *words[2:4], "--out",
             tmp_path / "f.timber", "--mark", tmp_path / "f.mark", *words[10:]]  # fmt: skip
    assert run(*again) == 2
    assert "unmarked model" in capsys.readouterr().err
    assert not (tmp_path / "f.timber").exists()
    assert run(again[0], house / "model.timber", *again[2:]) == 0
    assert np.isfinite(Mark.load(tmp_path / "f.mark").full_bits)
    capsys.readouterr()
