"""A small server that answers like a model, counts what it was asked, and misbehaves on purpose."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


class ModelServer:
    """Answers rows with ``answer(rows)``.

    ``misbehave(number)`` names what goes wrong with a request, if anything does. ``asked``
    counts the rows of all requests that reached the model, ``requests`` everything.
    """

    def __init__(self, answer, misbehave=None, delay=0.0, token=None, context=None):
        self.answer, self.misbehave, self.delay = answer, misbehave, delay
        self.token = token
        self.asked, self.requests, self.headers, self.bodies = Counter(), 0, [], []
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body in one packet, or else the next acknowledgement is waited for.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self):
                server.handle(self)

            def log_message(self, *_):
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a client that goes away is part of the tests

        self.http = Http(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if context is not None:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
            self.scheme = "https"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def url(self, path="/invocations", host="127.0.0.1"):
        return f"{self.scheme}://{host}:{self.http.server_port}{path}"

    def handle(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self.lock:
            number = self.requests
            self.requests += 1
            self.headers.append(dict(request.headers))
            self.bodies.append(body)
        trouble = self.misbehave(number) if self.misbehave else None
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return reply(request, 401, b'{"error": "who are you?"}')
        if trouble in TROUBLES:
            return TROUBLES[trouble](request)
        rows, wrap = _read(request.path, json.loads(body))
        with self.lock:
            self.asked.update(tuple(row) for row in rows)
        if trouble == "slow":
            time.sleep(3)
        time.sleep(self.delay)
        answers = self.answer(np.array(rows, dtype=object))
        answers = np.asarray(answers, dtype=object).tolist()
        if trouble == "one too few":
            answers = [*answers, *answers[:1]]
        if trouble == "nan":
            answers = [float("nan") for _ in answers]
        return reply(request, 200, json.dumps(wrap(answers)).encode())


def _read(path, body):
    if path.startswith("/v2/"):
        (tensor,) = body["inputs"]
        rows = np.array(tensor["data"], dtype=object).reshape(tensor["shape"]).tolist()
        return rows, _tensor
    if path.startswith("/v1/"):
        return body["instances"], lambda answers: {"predictions": answers}
    if path == "/one":
        row = list(body["input"].values())
        return [row], lambda answers: {"result": {"label": answers[0]}}
    if path == "/many":
        rows = [list(record.values()) for record in body["records"]]
        return rows, lambda answers: {"results": [{"label": answer} for answer in answers]}
    return body["dataframe_split"]["data"], lambda answers: {"predictions": answers}


def _tensor(answers):
    values = np.array(answers, dtype=object)
    return {
        "model_name": "m",
        "outputs": [
            {"name": "predict", "shape": list(values.shape), "data": values.ravel().tolist()}
        ],
    }


def reply(request, code, body, headers=()):
    request.send_response(code)
    for name, value in headers:
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _half(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"predictions": [')
    request.wfile.flush()
    request.close_connection = True


def _endless(request):
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    piece = b"a" * 65536
    for _ in range(4096):
        request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def _drip(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    for _ in range(100):
        request.wfile.write(b" ")
        request.wfile.flush()
        time.sleep(0.1)


TROUBLES = {
    "429": lambda request: reply(request, 429, b"slow down", [("Retry-After", "0")]),
    "429 tomorrow": lambda request: reply(request, 429, b"", [("Retry-After", "86400")]),
    "500": lambda request: reply(request, 500, b"<h1>oops</h1>"),
    "404": lambda request: reply(request, 404, b"no such model"),
    "422": lambda request: reply(request, 422, b'{"detail": "age must be below 120"}'),
    "html": lambda request: reply(request, 200, b"<html>\x1b[31mPlease log in</html>"),
    "torn json": lambda request: reply(request, 200, b'{"predictions": [1, 2'),
    "deep json": lambda request: reply(request, 200, b"[" * 100_000),
    "other json": lambda request: reply(request, 200, b'{"error": "no"}'),
    "redirect": lambda request: reply(
        request, 302, b"", [("Location", "https://elsewhere.example/invocations?key=hidden")]
    ),
    "half": _half,
    "endless": _endless,
    "drip": _drip,
}
