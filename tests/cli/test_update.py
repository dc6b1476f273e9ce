import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from timbermark import TimberClassifier, TimberRegressor
from timbermark.cli import main
from timbermark.cli import update as update_module
from timbermark.estimator import load_estimator
from timbermark.trees.ensemble import equal

NAMES = ["a", "b", "c", "d"]


def write_csv(path, X, y=None, names=NAMES, weight=None):
    header = [*names, *([] if y is None else ["kind"]), *([] if weight is None else ["w"])]
    lines = [",".join(header)]
    for i, row in enumerate(X.tolist()):
        cells = [*map(repr, row), *([] if y is None else [str(y[i])])]
        lines.append(",".join([*cells, *([] if weight is None else [str(weight[i])])]))
    path.write_text("\n".join(lines) + "\n")
    return path


def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], np.array(["red", "green", "blue"])[y[order]]


def model_of(place, X, y, kind=TimberClassifier):
    model = kind(max_iter=8, random_state=0, n_jobs=1).fit(X, y)
    model.save(place / "model.timber")
    model.save_state(place / "model.state")
    return model


@pytest.fixture
def house(tmp_path):
    X, y = iris()
    return tmp_path, X, y, model_of(tmp_path, X[:120], y[:120])


def run(place, *more, model="model.timber", state="model.state", out="new.timber"):
    words = ["update", place / model, "--state", place / state, "--out", place / out, *more]
    return main([str(word) for word in words])


