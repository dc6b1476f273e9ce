"""Verify a suspect that is only reachable through HTTP.

It is asked question by question, among decoys, until the evidence is enough; a journal lets an
interrupted run go on. Needs `pip install "timbermark[endpoints]"`.

    python examples/verify_endpoint.py
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import timbermark as tm

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
model = tm.TimberClassifier(max_iter=30, random_state=0).fit(X[:1200], y[:1200])
made = tm.embed(model, X[:1200], y[:1200], key=tm.OwnerKey.generate(), owner="Ann Ltd")


class Service(BaseHTTPRequestHandler):
    """Stand in for the thief's server: it speaks MLflow's protocol and gives labels only."""

    def do_POST(self):
        """Answer the rows of a request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = np.array(body["dataframe_split"]["data"], dtype=float)
        answer = json.dumps({"predictions": made.model.predict(rows).tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Stay silent."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()

endpoint = tm.Endpoint(f"http://127.0.0.1:{server.server_port}/invocations", batch=8)
verdict = tm.verify(endpoint, made.mark, journal="run.journal")
server.shutdown()
server.server_close()
print(verdict)
assert verdict.level == "conclusive"
