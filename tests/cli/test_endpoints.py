import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import timbermark
from tests.verification.making import innocent, learnt, make_mark
from tests.verification.servers import ModelServer
from timbermark.cli import main
from timbermark.cli.options import read_body
from timbermark.errors import InputError

MARK = make_mark(k=128)


@pytest.fixture
def mark(tmp_path):
    MARK.save(tmp_path / "mark")
    return tmp_path / "mark"


def verify(*words):
    return main(["verify", *map(str, words)])


def test_an_endpoint_from_the_command_line(mark, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "open-sesame")
    (tmp_path / "headers").write_text("X-Api-Key: header-secret\n\n")
    journal = tmp_path / "journal"
    flags = ["--journal", journal, "--token-env", "MY_TOKEN", "--headers-file",
             tmp_path / "headers", "--batch", 4, "--decoys", 2, "--rate", 60000]  # fmt: skip
    with ModelServer(learnt(MARK), token="open-sesame") as server:
        assert verify(server.url(), mark, *flags, "--json") == 3  # a token caps the level
        facts = json.loads(capsys.readouterr().out)
        assert (facts["level"], facts["kind"]) == ("indicative", "labels")
        assert server.headers[0]["X-Api-Key"] == "header-secret"
        before = server.requests
        assert verify(server.url(), mark, *flags) == 3
        assert server.requests == before
    capsys.readouterr()
    assert main(["inspect", str(journal), "--json"]) == 0
    shown = capsys.readouterr().out
    seen = json.loads(shown)
    assert seen["kind"] == "journal"
    assert seen["owner"] == "Ann Owner"
    assert seen["mark_digest"] == MARK.digest.hex()
    assert seen["model_digest"] == MARK.model_digest
    assert seen["suspect"] == server.url()
    assert seen["level"] == "indicative"
    assert seen["bits"] == facts["bits"]
    answered = sum(seal["answered"] for seal in facts["seals"])
    assert seen["asked"] == seen["answered"] >= answered
    for secret in ("open-sesame", "header-secret", MARK.secret.hex()):
        assert secret not in shown
        assert secret.encode() not in journal.read_bytes()
    assert main(["inspect", str(journal)]) == 0


def test_levels_are_exit_codes_and_templates_come_from_files(mark, tmp_path, capsys):
    (tmp_path / "body.json").write_text('{"records": "$records"}')
    flags = ["--protocol", "json", "--body", f"@{tmp_path / 'body.json'}", "--answer",
             "results.*.label", "--batch", 16]  # fmt: skip
    with ModelServer(learnt(MARK)) as server:
        assert verify(server.url("/many"), mark, *flags, "--stop-at", 20) == 3
        server.answer = innocent(MARK)
        assert verify(server.url("/many"), mark, *flags) == 1
    capsys.readouterr()


