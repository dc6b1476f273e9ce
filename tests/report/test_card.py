"""Cards of marks: for people, at the end of model cards, and as bills of materials."""

import json
import re

import pytest

from tests.report.results import BAD, attack_result, embed_result, numbers_result
from tests.verification.staircases import build_house, staircase
from timbermark.cli import main
from timbermark.cli.app import app
from timbermark.errors import FileFormatError, InputError, TimbermarkError
from timbermark.ownership import Mark
from timbermark.report.card import (
    BEGIN,
    Card,
    append_card,
    bill_of_materials,
    describe_card,
    read_results,
    to_markdown,
)

HEADINGS = [
    "Purpose of the mark", "What changed in the model", "What the mark survives",
    "Who can verify it", "Residual risk", "Monitoring and change control", "For the file",
]  # fmt: skip


@pytest.fixture(scope="module")
def ann(tmp_path_factory):
    return build_house(tmp_path_factory.mktemp("card") / "ann", "Ann Ltd", staircase(1), 2)


def make_card(result, attacks=None, claim=None):
    return Card(
        name=f"scorer {BAD}", mark=result.mark, bits=result.bits, library="XGBoost",
        kind="XGBClassifier", task=result.cost.task, marked_digest="1" * 64,
        file_digest="2" * 64, cost=result.cost.to_dict(), attacks=attacks, claim=claim,
        purpose="So that copies are *ours*.",
    )  # fmt: skip


@pytest.mark.parametrize("made", [embed_result, lambda: numbers_result(ranks=True)])
def test_a_card_has_its_headings_and_figures(made):
    result = made()
    shown = to_markdown(describe_card(make_card(result, attack_result().to_dict())))
    assert re.findall(r"^## (.*)$", shown, re.MULTILINE) == HEADINGS
    for figure in result.cost.figures:
        assert f"| {figure.change:.5g} |" in shown
    assert "attack-3" in shown
    assert "SR 26-2" in shown
    assert "Annex IV" in shown
    # Names from outside are text.
    assert BAD not in shown
    assert "\\<script\\>" in shown
    assert "\\*ours\\*" in shown


def test_what_is_not_known_is_said():
    from dataclasses import replace

    card = replace(make_card(embed_result()), cost=None)
    shown = to_markdown(describe_card(card))
    assert re.findall(r"^## (.*)$", shown, re.MULTILINE) == HEADINGS
    full = make_card(embed_result(), attack_result().to_dict())
    assert shown.count("\n- ") > to_markdown(describe_card(full)).count("\n- ")


def test_a_card_is_appended_once_and_replaced_later():
    card = make_card(embed_result())
    theirs = "---\nlicense: mit\ntags: [tabular]\n---\n\n# Our model\n\nText.\n"
    once = append_card(theirs, card)
    assert once.startswith(theirs.rstrip())
    assert append_card(once + "## More\n", card) == append_card(once, card) + "## More\n"
    assert once.count(BEGIN) == 1
    with pytest.raises(InputError) as caught:
        append_card(f"# Ours\n{BEGIN}\n", card)
    assert caught.value.code == "card.damaged"


def test_skops_writes_a_card_that_is_appended_to(tmp_path):
    from sklearn.dummy import DummyClassifier
    from skops.card import Card as ModelCard

    model = DummyClassifier().fit([[0.0]], [1])
    path = tmp_path / "README.md"
    ModelCard(model, model_diagram=False).save(path)
    before = path.read_text(encoding="utf-8")
    shown = append_card(before, make_card(embed_result()))
    assert shown.startswith(before.rstrip())
    assert "### Residual risk" in shown


