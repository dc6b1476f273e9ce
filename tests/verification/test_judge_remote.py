"""The judge asks suspects that are not at hand: behind HTTP, or through a table of answers."""

import csv
import json

import numpy as np
import pytest

from tests.verification.servers import ModelServer
from tests.verification.staircases import build_house, scores, staircase
from timbermark.cli import main
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership import Opening
from timbermark.verification.endpoint import Endpoint
from timbermark.verification.judge import judge
from timbermark.verification.packs import OPENING
from timbermark.verification.table import id_column
from timbermark.verification.transcript import Transcript


@pytest.fixture
def ann(tmp_path):
    return build_house(tmp_path / "ann", "Ann", staircase(1), seed=2, share=0.5, k=128)


@pytest.fixture
def server(ann):
    def labels(rows):
        return [f"c{n}" for n in scores(ann.trees, np.array(rows, float)).argmax(axis=1)]

    with ModelServer(labels) as server:
        yield server


def test_a_suspect_behind_http_is_judged(ann, server, tmp_path):
    found = judge(ann.evidence, suspect=server.url(), journal=tmp_path / "run.journal")
    assert found.level == "conclusive"
    assert found.verdict.kind == "labels"
    found.save(tmp_path / "pack.zip")
    again = judge(tmp_path / "pack.zip")
    assert again.verdict == found.verdict
    opened = Opening.load(ann.evidence / OPENING).check(ann.claim)
    record = json.loads(found.transcript)
    assert 0 < record["triggers_asked"] < 64
    for wrong in (-1, 65, True, 3.0, "3"):
        record["triggers_asked"] = wrong
        with pytest.raises(FileFormatError) as caught:
            Transcript.from_json(json.dumps(record), opened)
        assert caught.value.code == "transcript.not-sound"


def test_a_token_of_the_judge_caps_nothing_and_other_headers_do(ann, server, tmp_path):
    own = judge(ann.evidence, suspect=Endpoint(server.url(), token="of-the-judge"))
    assert own.level == "conclusive"
    own.save(tmp_path / "pack.zip")
    assert judge(tmp_path / "pack.zip").verdict == own.verdict
    chosen = Endpoint(server.url(), token="of-the-judge", headers={"X-Member": "17"})
    assert judge(ann.evidence, suspect=chosen).level == "indicative"


def test_a_journal_that_holds_answers_is_taken_only_if_asked_to(ann, server, tmp_path):
    """A made-up journal gave a judgment "asked now" against a closed port."""
    journal = tmp_path / "run.journal"
    found = judge(ann.evidence, suspect=server.url(), journal=journal)
    asked = sum(server.asked.values())
    with pytest.raises(InputError) as caught:
        judge(ann.evidence, suspect=server.url(), journal=journal)
    assert (caught.value.code, caught.value.parameter) == ("journal.not-trusted", "trust_journal")
    words = ["judge", str(ann.evidence), "--suspect", server.url(), "--journal", str(journal)]
    assert main(words) == 2
    again = judge(ann.evidence, suspect=server.url(), journal=journal, trust_journal=True)
    assert sum(server.asked.values()) == asked  # no question is paid for twice
    assert (again.bits, again.verdict.seals) == (found.bits, found.verdict.seals)
    (note,) = [note for note in again.notes if note.code == "from-journal"]
    assert note.facts["from_journal"] == asked
    assert note.facts["journal_since"].startswith("20")
    again.save(tmp_path / "pack")
    assert judge(tmp_path / "pack").verdict == again.verdict
    assert main([*words, "--trust-journal"]) == 0


def test_a_table_of_answers_is_judged(ann, tmp_path):
    opened = Opening.load(ann.evidence / OPENING).check(ann.claim)
    assert main(["questions", str(ann.evidence), "--out", str(tmp_path / "questions.csv")]) == 0
    with open(tmp_path / "questions.csv", newline="") as file:
        asked = list(csv.DictReader(file))
    assert len(asked) == 128  # 64 triggers among as many decoys
    rows = np.array([[float(row["height"]), float(row["noise"])] for row in asked])
    said = scores(ann.trees, rows).argmax(axis=1)
    with open(tmp_path / "answers.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([id_column(opened), "label"])
        writer.writerows(
            [row[id_column(opened)], f"c{n}"] for row, n in zip(asked, said, strict=True)
        )
    found = judge(ann.evidence, suspect=tmp_path / "answers.csv")
    assert found.level == "conclusive"
    found.save(tmp_path / "pack")
    assert judge(tmp_path / "pack").verdict == found.verdict
