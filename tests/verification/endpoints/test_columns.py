import math

import pytest

from tests.ownership.making import make_mark
from timbermark.errors import InputError
from timbermark.verification.endpoints.columns import choose_columns

NAMED = make_mark(d=3, feature_names=("age", "income", "town"))
BARE = make_mark(d=3, feature_names=None)
PRICE = math.log2(6)


@pytest.mark.parametrize(
    ("mark", "columns", "feature_names", "places", "names", "how", "price"),
    [
        (NAMED, None, None, [0, 1, 2], ("age", "income", "town"), "by name", 0),
        (BARE, None, None, [0, 1, 2], None, "by place", 0),
        (NAMED, ["age", "income", "town"], None, [0, 1, 2], ("age", "income", "town"), "by name",
         0),
        (NAMED, ["town", "age", "income"], None, [2, 0, 1], ("town", "age", "income"), "by hand",
         PRICE),
        (NAMED, None, ["town", "age", "income"], [2, 0, 1], ("town", "age", "income"), "by hand",
         PRICE),
        (BARE, ["x1", "x2", "x10"], None, [0, 1, 2], ("x1", "x2", "x10"), "by place", 0),
        (BARE, ["x10", "x2", "x1"], None, [0, 1, 2], ("x10", "x2", "x1"), "by hand", PRICE),
        (NAMED, ["f0", "f1", "f2"], None, [0, 1, 2], ("f0", "f1", "f2"), "by place", 0),
        (NAMED, ["c", "a", "b"], None, [0, 1, 2], ("c", "a", "b"), "by hand", PRICE),
    ],
)  # fmt: skip
def test_columns_and_their_price(mark, columns, feature_names, places, names, how, price):
    chosen = choose_columns(mark, columns, feature_names)
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
    ],
)
def test_columns_that_do_not_fit(mark, columns, feature_names):
    with pytest.raises(InputError) as caught:
        choose_columns(mark, columns, feature_names)
    assert caught.value.hint
