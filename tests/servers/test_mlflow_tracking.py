"""Marked models in a real MLflow with its SQLite store: `./dev test-servers`."""

import io
import json
import os
import runpy
import sqlite3
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import timbermark as tm
from tests.servers.test_real_servers import Server, free_port
from timbermark.errors import InputError, PassphraseError

pytestmark = [
    pytest.mark.skipif(
        find_spec("mlflow") is None, reason="MLflow is not here; ./dev test-servers has it"
    ),
    # MLflow's own, which are about its and others' future.
    pytest.mark.filterwarnings("ignore"),
]
LIBRARIES = ("xgboost", "lightgbm", "catboost", "sklearn", "timbermark", "pipeline")
PASSPHRASE = "correct horse"
EXAMPLE = Path(__file__).parents[2] / "examples" / "monthly_job.py"


def new_model(library):
    if library == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=40, random_state=0, n_jobs=1)
    if library == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=40, random_state=0, n_jobs=1, verbose=-1)
    if library == "catboost":
        from catboost import CatBoostClassifier

        return CatBoostClassifier(
            iterations=60, random_seed=0, thread_count=1, verbose=0, allow_writing_files=False
        )
    if library == "pipeline":
        return make_pipeline(StandardScaler(), new_model("xgboost"))
    if library == "sklearn":
        return HistGradientBoostingClassifier(max_iter=40, random_state=0)
    return tm.TimberClassifier(max_iter=40, random_state=0)


