"""The judge asks suspects that are not at hand: behind HTTP, or through a table of answers."""

import csv
import json

import numpy as np
import pytest

from tests.verification.endpoints.conftest import impatient  # noqa: F401
from tests.verification.servers import ModelServer
from tests.verification.staircases import build_house, scores, staircase
from timbermark.cli import main
from timbermark.errors import FileFormatError
from timbermark.ownership import Opening
from timbermark.ownership.transcript import Transcript
from timbermark.verification.judging_claims import judge
from timbermark.verification.packs import OPENING
from timbermark.verification.question_files import id_column


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
    assert found.verdict.kind == "labels one by one"
    found.save(tmp_path / "pack.zip")
    again = judge(tmp_path / "pack.zip")
    assert again.verdict == found.verdict
    opened = Opening.load(ann.evidence / OPENING).check(ann.claim)
    record = json.loads(found.transcript)
    assert 0 < record["inquiry"]["asked"] < 64
    for wrong in (-1, 65, True, 3.0, "3"):
        record["inquiry"]["asked"] = wrong
        with pytest.raises(FileFormatError, match="how it was asked"):
            Transcript.from_json(json.dumps(record), opened)
    asked = sum(server.asked.values())
    resumed = judge(ann.evidence, suspect=server.url(), journal=tmp_path / "run.journal")
    assert resumed.verdict == found.verdict
    assert sum(server.asked.values()) == asked  # no question is paid for twice


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
