import pytest

from timbermark.verification import http


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let requests be tried again at once."""
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