def test_questions_and_answers_as_files(mark, tmp_path, capsys):
    out, answers = tmp_path / "questions.csv", tmp_path / "answers.csv"
    assert main(["questions", str(mark), "--out", str(out), "--decoys", "2"]) == 0
    shown = capsys.readouterr().out
    assert "384 questions" in shown
    table = pd.read_csv(out)
    said = learnt(MARK)(table[["f0", "f1", "f2"]].to_numpy(dtype=object))
    table.assign(label=said)[["question", "label"]].sample(frac=1).to_csv(answers, index=False)
    assert verify(answers, mark) == 0
    assert "a table of answers" in capsys.readouterr().out
    assert main(["questions", str(mark), "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    rows = tmp_path / "rows.csv"
    table[["f2", "f1", "f0"]].to_csv(rows, index=False)
    words = ["questions", str(mark), "--out", str(out), "--force", "--decoys-from", str(rows)]
    assert main([*words, "--columns", "f2,f0,f1"]) == 0
    assert list(pd.read_csv(out).columns) == ["question", "f2", "f0", "f1"]


@pytest.mark.parametrize(
    ("suspect", "flags", "said"),
    [
        ("http://host/score", [], "does not tell the protocol"),
        ("http://host/score", [], "--protocol mlflow"),
        ("http://host/invocations", ["--decoys", "-1"], "--decoys -1"),
        ("http://host/invocations", ["--stop-at", "soon"], "--stop-at soon"),
        ("http://host/invocations", ["--stop-at", "0"], "--stop-at 0"),
        ("http://host/invocations", ["--batch", "0"], "--batch 0"),
        ("http://host/invocations", ["--rate", "0"], "--rate 0"),
        ("http://host/invocations", ["--token-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
        ("http://host/invocations", ["--token-file", "nowhere"], "nowhere"),
        ("http://host/invocations", ["--body", "{"], "no JSON"),
        ("http://host/invocations", ["--columns", "a,b"], "2 columns are named"),
        ("http://host/invocations", ["--columns", "a,b,c"], "ask in Python through a function"),
        ("http://host/invocations", ["--output", "o"], "--output is no option of --protocol"),
        ("http://host/invocations", ["--output", "o"], "it takes --answer …."),
        ("http://host/invocations", ["--label-map", "a"], "--label-map a does not say once"),
        ("http://host/invocations", ["--label-map", "a=9"], "--label-map does not give"),
        ("http://me:pw@host/invocations", [], "name or a password"),
        ("{mark}", ["--batch", "3"], "--batch is for endpoints"),
        ("{mark}", ["--journal", "j"], "--journal is for endpoints"),
        ("{mark}", ["--stop-at", "9"], "--stop-at is for endpoints"),
    ],
)
def test_bad_input_is_one_sentence_in_the_words_of_the_command_line(
    mark, capsys, suspect, flags, said
):
    if suspect == "{mark}":
        other = mark.with_name("model.csv")
        other.write_text("question,label\nx,1\n")
        suspect = other
    assert verify(suspect, mark, *flags) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Hint: " in error
    assert "Traceback" not in error


def test_labels_are_translated_by_a_map(mark, tmp_path, capsys):
    """The hint said to translate labels, and the command line had nothing for it."""
    table, labels = tmp_path / "answers.csv", "abcdef"
    assert main(["questions", str(mark), "--out", str(tmp_path / "q.csv"), "--decoys", "0"]) == 0
    asked = pd.read_csv(tmp_path / "q.csv")
    said = learnt(MARK)(asked[["f0", "f1", "f2"]].to_numpy(dtype=object))
    answers = asked[["question"]].assign(label=[labels[MARK.classes.index(one)] for one in said])
    answers.to_csv(table, index=False)
    assert verify(table, mark) == 2
    assert "give --label-map theirs=yours" in capsys.readouterr().err
    words = ",".join(f"{a}={b}" for a, b in zip(labels, MARK.classes, strict=True))
    assert verify(table, mark, "--label-map", words) == 0
    assert "9.5 bits for a map of 6 labels" in capsys.readouterr().out


def test_names_with_blanks_are_those_that_lightgbm_wrote_with_underscores(tmp_path, capsys):
    mark = make_mark(k=64, feature_names=("p_0", "p_1", "p_2"))
    mark.save(tmp_path / "mark")
    out, words = tmp_path / "q.csv", ["--columns", "p 2,p 0,p 1", "--decoys", "0"]
    assert main(["questions", str(tmp_path / "mark"), "--out", str(out), *words]) == 0
    asked = pd.read_csv(out)
    assert list(asked.columns) == ["question", "p 2", "p 0", "p 1"]
    said = learnt(mark)(asked[["p 0", "p 1", "p 2"]].to_numpy(dtype=object))
    # Whatever the column of answers is called, those of the questions are not taken for it.
    asked.assign(said=said).to_csv(tmp_path / "answers.csv", index=False)
    assert verify(tmp_path / "answers.csv", tmp_path / "mark") == 0


def test_secrets_that_are_not_sound_are_not_shown(mark, tmp_path, capsys):
    (tmp_path / "headers").write_text("hidden-secret without a colon\n")
    assert verify("http://h/invocations", mark, "--headers-file", tmp_path / "headers") == 2
    (tmp_path / "token").write_text("hidden-secret\nin two lines")
    assert verify("http://h/invocations", mark, "--token-file", tmp_path / "token") == 2
    assert "hidden-secret" not in capsys.readouterr().err


def test_a_damaged_journal_is_refused_by_inspect_and_verify(mark, tmp_path, capsys):
    journal = tmp_path / "journal"
    with ModelServer(learnt(MARK)) as server:
        assert verify(server.url(), mark, "--journal", journal) == 0
        whole = journal.read_bytes()
        journal.write_bytes(whole.replace(b'"answers":[["', b'"answers":[["b', 1))
        assert main(["inspect", str(journal)]) == 2
        assert verify(server.url(), mark, "--journal", journal) == 2
        assert capsys.readouterr().err.count("is damaged") == 2
        journal.write_bytes(b"timbermark mark 2\n")
        assert verify(server.url(), mark, "--journal", journal) == 2
        assert journal.read_bytes() == b"timbermark mark 2\n"


def test_a_full_disk_loses_nothing(mark, tmp_path, real_scrypt):
    """A real limit on the size of files: the run stops, and goes on when there is room."""
    journal = tmp_path / "journal"
    here = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}

    def run(limit):
        return subprocess.run(
            [sys.executable, "-m", "timbermark", "verify", server.url(), str(mark), "--journal",
             str(journal), "--decoys", "0", "--json"],
            env=here, capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip

    with ModelServer(learnt(make_mark(k=128))) as server:
        stopped = run(4000)
        assert stopped.returncode == 2
        assert "cannot be written" in stopped.stderr
        assert len(stopped.stderr.splitlines()) == 2
        assert 0 < len(server.asked) < 34
        ended = run(1 << 30)
        assert ended.returncode == 0
    assert [seal["answered"] for seal in json.loads(ended.stdout)["seals"]] == [34]
    assert set(server.asked.values()) == {1}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "{'a': 1}"])
def test_templates_that_are_no_json(text):
    with pytest.raises(InputError) as caught:
        read_body(text)
    assert (caught.value.code, caught.value.parameter) == ("template", "body")
