"""Several ensembles as one: margins side by side, and back to the parts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trees.strategies import ensembles, rows_for
from timbermark.errors import InputError
from timbermark.trees import reference
from timbermark.trees.construction import constant_ensemble, join, split


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_margins_stand_side_by_side(data):
    one = data.draw(ensembles())
    parts = [one, replace(one, value=one.value * 0.5), one]
    joined = join(parts)
    X = data.draw(rows_for(one))
    np.testing.assert_array_equal(
        reference.margins(joined, np.hstack([X] * 3)),
        np.hstack([reference.margins(part, X) for part in parts]),
    )
    assert split(joined, parts) == tuple(parts)
    doubled = split(replace(joined, value=joined.value * 2), parts)
    for part, more in zip(parts, doubled, strict=True):
        np.testing.assert_array_equal(more.value, part.value * 2)


def test_one_is_itself_and_different_ones_are_refused():
    one = constant_ensemble(n_features=1, value=1.0)
    assert join([one]) is one
    with pytest.raises(InputError, match="different kinds"):
        join([one, replace(one, strict=True)])
