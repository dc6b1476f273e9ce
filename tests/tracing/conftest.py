from types import SimpleNamespace

import pytest

import timbermark as tm
from tests.tracing.making import NAMES, rows, train
from timbermark.tracing import codes


@pytest.fixture(scope="package", autouse=True)
def cheap_seeds():
    """Make guesses cheap, for all tests of the package alike; the command line's pay in full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "SEED_N", 2)
        yield


@pytest.fixture(scope="package")
def made(cheap_seeds):
    X, y = rows()
    model, key = train(), tm.OwnerKey(bytes(range(32)))
    found = tm.copies(model, X, y, customers=NAMES, key=key, owner="Ann Ltd")
    copies = {name: found.copies[name] for name in NAMES}
    return SimpleNamespace(model=model, key=key, found=found, roll=found.roll, copies=copies)
