"""Many Parquet files on the command line: embed, plan, attack, questions, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.verification.making import learnt, make_mark
from tests.verification.servers import ModelServer
from timbermark.cli import main
from timbermark.ownership.keys import OwnerKey

NAMES = [f"x{i}" for i in range(6)]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A LightGBM model, its rows as CSV and in five files, and a key."""
    from lightgbm import LGBMClassifier

    place = tmp_path_factory.mktemp("house")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(8000, 6)), columns=NAMES)
    y = (X["x0"] * X["x1"] + X["x2"] + 0.7 * rng.normal(size=8000) > 0).astype(int)
    model = LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1).fit(X[:6000], y[:6000])
    model.booster_.save_model(place / "model.txt")
    table = X.assign(y=y)
    table[:6000].to_csv(place / "rows.csv", index=False)
    for folder, first, last in (("rows", 0, 6000), ("thief", 6000, 8000)):
        (place / folder).mkdir()
        for number, places in enumerate(np.array_split(np.arange(first, last), 5)):
            table.iloc[places].to_parquet(place / folder / f"p{number}.parquet")
    OwnerKey.generate().save(place / "key")
    return place


LIMITS = ["--max-changed", "0.1", "--max-accuracy-loss", "0.05", "--max-drift", "0.1"]
LIMITS += ["--max-auc-loss", "0.05", "--n-triggers", "96"]


def plan(house, train, *more):
    words = ["plan", str(house / "model.txt"), "--train", str(house / train), "--label", "y"]
    return main([*words, *LIMITS, *more])


def test_files_are_marked_verified_and_attacked(house, tmp_path, capsys):
    words = ["embed", str(house / "model.txt"), "--train", str(house / "rows" / "*.parquet")]
    words += ["--label", "y", "--key", str(house / "key"), "--owner", "Ann Ltd", *LIMITS]
    out, mark = tmp_path / "marked.txt", tmp_path / "mark"
    assert main([*words, "--out", str(out), "--mark", str(mark)]) == 0
    assert main(["verify", str(out), str(mark)]) == 0
    capsys.readouterr()
    words = ["attack", str(out), "--mark", str(mark), "--rows", str(house / "thief" / "*.parquet")]
    words += ["--label", "y", "--attacks", "round-answers:2", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert "round-answers" in json.dumps(found)
    asked = tmp_path / "questions.csv"
    words = ["questions", str(mark), "--out", str(asked), "--decoys-from", str(house / "thief")]
    assert main(words) == 0
    known = pd.concat(map(pd.read_parquet, (house / "thief").glob("*.parquet")))
    assert pd.read_csv(asked)["x0"].isin(known["x0"]).mean() > 0.1


def test_files_give_the_plan_of_one_table(house, capsys):
    assert plan(house, "rows.csv", "--json") == 0
    expected = json.loads(capsys.readouterr().out)
    for train in ("rows", "rows/*.parquet"):
        assert plan(house, train, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found == expected


@pytest.fixture
def cluster():
    """A scheduler with one worker, threads of this process, that an address reaches."""
    from distributed import LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": 50, "protocol": "tcp://"}
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet) as made:
        yield made


@pytest.fixture
def clients(monkeypatch):
    """Where every pass runs: the address of a scheduler, or None for threads."""
    from timbermark.partitions import dask_tables

    original, found = dask_tables.find_client, []

    def find():
        client = original()
        found.append(None if client is None else client.scheduler.address)
        return client

    monkeypatch.setattr(dask_tables, "find_client", find)
    return found


def test_a_cluster_gives_the_plan_of_one_table(house, capsys, cluster, clients):
    assert plan(house, "rows", "--scheduler", cluster.scheduler_address, "--json") == 0
    assert set(clients) == {cluster.scheduler_address}
    found = json.loads(capsys.readouterr().out)
    assert plan(house, "rows.csv", "--json") == 0
    assert found == json.loads(capsys.readouterr().out)


def test_attacks_on_a_new_mark_run_on_the_cluster(house, tmp_path, cluster, clients):
    words = ["embed", str(house / "model.txt"), "--train", str(house / "rows"), "--label", "y"]
    words += ["--validation", str(house / "thief"), "--key", str(house / "key"), "--owner", "Ann"]
    words += ["--out", str(tmp_path / "o.txt"), "--mark", str(tmp_path / "mark"), *LIMITS]
    words += ["--attacks", "round-answers:2", "--scheduler", cluster.scheduler_address]
    assert main(words) == 0
    assert set(clients) == {cluster.scheduler_address}


def test_decoys_of_verify_are_read_on_the_cluster(tmp_path, capsys, cluster, clients):
    mark = make_mark(k=128)
    mark.save(tmp_path / "mark")
    (tmp_path / "rows").mkdir()
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["f0", "f1", "f2"])
    rows.to_parquet(tmp_path / "rows" / "p0.parquet")
    address = cluster.scheduler_address
    with ModelServer(learnt(mark)) as server:
        words = ["verify", server.url(), str(tmp_path / "mark"), "--stop-at", "20"]
        for given in ("rows", "rows/*.parquet", "rows/p0.parquet"):
            clients.clear()
            flags = ["--decoys-from", str(tmp_path / given), "--scheduler", address]
            assert main([*words, *flags]) == 3
            assert set(clients) == {address}
        rows.to_csv(tmp_path / "rows.csv", index=False)
        for flags in ([], ["--decoys-from", str(tmp_path / "rows.csv")]):
            capsys.readouterr()
            said = refused(capsys, main([*words, *flags, "--scheduler", address]))
            assert "--scheduler is for Parquet" in said