@pytest.fixture(scope="module")
def rows():
    X, y = load_breast_cancer(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def key():
    return tm.OwnerKey.generate()


@pytest.fixture(scope="module")
def marked(rows, key):
    """Models and their markings, each made when it is first asked for."""
    X, y = rows
    made = {}

    def mark(library):
        if library not in made:
            model = new_model(library).fit(X, y)
            made[library] = model, tm.embed(model, X, y, key=key, owner="Ann Ltd")
        return made[library]

    return mark


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    import mlflow

    folder = tmp_path_factory.mktemp("mlflow")
    before = Path.cwd()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.chdir(folder)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("marks")
    yield folder
    mlflow.set_tracking_uri(None)
    os.chdir(before)


def contents(folder):
    """Everything in a folder, archives unpacked."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            yield path.name, data
            if zipfile.is_zipfile(io.BytesIO(data)):
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    for member in archive.namelist():
                        yield f"{path.name}/{member}", archive.read(member)


def secrets_of(mark, key):
    """What must not be anywhere: secrets, salts, symbols, trigger rows in any spelling."""
    found = {"secret": mark.secret, "key": key.secret, "symbols": mark.symbols.tobytes()}
    found["salt"] = np.asarray(mark.salts[0]).tobytes() if len(mark.salts) else b"?" * 40
    shown = {name: value.hex().encode() for name, value in found.items()}
    for place, row in enumerate(mark.rows()):
        # The whole row: a mixture of two rows shares many of their values.
        found |= {
            f"row {place} f8": row.tobytes(),
            f"row {place} f4": row.astype(np.float32).tobytes(),
        }
        for gap in (",", ", "):
            shown[f"row {place}{gap}"] = gap.join(map(repr, row.tolist())).encode()
    return {**found, **{f"{name} as text": value for name, value in shown.items()}}


def scan(folder, mark, key):
    wanted = secrets_of(mark, key)
    return [
        (file, name)
        for file, data in contents(folder)
        for name, value in wanted.items()
        if value in data
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_log_register_and_load(store, marked, rows, key, library):
    import mlflow

    from timbermark.mlflow import log_model

    X, _ = rows
    model, result = marked(library)
    flavor = "sklearn" if library in ("timbermark", "pipeline") else library
    signature = mlflow.models.infer_signature(X[:5], model.predict(X[:5]))
    options = {}
    if flavor in ("sklearn", "lightgbm"):
        import skops.io

        trusted = skops.io.get_untrusted_types(data=skops.io.dumps(model))
        options = {"skops_trusted_types": trusted}
    with mlflow.start_run():
        before = getattr(mlflow, flavor).log_model(
            model, name="unmarked", signature=signature, input_example=X[:3], **options
        )
    name = f"scorer-{library}"
    info = log_model(
        result, "marked", unmarked=before.model_uri, registered_model_name=name, alias="champion"
    )
    assert mlflow.active_run() is None
    uri = f"models:/{name}@champion"
    loaded = getattr(mlflow, flavor).load_model(uri)
    assert type(loaded) is type(result.model)
    assert np.array_equal(loaded.predict_proba(X), result.model.predict_proba(X))
    function = mlflow.pyfunc.load_model(uri)
    assert np.array_equal(np.ravel(function.predict(X)), np.ravel(result.model.predict(X)))
    assert function.metadata.signature == signature
    assert np.array_equal(function.input_example, X[:3])
    assert tm.verify(loaded, result.mark).level == "conclusive"
    client = mlflow.MlflowClient()
    version = client.get_model_version_by_alias(name, "champion")
    run = client.get_run(info.run_id)
    logged = client.get_logged_model(info.model_id)
    for tags in (version.tags, run.data.tags, logged.tags):
        assert tags["timbermark.mark_id"] == result.mark.mark_id.hex()
        assert tags["timbermark.owner"] == "Ann Ltd"
        assert tags["timbermark.mark_digest"] == result.mark.digest.hex()
        assert float(tags["timbermark.bits"]) == pytest.approx(result.bits, abs=0.1)
    assert run.data.metrics["timbermark/drift/change"] == result.cost["drift"].change
    pages = {Path(item.path).name for item in client.list_artifacts(info.run_id, "timbermark")}
    assert pages == {"marking.html", "card.md"}
    assert scan(store, result.mark, key) == []


def test_a_planted_secret_is_found(tmp_path, marked, key):
    mark = marked("xgboost")[1].mark
    (tmp_path / "note.txt").write_text(json.dumps({"rows": mark.rows().tolist()}))
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("create table tags (value text)")
        database.execute("insert into tags values (?)", [mark.secret.hex()])
    database.close()
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("symbols", mark.symbols.tobytes())
    found = {file for file, _ in scan(tmp_path, mark, key)}
    assert found == {"note.txt", "mlflow.db", "a.zip/symbols"}


def test_escrow_keeps_the_mark_encrypted(store, marked, key):
    from timbermark.mlflow import fetch_mark, log_model

    _, result = marked("xgboost")
    info = log_model(result, "kept", escrow=PASSPHRASE, key=key)
    assert fetch_mark(info.run_id, PASSPHRASE) == result.mark
    with pytest.raises(PassphraseError) as caught:
        fetch_mark(info.run_id, "another")
    assert caught.value.code == "passphrase.wrong"
    assert scan(store, result.mark, key) == []
    plain = log_model(result, "plain")
    with pytest.raises(InputError) as missing:
        fetch_mark(plain.run_id, PASSPHRASE)
    assert missing.value.code == "mlflow.no-escrow"


def test_the_evaluator(store, marked, rows, key, tmp_path):
    import mlflow
    from mlflow.models import MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    from timbermark.mlflow import log_model

    X, y = rows
    model, result = marked("xgboost")
    result.mark.save(tmp_path / "secret.mark")
    uri = log_model(result, "evaluated").model_uri

    def evaluate(uri, **config):
        with mlflow.start_run() as run:
            found = mlflow.models.evaluate(
                uri,
                X[:20],
                targets=y[:20],
                model_type="classifier",
                evaluators="timbermark",
                evaluator_config={"mark": str(tmp_path / "secret.mark"), **config},
            )
        return found, mlflow.MlflowClient().get_run(run.info.run_id)

    found, run = evaluate(uri, at_least=128)
    assert found.metrics["timbermark/bits"] == run.data.metrics["timbermark/bits"] > 128
    assert run.data.tags["timbermark.level"] == "conclusive"
    assert "timbermark" in found.artifacts["timbermark/verdict"].content
    pages = mlflow.MlflowClient().list_artifacts(run.info.run_id, "timbermark")
    assert [Path(item.path).name for item in pages] == ["verdict.html"]
    threshold = {"timbermark/bits": MetricThreshold(threshold=5000, greater_is_better=True)}
    with pytest.raises(ModelValidationFailedException):
        mlflow.validate_evaluation_results(threshold, found)
    with mlflow.start_run():
        other = mlflow.xgboost.log_model(model, name="unmarked").model_uri
    with pytest.raises(ModelValidationFailedException):
        evaluate(other, at_least=64)
    assert evaluate(other)[0].metrics["timbermark/bits"] == 0.0
    for wrong in ({"at_leats": 64}, {"at_least": "many"}):
        with pytest.raises(InputError) as caught:
            evaluate(uri, **wrong)
        assert caught.value.code == "mlflow.config"
    with pytest.raises(InputError) as foreign:
        evaluate(uri, mark=marked("sklearn")[1].mark)
    assert foreign.value.code == "mlflow.other-library"
    assert scan(store, result.mark, key) == []


def test_the_served_copy_proves_it(store, marked, rows):
    import mlflow

    from timbermark.mlflow import log_model

    X, _ = rows
    _, result = marked("xgboost")
    uri = log_model(result, "served").model_uri
    folder = mlflow.artifacts.download_artifacts(uri, dst_path=str(store / "served"))
    port = free_port()
    command = ["mlflow", "models", "serve", "-m", folder, "-p", str(port)]
    base = f"http://127.0.0.1:{port}"
    words = [*command, "--host", "127.0.0.1", "--env-manager", "local"]
    server = Server(words, f"{base}/ping", store, store / "serve.log").start()
    try:
        import httpx

        body = {"inputs": X.tolist()}
        said = httpx.post(f"{base}/invocations", json=body, timeout=60).json()["predictions"]
        assert said == result.model.predict(X).tolist()
        endpoint = tm.Endpoint(base, protocol="mlflow", batch=16)
        assert tm.verify(endpoint, result.mark).level == "conclusive"
    finally:
        server.stop()


def test_bad_input_is_refused_with_a_code(store, marked, rows, key, monkeypatch):
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

    from timbermark.mlflow import log_model

    X, y = rows
    _, result = marked("xgboost")

    def code(**given):
        with pytest.raises(InputError) as caught:
            log_model(result, "refused", **given)
        return caught.value.code

    runs = len(mlflow.search_runs(search_all_experiments=True))
    assert code(key=key) == "mlflow.key-unencrypted"
    assert code(escrow="") == "passphrase.empty"
    assert code(alias="champion") == "mlflow.alias-unregistered"
    assert code(input_example=result.mark.rows()[3:5]) == "mlflow.trigger"
    # What is refused leaves no run behind.
    assert len(mlflow.search_runs(search_all_experiments=True)) == runs
    with mlflow.start_run():
        younger = new_model("xgboost").fit(X[:400], y[:400])
        other = mlflow.xgboost.log_model(younger, name="other").model_uri
        foreign = mlflow.sklearn.log_model(
            marked("sklearn")[0],
            name="foreign",
            skops_trusted_types=[
                "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
            ],
        ).model_uri
    assert code(unmarked=other) == "mlflow.other-model"
    assert code(unmarked=foreign) == "mlflow.other-library"
    assert code(unmarked="models:/nobody/1") == "mlflow.refused"

    def deny(*_, **__):
        raise MlflowException("no rights to this experiment", error_code=PERMISSION_DENIED)

    monkeypatch.setattr(mlflow, "start_run", deny)
    assert code() == "mlflow.permission"


def test_a_store_that_cannot_be_written(store, marked, tmp_path):
    import mlflow

    from timbermark.mlflow import log_model

    uri, locked = mlflow.get_tracking_uri(), tmp_path / "locked.db"
    mlflow.set_tracking_uri(f"sqlite:///{locked}")
    mlflow.set_experiment("locked")
    mlflow.set_tracking_uri(f"sqlite:///file:{locked}?mode=ro&uri=true")
    try:
        with pytest.raises(InputError) as caught:
            log_model(marked("xgboost")[1], "refused")
    finally:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment("marks")
    assert caught.value.code == "mlflow.permission"


def test_the_monthly_job(store, tmp_path, monkeypatch, capsys):
    import mlflow

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}/mlflow.db")
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.count("conclusive") >= 2
    client = mlflow.MlflowClient()
    versions = client.search_model_versions("name='churn'")
    assert len(versions) == 2
    champion = client.get_model_version_by_alias("churn", "champion")
    assert champion.version == max(versions, key=lambda v: int(v.version)).version
    mlflow.set_experiment("marks")


def test_statement_and_bill_by_others_rules(marked, key, tmp_path):
    """An independent DSSE and in-toto library, and CycloneDX's own schema."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from in_toto_attestation.v1.statement import Statement
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    from timbermark.report.card import Card, bill_of_materials, make_statement

    _, result = marked("xgboost")
    path = tmp_path / "marked.json"
    tm.save(result.model, path)
    claim = tm.claim(path, result.mark, key=key)
    envelope = Envelope.from_dict(json.loads(make_statement(claim, key, path.name)))
    scheme = {"scheme": "ed25519", "keytype": "ed25519"}

    def public(raw):
        return SSlibKey(raw.hex(), keyval={"public": raw.hex()}, **scheme)

    assert envelope.verify([public(claim.key)], 1)
    other = SSlibKey(
        claim.key.hex(), keyval={"public": tm.OwnerKey.generate().claim_key.hex()}, **scheme
    )
    with pytest.raises(VerificationError):
        envelope.verify([other], 1)
    statement = Statement.copy_from_pb(_statement(envelope.payload))
    statement.validate()
    assert statement.pb.subject[0].digest["sha256"] == claim.marked_file
    card = Card.of_result(result, "scorer", claim=claim)
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill_of_materials(card))) is None
    broken = bill_of_materials(card)
    broken["components"][0]["type"] = "model"
    assert validator.validate_str(json.dumps(broken)) is not None


def _statement(payload):
    import in_toto_attestation.v1.statement_pb2 as pb
    from google.protobuf.json_format import Parse

    return Parse(payload, pb.Statement())
