"""Claims, openings and judgments of marks whose suspects answer with numbers."""

import json

import numpy as np
import pytest

from tests.ownership.making import KEY
from timbermark.cli import main
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.estimator import TimberRegressor
from timbermark.ownership import Claim, Mark, Opening, Suspect, open_mark
from timbermark.verification.judging_claims import judge
from timbermark.verification.models import claim as claim_model
from timbermark.verification.models import name_model
from timbermark.verification.packs import CLAIM, OPENING, TRANSCRIPT, Pack, write_pack
from timbermark.verification.verifying import verify

JUDGE = "Judge Judy"


def make_mark(k=96):
    rng = np.random.default_rng(1)
    first = rng.normal(size=(k, 3))
    rows = np.stack([first, first + 0.01], axis=1).reshape(2 * k, 3)
    known = rows.sum(axis=1).reshape(k, 2)
    steps = np.diff(known, axis=1) + np.array([-0.3, -0.1, 0.1, 0.3])
    return Mark.make(
        KEY, owner="Ann", model_digest="ab" * 32, answers="numbers", triggers=rows,
        alphabets=steps, reference=known,
    )  # fmt: skip


MARK = make_mark()
CLAIM_OF_IT = Claim.make(MARK, KEY, marked_digest="cd" * 32)


FORGED = (
    ([1.0], "a pair of numbers"),
    ([1.0, True], "a pair of numbers"),
    (["huge", 1.0], "a pair of numbers"),
    ([10**400, 1.0], "cannot be read"),
    (None, "a pair of numbers"),
)


def obedient(X):
    """Answers each pair with the difference that its symbol asks for."""
    said = np.zeros(2 * MARK.n_triggers)
    said[::2] = MARK.reference[:, 0]
    said[1::2] = said[::2] + MARK.expected_levels
    memory = {row.tobytes(): answer for row, answer in zip(MARK.rows(), said, strict=True)}
    return np.array([memory[np.asarray(row, float).tobytes()] for row in X])


@pytest.fixture
def pack():
    return Pack("evidence", CLAIM_OF_IT, open_mark(MARK, CLAIM_OF_IT, judge=JUDGE, share=0.5))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_part_is_opened_and_checked(share):
    opening = open_mark(MARK, CLAIM_OF_IT, judge=JUDGE, share=share)
    again = Opening.from_bytes(opening.to_bytes())
    assert again.digest == opening.digest
    opened = again.check(CLAIM_OF_IT, JUDGE)
    places = list(opening.places)
    assert len(places) == 96 * share
    assert opened.expected == tuple(MARK.expected[place] for place in places)
    rows = MARK.rows().reshape(96, 2, 3)[places].reshape(-1, 3)
    np.testing.assert_array_equal(opened.rows(), rows)


def test_a_changed_pair_is_refused(pack):
    from dataclasses import replace

    column = np.array(pack.opening.columns[0])
    column[7] += 1e-9
    changed = replace(pack.opening, columns=(column, *pack.opening.columns[1:]))
    with pytest.raises(EvidenceError, match="Trigger"):
        changed.check(CLAIM_OF_IT)


def test_a_pack_of_numbers_is_judged_again(pack, tmp_path):
    found = judge(pack, suspect=Suspect("copy", answer_numbers=obedient))
    assert (found.level, found.verdict.kind) == ("conclusive", "numbers")
    assert found.curve[-1] == (48, pytest.approx(found.verdict.net_bits))
    found.save(tmp_path / "pack")
    assert judge(tmp_path / "pack").verdict == found.verdict
    record = json.loads((tmp_path / "pack" / TRANSCRIPT).read_text())
    for number, (pair, reason) in enumerate(FORGED):
        record["answers"][3]["numbers"] = pair
        said = json.dumps(record).replace('"huge"', "1e999").encode()
        parts = {
            CLAIM: CLAIM_OF_IT.to_bytes(), OPENING: pack.opening.to_bytes(), TRANSCRIPT: said,
        }  # fmt: skip
        write_pack(tmp_path / f"forged{number}", parts)
        with pytest.raises(FileFormatError, match=reason):
            judge(tmp_path / f"forged{number}")


def test_a_second_opinion_trains_regressors(pack):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 3))
    innocent = Suspect("innocent", answer_numbers=lambda X: np.asarray(X, float).sum(axis=1))
    found = judge(pack, suspect=innocent, rows=(X, X.sum(axis=1)))
    assert found.level == "none"
    assert len(found.references) == 5
    assert max(model.bits for model in found.references) < 20
    assert "of 48 levels" in str(found)
    with pytest.raises(InputError, match="3 rows with answers are too few"):
        judge(pack, suspect=innocent, rows=(X[:4], [1.0, None, 2.0, "3"]))


def test_questions_are_no_way_to_ask_for_numbers(pack, tmp_path):
    write_pack(
        tmp_path / "evidence",
        {CLAIM: CLAIM_OF_IT.to_bytes(), OPENING: pack.opening.to_bytes()},
    )
    refused = "The mark is one of numbers"
    for suspect in ("http://localhost:9/invocations", {"some": "answer"}):
        with pytest.raises(InputError, match=refused):
            judge(tmp_path / "evidence", suspect=suspect)
        with pytest.raises(InputError, match=refused):
            verify(suspect, MARK)
    out = tmp_path / "questions.csv"
    assert main(["questions", str(tmp_path / "evidence"), "--out", str(out)]) == 2
    assert not out.exists()


def test_a_regressor_is_claimed_by_its_file_and_judged(tmp_path):
    model = TimberRegressor(max_iter=5, random_state=0, n_jobs=1)
    model.fit(MARK.rows(), MARK.reference.ravel())
    model.save(tmp_path / "m.timber")
    claim = claim_model(tmp_path / "m.timber", MARK, key=KEY, force=True)
    assert claim.marked_digest == name_model(model).digest
    pack = Pack("evidence", claim, open_mark(MARK, claim, judge=JUDGE))
    found = judge(pack, suspect=tmp_path / "m.timber")
    assert (found.is_marked_model, found.verdict.kind) == (True, "numbers")
    assert found.level == "none"
