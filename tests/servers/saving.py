"""Save models as the servers want them. A program of its own: it needs the servers' libraries."""

import json
import sys
import warnings
from pathlib import Path

import joblib

RUNTIMES = {
    "xgboost": ("mlserver_xgboost.XGBoostModel", "model.json"),
    "lightgbm": ("mlserver_lightgbm.LightGBMModel", "model.bst"),
    "sklearn": ("mlserver_sklearn.SKLearnModel", "model.joblib"),
}


def save_for_mlflow(models, folder):
    import mlflow

    for library in ("xgboost", "lightgbm"):
        flavor = getattr(mlflow, library)
        model = models[library]
        booster = model.get_booster() if library == "xgboost" else model.booster_
        flavor.save_model(model, folder / f"mlflow-{library}-labels")
        flavor.save_model(booster, folder / f"mlflow-{library}-scores")


def save_for_mlserver(models, folder):
    def settle(name, runtime):
        place = folder / "mlserver" / name
        place.mkdir(parents=True)
        implementation, file = RUNTIMES[runtime]
        about = {"implementation": implementation, "parameters": {"uri": f"./{file}"}, "name": name}
        (place / "model-settings.json").write_text(json.dumps(about))
        return place / file

    models["xgboost"].save_model(settle("xgboost", "xgboost"))
    models["unmarked"].save_model(settle("unmarked", "xgboost"))
    models["lightgbm"].booster_.save_model(settle("lightgbm-scores", "lightgbm"))
    joblib.dump(models["lightgbm"], settle("lightgbm-labels", "sklearn"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    target = Path(sys.argv[1])
    given = joblib.load(target / "models.joblib")
    save_for_mlflow(given, target)
    save_for_mlserver(given, target)