@pytest.mark.parametrize("mode", ["lazy", "exact"])
def test_rows_are_learnt_and_forgotten(house, mode, capsys):
    place, X, y, model = house
    new = write_csv(place / "new.csv", X[120:], y[120:])
    (place / "ids.txt").write_text("3\n\n 7 \n119\n")
    more = "--add", new, "--label", "kind", "--forget", place / "ids.txt", "--mode", mode
    assert run(place, *more, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["learnt"] == 30
    assert told["forgotten"] == 3
    assert told["rows"] == 147
    assert told["mode"] == mode
    expected = model.update(X[120:], y[120:], forget=[3, 7, 119], mode=mode)
    found = load_estimator(told["out"]).load_state(told["state"])
    assert equal(found.ensemble_, expected.ensemble_)
    assert told["state"] == str(place / "new.state")
    assert os.stat(told["state"]).st_mode & 0o777 == 0o600
    # The next update goes on from there: numbers 120 to 149 are the rows just learnt.
    (place / "later.txt").write_text("\n".join(map(str, range(120, 150))))
    again = "--forget", place / "later.txt", "--mode", "exact"
    assert run(place, *again, model="new.timber", state="new.state", out="third.timber") == 0
    assert "learnt 0 rows, forgot 30; 117 are left" in capsys.readouterr().out
    left = np.setdiff1d(np.arange(120), [3, 7, 119])
    direct = TimberClassifier(max_iter=8, random_state=0, n_jobs=1).fit(X[:120], y[:120])
    direct.forget(np.setdiff1d(np.arange(120), left), mode="exact")
    assert equal(load_estimator(place / "third.timber").ensemble_, direct.ensemble_)


def test_rows_are_forgotten_by_value(house, capsys):
    place, X, y, model = house
    rows = write_csv(place / "gone.csv", X[:5], y[:5])
    assert run(place, "--forget", rows, "--label", "kind", "--mode", "exact") == 0
    expected = model.forget(X[:5], y[:5], mode="exact")
    assert equal(load_estimator(place / "new.timber").ensemble_, expected.ensemble_)
    assert "forgot 5; 115 are left" in capsys.readouterr().out


def test_weights_and_names_of_columns(house, capsys):
    place, X, y, _ = house
    import pandas

    named = TimberClassifier(max_iter=8, random_state=0).fit(
        pandas.DataFrame(X[:120], columns=NAMES), y[:120]
    )
    named.save(place / "named.timber")
    named.save_state(place / "named.state")
    weight = np.array([3.0, 0.0, 1.0])
    new = write_csv(place / "new.csv", X[120:123][:, ::-1], y[120:123], NAMES[::-1], weight)
    more = "--add", new, "--label", "kind", "--weight", "w"
    assert run(place, *more, model="named.timber", state="named.state") == 0
    assert "learnt 2 rows, forgot 0; 122 are left" in capsys.readouterr().out
    frame = pandas.DataFrame(X[120:123], columns=NAMES)
    expected = named.update(frame, y[120:123], weight)
    assert equal(load_estimator(place / "new.timber").ensemble_, expected.ensemble_)


def test_a_regressor(tmp_path, capsys):
    X, y = load_diabetes(return_X_y=True)
    X, names = X[:, :4], NAMES
    model = model_of(tmp_path, X[:300], y[:300], TimberRegressor)
    new = write_csv(tmp_path / "new.csv", X[300:310], y[300:310], names)
    (tmp_path / "ids.txt").write_text("0\n1\n")
    assert run(tmp_path, "--add", new, "--label", "kind", "--forget", tmp_path / "ids.txt") == 0
    expected = model.update(X[300:310], y[300:310], forget=[0, 1])
    assert equal(load_estimator(tmp_path / "new.timber").ensemble_, expected.ensemble_)
    assert "308 are left" in capsys.readouterr().out


def test_neither_scikit_learn_nor_pandas_is_imported(house):
    place, X, y, _ = house
    new = write_csv(place / "new.csv", X[120:], y[120:])
    (place / "ids.txt").write_text("3\n")
    words = ["update", place / "model.timber", "--state", place / "model.state", "--add", new]
    words += ["--label", "kind", "--forget", place / "ids.txt", "--out", place / "new.timber"]
    code = (
        "import sys; from timbermark.cli import main; code = main(sys.argv[1:]);"
        "print(code, sorted({'sklearn', 'pandas', 'pyarrow', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


BAD = {
    "nothing": ((), "nothing to learn and nothing to forget"),
    "no label": (("--add", "new.csv"), "--add needs the answers"),
    "weight alone": (("--forget", "ids.txt", "--weight", "w"), "--weight is for the rows of --add"),
    "mode": (("--forget", "ids.txt", "--mode", "quick"), "--mode quick is not known"),
    "no column": (("--add", "new.csv", "--label", "nix"), "no column 'nix'"),
    "no weights": (("--add", "new.csv", "--label", "kind", "--weight", "v"), "no column 'v'"),
    "new class": (("--add", "strange.csv", "--label", "kind"), "does not know the class 'pink'"),
    "new category": (("--add", "texts.csv", "--label", "kind"), "holds the text 'oak'"),
    "too wide": (("--add", "wide.csv", "--label", "kind"), "has 5 columns of features"),
    "infinite": (("--add", "infinite.csv", "--label", "kind"), "holds an infinite number"),
    "no rows": (("--add", "empty.csv", "--label", "kind"), "has no rows"),
    "no numbers": (("--forget", "none.txt"), "names no rows"),
    "twice": (("--forget", "twice.txt"), "Row 3 is to be forgotten twice"),
    "never learnt": (("--forget", "far.txt"), "There is no row 120 to forget"),
    "negative": (("--forget", "negative.txt"), "There is no row -1 to forget"),
    "unknown values": (("--forget", "unknown.csv", "--label", "kind"), "was never learnt"),
    "all of them": (("--forget", "all.txt"), "would leave the model without any"),
    "out is the model": (("--forget", "ids.txt", "--out", "model.timber"), "are the same file"),
    "state out is the state": (
        ("--forget", "ids.txt", "--state-out", "model.state"),
        "are the same file",
    ),
    "out exists": (("--forget", "ids.txt", "--out", "new.csv"), "exists already"),
    "another state": (("--forget", "ids.txt", "--state", "other.state"), "another model"),
    "no state": (("--forget", "ids.txt", "--state", "model.timber"), "not a state"),
    "no model": (("--forget", "ids.txt", "--model", "ids.txt"), "own engine"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_sentence_and_changes_nothing(house, what, capsys):
    place, X, y, _ = house
    write_csv(place / "new.csv", X[120:], y[120:])
    write_csv(place / "strange.csv", X[120:], np.full(30, "pink"))
    write_csv(place / "unknown.csv", X[:1] + 9, y[:1])
    (place / "texts.csv").write_text("a,b,c,d,kind\n1,2,3,oak,red\n")
    (place / "wide.csv").write_text("a,b,c,d,e,kind\n1,2,3,4,5,red\n")
    (place / "infinite.csv").write_text("a,b,c,d,kind\n1,2,3,inf,red\n")
    (place / "empty.csv").write_text("a,b,c,d,kind\n")
    (place / "none.txt").write_text("\n")
    (place / "ids.txt").write_text("3\n")
    (place / "twice.txt").write_text("3\n3\n")
    (place / "far.txt").write_text("120\n")
    (place / "negative.txt").write_text("-1\n")
    (place / "all.txt").write_text("\n".join(map(str, range(120))))
    other = TimberClassifier(max_iter=8, random_state=1).fit(X[:120], y[:120])
    other.save_state(place / "other.state")
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    words, sentence = BAD[what]
    options = {"--state": "model.state", "--out": "new.timber", "--model": "model.timber"}
    options |= dict(zip(words[::2], words[1::2], strict=True))
    model = options.pop("--model")
    files = ("--state", "--out", "--add", "--forget", "--state-out")
    flat = [x for k, v in options.items() for x in (k, str(place / v) if k in files else v)]
    assert main(["update", str(place / model), *flat]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert "Hint:" in said.err or "hint" in said.err.lower()
    assert said.out == ""
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before


def test_forgetting_a_row_again_is_refused(house, capsys):
    place, *_ = house
    (place / "ids.txt").write_text("3\n")
    more = "--forget", place / "ids.txt"
    assert run(place, *more) == 0
    assert run(place, *more, model="new.timber", state="new.state", out="third.timber") == 2
    assert "Row 3 was forgotten before" in capsys.readouterr().err
    assert not (place / "third.timber").exists()


def test_a_write_that_fails_leaves_the_old_files(house, monkeypatch, capsys):
    place, *_ = house
    (place / "ids.txt").write_text("3\n")
    (place / "new.timber").write_bytes(b"old model")
    (place / "new.state").write_bytes(b"old state")
    before = {p.name: p.read_bytes() for p in place.iterdir()}
    original = update_module.Path.replace

    def fails(path, target):
        if path.name == "model":
            raise OSError("no space left")
        return original(path, target)

    monkeypatch.setattr(update_module.Path, "replace", fails)
    assert run(place, "--forget", place / "ids.txt", "--force") != 0
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before
