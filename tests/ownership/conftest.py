import pytest

from timbermark.ownership import symbols


@pytest.fixture
def real_scrypt():
    """For the tests that pay what users pay."""


@pytest.fixture(autouse=True)
def cheap_scrypt(request, monkeypatch):
    """Let every other test derive symbols at once: the cost is fixed by the protocol."""
    if "real_scrypt" not in request.fixturenames:
        monkeypatch.setattr(symbols, "SCRYPT_N", 2)
