"""The job that runs every month: train, mark, claim, log, verify last month's model, list marks.

It keeps files in the folder it runs in. Where MLFLOW_TRACKING_URI is set and MLflow is installed
(`pip install "timbermark[mlflow]"`), models, costs and verdicts go to MLflow as well, and last
month's model comes from its registry.

    python examples/monthly_job.py
"""

import os
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import shuffle

import timbermark as tm
from timbermark.cli import main as timbermark

NAME, OWNER = "churn", "Ann Ltd"
X, y = shuffle(*load_breast_cancer(return_X_y=True), random_state=0)
in_mlflow = bool(os.environ.get("MLFLOW_TRACKING_URI"))


def run_job(month: str, rows: slice, last: str | None) -> None:
    """Do everything that one month asks for; ``last`` is the month before."""
    key = tm.OwnerKey.load("owner.key")
    model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(X[rows], y[rows])
    made = tm.embed(model, X[rows], y[rows], key=key, owner=OWNER)
    made.mark.save(f"{month}.mark")  # in a real job with a passphrase
    tm.save(made.model, f"{month}.skops")
    tm.claim(f"{month}.skops", made.mark, key=key).save(f"{month}.claim")

    # What is served now must still be last month's model, before the new one takes its place.
    if last is not None:
        served = load_champion() if in_mlflow else f"{last}.skops"
        verdict = tm.verify(served, f"{last}.mark")
        print(f"served since {last}: {verdict.level}, {verdict.bits:.0f} bits")
        assert verdict.level == "conclusive"
    if in_mlflow:
        from timbermark.mlflow import log_model

        log_model(made, NAME, input_example=X[:3], registered_model_name=NAME, alias="champion")

    # As a step of a pipeline: an exit code, and a file that every CI system reads.
    words = ["check", f"{month}.skops", f"{month}.mark", "--at-least", "64"]
    assert timbermark([*words, "--junit", f"{month}.xml"]) == 0
    assert timbermark(["card", f"{month}.skops", f"{month}.mark", "--out", f"{month}.md"]) == 0


def load_champion():
    """Return the model that the registry says is served."""
    import mlflow

    return mlflow.sklearn.load_model(f"models:/{NAME}@champion")


if not Path("owner.key").exists():
    tm.OwnerKey.generate().save("owner.key")
run_job("2026-10", slice(0, 450), None)
run_job("2026-11", slice(100, 569), "2026-10")
assert timbermark(["marks", "."]) == 0
