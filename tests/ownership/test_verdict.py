import json

import pytest

from timbermark.ownership import Answer, Verdict


def verdict(**changes):
    fields = {
        "owner": "Ann",
        "mark_id": "00ff",
        "suspect": "function f",
        "matched": 128,
        "trials": 128,
        "q": 4,
    }
    return Verdict(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "marked: 128 of 128 symbols match, evidence 2^-256 (level public)"),
        ({"matched": 60}, "marked: 60 of 128 symbols match, evidence 2^-23.7 (level private)"),
        ({"matched": 0}, "not marked: 0 of 128 symbols match, evidence 2^-0 (level none)"),
        (
            {"matched": 30, "unanswered": 5},
            "not marked: 30 of 128 symbols match, evidence 2^-0.5 (level none); 5 unanswered",
        ),
        (
            {"matched": 0, "unknown": 128, "outside": 128},
            "not marked: 0 of 128 symbols match, evidence 2^-0 (level none); no answer is a class "
            "of the mark, check what its labels mean",
        ),
        (
            {"matched": 2000, "trials": 2000, "q": 2},
            "marked: 2000 of 2000 symbols match, evidence 2^-2000 (level public)",
        ),
    ],
)
def test_one_plain_sentence(changes, sentence):
    assert str(verdict(**changes)) == sentence


def test_numbers():
    found = verdict()
    assert found.marked
    assert found.level == "public"
    assert found.evidence_bits == 256.0
    assert found.p_value == 2.0**-256
    assert found.p_value_text == "2^-256"
    tiny = verdict(matched=2000, trials=2000, q=2)
    assert 0 < tiny.p_value < 1e-300


def test_the_table_is_given_only_on_request():
    secret = Answer(0, "hidden-label", "hidden-response", False)
    found = verdict(matched=0, trials=1, answers=(secret,))
    assert found.table() == [secret]
    for shown in (repr(found), str(found), json.dumps(found.to_dict())):
        assert "hidden" not in shown


def test_everything_else_is_in_the_dictionary():
    shown = json.loads(json.dumps(verdict(outside=3, unknown=2, unanswered=1).to_dict()))
    assert shown == {
        "marked": True,
        "level": "public",
        "evidence_bits": 256.0,
        "p_value": 2.0**-256,
        "p_value_text": "2^-256",
        "matched": 128,
        "trials": 128,
        "q": 4,
        "outside": 3,
        "unknown": 2,
        "unanswered": 1,
        "owner": "Ann",
        "mark_id": "00ff",
        "suspect": "function f",
    }


def test_a_verdict_cannot_be_changed():
    with pytest.raises(AttributeError):
        verdict().matched = 0
