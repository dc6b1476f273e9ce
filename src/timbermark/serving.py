"""Guarded models behind servers: an MLflow model folder, and a runtime for MLServer.

`write_folder` writes a folder that ``mlflow models serve`` serves as it is; the client's name comes
in ``params``. MLServer serves the same folder by ``timbermark.serving.GuardRuntime``; the client's
name comes in a header. Nothing in the folder is a pickle. Neither server is imported until it asks.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timbermark.errors import FileFormatError, InputError
from timbermark.files import will_write
from timbermark.guard.guarding import Guard
from timbermark.marking.models import save

if TYPE_CHECKING:
    from timbermark.dtypes import AnyArray

GUARD, ABOUT, LEDGER = "guard.bin", "guard.json", "guard.db"
LEDGER_VARIABLE = "TIMBERMARK_LEDGER"
"""The environment variable that names the ledger, where that is not to be in the folder."""
CLIENT_HEADER = "x-client"
_ENDINGS = {"xgboost": ".json", "lightgbm": ".txt", "catboost": ".cbm", "timbermark": ".timber"}
_PARAMS = [
    {"name": "client", "type": "string", "default": "", "shape": None},
    {"name": "answers", "type": "string", "default": "labels", "shape": None},
]


def write_folder(
    guard: Guard, folder: str | os.PathLike[str], *, answers: str = "labels", force: bool = False
) -> None:
    """Write a guard and its model as an MLflow model folder.

    ``answers``: what is answered where a request does not say, "labels" or "scores". The folder
    holds the guard's secret but not the owner key; keep it as you keep the model. The ledger is
    ``guard.db`` in it, or the file that the environment variable TIMBERMARK_LEDGER names.

    Raises InputError if something is there already, unless ``force``.
    """
    place = Path(folder)
    if place.exists() and not force:
        raise InputError(
            f"{place} exists.",
            hint="give another name, or ask to overwrite it.",
            code="output.exists",
            parameter="out",
        )
    if answers not in ("labels", "scores"):
        raise InputError(
            f"answers={answers!r} is not known.", hint="use labels or scores.", parameter="answers"
        )
    foreign = guard._foreign
    model = "model" + _ENDINGS.get(foreign.library.lower(), ".skops")
    draft = place.with_name(f".{place.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        save(foreign.native, draft / model)
        guard.save(draft / GUARD)
        (draft / ABOUT).write_text(json.dumps({"model": model, "answers": answers}) + "\n")
        (draft / "MLmodel").write_text(_mlmodel())
        (draft / "requirements.txt").write_text("timbermark\nmlflow\n")
        (draft / "model-settings.json").write_text(_mlserver(place.name))
        will_write(place)
        if place.exists():
            shutil.rmtree(place)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _mlmodel() -> str:
    """Return MLflow's description of the folder; JSON is YAML, too."""
    about = {
        "flavors": {
            "python_function": {
                "loader_module": "timbermark.serving",
                "python_version": platform.python_version(),
            }
        },
        "signature": {"inputs": None, "outputs": None, "params": json.dumps(_PARAMS)},
    }
    return json.dumps(about, indent=1) + "\n"


def _mlserver(name: str) -> str:
    about = {
        "name": name,
        "implementation": "timbermark.serving.GuardRuntime",
        "parameters": {"uri": ".", "extra": {"client_header": CLIENT_HEADER}},
    }
    return json.dumps(about, indent=1) + "\n"


def load_folder(folder: str | os.PathLike[str], *, keep: bool = True) -> GuardedModel:
    """Return the guarded model in a folder that `write_folder` wrote.

    ``keep``: whether drawn questions go to its ledger. Raises FileFormatError if it is anything
    else, InputError if its ledger cannot be written.
    """
    place = Path(folder)
    try:
        about = json.loads((place / ABOUT).read_text())
        name, answers = about["model"], about["answers"]
        if Path(name).name != name or answers not in ("labels", "scores"):
            raise ValueError("other parts")
    except (OSError, ValueError, KeyError, TypeError):
        raise FileFormatError(
            f"{place} holds no guarded model.",
            hint="timbermark guard writes one.",
            code="file.parts",
        ) from None
    ledger = os.environ.get(LEDGER_VARIABLE) or place / LEDGER
    return GuardedModel(Guard.load(place / GUARD, place / name, ledger if keep else None), answers)


class GuardedModel:
    """What MLflow loads: ``predict(rows, params={"client": "acme", "answers": "scores"})``."""

    def __init__(self, guard: Guard, answers: str = "labels") -> None:
        self.guard, self.answers = guard, answers

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> AnyArray:
        """Return labels, scores or numbers for rows, guarded for the client in ``params``."""
        given = params or {}
        client, answers = given.get("client", ""), given.get("answers") or self.answers
        rows = model_input
        if hasattr(rows, "to_numpy") and self.guard._names is None:
            rows = rows.to_numpy()
        if answers == "scores" and hasattr(self.guard, "classes_"):
            return self.guard.predict_proba(rows, client=client)
        return self.guard.predict(rows, client=client)


def _load_pyfunc(path: str) -> GuardedModel:
    """Return the model in a folder, as MLflow asks for it."""
    return load_folder(path)


def __getattr__(name: str) -> Any:
    """Make `GuardRuntime` when MLServer asks for it, which alone has its base class."""
    if name != "GuardRuntime":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _make_runtime()
    globals()[name] = made
    return made


def _make_runtime() -> Any:
    codecs, types = import_module("mlserver.codecs"), import_module("mlserver.types")
    utils = import_module("mlserver.utils")

    class GuardRuntime(import_module("mlserver").MLModel):  # type: ignore[misc]
        """An MLServer runtime; the client's name comes in a header, ``x-client`` by default."""

        async def load(self) -> bool:
            place = Path(await utils.get_model_uri(self.settings))
            self._guarded = load_folder(place if place.is_dir() else place.parent)
            parameters = self.settings.parameters
            extra = (parameters.extra if parameters else None) or {}
            self._header = str(extra.get("client_header", CLIENT_HEADER)).lower()
            return True

        async def unload(self) -> bool:
            self._guarded.guard.close()
            return True

        async def predict(self, payload: Any) -> Any:
            rows = self.decode_request(payload, default_codec=codecs.NumpyRequestCodec)
            headers = (payload.parameters and getattr(payload.parameters, "headers", None)) or {}
            client = {name.lower(): text for name, text in headers.items()}.get(self._header, "")
            usual = "predict_proba" if self._guarded.answers == "scores" else "predict"
            wanted = [output.name for output in payload.outputs or ()] or [usual]
            outputs = []
            for name in wanted:
                kind = "scores" if name == "predict_proba" else "labels"
                found = self._guarded.predict(rows, {"client": client, "answers": kind})
                outputs.append(codecs.NumpyCodec.encode_output(name, found))
            return types.InferenceResponse(
                model_name=self.name, model_version=self.version, outputs=outputs
            )

    return GuardRuntime
