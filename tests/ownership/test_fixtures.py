"""Files of every format are read for ever: marks from format 2 on, openings."""

from pathlib import Path

import numpy as np
import pytest

from tests.ownership import independent
from tests.ownership.making import KEY
from timbermark.errors import FileFormatError, PassphraseNeededError
from timbermark.ownership import Claim, Inquiry, Mark, Opening, judge, open_mark

FOLDER = Path(__file__).parent / "fixtures"
PLAIN = (FOLDER / "mark-v2.mark").read_bytes()
SEALED = (FOLDER / "mark-v2-sealed.mark").read_bytes()
PASSPHRASE = "open sesame"
DIGEST = "79dc8686be51e2d8b7c516dad10501a7fbf0f577b3203d53fc1fb10eaaf9deab"
SYMBOLS = "1102211130103031013211212200102001233012311232121013003320302122"


@pytest.fixture(params=["plain", "sealed"])
def both(request, real_scrypt):
    """The mark as timbermark and as the independent verifier read it."""
    if request.param == "plain":
        return Mark.from_bytes(PLAIN), independent.read_mark(PLAIN)
    return Mark.from_bytes(SEALED, PASSPHRASE), independent.read_mark(SEALED, PASSPHRASE)


def test_a_mark_of_format_2_is_read(both):
    mark, again = both
    assert mark.digest.hex() == DIGEST
    secret = bytes.fromhex(again["secret"])
    assert independent.digest(again, secret).hex() == DIGEST
    assert "".join(map(str, mark.symbols)) == SYMBOLS
    seed = independent.seed(mark.digest)
    assert independent.symbols(seed, independent.salts(secret, 64), 4) == mark.symbols.tolist()
    assert mark.made_with(KEY)
    assert (mark.owner, mark.draws, mark.created) == ("Ann Owner", 3, "2030-01-02T03:04:05Z")
    assert mark.rows()[:4, 1].tolist() == ["red", "grün", "", None]


def test_its_evidence_is_what_it_was(both):
    mark, again = both
    numbers = mark.expected_numbers.copy()
    numbers[::5] = mark.alphabets[::5, 0]
    scores = np.full((64, 6), 0.05)
    scores[np.arange(64), mark.expected_numbers] = 0.75
    scores[::5] = 1 / 6
    assert judge(mark, Inquiry("x"), labels=numbers).bits == 62.107
    assert judge(mark, Inquiry("x"), labels=numbers, one_by_one=True).bits == 56.461
    assert judge(mark, Inquiry("x"), scores=scores).bits == 97.651
    assert independent.reported(independent.labels_bits(51, 64, 4), 3) == 62.107
    assert independent.reported(independent.one_by_one_bits(51, 64, 4), 3) == 56.461
    raw = independent.scores_bits(
        scores.tolist(), again["reference"], again["alphabets"], mark.symbols.tolist()
    )
    assert independent.reported(raw, 3) == 97.651


def test_it_is_written_as_it_was():
    assert Mark.from_bytes(PLAIN).to_bytes() == PLAIN


def test_the_sealed_one_needs_its_passphrase():
    with pytest.raises(PassphraseNeededError):
        Mark.from_bytes(SEALED)
    with pytest.raises(FileFormatError):
        Mark.from_bytes(SEALED[:-1], PASSPHRASE)


KNOWN = (FOLDER / "mark-v3.mark").read_bytes()
KNOWN_SEALED = (FOLDER / "mark-v3-sealed.mark").read_bytes()
KNOWN_DIGEST = "143b2205082220f520e0b6e64b90d26110983f6a573cb2d2dbb3338ed7a33b2e"
KNOWN_SYMBOLS = "0311030323012231332332212222310132022032330000233002113113200323"


def leaning(mark):
    """What a copy answers that has most of the mark."""
    scores = np.full((64, 6), 0.05)
    scores[np.arange(64), mark.expected_numbers] = 0.75
    scores[::5] = 1 / 6
    return scores


def test_a_mark_of_format_3_is_read_and_worth_what_it_was(real_scrypt):
    mark, again = Mark.from_bytes(KNOWN), independent.read_mark(KNOWN)
    assert Mark.from_bytes(KNOWN_SEALED, PASSPHRASE) == mark
    assert independent.read_mark(KNOWN_SEALED, PASSPHRASE) == again
    assert mark.to_bytes() == KNOWN
    assert mark.alternatives.shape == (64, 5, 4)
    secret = bytes.fromhex(again["secret"])
    assert mark.digest.hex() == independent.digest(again, secret).hex() == KNOWN_DIGEST
    assert "".join(map(str, mark.symbols)) == KNOWN_SYMBOLS
    scores = leaning(mark)
    raw = independent.scores_bits(
        scores.tolist(), again["reference"], again["alphabets"], mark.symbols.tolist(),
        again["alternatives"], mark.order.tolist(),
    )  # fmt: skip
    assert judge(mark, Inquiry("x"), scores=scores).bits == 98.179
    assert independent.reported(raw, 2) == 98.179


def test_an_opening_of_format_2_is_read_and_worth_what_it_was(real_scrypt):
    claim = Claim.from_bytes((FOLDER / "claim-v1.claim").read_bytes())
    opening = Opening.from_bytes((FOLDER / "opening-v2.opening").read_bytes())
    opened = opening.check(claim, "Judge")
    mark = Mark.from_bytes(KNOWN)
    assert open_mark(mark, claim, judge="Judge", share=0.5).to_bytes() == opening.to_bytes()
    scores = leaning(mark)[list(opening.places)]
    assert judge(opened, Inquiry("x"), scores=scores).bits == 45.667
