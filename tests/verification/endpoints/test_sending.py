from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from timbermark.verification.endpoints.protocols.mlflow import MLflow
from timbermark.verification.endpoints.sending import FailureError, _read_wait, read_answers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120", 120.0), (" 0 ", 0.0), ("soon", None), ("-5", None), (None, None), ("", None)],
)
def test_retry_after_in_seconds(text, seconds):
    assert _read_wait(text) == seconds


def test_retry_after_as_a_date():
    later = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < _read_wait(format_datetime(later, usegmt=True)) <= 100
    assert _read_wait("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
    assert _read_wait("Thu, 01 Jan 1970 00:00:00 -0000") == 0.0


@pytest.mark.parametrize("reply", [b"", b"\xff\xfe", b"<html>", b"[1, 2", b'"x"', b"{}", b"null"])
def test_a_reply_without_answers_is_final(reply):
    with pytest.raises(FailureError) as caught:
        read_answers(reply, 1, MLflow())
    assert caught.value.failure.kind == "final"
    assert caught.value.failure.hint


def test_what_is_shown_of_a_reply_is_short_and_fit_for_a_terminal():
    with pytest.raises(FailureError) as caught:
        read_answers(b"\x1b]0;title\x07" + b"<p>" * 1000, 1, MLflow())
    message = caught.value.failure.message
    assert message.isprintable()
    assert len(message) < 300