def refused(capsys, code):
    assert code == 2
    said = capsys.readouterr().err
    assert "Hint:" in said
    return said


def test_what_cannot_be_is_refused_and_nothing_written(house, tmp_path, capsys, monkeypatch):
    from timbermark.partitions import passes

    monkeypatch.setattr(passes, "_PATIENCE", "1s")
    assert "No file matches" in refused(capsys, plan(house, "rows/*.pq"))
    said = refused(capsys, plan(house, "rows.csv", "--scheduler", "tcp://127.0.0.1:9"))
    assert "--scheduler is for Parquet" in said
    said = refused(capsys, plan(house, "rows", "--scheduler", "tcp://127.0.0.1:9"))
    assert "does not answer" in said
    words = ["embed", str(house / "model.txt"), "--train", str(house / "rows"), "--label", "none"]
    words += ["--key", str(house / "key"), "--owner", "Ann", "--out", str(tmp_path / "o.txt")]
    assert "no column 'none'" in refused(capsys, main([*words, "--mark", str(tmp_path / "m")]))
    assert list(tmp_path.iterdir()) == []


def test_a_label_that_one_file_has_wrong_is_found(house, tmp_path, capsys):
    for path in (house / "rows").iterdir():
        table = pd.read_parquet(path)
        if path.name == "p3.parquet":
            table.iloc[7, -1] = 9
        table.to_parquet(tmp_path / path.name)
    said = refused(capsys, plan(house, tmp_path))
    assert "p3.parquet" in said
    assert "9" in said


@pytest.mark.parametrize("train", ["rows", "rows/*.parquet"])
def test_no_file_of_the_rows_is_overwritten(house, capsys, train):
    one = house / "rows" / "p3.parquet"
    before = one.read_bytes()
    words = ["embed", str(house / "model.txt"), "--train", str(house / train), "--label", "y"]
    words += ["--key", str(house / "key"), "--owner", "Ann Ltd", "--force"]
    words += ["--out", str(house / "marked.txt"), "--mark", str(one)]
    assert main(words) == 2
    assert "one of the files of --train" in " ".join(capsys.readouterr().err.split())
    assert one.read_bytes() == before
