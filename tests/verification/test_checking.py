"""Checks of served models, in Python and on the command line."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from tests.verification.servers import ModelServer
from tests.verification.staircases import build_house, others_model, scores, staircase
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble_file import save_ensemble
from timbermark.verification.checking import _share_changed, check
from timbermark.verification.suspects import NamedModel

WORKFLOW = Path(__file__).parents[2] / "examples" / "check-model.yml"


@pytest.fixture(scope="module")
def ann(tmp_path_factory):
    return build_house(tmp_path_factory.mktemp("check") / "ann", "Ann & Sons", staircase(1), 2)


@pytest.fixture(scope="module")
def steps():
    """A row on every step of the model; the mark is on 64 of 318 of them."""
    return np.column_stack([np.arange(1, 319) + 0.5, np.zeros(318)])


def findings(found):
    return {finding.name: finding.passed for finding in found.findings}


def test_the_marked_model_passes(ann, steps):
    found = check(ann.marked, ann.mark, at_least=100, unmarked=ann.unmarked)
    assert findings(found) == {"evidence": True, "trees": True}
    assert found.passed
    assert found.changed is None
    found = check(ann.marked, ann.mark, unmarked=ann.unmarked, rows=steps, max_changed=0.2)
    assert findings(found) == {"evidence": True, "trees": True, "answers": True}
    before, after = (scores(trees, steps).argmax(axis=1) for trees in (staircase(1), ann.trees))
    assert found.changed == (before != after).mean() > 0.1


def test_what_is_not_as_it_should_be_fails(ann, steps, tmp_path):
    assert findings(check(ann.unmarked, ann.mark)) == {"evidence": False}
    found = check(ann.marked, ann.mark, unmarked=ann.unmarked, rows=steps, max_changed=0.1)
    assert findings(found) == {"evidence": True, "trees": True, "answers": False}
    assert not found.passed
    other = tmp_path / "other.timber"
    save_ensemble(other, others_model(3))
    found = check(other, ann.mark, unmarked=ann.unmarked)
    assert findings(found) == {"evidence": False, "trees": False}


def test_numbers_are_compared_by_their_spread():
    def model(high):
        return NamedModel(
            make_ensemble(
                n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
                left=[1, -1, -1], right=[2, -1, -1], value=[[0.0], [1.0], [high]],
                objective="identity",
            ),
            None, None, None,
        )  # fmt: skip

    rows = np.array([[0.0], [1.0]])
    assert _share_changed(model(3.0), model(3.5), rows) == 0.25
    assert _share_changed(model(1.0), model(1.0), rows) == 0.0
    assert _share_changed(model(1.0), model(1.5), rows) == 1.0


def test_junit_is_what_ci_systems_read(ann, steps):
    strange = replace(ann.mark, owner="A <b> & \u2028c".replace("\u2028", "…"))
    found = check(ann.marked, strange, unmarked=ann.unmarked, rows=steps, max_changed=0.1)
    suites = ElementTree.fromstring(found.to_junit())
    (suite,) = suites.findall("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    failed = {
        case.get("name"): case.find("failure") is not None for case in suite.findall("testcase")
    }
    # The owner's name is part of what symbols derive from.
    assert failed == {"evidence": True, "trees": False, "answers": True}
    told = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert told["owner"] == strange.owner


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"at_least": 0.0}, "check.at-least"),
        ({"at_least": float("nan")}, "check.at-least"),
        ({"at_least": 10_000.0}, "check.beyond-mark"),
        ({"max_changed": 1.5}, "option.number"),
        ({"rows": np.zeros((1, 2))}, "option.unfit"),
    ],
)
def test_bad_input_has_a_code(ann, given, code):
    with pytest.raises(InputError) as caught:
        check(ann.marked, ann.mark, **given)
    assert caught.value.code == code


def test_models_that_do_not_belong_together(ann, tmp_path):
    def code(*words, **given):
        with pytest.raises(InputError) as caught:
            check(*words, **given)
        return caught.value.code

    foreign = replace(ann.mark, about={"library": "XGBoost"})
    assert code(ann.marked, foreign) == "check.other-library"
    assert code(ann.marked, ann.mark, unmarked=ann.marked) == "check.other-unmarked"
    assert code(lambda X: X, ann.mark, unmarked=ann.unmarked) == "check.no-file"


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_command(ann, steps, run, tmp_path):
    rows = tmp_path / "rows.csv"
    table = np.column_stack([steps, steps[:, 0]])
    np.savetxt(rows, table, delimiter=",", header="height,noise,y", comments="")
    junit, mark = tmp_path / "check.xml", ann.folder / "secret.mark"
    words = ["check", ann.marked, mark, "--at-least", "100", "--max-changed-from", ann.unmarked]
    code, shown, err = run(*words, "--junit", junit)
    assert code == 0
    assert len(shown.splitlines()) == 2
    assert "--rows" in err
    compare = ["--rows", rows, "--label", "y", "--max-changed"]
    assert run(*words, *compare, "0.2", "--junit", junit)[0] == 0
    code, shown, _ = run(*words, *compare, "0.1", "--junit", junit, "--json")
    assert code == 1
    assert json.loads(shown)["passed"] is False
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert run("check", ann.unmarked, mark)[0] == 1
    assert run("check", ann.marked, mark, "--at-least", "10000")[0] == 2
    assert run("check", ann.marked, mark, "--junit", mark)[0] == 2


def test_an_address_is_asked_until_it_is_enough(ann, run):
    def answer(rows):
        return [f"c{c}" for c in scores(ann.trees, rows.astype(float)).argmax(axis=1)]

    mark = ann.folder / "secret.mark"
    with ModelServer(answer) as server:
        code, shown, _ = run("check", server.url(), mark, "--at-least", "80", "--json")
        assert code == 0
        assert json.loads(shown)["verdict"]["bits"] >= 80
        words = ("check", server.url(), mark, "--max-changed-from", ann.unmarked)
        assert run(*words)[0] == 2


def test_the_workflow_runs_what_there_is(ann, run, tmp_path, monkeypatch):
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    (steps,) = [job["steps"] for job in workflow["jobs"].values()]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    (command,) = [line.split() for line in lines if line.startswith("timbermark check")]
    files = {"secret.mark": ann.folder / "secret.mark", "unmarked.json": ann.unmarked,
             "served.json": ann.marked}  # fmt: skip
    words = [files.get(Path(word).name, word) for word in command[1:]]
    code, _, err = run(*words)
    assert code == 0, err
    (report,) = [step["with"]["path"] for step in steps if "path" in step.get("with", {})]
    assert (tmp_path / report).exists()
