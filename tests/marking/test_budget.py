import re
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

import timbermark as tm
from timbermark.errors import InputError

NAMES = ["changed", "drift", "accuracy", "auc"]


def test_defaults_are_those_of_the_documentation():
    budget = tm.Budget()
    assert (budget.changed, budget.drift, budget.accuracy) == (0.01, 0.01, 0.005)
    assert 0 < budget.auc <= 0.003


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [1, 0.02, np.float32(0.5), np.float64(0.1), Fraction(1, 4)])
def test_shares_become_floats(name, value):
    kept = getattr(tm.Budget(**{name: value}), name)
    assert type(kept) is float
    assert kept == float(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_can_be_off(name):
    assert getattr(tm.Budget(**{name: None}), name) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), float("inf"), True, "1 %", [0.1], 1j])
def test_what_is_no_share_is_refused(name, value):
    with pytest.raises(InputError) as caught:
        tm.Budget(**{name: value})
    assert (caught.value.code, caught.value.parameter) == ("budget.limit", name)
    assert "share" in caught.value.hint


@pytest.mark.parametrize("name", [field.name for field in fields(tm.Budget)])
@pytest.mark.parametrize("value", [0, 0.0, -0.0, Fraction(0), np.float32(0)])
def test_no_mark_can_promise_a_limit_of_0(name, value):
    with pytest.raises(InputError) as caught:
        tm.Budget(**{name: value})
    assert (caught.value.code, caught.value.parameter) == ("budget.zero", name)
    # What the hint allows instead is allowed.
    allowed = float(re.search(rf"{name}=(\S+),", caught.value.hint)[1])
    assert getattr(tm.Budget(**{name: allowed}), name) == allowed > 0


def test_a_budget_does_not_change():
    with pytest.raises(AttributeError):
        tm.Budget().changed = 0.5
