"""Marked models in MLflow: log them with what marking cost, and evaluate what is deployed.

``log_model`` logs a marked model in its library's own flavor, so that whoever loads or serves it
needs nothing of timbermark. ``Evaluator`` is found by MLflow itself, under the name "timbermark".
The secret mark and the owner key never enter the tracking store unless they are encrypted.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import timbermark
from timbermark.errors import InputError, require_library
from timbermark.libraries.wrappers import is_wrapper
from timbermark.marking.models import open_model
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.report import check_packages
from timbermark.report.card import Card, describe_card, to_markdown
from timbermark.trees.ensemble import digest
from timbermark.verification.verifying import verify

if TYPE_CHECKING:
    from timbermark.marking.embedding import EmbedResult

__all__ = ["Evaluator", "fetch_mark", "log_model"]

FOLDER = "timbermark"
"""The folder of a run's artifacts in which everything of timbermark is."""
_MARK, _KEY = "secret.mark", "owner.key"
_FLAVORS = {"XGBoost": "xgboost", "LightGBM": "lightgbm", "CatBoost": "catboost"}
_PASSPHRASE = "TIMBERMARK_PASSPHRASE"
_METRIC = "timbermark"


def log_model(
    result: EmbedResult,
    name: str,
    *,
    unmarked: str | None = None,
    signature: Any = None,
    input_example: Any = None,
    registered_model_name: str | None = None,
    alias: str | None = None,
    escrow: str | None = None,
    key: OwnerKey | None = None,
    attacks: Any = None,
    **flavor_options: Any,
) -> Any:
    """Log a marked model to the active run, or to a new one; return MLflow's own ModelInfo.

    ``result``: what `timbermark.embed` gave. ``name``, ``signature``, ``input_example``,
    ``registered_model_name`` and ``flavor_options`` are those of the flavor's ``log_model``.
    ``unmarked``: the URI of the model before marking, whose signature and input example are kept
    where none are given; it must be the model that the mark was made for. The run gets the cost as
    metrics, the page and the card as artifacts, and tags, none of which is secret; the logged
    model and its registered version get the same tags, and the version ``alias``.

    ``escrow``: a passphrase. With it, the mark, and the owner ``key`` if given, are stored with
    the run, encrypted; `fetch_mark` reads the mark again. Without it they are never stored.
    ``attacks``: what `timbermark.attack` found, for the page and the card.

    Raises InputError where MLflow refuses, for a model of another library than the mark's, and
    for an unmarked model that is not the mark's; MissingLibraryError without MLflow.
    """
    require_library("mlflow", "mlflow", "to log a model")
    import mlflow

    mark = result.mark
    foreign = open_model(result.model)
    _check_library(foreign.library, mark, "The marked model")
    if isinstance(result.model, tuple):
        raise InputError(
            "MLflow has no flavor for a model with a label encoder beside it.",
            hint="log the model alone with its own flavor, or mark a pipeline.",
            code="mlflow.flavor",
            parameter="result",
        )
    if key is not None and escrow is None:
        raise InputError(
            "The owner key is stored only if it is encrypted.",
            hint="give a passphrase, escrow=…, or leave the key out.",
            code="mlflow.key-unencrypted",
            parameter="key",
        )
    if alias is not None and registered_model_name is None:
        raise InputError(
            f"alias={alias!r} is for a registered model.",
            hint="give registered_model_name='…', too.",
            code="mlflow.alias-unregistered",
            parameter="alias",
        )
    check_packages()
    sealed = None if escrow is None else mark.to_bytes(escrow)
    if unmarked is not None:
        with _refusals():
            kept = _read_unmarked(unmarked, mark)
        signature = kept[0] if signature is None else signature
        input_example = kept[1] if input_example is None else input_example
    _check_example(input_example, mark)
    with _refusals(), _run():
        card = Card.of_result(result, name, attacks=attacks)
        tags = _tags(result, card.marked_digest)
        # A pipeline around a model of XGBoost is scikit-learn's.
        own = None if is_wrapper(result.model) else _FLAVORS.get(foreign.library)
        flavor = own or "sklearn"
        given = dict(flavor_options)
        if flavor in ("sklearn", "lightgbm"):
            given.setdefault("skops_trusted_types", _list_types(result.model))
        info = getattr(mlflow, flavor).log_model(
            result.model,
            name=name,
            signature=signature,
            input_example=input_example,
            registered_model_name=registered_model_name,
            tags=tags,
            **given,
        )
        mlflow.set_tags(tags)
        mlflow.log_metrics(_metrics(result), model_id=info.model_id)
        _log_pages(result, card, attacks)
        if sealed is not None:
            _log_secrets(sealed, key, escrow)
        if registered_model_name is not None:
            _tag_version(registered_model_name, info, tags, alias)
    return info


