import pytest

from timbermark.verification.endpoints import retrying
from timbermark.verification.endpoints.retrying import LONGEST_WAIT, try_repeatedly
from timbermark.verification.endpoints.sending import Failure, FailureError


@pytest.fixture
def pauses(monkeypatch):
    """Let no time pass, and note how much would have."""
    slept = []
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(retrying.time, "sleep", slept.append)
    return slept


def fails(times, kind="again", wait=None):
    """Return an attempt that fails so many times before it succeeds."""
    left = iter(range(times))

    def attempt():
        if next(left, None) is not None:
            raise FailureError(Failure(kind, "is busy.", wait=wait))
        return "answered"

    return attempt


def test_pauses_double_with_jitter_up_to_a_minute(pauses):
    assert try_repeatedly(fails(10), retries=10) == "answered"
    for number, pause in enumerate(pauses):
        whole = min(0.5 * 2**number, 60.0)
        assert whole / 2 <= pause <= whole


def test_the_last_failure_is_raised(pauses):
    with pytest.raises(FailureError, match="is busy"):
        try_repeatedly(fails(3), retries=2)
    assert len(pauses) == 2


@pytest.mark.parametrize("kind", ["final", "refused"])
def test_what_will_not_pass_is_not_repeated(pauses, kind):
    with pytest.raises(FailureError):
        try_repeatedly(fails(1, kind), retries=5)
    assert not pauses


def test_the_server_says_how_long_to_wait(pauses):
    assert try_repeatedly(fails(1, wait=7.0), retries=1) == "answered"
    assert pauses == [7.0]
    with pytest.raises(FailureError, match="asks to wait"):
        try_repeatedly(fails(1, wait=LONGEST_WAIT + 1), retries=1)
