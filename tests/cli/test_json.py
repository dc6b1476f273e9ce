"""``--json`` has the keys of ``to_dict``, and beside them only names of files."""

import json
import shlex

import numpy as np
import pytest
import typer

import timbermark as tm
from timbermark.cli import main
from timbermark.cli.app import app

EMBED = "embed model.timber --train rows.csv --label y --key key --owner Ann --seals splits"
WITHOUT = {"demo", "warmup", "reproduce"}
"""Commands whose results are files or nothing at all."""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with a model and what it takes to mark it; the model and its rows."""
    place = tmp_path_factory.mktemp("house")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).round(4)
    y = (X[:, 0] + X[:, 1] ** 2 > 0.6).astype(int)
    model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X, y)
    model.save(place / "model.timber")
    lines = [",".join(f"{v:g}" for v in (*row, label)) for row, label in zip(X, y, strict=True)]
    (place / "rows.csv").write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    return place, model, X, y


def test_every_command_with_a_result_has_it():
    found = typer.main.get_command(app)
    commands = {**found.commands, **found.commands["roll"].commands}
    lacking = {
        name
        for name, command in commands.items()
        if not hasattr(command, "commands")
        and not any("--json" in option.opts for option in command.params)
    }
    assert lacking == WITHOUT


def test_its_keys_are_those_of_the_result(house, monkeypatch, capsys):
    place, model, X, y = house
    monkeypatch.chdir(place)

    def run(command):
        assert main([*shlex.split(command), "--json"]) in (0, 1, 3)
        return json.loads(capsys.readouterr().out)

    key = run("keygen key")
    assert key.keys() == {"key", "fingerprint", "claim_key"}
    made = run(f"{EMBED} --out marked.timber --mark mark")
    assert next(iter(made)) == "cost"
    assert next(iter(made["cost"])) == "measured"  # on which rows, before any figure
    mark, marked = tm.Mark.load("mark"), tm.load("marked.timber")
    opened = tm.OwnerKey.load("key")
    result = tm.embed(model, X, y, key=opened, owner="Ann", seals="splits")
    assert made.keys() == result.to_dict().keys() | {"not_judged", "out", "mark"}
    planned = run("plan model.timber --train rows.csv --label y --seals splits")
    assert planned.keys() == tm.plan(model, X, y, seals="splits").to_dict().keys() | {"not_judged"}
    assert planned["cost"].keys() == result.cost.to_dict().keys()
    guarded = run("plan model.timber --validation rows.csv --label y --guard")
    assert guarded.keys() == tm.plan(model, X, y, guard=True).to_dict().keys()
    verdict = run("verify marked.timber mark")
    assert verdict.keys() == tm.verify(marked, mark).to_dict().keys()
    claimed = run("claim marked.timber mark --key key --out claim")
    claim = tm.Claim.load("claim")
    assert claim.statement.keys() <= claimed.keys()
    shown = run("open mark --claim claim --for Judge --out evidence.zip")
    assert tm.open_mark(mark, claim, judge="Judge").to_dict().keys() <= shown.keys()
    judged = run("judge evidence.zip --for Judge --suspect marked.timber")
    found = tm.judge("evidence.zip", judge="Judge", suspect="marked.timber")
    assert judged.keys() == found.to_dict().keys()
    asked = run("questions mark --out questions.csv")
    assert asked["triggers"] == mark.n_triggers
    written = run("card marked.timber mark --out card.md")
    assert written == {"written": ["card.md"]}
    attacked = run("attack marked.timber --mark mark --rows rows.csv --label y --attacks prune:0.2")
    found = tm.attack(marked, mark, X, y, attacks="prune:0.2")
    assert attacked.keys() == found.to_dict().keys()
