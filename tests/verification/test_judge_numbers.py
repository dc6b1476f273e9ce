"""Claims, openings and judgments of marks whose suspects answer with numbers."""

import json

import numpy as np
import pytest

from tests.verification.making import KEY, make_mark, numbered
from tests.verification.servers import ModelServer
from timbermark.cli import main
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership import Claim, Opening, open_mark
from timbermark.verification.judge import judge
from timbermark.verification.packs import CLAIM, OPENING, TRANSCRIPT, Pack, write_pack

JUDGE = "Judge Judy"
MARK = make_mark(n_splits=256, classes=())
CLAIM_OF_IT = Claim.make(MARK, KEY, marked_digest="cd" * 32)


@pytest.fixture
def pack(tmp_path):
    opening = open_mark(MARK, CLAIM_OF_IT, judge=JUDGE)
    write_pack(tmp_path / "evidence", {CLAIM: CLAIM_OF_IT.to_bytes(), OPENING: opening.to_bytes()})
    return Pack("evidence", CLAIM_OF_IT, opening)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_part_is_opened_and_checked(share):
    opening = open_mark(MARK, CLAIM_OF_IT, judge=JUDGE, share=share, force=True)
    opened = Opening.from_bytes(opening.to_bytes()).check(CLAIM_OF_IT, JUDGE)
    places = list(opening.places)
    assert len(places) == 256 * share
    assert opened.symbols.tolist() == MARK.symbols[places].tolist()
    rows = MARK.rows().reshape(256, 3, 3)[places].reshape(-1, 3)
    np.testing.assert_array_equal(opened.rows(), rows)


FORGED = ([1.0], True, "huge", "1", 1e999)


def test_a_pack_of_numbers_is_judged_again(pack, tmp_path):
    found = judge(pack, suspect=numbered(MARK))
    assert (found.level, found.verdict.kind) == ("conclusive", "numbers")
    assert found.curve[-1] == (pack.opening.n_opened, pytest.approx(found.verdict.net_bits))
    found.save(tmp_path / "pack")
    assert judge(tmp_path / "pack").verdict == found.verdict
    record = json.loads((tmp_path / "pack" / TRANSCRIPT).read_text())
    for number, answer in enumerate(FORGED):
        record["answers"][3]["number"] = answer
        parts = {
            CLAIM: CLAIM_OF_IT.to_bytes(), OPENING: pack.opening.to_bytes(),
            TRANSCRIPT: json.dumps(record).replace("Infinity", "1e999").encode(),
        }  # fmt: skip
        write_pack(tmp_path / f"forged{number}", parts)
        with pytest.raises(FileFormatError) as caught:
            judge(tmp_path / f"forged{number}")
        assert caught.value.code.startswith("transcript.")


def test_a_second_opinion_trains_regressors(pack):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 3))
    found = judge(pack, suspect=lambda X: np.asarray(X, float).sum(axis=1), rows=(X, X.sum(axis=1)))
    assert found.level == "none"
    assert len(found.references) == 5
    assert max(model.bits for model in found.references) < 20
    with pytest.raises(InputError):
        judge(pack, suspect=numbered(MARK), rows=(X[:4], [1.0, None, 2.0, "3"]))


def test_numbers_are_judged_over_http_and_by_tables(pack, tmp_path, capsys):
    """That road was built for labels."""
    import pandas as pd

    opened = pack.opening.check(CLAIM_OF_IT)
    with ModelServer(numbered(MARK)) as server:
        found = judge(tmp_path / "evidence", suspect=server.url(), stop_at="off", decoys=0)
    by_function = judge(tmp_path / "evidence", suspect=numbered(MARK))
    assert (found.level, found.bits) == ("conclusive", by_function.bits)
    out = tmp_path / "questions.csv"
    assert main(["questions", str(tmp_path / "evidence"), "--out", str(out)]) == 0
    table = pd.read_csv(out)
    rows = table[["f0", "f1", "f2"]].to_numpy(dtype=object)
    table[["question"]].assign(number=numbered(opened)(rows)).to_csv(
        tmp_path / "answers.csv", index=False
    )
    words = ["judge", str(tmp_path / "evidence"), "--suspect", str(tmp_path / "answers.csv")]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["bits"] == by_function.bits
