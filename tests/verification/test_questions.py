import itertools

import numpy as np
import pytest

from tests.ownership.making import make_mark, make_mixed_mark
from timbermark.errors import InputError
from timbermark.verification.decoys import list_rows
from timbermark.verification.questions import DECOY, make_questions, question_id, wire_rows


def test_every_trigger_is_asked_once_among_decoys():
    mark = make_mark(k=50)
    asked = make_questions(mark, decoys=2)
    assert len(asked) == 150
    triggers = [t for t in asked.triggers if t != DECOY]
    assert sorted(triggers) == list(range(50))
    rows = list_rows(mark.columns)
    for trigger, row in zip(asked.triggers, asked.rows, strict=True):
        assert (row in rows) == (trigger != DECOY)
    assert len(set(asked.ids)) == 150


def test_the_order_is_keyed_and_does_not_depend_on_the_decoys():
    mark = make_mark(k=50)
    orders = [[t for t in make_questions(mark, decoys=n).triggers if t != DECOY] for n in (0, 1, 3)]
    # Evidence from scores may stop early only if suspects are asked in the order of the mark.
    assert orders[0] == orders[1] == orders[2] == mark.order.tolist() != list(range(50))
    other = make_questions(make_mark(k=50, secret=bytes(32)), decoys=0)
    assert list(other.triggers) != orders[0]


def test_triggers_lie_anywhere_among_decoys():
    """A server that knows how many questions are triggers learns nothing from their places."""
    places = []
    for seed in range(40):
        asked = make_questions(make_mark(k=20, seed=seed), decoys=1)
        places += [i for i, trigger in enumerate(asked.triggers) if trigger != DECOY]
    shares = np.histogram(places, bins=4, range=(0, 40))[0] / len(places)
    assert np.abs(shares - 0.25).max() < 0.08


def test_ids_tell_nothing_about_the_order():
    """Neither triggers nor decoys are asked in the order of their ids."""
    asked = make_questions(make_mark(k=200), decoys=1)
    for kind in (True, False):
        ids = [name for name, t in zip(asked.ids, asked.triggers, strict=True)
               if (t == DECOY) == kind]  # fmt: skip
        rising = np.mean([a < b for a, b in itertools.pairwise(ids)])
        assert 0.35 < rising < 0.65


def test_ids_are_letters_and_differ_between_marks():
    mark, other = make_mark(), make_mark(seed=1)
    assert question_id(mark, "trigger", 0).isalpha()
    ids = {question_id(m, kind, i) for m in (mark, other) for kind in ("trigger", "decoy")
           for i in range(500)}  # fmt: skip
    assert len(ids) == 2000


def test_the_digest_tells_questions_apart():
    mark = make_mark()
    digests = {
        make_questions(mark).digest(mark),
        make_questions(mark, decoys=2).digest(mark),
        make_questions(mark, table=np.random.default_rng(0).normal(size=(9, 3))).digest(mark),
        make_questions(make_mark(seed=1)).digest(make_mark(seed=1)),
    }
    assert len(digests) == 4
    assert make_questions(mark).digest(mark) in digests


def test_rows_go_out_in_the_columns_of_the_suspect():
    mark = make_mixed_mark()
    asked = make_questions(mark, decoys=0)
    assert asked.whole == (False, False, True)
    for sent, row in zip(wire_rows(asked, 3, 5, [2, 0, 1]), asked.rows[3:8], strict=True):
        assert sent == [row[2], row[0], row[1]]
        assert isinstance(sent[0], int)


@pytest.mark.parametrize("decoys", [-1, 101, 1.5, float("nan"), "2", True, None])
def test_a_wrong_number_of_decoys_is_refused(decoys):
    with pytest.raises(InputError, match="decoys"):
        make_questions(make_mark(), decoys)