def test_the_bill_has_what_its_schema_demands():
    """CycloneDX 1.6, by its specification; tests/servers holds it to the schema itself."""
    result = embed_result()
    bill = json.loads(json.dumps(bill_of_materials(make_card(result))))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    (component,) = bill["components"]
    assert component["type"] == "machine-learning-model"
    assert component["hashes"] == [{"alg": "SHA-256", "content": "2" * 64}]
    assert set(component["modelCard"]) == {
        "modelParameters", "considerations", "quantitativeAnalysis",
    }  # fmt: skip
    metrics = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert metrics
    for metric in metrics:
        assert set(metric) == {"type", "value", "slice"}
        assert all(type(value) is str for value in metric.values())
    told = {entry["name"]: entry["value"] for entry in component["properties"]}
    assert told["timbermark:mark_id"] == result.mark.mark_id.hex()
    assert bill == json.loads(json.dumps(bill_of_materials(make_card(result))))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cost": 1}', b"\xff"])
def test_results_that_are_none_are_refused(data):
    with pytest.raises(FileFormatError) as caught:
        read_results(data, "x.json", "cost")
    assert caught.value.code == "card.results"


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_command_writes_everything_and_nothing_secret(ann, run, tmp_path):
    facts, attacks = tmp_path / "embed.json", tmp_path / "attack.json"
    told = embed_result().to_dict() | {"mark_id": ann.mark.mark_id.hex()}
    facts.write_text(json.dumps(told))
    attacks.write_text(json.dumps(attack_result().to_dict()))
    theirs = tmp_path / "README.md"
    theirs.write_text("# Ours\n")
    out = {name: tmp_path / f"card.{name}" for name in ("md", "html", "cdx.json", "intoto.json")}
    words = [
        "card", ann.marked, ann.folder / "secret.mark", "--out", out["md"], "--out", out["html"],
        "--append", theirs, "--bom", out["cdx.json"], "--statement", out["intoto.json"],
        "--claim", ann.folder / "model.claim", "--key", ann.folder / "owner.key",
        "--facts", facts, "--attacks", attacks, "--name", "scorer",
    ]  # fmt: skip
    code, shown, err = run(*words)
    assert code == 0, err
    assert len(shown.splitlines()) == 5
    assert "Residual risk" in out["html"].read_text(encoding="utf-8")
    assert ann.claim.digest.hex() in out["md"].read_text(encoding="utf-8")
    assert "signatures" in json.loads(out["intoto.json"].read_text())
    for path in [*out.values(), theirs]:
        text = path.read_text(encoding="utf-8")
        assert ann.mark.secret.hex() not in text
        assert ann.key.secret.hex() not in text
        assert not any(repr(row[0]) in text for row in ann.mark.rows().tolist())
    code, _, err = run(*words)
    assert code == 2
    assert "--force" in err
    assert run(*words, "--force")[0] == 0


def test_the_command_refuses_what_does_not_fit(ann, run, tmp_path):
    mark, out = ann.folder / "secret.mark", tmp_path / "card.md"
    facts, image = tmp_path / "embed.json", tmp_path / "picture.png"
    facts.write_text(json.dumps({"cost": {"figures": []}, "mark_id": "another"}))
    image.write_bytes(b"\x89PNG\xff\xfe")
    other = build_house(tmp_path / "bob", "Bob", staircase(5), 4)
    claims = other.folder / "model.claim"
    for words, code in (
        ([ann.marked, mark], "card.nothing"),
        ([ann.marked, mark, "--out", tmp_path / "card.pdf"], "card.ending"),
        ([ann.marked, mark, "--statement", tmp_path / "s.json"], "card.unsigned"),
        ([ann.unmarked, mark, "--out", out], "card.unmarked"),
        ([ann.marked, mark, "--out", out, "--facts", facts], "card.other-mark"),
        ([ann.marked, mark, "--append", image], "card.not-text"),
        ([ann.marked, mark, "--out", out, "--claim", claims], "claim.other-mark"),
    ):
        with pytest.raises(TimbermarkError) as caught:
            app(args=["card", *map(str, words)], prog_name="timbermark")
        assert caught.value.code == code
        assert not out.exists()
    assert run("card", ann.marked, mark, "--bom", mark)[0] == 2
    assert ann.mark == Mark.load(mark)
