import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timbermark
from tests.ownership.making import KEY, confident, make_mark, marks, obedient
from timbermark.ownership import (
    Answer,
    Price,
    Verdict,
    price_of_columns,
    price_of_draws,
    price_of_label_map,
    round_bits,
    verify,
)


def verdict(**changes):
    fields = {
        "owner": "Ann",
        "mark_id": "00ff",
        "created": "2030-01-02T03:04:05Z",
        "mark_digest": "11" * 32,
        "model_digest": "22" * 32,
        "suspect": "file a.timber",
        "suspect_digest": "33" * 32,
        "asked_through": "file",
        "kind": "scores",
        "raw_bits": 192.0,
        "trials": 96,
        "answered": 96,
        "q": 4,
        "matched": 96,
        "columns": "by name",
        "version": "0.1.0",
    }
    return Verdict(**{**fields, **changes})


def test_the_whole_text():
    found = verdict(
        raw_bits=194.0,
        prices=(price_of_draws(4),),
        warnings=("3 of 96 triggers got no answer.",),
        reading="class numbers in the order of the mark's classes",
    )
    assert str(found) == (
        """conclusive: the suspect carries the mark of Ann
  evidence: 192.0 bits from scores, the chance of coincidence is 1 in 6·10^57
  matches:  96 of 96 labels, chance gives about 24
  minus:    2.0 bits for the best of 4 draws of symbols
  meaning:  """
        + found.meaning
        + """
  mark:     00ff of Ann, made 2030-01-02T03:04:05Z
            SHA-256 1111111111111111111111111111111111111111111111111111111111111111
  unmarked: SHA-256 2222222222222222222222222222222222222222222222222222222222222222
  suspect:  file a.timber, asked through file, columns by name
            SHA-256 3333333333333333333333333333333333333333333333333333333333333333
  reading:  class numbers in the order of the mark's classes
  warning:  3 of 96 triggers got no answer.
  timbermark 0.1.0"""
    )


@pytest.mark.parametrize(
    ("bits", "level", "first"),
    [
        (-5.0, "none", "none: no evidence that the suspect carries the mark of Ann"),
        (19.9999, "none", "none: no evidence that the suspect carries the mark of Ann"),
        (20.0, "indicative", "indicative: signs of the mark of Ann, enough to convince its owner"),
        (63.9996, "indicative", "indicative: signs of the mark of Ann"),
        (64.0, "conclusive", "conclusive: the suspect carries the mark of Ann"),
        (63.99999999999, "conclusive", "conclusive: the suspect carries the mark of Ann"),
    ],
)
def test_levels(bits, level, first):
    found = verdict(raw_bits=bits)
    assert found.level == level
    assert str(found).startswith(first)
    assert found.bits == max(0.0, round_bits(bits))
    assert found.raw_bits == bits
    assert found.meaning in str(found)


def test_prices_are_subtracted():
    found = verdict(raw_bits=70.0, prices=(price_of_draws(2), Price("a whim", 5.5)))
    assert (found.bits, found.net_bits, found.level) == (63.5, 63.5, "indicative")
    assert verdict(raw_bits=1.0, prices=(Price("a whim", 5.5),)).bits == 0.0
    assert verdict(raw_bits=1.0, prices=(Price("a whim", 5.5),)).net_bits == -4.5


def test_prices():
    assert price_of_columns(16).bits == pytest.approx(math.log2(math.factorial(16)))
    assert price_of_columns(5000).bits == pytest.approx(math.log2(math.factorial(5000)))
    assert price_of_label_map(10).bits == pytest.approx(math.log2(3628800))
    assert price_of_draws(36).bits == pytest.approx(math.log2(36))


def test_the_table_is_given_only_on_request():
    secret = Answer(0, "hidden-label", "hidden-response", False)
    found = verdict(answers=(secret,))
    assert found.table() == [secret]
    for shown in (repr(found), str(found), json.dumps(found.to_dict())):
        assert "hidden" not in shown


def test_everything_else_is_in_the_dictionary():
    found = verdict(
        prices=(price_of_draws(4),), warnings=("w",), outside=3, unknown=2, answered=95,
        column_names=("age", "town"),
    )  # fmt: skip
    shown = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert shown == {
        "level": "conclusive",
        "meaning": found.meaning,
        "bits": 190.0,
        "chance": "1 in 1·10^57",
        "kind": "scores",
        "raw_bits": 192.0,
        "prices": [{"reason": "the best of 4 draws of symbols", "bits": 2.0}],
        "matched": 96,
        "trials": 96,
        "answered": 95,
        "outside": 3,
        "unknown": 2,
        "q": 4,
        "owner": "Ann",
        "mark_id": "00ff",
        "created": "2030-01-02T03:04:05Z",
        "mark_digest": "11" * 32,
        "model_digest": "22" * 32,
        "condition": "",
        "suspect": "file a.timber",
        "suspect_digest": "33" * 32,
        "asked_through": "file",
        "columns": "by name",
        "column_names": ["age", "town"],
        "reading": "",
        "warnings": ["w"],
        "timbermark": "0.1.0",
    }
    renamed = {"timbermark": "version", "condition": "conditions"}
    named = {renamed.get(name, name) for name in shown}
    assert {f.name for f in fields(Verdict)} - named == {"answers", "transcript", "curve"}


@given(marks(), st.booleans())
def test_no_secret_is_in_a_verdict(mark, scores):
    # One that is not to be found in other bytes by accident.
    mark = replace(mark, secret=KEY.mark_secret(mark.mark_id))
    found = verify((confident if scores else obedient)(mark), mark)
    assert found.version == timbermark.__version__
    shown = f"{found} {found!r} {json.dumps(found.to_dict(), allow_nan=False)}"
    assert mark.secret.hex() not in shown
    assert repr(mark.secret)[2:-1] not in shown


def test_no_trigger_is_in_a_verdict():
    mark = make_mark(k=64, secret=KEY.mark_secret(bytes(range(16))))
    found = verify(confident(mark), mark)
    shown = f"{found} {found!r} {json.dumps(found.to_dict())}"
    assert not any(repr(x)[:8] in shown for x in mark.triggers.ravel().tolist())


def test_a_verdict_cannot_be_changed():
    with pytest.raises(AttributeError):
        verdict().matched = 0
