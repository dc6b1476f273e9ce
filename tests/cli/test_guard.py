"""`timbermark guard`, `ledger`, `plan --guard` and `judge --chain`, as people use them."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import timbermark as tm
from tests.guard.conftest import make_cheap
from tests.ownership.authority import Authority, needs_openssl
from timbermark import serving
from timbermark.cli import main
from timbermark.guard import ledger_file
from timbermark.guard.drawing import guard_secret


@pytest.fixture(scope="module", autouse=True)
def cheap_guards():
    with pytest.MonkeyPatch.context() as patch:
        make_cheap(patch)
        yield


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A model's file, rows, an owner key, a guarded folder, and a student of its answers."""
    place = tmp_path_factory.mktemp("house")
    X, y = make_classification(1600, 6, n_informative=4, class_sep=0.4, random_state=0)
    model = tm.TimberClassifier(max_iter=12, random_state=0).fit(X[:400], y[:400])
    tm.save(model, place / "model.timber")
    lines = [",".join(map(repr, [*row, label])) for row, label in zip(X.tolist(), y, strict=True)]
    lines = [line.replace("np.int64(", "").replace(")", "") for line in lines]
    names = [f"x{i}" for i in range(6)]
    (place / "rows.csv").write_text("\n".join([",".join([*names, "label"]), *lines[400:]]) + "\n")
    tm.OwnerKey(bytes(range(32))).save(place / "owner.key")
    return place, X[400:]


