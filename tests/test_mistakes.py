"""A hundred mistakes and more, on every command and every public function.

A command ends with exit code 2 and one sentence with a hint, a function with an error of
timbermark's that has a hint; there is no traceback, and no file is made or changed.
"""

import shlex

import numpy as np
import pytest

import timbermark as tm
from timbermark.cli import main
from timbermark.errors import TimbermarkError

EMBED = "embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train rows.csv"
COMMANDS = """
embed absent.json --key key --owner Ann --out o.json --mark o.mark --train rows.csv
embed rows.csv --key key --owner Ann --out o.json --mark o.mark --train rows.csv
embed model.pkl --key key --owner Ann --out o.json --mark o.mark --train rows.csv
embed empty --key key --owner Ann --out o.json --mark o.mark --train rows.csv
embed model.timber --key absent --owner Ann --out o.timber --mark o.mark --train rows.csv
embed model.timber --key mark --owner Ann --out o.timber --mark o.mark --train rows.csv
embed model.timber --key rows.csv --owner Ann --out o.timber --mark o.mark --train rows.csv
embed model.timber --key key --owner '' --out o.timber --mark o.mark --train rows.csv
embed model.timber --key key --owner Ann --out model.timber --mark o.mark --train rows.csv
embed model.timber --key key --owner Ann --out o.timber --mark o.timber --train rows.csv
embed model.timber --key key --owner Ann --out marked.timber --mark o.mark --train rows.csv
embed model.timber --key key --owner Ann --out o.timber --mark mark --train rows.csv
embed model.timber --key key --owner Ann --out absent/o.timber --mark o.mark --train rows.csv
embed model.timber --key key --owner Ann --out o.json --mark o.mark --train rows.csv
embed model.timber --key key --owner Ann --out o.timber --mark o.mark
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train absent.csv
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train empty
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train key
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train few.csv
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train narrow.csv
embed model.timber --key key --owner Ann --out o.timber --mark o.mark --train words.csv --label y
EMBED --label absent
EMBED --label a
EMBED --group a
EMBED --max-changed 5
EMBED --max-auc-loss x
EMBED --max-move 0.1
EMBED --n-triggers many
EMBED --n-triggers 0
EMBED --alphabet 7
EMBED --lead -1
EMBED --seals wax
EMBED --triggers odd
EMBED --label y --label-map no
EMBED --label y --label-map 0=5,1=1
EMBED --attacks fast
EMBED --strategy cluster
EMBED --method in-place --strategy odd
EMBED --seed -1
EMBED --report key
EMBED --report absent/p.html
EMBED --scheduler nowhere
embed
plan model.timber
plan absent --train rows.csv
plan model.timber --train rows.csv --max-drift 2
plan model.timber --train rows.csv --share 0.1
plan model.timber --train rows.csv --attacks odd --validation rows.csv
plan mark --train rows.csv
verify marked.timber absent
verify absent mark
verify marked.timber key
verify mark mark
verify empty mark
verify model.pkl mark
verify marked.timber mark --answers numbers
verify marked.timber mark --label-map 0=1
verify marked.timber mark --columns a
verify marked.timber mark --token-env TOKEN
verify marked.timber mark --report key
verify http:// mark
verify http://localhost:1/x mark --retries 0 --protocol odd
verify http://localhost:1/x mark --retries 0 --protocol mlflow --timeout 1
verify http://localhost:1/x mark --headers-file absent
verify http://localhost:1/x mark --rate 0
verify ftp://localhost/x mark
verify answers.csv mark
questions mark --out rows.csv
questions absent --out o.csv
questions mark --out o.csv --decoys -1
questions mark --out o.csv --decoys-from absent.csv
keygen key
keygen absent/key
claim marked.timber mark --key absent --out o.claim
claim marked.timber mark --key key --out mark
claim absent mark --key key --out o.claim
claim marked.timber key --key key --out o.claim
claim marked.timber mark --key other --out o.claim
claim marked.timber mark --key key --out o.claim --tsa nowhere
open mark --claim absent --for Judge --out o.zip
open mark --claim rows.csv --for Judge --out o.zip
open mark --claim claim --for '' --out o.zip
open mark --claim claim --for Judge --out o.zip --share 2
open mark --claim claim --for Judge --out key
judge absent
judge rows.csv
judge claim
judge opening
judge opening --claim claim --for Judge
judge opening --claim claim --for Nobody --suspect marked.timber
judge opening --claim absent --for Judge --suspect marked.timber
judge opening --claim claim --for Judge --suspect marked.timber --roots absent
attack marked.timber --mark mark --rows absent.csv --label y
attack marked.timber --mark mark --rows rows.csv --label absent
attack marked.timber --mark mark --rows rows.csv --label y --attacks odd
attack marked.timber --mark mark --rows rows.csv --label y --attacks refit:x
attack model.timber --mark mark --rows rows.csv --label y
attack marked.timber --mark key --rows rows.csv --label y
attack marked.timber --mark mark --rows few.csv --label y
inspect absent
inspect rows.csv
marks absent
marks key
update model.timber --state absent --out o.timber
update model.timber --state key --out o.timber --add rows.csv --label y
copies model.timber --roll o.roll --out copies
copies model.timber --roll o.roll --out copies --customers absent.txt --key key --owner Ann
copies model.timber --roll mark --out copies --add Bob
trace marked.timber absent
trace marked.timber mark
guard model.timber --rows absent.csv --key key --owner Ann --out o
guard model.timber --rows rows.csv --key key --owner Ann --out o --share 7
ledger absent
ledger rows.csv
rotate model.timber absent --key key --out o.timber --mark o.mark
rotate model.timber key --key key --out o.timber --mark o.mark
reproduce --jobs 0
frobnicate
""".strip().splitlines()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with a model, its mark, its rows, and files that are none of these."""
    place = tmp_path_factory.mktemp("house")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)).round(4)
    y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=500) > 0.6).astype(int)
    model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X, y)
    key = tm.OwnerKey.generate()
    made = tm.embed(model, X, y, key=key, owner="Ann", seals="splits")
    model.save(place / "model.timber")
    made.model.save(place / "marked.timber")
    made.mark.save(place / "mark")
    key.save(place / "key")
    tm.OwnerKey.generate().save(place / "other")
    claim = tm.claim(made.model, made.mark, key=key)
    claim.save(place / "claim")
    tm.open_mark(made.mark, claim, judge="Judge").save(place / "opening")
    (place / "empty").touch()
    (place / "model.pkl").write_bytes(b"\x80\x04K\x01.")
    lines = ["a,b,c,d,y", *(",".join(f"{v:g}" for v in (*row, label)) for row, label in
                            zip(X, y, strict=True))]  # fmt: skip
    (place / "rows.csv").write_text("\n".join(lines) + "\n")
    (place / "few.csv").write_text("\n".join(lines[:9]) + "\n")
    (place / "narrow.csv").write_text("a,b\n1,2\n3,4\n")
    (place / "words.csv").write_text("\n".join(["a,b,c,d,y", *["x,y,z,w,1"] * 200]) + "\n")
    (place / "answers.csv").write_text("id,answer\n0,1\n")
    return place, made, (X, y)


def contents(place):
    """Every file of a folder, with its bytes."""
    return {p.relative_to(place): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def test_there_are_a_hundred():
    assert len(COMMANDS) + len(CALLS) >= 120


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_ends_in_one_sentence(command, house, monkeypatch, capsys):
    place = house[0]
    monkeypatch.chdir(place)
    before = contents(place)
    code = main(shlex.split(command.replace("EMBED", EMBED)))
    said = capsys.readouterr()
    assert code == 2, (code, said)
    assert said.out == ""
    assert "Traceback" not in said.err
    # What a command does not know at all is told by Typer, which shows where to look.
    assert said.err.count("Hint:") + said.err.count("Try 'timbermark") == 1, said.err
    assert len(said.err) < 900
    assert contents(place) == before


CALLS = {
    "embed a class": lambda made, X, y: tm.embed(tm.TimberClassifier, X, y, key=KEY, owner="Ann"),
    "embed unfitted": lambda made, X, y: tm.embed(
        tm.TimberClassifier(), X, y, key=KEY, owner="Ann"
    ),
    "embed a number": lambda made, X, y: tm.embed(7, X, y, key=KEY, owner="Ann"),
    "embed without rows": lambda made, X, y: tm.embed(made.model, None, key=KEY, owner="Ann"),
    "embed a vector": lambda made, X, y: tm.embed(made.model, X[:, 0], y, key=KEY, owner="Ann"),
    "embed infinities": lambda made, X, y: tm.embed(
        made.model, np.where(X > 2, np.inf, X), y, key=KEY, owner="Ann"
    ),
    "embed few labels": lambda made, X, y: tm.embed(made.model, X, y[:9], key=KEY, owner="Ann"),
    "embed other labels": lambda made, X, y: tm.embed(made.model, X, y + 7, key=KEY, owner="Ann"),
    "embed by a path": lambda made, X, y: tm.embed(made.model, X, y, key="key", owner="Ann"),
    "embed for nobody": lambda made, X, y: tm.embed(made.model, X, y, key=KEY, owner=None),
    "a budget of 5": lambda made, X, y: tm.embed(made.model, X, y, key=KEY, owner="Ann", budget=5),
    "a limit of 5": lambda made, X, y: tm.Budget(changed=5),
    "seals of wax": lambda made, X, y: tm.plan(made.model, X, y, seals="wax"),
    "a map of nothing": lambda made, X, y: tm.plan(made.model, X, y, label_map={}),
    "groups without a ranker": lambda made, X, y: tm.plan(made.model, X, y, groups=y),
    "validation alone": lambda made, X, y: tm.plan(made.model, X, y, validation=(X[:5], y[:5])),
    "verify a result": lambda made, X, y: tm.verify(made.model, made),
    "verify nothing": lambda made, X, y: tm.verify(None, made.mark),
    "verify a mark": lambda made, X, y: tm.verify(made.mark, made.mark),
    "verify words": lambda made, X, y: tm.verify(made.model, made.mark, answers="words"),
    "verify other columns": lambda made, X, y: tm.verify(
        made.model, made.mark, feature_names=["a"]
    ),
    "a function of none": lambda made, X, y: tm.verify(lambda rows: None, made.mark),
    "a function of one": lambda made, X, y: tm.verify(lambda rows: [1.0], made.mark),
    "load nothing": lambda made, X, y: tm.load("absent.json"),
    "load a mark as a key": lambda made, X, y: tm.OwnerKey.load("mark"),
    "load a key as a mark": lambda made, X, y: tm.Mark.load("key"),
    "save a number": lambda made, X, y: tm.save(7, "o.json"),
    "save over a file": lambda made, X, y: tm.save(made.model, "marked.timber"),
    "claim another's": lambda made, X, y: tm.claim(made.model, made.mark, key=KEY),
    "open too much": lambda made, X, y: tm.open_mark(
        made.mark, tm.Claim.load("claim"), judge="Judge", share=2
    ),
    "judge a model": lambda made, X, y: tm.judge(made.model, claim=tm.Claim.load("claim")),
    "attack by an odd name": lambda made, X, y: tm.attack(
        made.model, made.mark, X, y, attacks="odd"
    ),
    "attack with few rows": lambda made, X, y: tm.attack(made.model, made.mark, X[:9], y[:9]),
    "copies for nobody": lambda made, X, y: tm.copies(
        made.model, X, y, key=KEY, owner="Ann", customers=[]
    ),
    "two of one name": lambda made, X, y: tm.copies(
        made.model, X, y, key=KEY, owner="Ann", customers=["Bob", "Bob"]
    ),
    "trace by a mark": lambda made, X, y: tm.trace(made.model, made.mark),
    "guard all": lambda made, X, y: tm.Guard(made.model, X, key=KEY, owner="Ann", share=2.0),
    "rotate nothing": lambda made, X, y: tm.rotate(made.model, None, X, y, key=KEY),
    "train with text": lambda made, X, y: tm.TimberClassifier(max_iter="many").fit(X, y),
    "forget a stranger": lambda made, X, y: tm.TimberClassifier(max_iter=2).fit(X, y).forget([999]),
    "an address of none": lambda made, X, y: tm.Endpoint("nowhere"),
}
KEY = tm.OwnerKey.generate()


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_ends_in_one_error_with_a_hint(name, house, monkeypatch):
    place, made, rows = house
    monkeypatch.chdir(place)
    before = contents(place)
    with pytest.raises((TimbermarkError, OSError)) as caught:
        CALLS[name](made, *rows)
    if not isinstance(caught.value, OSError):
        assert caught.value.hint, caught.value
        assert len(caught.value.message) < 300
    assert contents(place) == before
