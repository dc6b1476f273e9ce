import pytest

from tests.ownership.conftest import cheap_scrypt, real_scrypt  # noqa: F401
from timbermark.ownership import symbols
from timbermark.verification import http


@pytest.fixture(scope="module")
def cheap_houses():
    """Let what a whole file of tests shares be built without paying for scrypt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbols, "SCRYPT_N", 2)
        yield


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let requests be tried again at once."""
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
