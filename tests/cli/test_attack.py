import json

import pytest

import timbermark as tm
from tests.attacks.models import data, fitted, fitted_ranker, numbers, ranks
from tests.attacks.test_lab import marked
from tests.attacks.test_numbers import marked as marked_numbers
from timbermark.cli import main
from timbermark.ownership.keys import OwnerKey

NAMES = [f"c{i}" for i in range(10)]


def write_csv(path, X, y):
    rows = zip(X.tolist(), y.tolist(), strict=True)
    lines = [",".join([*NAMES, "kind"])]
    lines += [",".join([*map(repr, row), str(label)]) for row, label in rows]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A marked model, its mark, and a thief's rows."""
    place = tmp_path_factory.mktemp("lab")
    X, y = data()
    made = marked()
    made.model.save(place / "marked")
    made.mark.save(place / "mark")
    fitted("timbermark").save(place / "unmarked")
    write_csv(place / "train.csv", X[:600], y[:600])
    write_csv(place / "thief.csv", X[600:1200], y[600:1200])
    write_csv(place / "few.csv", X[600:650], y[600:650])
    write_csv(place / "strange.csv", X[600:1200], y[600:1200] + 1)
    lines = (place / "thief.csv").read_text().splitlines()
    (place / "narrow.csv").write_text("\n".join(line.partition(",")[2] for line in lines))
    OwnerKey.generate().save(place / "key")
    return place


def words(house, *more, model="marked", rows="thief.csv", label="kind"):
    return [
        "attack", str(house / model), "--mark", str(house / "mark"), "--rows", str(house / rows),
        "--label", label, *more,
    ]  # fmt: skip


def test_a_table_and_the_files(house, tmp_path, capsys):
    out = tmp_path / "lab"
    more = ["--attacks", "round-answers:1,majority", "--attacks", "add-trees", "--out", str(out)]
    assert main(words(house, *more)) == 0
    told = capsys.readouterr()
    shown = told.out
    # The thief has as many rows as the owner had.
    assert "Nothing could be stolen" in told.err
    assert "theft kept" not in shown
    assert "untouched" in shown
    assert "skipped: timbermark's own models do not train on" in shown
    assert {p.name for p in out.iterdir()} == {
        "results.csv", "lab.json", "chart.png", "chart.svg",
    }  # fmt: skip
    before = (out / "results.csv").stat().st_mtime_ns
    assert main(words(house, *more)) == 0
    assert (out / "results.csv").stat().st_mtime_ns == before


def test_json_for_machines(house, capsys):
    more = ["--attacks", "round-answers:1", "--evaluation", str(house / "train.csv"), "--json"]
    assert main(words(house, *more)) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["rows"][0]["attack"] == "round-answers"
    assert facts["rows"][0]["level"] == "conclusive"
    assert (facts["attack_rows"], facts["evaluation_rows"]) == (600, 600)


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({}, ["--attacks", "refitt"], "did you mean 'refit'"),
        ({}, ["--attacks", "refit:x"], "'x' is no strength"),
        ({"model": "unmarked"}, [], "The mark is not in the model"),
        ({"label": "knid"}, [], "no column 'knid'"),
        ({"rows": "strange.csv"}, [], "The label 4 is not one of the model's"),
        ({"rows": "narrow.csv"}, [], "does not fit the model"),
        ({"rows": "few.csv"}, [], "50 rows are too few"),
        ({"rows": "none.csv"}, [], "none.csv"),
    ],
)
def test_bad_input_is_one_sentence(house, capsys, monkeypatch, change, more, said):
    monkeypatch.setattr(
        "timbermark.attacks.lab.run_attacks", lambda *given: pytest.fail("too late")
    )
    assert main(words(house, *more, **change)) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Hint:" in shown.err
    assert shown.out == ""


