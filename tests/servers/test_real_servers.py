"""Marked models behind real servers: `./dev test-servers`, with an environment of its own."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

import timbermark as tm

pytestmark = pytest.mark.skipif(
    find_spec("mlflow") is None or find_spec("mlserver") is None,
    reason="MLflow and MLServer are not here; ./dev test-servers has them",
)

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
BIN = Path(sys.executable).parent


class Server:
    """A server as a process that can be started again on the same port."""

    def __init__(self, command, ready, folder, log):
        self.command, self.ready, self.folder, self.log = command, ready, folder, log
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, **QUIET, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
                start_new_session=True,
            )
        until = time.monotonic() + 120
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"the server did not start:\n{Path(self.log).read_text()[-3000:]}")
            time.sleep(0.2)
        return self

    def stop(self):
        # Servers have workers, and all of them are in the session that was begun for them.
        os.killpg(self.process.pid, 9)
        self.process.wait()

    def _answers(self):
        import httpx

        try:
            return httpx.get(self.ready, timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The marks, and the marked models as each server wants them."""
    import joblib
    import lightgbm
    import xgboost

    place = tmp_path_factory.mktemp("servers")
    X, y = load_digits(return_X_y=True)
    models = {
        "xgboost": xgboost.XGBClassifier(n_estimators=60, random_state=0, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=60, random_state=0, n_jobs=1, verbose=-1),
    }
    marks, ready = {}, {}
    key = tm.OwnerKey.generate()
    for name, model in models.items():
        model.fit(X, y)
        result = tm.embed(model, X, y, key=key, owner="Ann Ltd")
        marks[name], ready[name] = result.mark, result.model
    joblib.dump({**ready, "unmarked": models["xgboost"]}, place / "models.joblib")
    code = [sys.executable, str(Path(__file__).with_name("saving.py")), str(place)]
    subprocess.run(code, check=True, env={**os.environ, **QUIET})
    return place, marks


def serve_mlflow(place, library, kind):
    port = free_port()
    model = place / f"mlflow-{library}-{kind}"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(model)]
    command += ["-p", str(port), "--host", "127.0.0.1", "--env-manager", "local"]
    base = f"http://127.0.0.1:{port}"
    return base, Server(command, f"{base}/ping", place, place / f"mlflow-{library}-{kind}.log")


@pytest.fixture(scope="module")
def mlserver(house):
    place, _ = house
    ports = [free_port() for _ in range(3)]
    names = ("http_port", "grpc_port", "metrics_port")
    setting = {**dict(zip(names, ports, strict=True)), "host": "127.0.0.1", "parallel_workers": 0}
    (place / "mlserver" / "settings.json").write_text(json.dumps(setting))
    base = f"http://127.0.0.1:{ports[0]}"
    command = [str(BIN / "mlserver"), "start", "."]
    server = Server(command, f"{base}/v2/health/ready", place / "mlserver", place / "mlserver.log")
    server.start()
    yield base, server
    server.stop()


def restart_in_the_middle(server, journal, after):
    """Restart a server once a journal has some lines."""

    def watch():
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if journal.exists() and journal.read_bytes().count(b'"answers"') >= after:
                server.stop()
                server.start()
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def check(verdict, kind):
    assert verdict.level == "conclusive"
    assert verdict.kind == kind
    assert verdict.answered <= verdict.trials


@pytest.mark.parametrize("kind", ["labels", "scores"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_mlflow(house, tmp_path, library, kind):
    place, marks = house
    base, server = serve_mlflow(place, library, kind)
    server.start()
    journal = tmp_path / "journal"
    try:
        endpoint = tm.Endpoint(base, protocol="mlflow", rate=900, retries=12)
        thread = restart_in_the_middle(server, journal, after=10)
        verdict = tm.verify(endpoint, marks[library], answers=kind, journal=journal)
        thread.join()
        check(verdict, kind)
        # What the journal holds is not asked again: the server is gone.
        server.stop()
        again = tm.verify(endpoint, marks[library], answers=kind, journal=journal)
        assert again.bits == verdict.bits
        server.start()
        batched = tm.verify(
            tm.Endpoint(base, protocol="mlflow", batch=16), marks[library], decoys=2
        )
        check(batched, kind)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("library", "kind", "model", "output"),
    [
        ("xgboost", "labels", "xgboost", None),
        ("xgboost", "scores", "xgboost", "predict_proba"),
        ("lightgbm", "labels", "lightgbm-labels", "predict"),
        ("lightgbm", "scores", "lightgbm-labels", "predict_proba"),
        ("lightgbm", "scores", "lightgbm-scores", None),
    ],
)
def test_mlserver(house, mlserver, tmp_path, library, kind, model, output):
    _, marks = house
    base, server = mlserver
    journal = tmp_path / "journal"
    endpoint = tm.Endpoint(f"{base}/v2/models/{model}", output=output, rate=900, retries=12)
    assert endpoint.protocol == "kserve-v2"
    thread = restart_in_the_middle(server, journal, after=10)
    verdict = tm.verify(endpoint, marks[library], answers=kind, journal=journal)
    thread.join()
    check(verdict, kind)


def test_an_unmarked_model_on_a_real_server_proves_nothing(house, mlserver):
    _, marks = house
    base, _ = mlserver
    for output in (None, "predict_proba"):
        endpoint = tm.Endpoint(f"{base}/v2/models/unmarked", output=output, batch=8)
        assert tm.verify(endpoint, marks["xgboost"], stop_at="off").level == "none"


def test_missing_values_reach_the_model(house, mlserver):
    """MLServer takes null for NaN, which JSON does not have."""
    import httpx

    base, _ = mlserver
    body = {
        "inputs": [{"name": "input-0", "shape": [1, 64], "datatype": "FP64", "data": [None] * 64}]
    }
    reply = httpx.post(f"{base}/v2/models/xgboost/infer", json=body)
    assert reply.status_code == 200, reply.text