@pytest.fixture
def served(house, run, tmp_path):
    place, X = house
    code, out, err = run(
        "guard", place / "model.timber", "--rows", place / "rows.csv", "--label", "label",
        "--key", place / "owner.key", "--owner", "Ann Ltd", "--share", "0.12",
        "--out", tmp_path / "guarded", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["drawn"] > 0.05
    model = serving.load_folder(tmp_path / "guarded")
    answers = model.predict(X, {"client": "acme"})
    model.predict(X[:50] + 0.1, {"client": "other"})
    model.guard.close()
    student = RandomForestClassifier(random_state=0).fit(X, answers)
    return tmp_path / "guarded" / "guard.db", student


def test_from_a_ledger_to_a_verdict(house, served, run, tmp_path):
    place, X = house
    ledger, student = served
    code, out, _ = run("ledger", ledger, "--json")
    facts = json.loads(out)
    assert code == 0
    assert [client["client"] for client in facts["clients"]] == ["acme", "other"]
    assert facts["clients"][0]["asked"] == len(X)
    assert facts["clients"][0]["bits"] > 64
    mark = tmp_path / "acme.mark"
    words = ("--client", "acme", "--key", place / "owner.key", "--out", mark)
    code, out, err = run("ledger", ledger, *words)
    assert code == 0, err
    assert "acme" in out
    verdict = tm.verify(student, mark)
    assert verdict.level == "conclusive"
    assert run("questions", mark, "--out", tmp_path / "questions.csv")[0] == 0
    assert run("verify", place / "model.timber", mark)[0] == 1


def test_inspect_shows_guards_ledgers_and_chains(house, served, run, tmp_path):
    ledger, _ = served
    _, X = house
    chain = tmp_path / "guard.chain"
    assert run("ledger", ledger, "--chain", chain)[0] == 0
    secret, found = ledger.with_name("guard.bin"), {}
    for path in (secret, ledger, chain):
        code, out, err = run("inspect", path, "--json")
        assert code == 0, err
        found[path] = json.loads(out)
        assert run("inspect", path)[0] == 0
    kinds = ["secret of a guard", "ledger of a guard", "chain of a guard"]
    assert [facts["kind"] for facts in found.values()] == kinds
    for path in (secret, ledger):
        assert (found[path]["owner"], found[path]["share"]) == ("Ann Ltd", 0.12)
    assert (found[ledger]["clients"], found[ledger]["questions"]) == (2, len(X) + 50)
    assert found[chain]["entries"] == found[ledger]["entries"] > 0
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\0 and something else")
    assert run("inspect", tmp_path / "other.db")[0] == 2


def test_without_a_stamp_no_question_is_before_one(house, served, run, tmp_path):
    place, _ = house
    ledger, _ = served
    key = tm.OwnerKey.load(place / "owner.key")
    secret = guard_secret(ledger_file.read_statement(ledger), key)
    with pytest.raises(tm.errors.InputError) as caught:
        ledger_file.read_questions(ledger, secret, stamped=True)
    assert (caught.value.code, caught.value.parameter) == ("ledger.not-stamped", "stamped")
    words = ("--key", place / "owner.key", "--out", tmp_path / "x", "--only-stamped")
    assert run("ledger", ledger, *words)[0] == 2
    assert not (tmp_path / "x").exists()


@needs_openssl
def test_a_judge_with_the_stamped_chain(house, served, run, tmp_path):
    place, _ = house
    ledger, student = served
    authority = Authority(tmp_path / "tsa")
    query, response = tmp_path / "head.tsq", tmp_path / "head.tsr"
    assert run("ledger", ledger, "--stamp", "--query", query)[0] == 0
    response.write_bytes(authority.stamp(query.read_bytes()))
    paths = {name: tmp_path / f"acme.{name}" for name in ("mark", "claim", "chain")}
    code, _, err = run(
        "ledger", ledger, "--response", response, "--client", "acme", "--key", place / "owner.key",
        "--out", paths["mark"], "--claim", paths["claim"], "--chain", paths["chain"],
        "--only-stamped",
    )  # fmt: skip
    assert code == 0, err
    words = ("--claim", paths["claim"], "--for", "Judy", "--out", tmp_path / "evidence")
    assert run("open", paths["mark"], *words, "--share", "1")[0] == 0
    (tmp_path / "root.pem").write_bytes(authority.root)
    stolen = tmp_path / "answers.csv"
    mark = tm.Mark.load(paths["mark"])
    assert run("questions", tmp_path / "evidence", "--out", tmp_path / "q.csv")[0] == 0
    import csv

    with open(tmp_path / "q.csv") as file:
        table = list(csv.DictReader(file))
    names = [name for name in table[0] if name != next(iter(table[0]))]
    rows = np.array([[float(row[name]) for name in names] for row in table])
    identity = next(iter(table[0]))
    with open(stolen, "w") as file:
        file.write(f"{identity},label\n")
        for row, label in zip(table, student.predict(rows), strict=True):
            file.write(f"{row[identity]},{label}\n")
    assert mark.is_guard
    judged = ("judge", tmp_path / "evidence", "--suspect", stolen, "--json")
    stamped = ("--chain", paths["chain"], "--roots", tmp_path / "root.pem")
    opinion = ("--rows", place / "rows.csv", "--label", "label")
    code, out, err = run(*judged, *stamped, *opinion)
    assert (code, json.loads(out)["level"]) == (0, "conclusive"), err
    for words in (opinion, stamped):
        code, out, _ = run(*judged, *words)
        assert (code, json.loads(out)["level"]) == (3, "indicative")


def test_a_mark_with_rows_knows_what_unguarded_students_say(served, house, run, tmp_path):
    ledger, _ = served
    place, _ = house
    words = ("ledger", ledger, "--client", "acme", "--key", place / "owner.key")
    more = ("--model", place / "model.timber", "--rows", place / "rows.csv", "--label", "label")
    assert run(*words, "--out", tmp_path / "plain.mark")[0] == 0
    code, _, err = run(*words, "--out", tmp_path / "known.mark", *more)
    assert code == 0, err
    found = [tm.Mark.load(tmp_path / f"{name}.mark").leaves for name in ("plain", "known")]
    assert [seal.alternatives.shape[1] for seal in found] == [0, 7]
    assert run(*words, "--out", tmp_path / "other.mark", *more[:2])[0] == 2


def test_the_lab_attacks_a_guarded_folder_and_leaves_its_ledger_alone(served, house, run):
    ledger, _ = served
    place, _ = house
    before = run("ledger", ledger, "--json")[1]
    words = ("attack", ledger.parent, "--rows", place / "rows.csv", "--label", "label")
    code, out, err = run(*words, "--attacks", "learn-labels:1,ask-sure:0.3", "--json")
    assert code == 0, err
    learnt, sure = json.loads(out)["rows"]
    assert learnt["label_bits"] > 20
    assert sure["label_bits"] < learnt["label_bits"]
    assert run("ledger", ledger, "--json")[1] == before
    assert run(*words, "--mark", place / "owner.key")[0] == 2
    assert run(*words, "--attacks", "refit")[0] == 2


def test_a_plan_of_a_guard(house, run):
    place, _ = house
    words = ("plan", place / "model.timber", "--guard", "--share", "0.05", "--label", "label")
    code, out, err = run(*words, "--validation", place / "rows.csv", "--json")
    assert code == 0, err
    assert 0.02 < json.loads(out)["drawn"] < 0.1
    assert run(*words)[0] == 2
    rows = ("--validation", place / "rows.csv")
    assert run("plan", place / "model.timber", "--share", "0.05", *rows)[0] == 2
    for more in (
        ("--attacks", "fast"), ("--share", "0"), ("--seals", "splits"), ("--max-changed", "0.02"),
        ("--method", "in-place"), ("--strategy", "cluster"), ("--seed", "3"),
    ):  # fmt: skip
        code, out, err = run(*words, *rows, *more)
        assert (code, out) == (2, ""), more
        assert more[0] in err


@pytest.mark.parametrize(
    "words",
    [
        ("--client", "acme"),
        ("--stamp",),
        ("--tsa", "http://localhost"),
        ("--out", "acme.mark"),
        ("--merge", "nowhere.db"),
        ("--key", "owner.key", "--out", "acme.mark", "--client", "nobody"),
        ("--response", "owner.key"),
    ],
)
def test_what_does_not_fit_is_refused(house, served, run, tmp_path, monkeypatch, words):
    ledger, _ = served
    monkeypatch.chdir(house[0])
    code, out, err = run("ledger", ledger, *words)
    assert (code, out) == (2, "")
    assert err.startswith("timbermark: ")


def test_a_file_that_is_no_ledger(house, run):
    assert run("ledger", house[0] / "rows.csv")[0] == 2
    assert run("ledger", house[0] / "nothing.db")[0] == 2
