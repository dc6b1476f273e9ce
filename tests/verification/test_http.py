import gzip
import json
import resource
import signal
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

import timbermark as tm
from tests.verification.making import learnt, make_mark
from tests.verification.servers import ModelServer, reply
from timbermark.errors import InputError
from timbermark.verification import http
from timbermark.verification.dialects import open_dialect
from timbermark.verification.http import LONGEST_WAIT, FailureError, Line, _read_wait, read_reply


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
def test_a_reply_without_answers(reply):
    with pytest.raises(FailureError) as caught:
        read_reply(reply, 1, open_dialect("mlflow", {}))
    # What is no JSON comes from something else than the model, such as a page to log in.
    assert caught.value.kind == ("unread" if reply in (b'"x"', b"{}", b"null") else "final")
    assert caught.value.hint


def test_what_is_shown_of_a_reply_is_short_and_fit_for_a_terminal():
    with pytest.raises(FailureError) as caught:
        read_reply(b"\x1b]0;title\x07" + b"<p>" * 1000, 1, open_dialect("mlflow", {}))
    message = caught.value.message
    assert message.isprintable()
    assert len(message) < 300


def test_names_in_a_reply_are_shown_short_and_fit_for_a_terminal():
    outputs = [{"name": "\x1b[2Jconclusive\n" * 1000}, {"name": "b"}]
    with pytest.raises(FailureError) as caught:
        read_reply(json.dumps({"outputs": outputs}).encode(), 1, open_dialect("kserve-v2", {}))
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@pytest.fixture
def pauses(monkeypatch):
    """Let no time pass, and note how much would have."""
    slept = []
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(http.time, "sleep", slept.append)
    return slept


def line_that_fails(monkeypatch, times, retries, kind="again", wait=None):
    """A line whose requests fail so many times before one succeeds."""
    left = iter(range(times))

    async def send(self, body, n, more):
        if next(left, None) is not None:
            raise FailureError(kind, "busy", wait, status=503, said="")
        return ["answered"]

    monkeypatch.setattr(Line, "_send", send)
    return Line(tm.Endpoint("http://localhost:9/invocations", timeout=1.0, retries=retries))


def test_pauses_double_with_jitter_up_to_a_minute(monkeypatch, pauses):
    with line_that_fails(monkeypatch, 10, retries=10) as line:
        assert line.ask("", 1, {}) == ["answered"]
    assert len(pauses) == 10
    for number, pause in enumerate(pauses):
        whole = min(0.5 * 2**number, 60.0)
        assert whole / 2 <= pause <= whole


@pytest.mark.parametrize(("kind", "tries"), [("again", 2), ("final", 0), ("refused", 0)])
def test_the_last_failure_is_raised(monkeypatch, pauses, kind, tries):
    with (
        line_that_fails(monkeypatch, 5, 2, kind) as line,
        pytest.raises(FailureError) as caught,
    ):
        line.ask("", 1, {})
    assert caught.value.kind == kind
    assert len(pauses) == tries


def test_the_server_says_how_long_to_wait(monkeypatch, pauses):
    with line_that_fails(monkeypatch, 1, 1, wait=7.0) as line:
        assert line.ask("", 1, {}) == ["answered"]
    assert pauses == [7.0]
    with (
        line_that_fails(monkeypatch, 1, 1, wait=LONGEST_WAIT + 1) as line,
        pytest.raises(FailureError) as caught,
    ):
        line.ask("", 1, {})
    assert caught.value.kind == "final"


class Odd(ModelServer):
    """Answers with whatever ``respond`` sends."""

    def __init__(self, respond):
        super().__init__(None)
        self.respond = respond

    def handle(self, request):
        request.rfile.read(int(request.headers["Content-Length"]))
        self.respond(request)


MARK = make_mark(k=16)


def refusal(server, path="/invocations", **options):
    with pytest.raises(InputError) as caught:
        tm.verify(tm.Endpoint(server.url(path), retries=0, **options), MARK)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip", "br", "deflate, identity"])
def test_a_reply_that_unpacks_to_gigabytes_is_never_unpacked(coding):
    """1.8 KB with Content-Encoding: gzip, gzip took 2.1 GB."""
    bomb = gzip.compress(gzip.compress(bytes(1 << 24)))
    with Odd(lambda request: reply(request, 200, bomb, [("Content-Encoding", coding)])) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        error = refusal(server)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert error.code == "server.final"
    assert coding.split(",")[0] in error.message
    assert grown < 16 << 10  # kilobytes, less than the bomb unpacks to


ECHOES = {
    "an error": lambda said: (500, said.encode()),
    "no JSON": lambda said: (200, b"<p>" + said.encode()),
    "a key": lambda said: (200, json.dumps({said: 1}).encode()),
    "labels": lambda said: (200, json.dumps({"predictions": [said]}).encode()),
    "classes": lambda said: (200, json.dumps({"predictions": [{said: 0.5, "b": 0.5}]}).encode()),
    "a redirect": lambda said: (302, b""),
}


@pytest.mark.parametrize("case", ECHOES)
def test_a_server_that_echoes_credentials_does_not_put_them_into_errors(case, tmp_path):
    def respond(request):
        said = f"{request.headers['Authorization']} {request.headers['X-Key']} {request.path}"
        code, body = ECHOES[case](said)
        where = [("Location", f"https://elsewhere/{said.replace(' ', '/')}")]
        reply(request, code, body, where if code == 302 else [])

    with Odd(respond) as server:
        error = refusal(
            server, "/invocations?key=query-secret", token="bearer-secret", protocol="mlflow",
            headers={"X-Key": "header-secret"},
        )  # fmt: skip
    for secret in ("bearer-secret", "header-secret", "query-secret"):
        assert secret not in str(error)


def test_a_short_header_is_not_taken_out_of_labels():
    """A class may be called like the value of a header."""
    mark = make_mark(k=40, n_classes=4, classes=("prod", "test", "demo", "live"))
    with ModelServer(learnt(mark)) as server:
        endpoint = tm.Endpoint(server.url(), headers={"X-Api-Key": "prod"})
        assert tm.verify(endpoint, mark, decoys=0).bits >= 64


def test_it_works_inside_of_an_event_loop():
    """Notebooks have one."""
    import asyncio

    mark = make_mark(k=40)

    async def inside(url):
        return tm.verify(url, mark, decoys=0)

    with ModelServer(learnt(mark)) as server:
        assert asyncio.run(inside(server.url())).level == "conclusive"


def test_whoever_interrupts_a_run_does_not_wait_for_a_slow_server():
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ModelServer(learnt(MARK), delay=60.0) as server:
            line = Line(tm.Endpoint(server.url(), timeout=120.0, retries=0))
            body = json.dumps({"dataframe_split": {"data": [[0.0, 0.0, 0.0]]}})
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt), line:
                line.ask(body, 1, {})
            for thread in line._worker._threads:
                thread.join(20)
                assert not thread.is_alive()
    finally:
        signal.signal(signal.SIGALRM, before)