def fetch_mark(run_id: str, passphrase: str) -> Mark:
    """Return the mark that ``log_model(…, escrow=passphrase)`` stored with a run.

    Raises InputError where the run has none or MLflow refuses, PassphraseError for a wrong
    passphrase.
    """
    require_library("mlflow", "mlflow", "to read a run")
    import mlflow

    with tempfile.TemporaryDirectory(prefix="timbermark-") as folder, _refusals():
        names = {
            Path(item.path).name for item in mlflow.MlflowClient().list_artifacts(run_id, FOLDER)
        }
        if _MARK not in names:
            raise InputError(
                f"Run {run_id} holds no mark.",
                hint="log_model(…, escrow=passphrase) stores one.",
                code="mlflow.no-escrow",
                parameter="run_id",
            )
        path = mlflow.artifacts.download_artifacts(
            run_id=run_id, artifact_path=f"{FOLDER}/{_MARK}", dst_path=folder
        )
        return Mark.from_bytes(Path(path).read_bytes(), passphrase)


class Evaluator:
    """The evaluator "timbermark" of ``mlflow.models.evaluate``.

    ``evaluator_config``: ``mark``, a `Mark` or its file (the environment variable
    TIMBERMARK_PASSPHRASE opens an encrypted one); ``at_least``, the bits below which the validation
    fails; ``answers``, as in `timbermark.verify`. It logs the bits, the level as a tag and the page
    of the verdict. The data of the evaluation are not looked at.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: Any, evaluator_config: Any, **_: Any) -> bool:
        """Return whether a mark is given: without one there is nothing to ask."""
        return "mark" in (evaluator_config or {})

    def evaluate(
        self, *, run_id: str, evaluator_config: Mapping[str, Any], model: Any = None, **_: Any
    ) -> Any:
        """Return the result with ``timbermark/bits``; log it and the page to the run.

        Raises MLflow's ModelValidationFailedException below ``at_least``, InputError for a
        configuration that does not fit.
        """
        import mlflow
        from mlflow.models import EvaluationResult
        from mlflow.models.evaluation.artifacts import TextEvaluationArtifact
        from mlflow.models.evaluation.validation import ModelValidationFailedException

        config = dict(evaluator_config)
        mark, at_least = _take_mark(config.pop("mark")), config.pop("at_least", None)
        answers = config.pop("answers", "auto")
        if not isinstance(at_least, int | float | None):
            raise InputError(
                f"at_least={at_least!r:.40} is not a number of bits.",
                hint="64 bits convince anyone.",
                code="mlflow.config",
                parameter="at_least",
            )
        if config or model is None:
            raise InputError(
                f"evaluator_config has '{min(config)}', which the evaluator does not know."
                if config
                else "There is no model to ask, only its answers.",
                hint="evaluate a model with evaluator_config={'mark': …, 'at_least': 64}.",
                code="mlflow.config",
                parameter="evaluator_config",
            )
        verdict = verify(_suspect(model, mark), mark, answers=answers)
        metrics = {f"{_METRIC}/bits": verdict.bits, f"{_METRIC}/matched": float(verdict.matched)}
        artifacts = {}
        with tempfile.TemporaryDirectory(prefix="timbermark-") as folder, _refusals():
            page = Path(folder) / "verdict.html"
            verdict.report(page)
            client = mlflow.MlflowClient()
            for metric, value in metrics.items():
                client.log_metric(run_id, metric, value)
            client.set_tag(run_id, f"{_METRIC}.level", verdict.level)
            client.set_tag(run_id, f"{_METRIC}.mark_id", verdict.mark_id)
            client.log_artifact(run_id, str(page), FOLDER)
            uri = mlflow.get_artifact_uri(f"{FOLDER}/{page.name}")
            text = page.read_text(encoding="utf-8")
            artifacts[f"{_METRIC}/verdict"] = TextEvaluationArtifact(uri=uri, content=text)
        if at_least is not None and verdict.bits < at_least:
            raise ModelValidationFailedException(
                f"{verdict.bits:.1f} bits of evidence for the mark {verdict.mark_id}, "
                f"at least {at_least:g} wanted."
            )
        return EvaluationResult(metrics=metrics, artifacts=artifacts, run_id=run_id)


def _take_mark(given: Any) -> Mark:
    if isinstance(given, Mark):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InputError(
            f"{type(given).__name__} is not a mark.",
            hint="give a Mark or the path of its file.",
            code="mark.type",
            parameter="mark",
        )
    return Mark.load(given, os.environ.get(_PASSPHRASE))


def _suspect(model: Any, mark: Mark) -> Any:
    """Return the model inside, which gives scores; a served one is asked as it answers."""
    try:
        inside = model.get_raw_model()
    except (AttributeError, NotImplementedError):
        # A served model, or a flavor that hides what it wraps: MLflow says so in these two ways.
        return model.predict
    try:
        library = open_model(inside).library
    except InputError:
        return model.predict
    _check_library(library, mark, "The model")
    return inside


def _check_library(found: str, mark: Mark, what: str) -> None:
    wanted = mark.about.get("library")
    if wanted is not None and found != wanted:
        raise InputError(
            f"{what} is of {found}, but the mark is of a model of {wanted}.",
            hint="give the mark that was made for this model.",
            code="mlflow.other-library",
            parameter="mark",
        )


def _read_unmarked(uri: str, mark: Mark) -> tuple[Any, Any]:
    """Return the signature and the input example of the model before marking."""
    import mlflow

    info = mlflow.models.get_model_info(uri)
    flavor = next((name for name in (*_FLAVORS.values(), "sklearn") if name in info.flavors), None)
    if flavor is None:
        raise InputError(
            f"{uri} is of no flavor that timbermark marks.",
            hint="give a model of XGBoost, LightGBM, CatBoost or scikit-learn.",
            code="mlflow.flavor",
            parameter="unmarked",
        )
    foreign = open_model(getattr(mlflow, flavor).load_model(uri))
    _check_library(foreign.library, mark, uri)
    if digest(foreign.ensemble) != mark.model_digest:
        raise InputError(
            f"{uri} is not the model that the mark was made for.",
            hint="mark the registered model, or name the version that was marked.",
            code="mlflow.other-model",
            parameter="unmarked",
        )
    example = None
    if info.saved_input_example_info is not None:
        example = mlflow.models.Model.load(uri).load_input_example(
            mlflow.artifacts.download_artifacts(uri)
        )
    return info.signature, example


def _check_example(example: Any, mark: Mark) -> None:
    """Raise InputError for an example with a row that is a trigger: it would no longer be secret.

    Triggers are rows as they are only where `timbermark.embed` was told so.
    """
    rows = np.asarray(example, dtype=object)
    if example is None or rows.ndim != 2:
        return
    triggers = {tuple(map(str, row)) for row in mark.rows().tolist()}
    if any(tuple(_spell(cell) for cell in row) in triggers for row in rows.tolist()):
        raise InputError(
            "The input example has a row that is a trigger of the mark.",
            hint="give other rows as the example.",
            code="mlflow.trigger",
            parameter="input_example",
        )


def _spell(cell: Any) -> str:
    try:
        return str(float(cell))
    except (TypeError, ValueError):
        return str(cell)


def _tags(result: EmbedResult, marked_digest: str) -> dict[str, str]:
    mark = result.mark
    told = {
        "mark_id": mark.mark_id.hex(),
        "mark_digest": mark.digest.hex(),
        "model_digest": mark.model_digest,
        "marked_digest": marked_digest,
        "bits": f"{result.bits:.1f}",
        "owner": mark.owner,
        "version": timbermark.__version__,
    }
    return {f"{_METRIC}.{name}": value for name, value in told.items()}


def _metrics(result: EmbedResult) -> dict[str, float]:
    """Return the cost table by name, with its bounds, and what the mark is worth."""
    found = {f"{_METRIC}/bits": float(result.bits)}
    for figure in result.cost.to_dict()["figures"]:
        rows = "" if figure["rows"] == result.cost.measured_on else f"/{figure['rows']}"
        label = "" if figure["class"] is None else f"/{figure['class']}"
        for part in ("before", "after", "change", "at_most"):
            if figure[part] is not None:
                name = f"{_METRIC}/{figure['code']}{label}{rows}/{part}"
                # MLflow takes few characters in names; labels may be any text.
                kept = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)
                found[kept] = float(figure[part])
    return found


def _log_pages(result: EmbedResult, card: Card, attacks: Any) -> None:
    import mlflow

    with tempfile.TemporaryDirectory(prefix="timbermark-") as folder:
        result.report(Path(folder) / "marking.html", attacks=attacks)
        mlflow.log_artifacts(folder, FOLDER)
    mlflow.log_text(to_markdown(describe_card(card)), f"{FOLDER}/card.md")


def _log_secrets(sealed: bytes, key: OwnerKey | None, passphrase: str | None) -> None:
    """Log an encrypted mark, and the key encrypted with the same passphrase."""
    import mlflow

    with tempfile.TemporaryDirectory(prefix="timbermark-") as folder:
        (Path(folder) / _MARK).write_bytes(sealed)
        if key is not None:
            key.save(Path(folder) / _KEY, passphrase)
        mlflow.log_artifacts(folder, FOLDER)


def _tag_version(name: str, info: Any, tags: Mapping[str, str], alias: str | None) -> None:
    import mlflow

    client = mlflow.MlflowClient()
    version = info.registered_model_version
    for tag, value in tags.items():
        client.set_model_version_tag(name, str(version), tag, value)
    if alias is not None:
        client.set_registered_model_alias(name, alias, str(version))


def _list_types(model: Any) -> list[str]:
    """Return the types in a model's file that whoever loads it is told to trust."""
    require_library("skops", "skops", "to log a model without pickling it")
    import skops.io

    found: list[str] = skops.io.get_untrusted_types(data=skops.io.dumps(model))
    return found


@contextmanager
def _run() -> Iterator[None]:
    """Keep to the active run, or start one that ends with the block."""
    import mlflow

    if mlflow.active_run() is not None:
        yield
        return
    with mlflow.start_run():
        yield


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise InputError, with one sentence, for what MLflow refuses."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        denied = error.error_code in ("PERMISSION_DENIED", "UNAUTHENTICATED")
        said = " ".join(str(error.message).split())[:200]
        code = "mlflow.permission" if denied or "readonly" in said else "mlflow.refused"
        raise InputError(
            f"MLflow refused: {said}",
            hint="check the tracking address and your rights to the experiment and the model.",
            code=code,
        ) from error
    except PermissionError as error:
        raise InputError(
            f"MLflow's store does not take {error.filename}: {error.strerror}.",
            hint="check your rights to the folder of the artifacts.",
            code="mlflow.permission",
        ) from error
