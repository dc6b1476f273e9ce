"""Texts as categories of a model, in frames and matrices."""

import numpy as np
import pandas as pd
import pytest

from timbermark.errors import InputError
from timbermark.libraries.categories import text_places, with_categories

KNOWN = {1: ["blue", "red"], 2: [3, 5]}
FRAME = pd.DataFrame(
    {"x": [0.5, 1.5, 2.5], "colour": ["red", None, "blue"], "size": [5.0, 3.0, np.nan]}
)


@pytest.mark.parametrize("given", [FRAME, FRAME.to_numpy(object), FRAME.astype({"colour": object})])
def test_tables_get_the_models_categories(given):
    found = with_categories(given, KNOWN, list(FRAME.columns), strict=True)
    assert list(found.columns) == list(FRAME.columns)
    assert found["colour"].cat.codes.tolist() == [1, -1, 0]
    assert found["size"].cat.codes.tolist() == [1, 0, -1]
    assert found["x"].tolist() == [0.5, 1.5, 2.5]


def test_what_needs_nothing_is_given_back():
    codes = np.array([[0.5, 1.0, 0.0]])
    ready = with_categories(FRAME, KNOWN, None, strict=True)
    for given in (codes, ready):
        assert with_categories(given, KNOWN, None, strict=True) is given
    assert with_categories(FRAME, {}, None, strict=True) is FRAME


def test_a_category_never_seen():
    strange = FRAME.assign(colour="green")
    with pytest.raises(InputError, match="'colour' holds the category 'green'") as caught:
        with_categories(strange, KNOWN, list(FRAME.columns), strict=True)
    assert "leave such rows out" in caught.value.hint
    lenient = with_categories(strange, KNOWN, list(FRAME.columns), strict=False)
    assert lenient["colour"].isna().all()
    assert text_places(KNOWN) == {1}
