import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from timbermark import TimberClassifier
from timbermark.cli import main


def write_csv(path, X, y, names):
    lines = [",".join([*names, "digit"])]
    lines += [
        ",".join([*(f"{v:g}" for v in row), str(label)]) for row, label in zip(X, y, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A model, its tables and a key, as a user has them."""
    place = tmp_path_factory.mktemp("house")
    X, y = load_digits(return_X_y=True)
    names = [f"p{i}" for i in range(64)]
    model = TimberClassifier(max_iter=40, random_state=0).fit(X[:1100], y[:1100])
    model.save(place / "model")
    model.save_state(place / "state")
    TimberClassifier(max_iter=40, random_state=1).fit(X[:1100], y[:1100]).save(place / "innocent")
    write_csv(place / "train.csv", X[:1100], y[:1100], names)
    write_csv(place / "more.csv", X[1100:1450], y[1100:1450], names)
    write_csv(place / "test.csv", X[1450:], y[1450:], names)
    assert main(["keygen", str(place / "key")]) == 0
    return place


def embed(house, out, *more):
    return main(
        ["embed", str(house / "model"), "--label", "digit", "--key", str(house / "key"),
         "--out", str(out / "marked"), "--mark", str(out / "mark"), "--owner", "Ann",
         "--candidates", str(house / "more.csv"), "--validation", str(house / "test.csv"),
         "--triggers", "40", "--max-accuracy-loss", "0.05", *more]
    )  # fmt: skip


def test_embed_then_verify(house, tmp_path, capsys):
    assert embed(house, tmp_path, "--state", str(house / "state")) == 0
    assert "80 bits embedded in 40 triggers, evidence 2^-80" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "marked"), str(tmp_path / "mark")]) == 0
    assert "marked: 40 of 40 symbols match" in capsys.readouterr().out
    for suspect in ("model", "innocent"):
        assert main(["verify", str(house / suspect), str(tmp_path / "mark"), "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["level"] == "none"
    assert main(["verify", str(tmp_path / "marked"), str(tmp_path / "mark"), "--table"]) == 0
    assert capsys.readouterr().out.count(" match") == 41


def test_state_is_rebuilt_from_training_rows(house, tmp_path, capsys):
    assert embed(house, tmp_path, "--train", str(house / "train.csv"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_triggers"] == 40


def test_existing_files_are_kept(house, tmp_path, capsys):
    (tmp_path / "marked").write_text("mine")
    assert embed(house, tmp_path, "--state", str(house / "state")) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "marked").read_text() == "mine"
    assert not (tmp_path / "mark").exists()


def test_plan_writes_nothing(house, tmp_path, capsys):
    arguments = ["plan", str(house / "model"), "--label", "digit", "--state", str(house / "state")]
    arguments += ["--candidates", str(house / "more.csv")]
    before = sorted(p.name for p in house.iterdir())
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["level"] == "public"
    assert main(arguments) == 0
    assert "triggers out of" in capsys.readouterr().out
    assert sorted(p.name for p in house.iterdir()) == before


def test_passphrases(house, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "timber")
    assert embed(house, tmp_path, "--state", str(house / "state"), "--passphrase") == 0
    verify = ["verify", str(tmp_path / "marked"), str(tmp_path / "mark")]
    assert main(verify) == 0
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "tinder")
    assert main(verify) == 2
    monkeypatch.delenv("TIMBERMARK_PASSPHRASE")
    assert main(verify) == 2
    assert "passphrase" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--label", "nothing"], "no column 'nothing'"),
        (["--triggers", "5000"], "more than 5 %"),
        (["--triggers", "some"], "n_triggers='some'"),
        (["--alphabet", "3"], "alphabet=3"),
        (["--strategy", "clever"], "strategy='clever'"),
        (["--selection", "best"], "selection='best'"),
        (["--max-accuracy-loss", "-1"], "max_accuracy_loss=-1"),
        (["--candidates", "absent.csv"], "No such file"),
    ],
)
def test_bad_input_makes_nothing(house, tmp_path, capsys, more, message):
    assert embed(house, tmp_path, "--state", str(house / "state"), *more) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("a,digit\n", "no rows"),
        ("a,a,digit\n1,2,3\n", "twice"),
        ("a,digit\n1\n", "1 cells in line 2"),
        ("a,digit\nx,3\n", "not numeric"),
        ("a,digit\n1,\n", "empty cells"),
        ("a,digit\n1,3\n", "1 features"),
        ("digit\n1\n", "no feature columns"),
    ],
)
def test_bad_tables(house, tmp_path, capsys, text, message):
    (tmp_path / "bad.csv").write_text(text)
    arguments = ["plan", str(house / "model"), "--label", "digit", "--state", str(house / "state")]
    assert main([*arguments, "--candidates", str(tmp_path / "bad.csv")]) == 2
    assert message in capsys.readouterr().err


def test_a_mark_of_one_model_says_nothing_of_another(house, tmp_path, capsys):
    assert embed(house, tmp_path, "--state", str(house / "state")) == 0
    rng = np.random.default_rng(0)
    whole = (tmp_path / "mark").read_bytes()
    for place in rng.integers(0, len(whole), 20):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "changed").write_bytes(changed)
        (tmp_path / "changed").chmod(0o600)
        assert main(["verify", str(tmp_path / "marked"), str(tmp_path / "changed")]) == 2
    assert "Hint:" in capsys.readouterr().err


def test_parquet_tables(house, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    for name in ("more", "test"):
        table = pandas.read_csv(house / f"{name}.csv")
        table.to_parquet(tmp_path / f"{name}.parquet")
    code = embed(
        house, tmp_path, "--state", str(house / "state"), "--candidates",
        str(tmp_path / "more.parquet"), "--validation", str(tmp_path / "test.parquet"),
    )  # fmt: skip
    assert code == 0
    assert main(["verify", str(tmp_path / "marked"), str(tmp_path / "mark")]) == 0
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    code = embed(
        house, tmp_path, "--state", str(house / "state"), "--force", "--candidates",
        str(tmp_path / "broken.parquet"),
    )  # fmt: skip
    assert code == 2
    assert "broken.parquet" in capsys.readouterr().err


def test_a_model_that_cannot_be_written_leaves_no_mark(house, tmp_path, capsys):
    (tmp_path / "marked").mkdir()
    assert embed(house, tmp_path, "--state", str(house / "state"), "--force") == 2
    assert not (tmp_path / "mark").exists()
    assert "is a folder" in capsys.readouterr().err
