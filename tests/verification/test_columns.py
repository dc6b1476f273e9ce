import math

import pytest

from tests.verification.making import make_mark
from timbermark.errors import InputError
from timbermark.verification.columns import match_columns

NAMED = make_mark(d=3, feature_names=("age", "income", "town"))
BARE = make_mark(d=3, feature_names=None)
BLANKS = make_mark(d=3, feature_names=("p_0", "p_1", "p_2"))  # as LightGBM calls "p 0"
PRICE = math.log2(6)


@pytest.mark.parametrize(
    ("mark", "columns", "feature_names", "places", "names", "how", "price"),
    [
        (NAMED, None, None, [0, 1, 2], ("age", "income", "town"), "by-place", 0),
        (BARE, None, None, [0, 1, 2], None, "by-place", 0),
        (NAMED, ["age", "income", "town"], None, [0, 1, 2], ("age", "income", "town"), "by-name",
         0),
        (NAMED, ["town", "age", "income"], None, [2, 0, 1], ("town", "age", "income"), "by-hand",
         PRICE),
        (NAMED, None, ["town", "age", "income"], [2, 0, 1], ("town", "age", "income"), "by-hand",
         PRICE),
        (BARE, ["x1", "x2", "x3"], None, [0, 1, 2], ("x1", "x2", "x3"), "by-place", 10),
        (BARE, ["x00", "x01", "x02"], None, [0, 1, 2], ("x00", "x01", "x02"), "by-place", 10),
        (NAMED, ["f0", "f1", "f2"], None, [0, 1, 2], ("f0", "f1", "f2"), "by-place", 10),
        (BLANKS, ["p 0", "p 1", "p 2"], None, [0, 1, 2], ("p 0", "p 1", "p 2"), "by-name", 0),
        (BLANKS, ["p 1", "p 0", "p 2"], None, [1, 0, 2], ("p 1", "p 0", "p 2"), "by-hand", PRICE),
    ],
)  # fmt: skip
def test_columns_and_their_price(mark, columns, feature_names, places, names, how, price):
    chosen = match_columns(mark, server=columns, by_hand=feature_names)
    assert (list(chosen.places), chosen.names, chosen.how) == (places, names, how)
    assert sum(one.bits for one in chosen.prices) == pytest.approx(price)


@pytest.mark.parametrize(
    ("mark", "columns", "feature_names"),
    [
        (NAMED, ["age"], None),
        (NAMED, ["age", "income", "other"], None),
        (NAMED, None, ["a", "b", "c"]),
        (BARE, None, ["a", "b", "c"]),
        (NAMED, ["town", "age", "income"], ["town", "age", "income"]),
        # Subsets of what a wide server has, in whatever order: nobody can count the choices.
        (BARE, ["x1", "x2", "x10"], None),
        (BARE, ["x10", "x2", "x1"], None),
        (BARE, ["x2", "x3", "x4"], None),
        (BARE, ["x1", "x2", "y3"], None),
        (BARE, ["x1", "x02", "x3"], None),
        (NAMED, ["c", "a", "b"], None),
        (NAMED, ["a", "b", "c"], None),
    ],
)
def test_columns_that_do_not_fit(mark, columns, feature_names):
    with pytest.raises(InputError) as caught:
        match_columns(mark, server=columns, by_hand=feature_names)
    assert caught.value.hint


def test_names_that_are_not_sent_are_free():
    chosen = match_columns(NAMED, server=["c", "a", "b"], sends_names=False)
    assert (list(chosen.places), chosen.how, chosen.prices) == ([0, 1, 2], "by-place", ())


OWN = [
    (("town", "age", "income"), None, [2, 0, 1], "by-name"),
    (("age", "town"), None, [0, 2], "by-name"),  # a suspect may take fewer columns
    (("Column_0", "Column_1", "Column_2"), None, [0, 1, 2], "by-place"),
    (None, 3, [0, 1, 2], "by-place"),
]


@pytest.mark.parametrize(("own", "count", "places", "how"), OWN)
def test_names_of_the_suspect_itself_decide_and_cost_nothing(own, count, places, how):
    found = match_columns(NAMED, own=own, count=count)
    assert (list(found.places), found.how, found.prices) == (places, how, ())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"own": ("age", "wealth", "town")}, "columns.strange"),
        ({"own": ("age", "age", "town")}, "columns.strange"),
        ({"own": ("a", "b")}, "columns.count"),
        ({"count": 2_000_000}, "columns.count"),
        ({"own": NAMED.feature_names, "by_hand": NAMED.feature_names}, "columns.by-hand"),
        ({"count": 4, "by_hand": NAMED.feature_names}, "columns.by-hand"),
    ],
)
def test_suspects_that_do_not_fit(options, code):
    with pytest.raises(InputError) as caught:
        match_columns(NAMED, **options)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("word", ["x", "feature_", "sensor number "])
def test_a_family_of_names_costs_what_it_takes_to_write_its_word(word):
    """A server of several families of columns let a claimant choose one for nothing."""
    found = match_columns(BARE, server=[f"{word}{i}" for i in (1, 2, 3)])
    assert found.prices[0].bits >= 8 * len(word)
