"""Guarded models behind real servers: a student trained through HTTP carries the mark."""

import json
import os
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import timbermark as tm
from tests.servers.test_real_servers import BIN, Server, free_port
from timbermark.guard.drawing import guard_secret, make_mark
from timbermark.guard.ledger_file import read_chains, read_questions, read_statement, read_summary
from timbermark.serving import write_folder

pytestmark = pytest.mark.skipif(
    find_spec("mlflow") is None or find_spec("mlserver") is None,
    reason="MLflow and MLServer are not here; ./dev test-servers has them",
)

KEY = tm.OwnerKey(bytes(range(32)))
LIBRARIES = ("xgboost", "lightgbm")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    import lightgbm
    import xgboost

    place = tmp_path_factory.mktemp("guarded") / "models"
    place.mkdir()
    X, y = load_digits(return_X_y=True)
    models = {
        "xgboost": xgboost.XGBClassifier(n_estimators=30, random_state=0, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=30, random_state=0, n_jobs=1, verbose=-1),
    }
    guards = {}
    for name, model in models.items():
        model.fit(X[:600], y[:600])
        guards[name] = tm.Guard(model, X[600:], key=KEY, owner="Ann Ltd", share=0.1, ledger=None)
        write_folder(guards[name], place / name)
    return place, guards, X[600:]


def convict(folder, X, labels, guard):
    """A forest that learnt the answers, and the mark of the ledger that the server kept."""
    assert (labels == guard.predict(X)).all()
    ledger = folder / "guard.db"
    read_chains(ledger)
    (client,) = [c for c in read_summary(ledger).clients if c.client == "acme"]
    assert client.asked >= len(X)
    statement = read_statement(ledger)
    questions = read_questions(ledger, guard_secret(statement, KEY), clients=["acme"])
    mark = make_mark(questions, statement, KEY, clients=["acme"])
    student = RandomForestClassifier(random_state=0).fit(X, labels)
    assert tm.verify(student, mark).level == "conclusive"
    assert tm.verify(guard._foreign.native, mark).bits < 20


@pytest.mark.parametrize("library", LIBRARIES)
def test_mlflow_serves_a_guarded_model(house, tmp_path, library):
    import httpx

    place, guards, X = house
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(place / library)]
    command += ["-p", str(port), "--host", "127.0.0.1", "--env-manager", "local"]
    base = f"http://127.0.0.1:{port}"
    server = Server(command, f"{base}/ping", place, tmp_path / "log")
    server.start()
    try:
        labels = []
        for first in range(0, len(X), 200):
            body = {"inputs": X[first : first + 200].tolist(), "params": {"client": "acme"}}
            answer = httpx.post(f"{base}/invocations", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            labels += answer.json()["predictions"]
        body = {"inputs": X[:5].tolist(), "params": {"client": "x", "answers": "scores"}}
        scores = httpx.post(f"{base}/invocations", json=body, timeout=60).json()["predictions"]
        assert np.allclose(scores, guards[library].predict_proba(X[:5]))
        time.sleep(0.5)  # drawn questions are written within a moment
    finally:
        server.stop()
    convict(place / library, X, np.array(labels), guards[library])


def test_mlserver_serves_guarded_models(house, tmp_path):
    import httpx

    place, guards, X = house
    for library in LIBRARIES:
        (place / library / "guard.db").unlink(missing_ok=True)
    ports = [free_port() for _ in range(3)]
    names = ("http_port", "grpc_port", "metrics_port")
    setting = {**dict(zip(names, ports, strict=True)), "host": "127.0.0.1", "parallel_workers": 0}
    (place / "settings.json").write_text(json.dumps(setting))
    base = f"http://127.0.0.1:{ports[0]}"
    server = Server(
        [os.fspath(BIN / "mlserver"), "start", "."], f"{base}/v2/health/ready", place,
        tmp_path / "log",
    )  # fmt: skip
    server.start()
    found = {}
    try:
        for library in LIBRARIES:
            labels = []
            for first in range(0, len(X), 200):
                rows = X[first : first + 200]
                tensor = {"name": "x", "shape": list(rows.shape), "datatype": "FP64"}
                answer = httpx.post(
                    f"{base}/v2/models/{library}/infer",
                    json={"inputs": [{**tensor, "data": rows.ravel().tolist()}]},
                    headers={"X-Client": "acme"},
                    timeout=60,
                )
                assert answer.status_code == 200, answer.text
                labels += answer.json()["outputs"][0]["data"]
            found[library] = np.array(labels)
            time.sleep(0.5)  # drawn questions are written within a moment
    finally:
        server.stop()
    for library in LIBRARIES:
        convict(place / library, X, found[library], guards[library])
