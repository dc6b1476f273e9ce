"""Regressors and rankers on the command line, from their files and from tables."""

import json

import numpy as np
import pytest

from timbermark import OwnerKey
from timbermark.cli import main

lgb = pytest.importorskip("lightgbm")
NAMES = [f"x{i}" for i in range(5)]


def write_table(path, X, y, group):
    lines = [",".join([*NAMES, "y", "query"])]
    lines += [
        ",".join([*(f"{v:.6g}" for v in row), f"{target:.6g}", f"q{g}"])
        for row, target, g in zip(X, y, group, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A regressor, a ranker with and one without names, their tables and a key."""
    place = tmp_path_factory.mktemp("house")
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(2000, 5)), 3)
    y = 10.0 + 3.0 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=2000)
    grade = np.clip(np.rint(y / 3.0 - 2.0), 0, 4)
    group = np.repeat(np.arange(100), 20)
    quiet = {"n_estimators": 30, "n_jobs": 1, "verbose": -1}
    import pandas as pd

    table = pd.DataFrame(X, columns=NAMES)
    lgb.LGBMRegressor(**quiet).fit(table, y).booster_.save_model(place / "model.txt")
    ranker = lgb.LGBMRanker(**quiet)
    sizes = np.bincount(group)
    ranker.fit(table, grade, group=sizes).booster_.save_model(place / "ranker.txt")
    ranker.fit(X, grade, group=sizes).booster_.save_model(place / "nameless.txt")
    write_table(place / "rows.csv", X, y, group)
    write_table(place / "graded.csv", X, grade, group)
    OwnerKey.generate().save(place / "key")
    return place


def embed(house, out, model, table, *more):
    return main([
        "embed", str(house / model), "--train", str(house / table), "--label", "y",
        "--key", str(house / "key"), "--owner", "Ann Ltd", "--out", str(out / "marked.txt"),
        "--mark", str(out / "secret.mark"), *more,
    ])  # fmt: skip


def test_a_regressor_is_marked_and_verified_from_its_file(house, tmp_path, capsys):
    assert embed(house, tmp_path, "model.txt", "rows.csv") == 0
    said = capsys.readouterr().out
    assert "RMSE" in said
    assert "triggers in splits" in said
    mark = str(tmp_path / "secret.mark")
    assert main(["verify", str(tmp_path / "marked.txt"), mark, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["level"]) == ("numbers", "conclusive")
    assert main(["verify", str(house / "model.txt"), mark]) == 1
    capsys.readouterr()
    assert main(["inspect", mark, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["answers"], facts["classes"]) == ("numbers", None)
    assert main(["inspect", str(house / "model.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "regression"


@pytest.mark.parametrize("model", ["ranker.txt", "nameless.txt"])
def test_a_ranker_is_planned_with_its_groups(house, capsys, model):
    arguments = ["plan", str(house / model), "--train", str(house / "graded.csv"), "--label", "y"]
    assert main([*arguments, "--group", "query", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bits"] >= 64
    figures = {one["code"]: one for one in facts["cost"]["figures"]}
    assert 0.5 < figures["ndcg"]["before"] <= 1.0
    assert figures["ndcg"]["rows"] == "training"
    assert "rmse" not in figures


REFUSED = {
    "group of a regressor": (["--group", "query"], "--group is for rankers"),
    "a limit of classifiers": (["--max-changed", "0.5"], "--max-changed is a limit for"),
    "a limit of rankers": (["--max-ndcg-loss", "0.5"], "--max-ndcg-loss is a limit for"),
    "no number": (["--max-move", "much"], "--max-move much must be off or"),
    "the seal of classifiers": (["--seals", "leaves"], "only splits can carry"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_ends_in_one_sentence_and_changes_nothing(house, tmp_path, capsys, case):
    more, said = REFUSED[case]
    assert embed(house, tmp_path, "model.txt", "rows.csv", *more) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_groups_need_a_column_and_a_relevance(house, capsys):
    arguments = ["plan", str(house / "ranker.txt"), "--train", str(house / "graded.csv")]
    assert main([*arguments, "--group", "query"]) == 2
    assert "--label" in capsys.readouterr().err
    assert main([*arguments, "--label", "y", "--group", "session"]) == 2
    assert "no column 'session'" in capsys.readouterr().err