def test_a_plan_attacks_a_rehearsed_mark(house, capsys, monkeypatch):
    plan = [
        "plan", str(house / "unmarked"), "--train", str(house / "train.csv"), "--label", "kind",
        "--max-changed", "off", "--max-drift", "off", "--max-accuracy-loss", "off",
        "--attacks", "round-answers:1",
    ]  # fmt: skip
    before = sorted(house.iterdir())
    assert main([*plan, "--validation", str(house / "thief.csv"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["attacks"]["rows"][0]["attack"] == "round-answers"
    assert sorted(house.iterdir()) == before
    monkeypatch.setattr(
        "timbermark.marking.embedding.plan", lambda *given, **more: pytest.fail("too late")
    )
    assert main(plan) == 2
    assert "--validation" in capsys.readouterr().err
    assert main([*plan, "--validation", str(house / "few.csv")]) == 2
    assert "50 validation rows are too few for attacks" in capsys.readouterr().err


def test_the_page_of_attacks(house, tmp_path, capsys):
    page = tmp_path / "page.html"
    more = ["--attacks", "round-answers:1", "--report", str(page)]
    assert main(words(house, *more)) == 0
    assert f"{page}: the page" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "Nothing could be stolen" in text
    assert "Evidence left and accuracy" in text
    assert "Evidence left and theft kept" not in text
    assert main(words(house, *more)) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(words(house, "--report", str(house / "mark"))) == 2
    assert "--mark and --report are the same file" in capsys.readouterr().err


def test_a_marking_is_attacked_at_once_and_its_page_shows_it(house, tmp_path, capsys):
    embed = [
        "embed", str(house / "unmarked"), "--train", str(house / "train.csv"), "--label", "kind",
        "--max-changed", "off", "--max-drift", "off", "--max-accuracy-loss", "off",
        "--key", str(house / "key"), "--owner", "Ann", "--out", str(tmp_path / "model"),
        "--mark", str(tmp_path / "mark"), "--report", str(tmp_path / "page.html"),
        "--attacks", "round-answers:1",
    ]  # fmt: skip
    assert main(embed) == 2
    assert "--validation" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main([*embed, "--validation", str(house / "thief.csv"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["attacks"]["rows"][0]["attack"] == "round-answers"
    text = (tmp_path / "page.html").read_text("utf-8")
    for title in ("What it costs", "Reliability", "What the mark is worth", "What it survives"):
        assert title in text
    # Everything else is refused before the work, the page as well.
    (tmp_path / "model").unlink()
    (tmp_path / "mark").unlink()
    assert main([*embed, "--validation", str(house / "thief.csv")]) == 2
    assert "--report" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]


def write_table(path, names, *parts):
    lines = [",".join(names)]
    lines += [",".join(map(repr, line)) for line in zip(*(p.tolist() for p in parts), strict=True)]
    path.write_text("\n".join(lines) + "\n")


def test_a_regressor_is_attacked(tmp_path, capsys):
    X, y = numbers()
    made = marked_numbers()
    tm.save(made.model, tmp_path / "model.txt")
    made.mark.save(tmp_path / "mark")
    names = [*(f"Column_{j}" for j in range(6)), "price"]
    write_table(tmp_path / "rows.csv", names, *X[1500:2000].T, y[1500:2000])
    more = [
        "attack", str(tmp_path / "model.txt"), "--mark", str(tmp_path / "mark"),
        "--rows", str(tmp_path / "rows.csv"), "--label", "price",
    ]  # fmt: skip
    assert main([*more, "--attacks", "average-own:0.5,dodge-unsure:0.05", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["measure"] == "rmse"
    assert facts["rows"][0]["label_bits"] is None
    assert facts["rows"][1]["skipped"] == "no-sureness"
    assert main([*more, "--group", "price"]) == 2
    assert "--group is for rankers" in capsys.readouterr().err


def test_a_ranker_is_attacked_with_groups(tmp_path, capsys):
    X, grade, group = ranks()
    made = tm.embed(
        fitted_ranker("lightgbm"), X[:1500], grade[:1500], groups=group[:1500],
        key=OwnerKey.generate(), owner="Ann", budget=tm.Budget(move=None, order=None, ndcg=None),
    )  # fmt: skip
    tm.save(made.model, tmp_path / "model.txt")
    made.mark.save(tmp_path / "mark")
    names = [*(f"Column_{j}" for j in range(6)), "grade", "query"]
    part = slice(1500, 2000)
    write_table(tmp_path / "rows.csv", names, *X[part].T, grade[part], group[part])
    more = [
        "attack", str(tmp_path / "model.txt"), "--mark", str(tmp_path / "mark"),
        "--rows", str(tmp_path / "rows.csv"), "--label", "grade", "--attacks", "refit:0.5",
    ]  # fmt: skip
    assert main([*more, "--group", "query", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["measure"] == "ndcg"
    assert facts["attack_rows"] == 300
    assert main(more) == 2
    assert "--group" in capsys.readouterr().err
