"""What `timbermark.mlflow` does where MLflow is not installed; tests/servers has the rest."""

from importlib.metadata import entry_points

import pytest

from tests.report.results import embed_result
from timbermark.errors import InputError, MissingLibraryError
from timbermark.mlflow import Evaluator, _check_example, _metrics, fetch_mark, log_model


def test_the_extra_is_named_where_mlflow_is_missing(monkeypatch):
    monkeypatch.setattr("timbermark.errors.find_spec", lambda name: None)
    for call in (lambda: log_model(embed_result(), "scorer"), lambda: fetch_mark("run", "words")):
        with pytest.raises(MissingLibraryError) as caught:
            call()
        assert caught.value.hint == 'pip install "timbermark[mlflow]"'


def test_mlflow_finds_the_evaluator():
    found = entry_points(group="mlflow.model_evaluator", name="timbermark")
    if not found:
        pytest.skip("timbermark was installed before it had an evaluator; ./dev setup")
    assert next(iter(found)).load() is Evaluator


def test_the_evaluator_needs_a_mark():
    assert Evaluator.can_evaluate(model_type="classifier", evaluator_config={"mark": "a.mark"})
    for config in (None, {}):
        assert not Evaluator.can_evaluate(model_type="classifier", evaluator_config=config)


def test_metrics_are_the_cost_table():
    result = embed_result()
    found = _metrics(result)
    assert found["timbermark/bits"] == result.bits
    assert found["timbermark/drift/change"] == result.cost["drift"].change
    assert found["timbermark/accuracy/after"] == result.cost["accuracy"].after
    # MLflow takes letters, digits and these; classes may be called anything.
    assert all(set("".join(c for c in name if not c.isalnum())) <= set("_-. /") for name in found)


def test_an_example_never_shows_a_trigger():
    import pandas as pd

    mark = embed_result().mark
    rows = mark.rows()
    _check_example(rows + 1.0, mark)
    _check_example(None, mark)
    for example in (rows[5:6], pd.DataFrame(rows[:2]), rows[:1].tolist()):
        with pytest.raises(InputError) as caught:
            _check_example(example, mark)
        assert caught.value.code == "mlflow.trigger"
