import csv
import json

import numpy as np
import pytest

import timbermark as tm
from tests.tracing.making import NAMES, rows, train
from timbermark.cli import main
from timbermark.tracing.roll import Roll


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("copies")
    X, y = rows()
    tm.save(train(), place / "model.timber")
    tm.OwnerKey(bytes(range(32))).save(place / "owner.key")
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(6)), "y"])
        writer.writerows([*map(float, row), label] for row, label in zip(X, y, strict=True))
    (place / "names.txt").write_text("\n".join(NAMES), encoding="utf-8")
    code = main([
        "copies", str(place / "model.timber"), "--train", str(place / "rows.csv"), "--label", "y",
        "--customers", str(place / "names.txt"), "--key", str(place / "owner.key"), "--owner",
        "Ann Ltd", "--out", str(place / "out"), "--roll", str(place / "secret.roll"), "--mark",
        str(place / "secret.mark"),
    ])  # fmt: skip
    assert code == 0
    return place


def ask(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def test_copies_are_written_verified_and_traced(folder, capsys, tmp_path):
    files = sorted(path.name for path in (folder / "out").iterdir())
    assert {"Bob-Ltd.timber", "Eve-Inc.timber"} <= {*files}
    leaked = folder / "out" / "Eve-Inc.timber"
    assert ask(capsys, "verify", leaked, folder / "secret.mark")[0] == 0
    assert ask(capsys, "verify", leaked, folder / "secret.roll")[0] == 0
    page = tmp_path / "page.html"
    code, said = ask(capsys, "trace", leaked, folder / "secret.roll", "--json", "--report", page)
    assert code == 0
    assert json.loads(said.out)["leakers"] == ["Eve Inc"]
    text = page.read_text(encoding="utf-8")
    assert "Eve Inc" in text
    assert page.stat().st_mode & 0o077 == 0
    assert ask(capsys, "trace", folder / "model.timber", folder / "secret.roll")[0] == 1


def test_inspect_shows_rolls_and_what_is_made_of_them(folder, capsys, tmp_path):
    roll, claim, part = folder / "secret.roll", tmp_path / "claim", tmp_path / "part"
    key = ("--key", folder / "owner.key")
    assert ask(capsys, "roll", "claim", roll, *key, "--out", claim)[0] == 0
    words = ("--claim", claim, "--customer", "Eve Inc", "--for", "Judge Judy", "--out", part)
    assert ask(capsys, "roll", "open", roll, *words)[0] == 0
    kinds = []
    for path in (roll, claim, part):
        code, said = ask(capsys, "inspect", path, "--json")
        assert code == 0
        facts = json.loads(said.out)
        kinds.append(facts["kind"])
        assert (facts["owner"], facts.get("customers", 3)) == ("Ann Ltd", 3)
        assert facts["boundaries"] == Roll.load(roll).n_boundaries
        assert Roll.load(roll).token("Eve Inc").hex() not in said.out
        assert "Eve" not in said.out
        code, said = ask(capsys, "inspect", path)
        assert "Ann Ltd" in said.out
    assert kinds == ["roll", "claim of a roll", "opening of a roll"]


def test_inspect_says_that_a_roll_is_encrypted(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("TIMBERMARK_PASSPHRASE", raising=False)
    Roll.load(folder / "secret.roll").save(tmp_path / "secret.roll", "open sesame")
    code, said = ask(capsys, "inspect", tmp_path / "secret.roll", "--json")
    assert code == 0
    facts = json.loads(said.out)
    assert (facts["kind"], facts["encrypted"], "owner" in facts) == ("roll", True, False)


def test_a_folder_is_made_for_copies_only_when_they_are(folder, capsys, tmp_path):
    out, roll = tmp_path / "copies", tmp_path / "secret.roll"
    words = [
        "copies", folder / "model.timber", "--train", folder / "rows.csv", "--label", "y",
        "--key", folder / "owner.key", "--owner", "Ann Ltd", "--roll", roll, "--mark",
        tmp_path / "secret.mark",
    ]  # fmt: skip
    (tmp_path / "one.txt").write_text("Bob Ltd\n")
    before = sorted(tmp_path.iterdir())
    given = (*words, "--customers", tmp_path / "one.txt")
    assert ask(capsys, *given, "--out", tmp_path / "no" / "copies")[0] == 2
    assert ask(capsys, *given, "--out", tmp_path / "one.txt")[0] == 2
    assert ask(capsys, *given, "--out", out, "--max-changed", "0")[0] == 2
    assert ask(capsys, *given, "--out", out, "--colluders", "8")[0] == 2
    assert sorted(tmp_path.iterdir()) == before
    code, said = ask(capsys, *given, "--out", out)
    assert code == 0
    assert [path.name for path in out.iterdir()] == ["Bob-Ltd.timber"]
    assert said.out.startswith("1 copy,")
    assert f"{tmp_path / 'secret.mark'}: " in said.out
    # Each note and warning once.
    told = [line for line in said.out.splitlines() if line.startswith(("Note: ", "Warning: "))]
    assert len(told) == len({*told}) > 0
    assert not any(line.partition(": ")[2] in said.err for line in told)


def test_limits_on_the_cost_are_those_of_embed(folder, capsys, tmp_path):
    words = [
        "copies", folder / "model.timber", "--train", folder / "rows.csv", "--label", "y",
        "--customers", folder / "names.txt", "--key", folder / "owner.key", "--owner", "Ann Ltd",
        "--out", tmp_path, "--roll", tmp_path / "secret.roll",
    ]  # fmt: skip
    code, said = ask(capsys, *words, "--max-changed", "2")
    assert code == 2
    assert "--max-changed" in said.err
    assert not list(tmp_path.iterdir())
    # Unseen rows lie between the values of training rows, where thresholds move.
    code, said = ask(capsys, *words, "--max-drift", "1e-12")
    assert code == 2
    assert "limits" in said.err
    code, said = ask(capsys, *words, "--max-drift", "0.005", "--json")
    assert code == 0
    drift = [f for f in json.loads(said.out)["mark"]["cost"]["figures"] if f["code"] == "drift"]
    # Other rows report than those that judge: where they change more, a note says so.
    change = drift[0]["change"]
    assert change < 6e-3
    notes = json.loads(said.out)["mark"]["notes"]
    warned = ("beyond_limit", "drift") in [(note["code"], note["name"]) for note in notes]
    assert warned == (change > 5e-3)
    assert "note:" not in said.err


def test_a_customer_is_added_and_nobody_twice(folder, capsys, tmp_path):
    roll = tmp_path / "secret.roll"
    roll.write_bytes((folder / "secret.roll").read_bytes())
    roll.chmod(0o600)
    base = folder / "out" / "Bob-Ltd.timber"
    given = ("copies", base, "--roll", roll, "--out", tmp_path, "--add", "New Plc")
    code, said = ask(capsys, *given, "--json")
    assert code == 0
    assert json.loads(said.out)["customers"] == ["New Plc"]
    code, said = ask(capsys, "trace", tmp_path / "New-Plc.timber", roll, "--json")
    assert json.loads(said.out)["leakers"] == ["New Plc"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["New-Plc.timber", "secret.roll"]
    assert ask(capsys, *given, "--force")[0] == 2
    before = roll.read_bytes()
    other = ("copies", folder / "model.timber", *given[2:-1], "Other")
    assert ask(capsys, *other)[0] == 2
    assert roll.read_bytes() == before


def test_a_judge_is_shown_one_customers_part(folder, capsys, tmp_path):
    claim, part = tmp_path / "roll.claim", tmp_path / "eve.opening"
    roll, key = folder / "secret.roll", folder / "owner.key"
    assert ask(capsys, "roll", "claim", roll, "--key", key, "--out", claim)[0] == 0
    shown = ("--customer", "Eve Inc", "--for", "Judy", "--out", part)
    assert ask(capsys, "roll", "open", roll, "--claim", claim, *shown)[0] == 0
    judged = ("--claim", claim, "--for", "Judy", "--json")
    code, said = ask(capsys, "trace", folder / "out" / "Eve-Inc.timber", part, *judged)
    assert code == 0
    assert json.loads(said.out)["accused"] == "Eve Inc"
    assert ask(capsys, "trace", folder / "out" / "Bob-Ltd.timber", part, *judged)[0] == 1
    unknown = ("--customer", "Mallory", "--for", "Judy", "--out", tmp_path / "x")
    assert ask(capsys, "roll", "open", roll, "--claim", claim, *unknown)[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--customers", "names.txt", "--add", "Bob"),
        (),
        ("--customers", "names.txt"),
        ("--customers", "names.txt", "--key", "owner.key", "--train", "rows.csv", "--owner", ""),
    ],
)
def test_bad_input_is_refused(folder, capsys, tmp_path, words):
    given = [str(folder / word) if (folder / word).is_file() else word for word in words]
    code, said = ask(
        capsys, "copies", folder / "model.timber", "--roll", tmp_path / "new.roll", "--out",
        tmp_path, *given,
    )  # fmt: skip
    assert code == 2
    assert "Hint" in said.err
    assert not (tmp_path / "new.roll").exists()


def test_questions_of_a_roll_are_answered_in_a_table(folder, capsys, tmp_path):
    asked, answered = tmp_path / "questions.csv", tmp_path / "answers.csv"
    assert ask(capsys, "questions", folder / "secret.roll", "--out", asked)[0] == 0
    with asked.open() as file:
        head, *lines = list(csv.reader(file))
    model = tm.load(folder / "out" / "Bob-Ltd.timber")
    scores = model.predict_proba(np.array([line[1:] for line in lines], float))
    with answered.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([head[0], "0", "1"])
        pairs = zip(lines, scores, strict=True)
        writer.writerows([line[0], *map(float, row)] for line, row in pairs)
    assert ask(capsys, "trace", answered, folder / "secret.roll")[0] == 0


def test_an_encrypted_roll_stays_encrypted_when_a_customer_is_added(
    folder, capsys, tmp_path, monkeypatch
):
    roll = tmp_path / "secret.roll"
    Roll.load(folder / "secret.roll").save(roll, "open sesame")
    given = ("copies", folder / "out" / "Bob-Ltd.timber", "--roll", roll, "--out", tmp_path)
    assert ask(capsys, *given, "--add", "New Plc")[0] == 2
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "open sesame")
    assert ask(capsys, *given, "--add", "New Plc")[0] == 0
    assert "New Plc" in Roll.load(roll, "open sesame").customers
