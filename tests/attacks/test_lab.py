import csv
import json
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

import timbermark as tm
from tests.attacks.models import data, fitted
from tests.marking.models import new_model
from timbermark.attacks import lab
from timbermark.attacks.lab import forecast
from timbermark.attacks.registry import find_attacks
from timbermark.attacks.results import AttackResult, AttackRow, explain, read_rows, write_rows
from timbermark.attacks.stolen import Labelled, Thief, steal
from timbermark.errors import FileFormatError, InputError

KEY = tm.OwnerKey.generate()
FREE = tm.Budget.only()


@cache
def marked():
    X, y = data()
    return tm.embed(
        fitted("timbermark"), X[:600], y[:600], key=KEY, owner="Ann", budget=FREE, n_triggers=64,
        lead=0.4,
    )  # fmt: skip


def run(attacks, end=1200, **options):
    X, y = data()
    options.setdefault("evaluation", (X[1200:], y[1200:]))
    made = marked()
    return tm.attack(made.model, made.mark, X[600:end], y[600:end], attacks=attacks, **options)


def test_the_untouched_model_is_as_verify_says_and_theft_is_measured_between_both_ends():
    made = marked()
    X, y = data()
    found = run(["average-own:0.3", "average-own:1", "update-leaves"], end=720)
    assert found.untouched.score_bits == pytest.approx(tm.verify(made.model, made.mark).bits)
    assert found.untouched.quality == pytest.approx(made.model.score(X[1200:], y[1200:]))
    assert found.untouched.theft_kept == 1.0
    mild, all_own, updated = found.rows[0], found.rows[1], found.rows[2]
    gap = found.untouched.quality - found.own_quality
    assert mild.theft_kept == pytest.approx((mild.quality - found.own_quality) / gap)
    assert all_own.score_bits < 20
    assert all_own.theft_kept <= 0.0
    assert updated.skipped == ""


def test_labels_alone_cost_no_price():
    made = marked()
    model = made.model
    alone = tm.verify(lambda X: model.predict(X), made.mark).bits
    assert run(["round-answers:2"]).untouched.label_bits == pytest.approx(alone)


def test_reading_tables_in_parts_is_shown(monkeypatch):
    import dask.array as da

    X, y = data()
    said = []

    @contextmanager
    def collecting(wanted):
        yield said.append if wanted else lambda told: None

    monkeypatch.setattr(lab, "step_bar", collecting)
    made = marked()
    thief = da.from_array(X[600:1200], chunks=(300, -1)), da.from_array(y[600:1200], chunks=300)
    evaluation = da.from_array(X[1200:], chunks=(300, -1)), da.from_array(y[1200:], chunks=300)
    options = {"attacks": ["round-answers:2"], "evaluation": evaluation}
    tm.attack(made.model, made.mark, *thief, **options, progress=True)
    read = [told for told in said if "reading the rows" in told]
    assert "600 of 600 rows" in read[2]
    assert f"{len(X) - 1200:,} of {len(X) - 1200:,} rows" in read[-1]
    said.clear()
    tm.attack(made.model, made.mark, *thief, **options)
    assert said == []


def test_the_same_seed_gives_the_same_rows():
    words = ["leaf-noise:0.5", "input-noise:0.1", "refit:0.5"]
    first, second = (run(words, random_state=3) for _ in range(2))
    for one, two in zip(first.rows, second.rows, strict=True):
        assert (one.score_bits, one.quality) == (two.score_bits, two.quality)


def test_a_library_that_offers_nothing_is_skipped_with_a_reason():
    row = run(["add-trees:5"]).rows[0]
    assert row.score_bits is None
    assert row.skipped == "no-continued-training"
    assert row.reason in str(run(["add-trees:5"]))


def test_without_evaluation_rows_a_part_is_kept_apart():
    found = run(["round-answers:2"], evaluation=None)
    assert (found.n_attack, found.n_evaluation) == (360, 240)


def test_an_unmarked_model_gains_no_evidence_by_any_attack():
    X, y = data()
    thief, tested = Thief(X[600:1200], y[600:1200]), Labelled(X[1200:], y[1200:])
    stolen = steal(fitted("timbermark"))
    found = lab.run_attacks(stolen, marked().mark, thief, tested, find_attacks("fast"))
    assert all(row.score_bits < 20 for row in found.rows if not row.skipped)
    assert all(row.label_bits < 20 for row in found.rows if not row.skipped)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_file_is_attacked_like_the_model_it_holds(tmp_path, library):
    """LightGBM's file does not hold labels: they are those of the mark."""
    X, y = data()
    names = np.array(["a", "b", "c", "d"]) if library == "lightgbm" else np.arange(4)
    model = new_model(library, 20).fit(X[:600], names[y[:600]])
    made = tm.embed(
        model, X[:600], key=KEY, owner="Ann", budget=FREE, n_triggers=64, lead=0.4, alphabet=4
    )
    path = tmp_path / ("model.txt" if library == "lightgbm" else "model.json")
    tm.save(made.model, path)
    given = X[600:900], names[y[600:900]]
    words = ["keep-first:0.5", "refit:0.5", "library-refit:0.5", "add-trees:5", "round-answers:1"]
    one, two = (
        tm.attack(m, made.mark, *given, attacks=words, evaluation=(X[1200:], names[y[1200:]]))
        for m in (made.model, path)
    )
    assert one.untouched.score_bits > 64
    for here, there in zip((one.untouched, *one.rows), (two.untouched, *two.rows), strict=True):
        assert there.skipped == here.skipped == ""
        assert there.score_bits == pytest.approx(here.score_bits, abs=3.0)
        assert there.label_bits == pytest.approx(here.label_bits, abs=6.0)
        assert there.quality == pytest.approx(here.quality, abs=0.01)


def test_results_are_taken_up_again(tmp_path, monkeypatch):
    out = tmp_path / "new" / "lab"
    first = run(["leaf-noise:0.5", "average-own:0.5"], out=out)
    assert {p.name for p in out.iterdir()} == {
        "lab.json", "results.csv", "chart.png", "chart.svg",
    }  # fmt: skip
    with (out / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["attack"] for row in table] == ["leaf-noise", "average-own"]
    assert (out / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert b"<!-- average-own -->" in (out / "chart.svg").read_bytes()

    def never(*given):
        raise AssertionError("it was run again")

    with monkeypatch.context() as patched:
        patched.setattr("timbermark.attacks.trees.LeafValues.of", never)
        again = run(["leaf-noise:0.5", "round-answers:2"], out=out)
    assert again.rows[0] == first.rows[0]
    assert len(read_rows(out / "results.csv")) == 3
    with pytest.raises(InputError, match="another model, mark, rows or seed"):
        run(["round-answers:2"], out=out, random_state=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X": np.zeros((200, 3))}, "features"),
        ({"y": np.full(600, 9)}, "The label 9 is not one of the model's"),
        ({"y": None}, "no labels"),
        ({"X": np.zeros((20, 10)), "y": np.zeros(20, int)}, "too few"),
        ({"attacks": ["averge-own"]}, "did you mean 'average-own'"),
        ({"evaluation": np.zeros((50, 10))}, "evaluation rows have no labels"),
        ({"model": "unmarked"}, "The mark is not in the model"),
        ({"mark": "nonsense"}, "not a mark"),
    ],
)
def test_bad_input_is_refused_before_any_attack(change, said, monkeypatch):
    monkeypatch.setattr(lab, "run_attacks", lambda *given: pytest.fail("an attack was run"))
    X, y = data()
    given = {
        "model": marked().model, "mark": marked().mark, "X": X[600:1200], "y": y[600:1200],
        "attacks": "fast", **change,
    }  # fmt: skip
    if change.get("X") is not None and "y" not in change:
        given["y"] = y[:200]
    if change.get("model") == "unmarked":
        given["model"] = fitted("timbermark")
    with pytest.raises((InputError, ValueError), match=said):
        tm.attack(**given)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        run(["round-answers:2"], out=tmp_path / "file")


def test_a_forecast_attacks_a_mark_that_nobody_keeps():
    X, y = data()
    held = X[600:], y[600:]
    found = forecast(
        fitted("timbermark"), X[:600], validation=held, attacks=["round-answers:2"], budget=FREE
    )
    assert found.rows[0].level == "conclusive"
    assert found.n_attack == found.n_evaluation == 900
    for validation, said in ((None, "validation rows with labels"), (held[0], "labels"),
                             ((held[0][:150], held[1][:150]), "too few")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            forecast(fitted("timbermark"), X[:600], validation=validation)


ROWS = [
    AttackRow("refit", "tune", 0.5, 12.5, 3.0, 0.91, -0.25, 1.5, "none", 2.5, 12.5),
    AttackRow("average-own", "mix", 0.5, 70.0, None, 0.95, None, 0.1, "conclusive"),
    AttackRow("add-trees", "tune", 5.0, skipped="no-continued-training"),
]


def test_rows_survive_their_file(tmp_path):
    write_rows(tmp_path / "t.csv", ROWS)
    assert read_rows(tmp_path / "t.csv") == ROWS


@pytest.mark.parametrize("damage", ["header", "number", "infinite"])
def test_a_damaged_table_is_refused(tmp_path, damage):
    path = tmp_path / "t.csv"
    write_rows(path, ROWS)
    text = path.read_text()
    new = {"header": ("attack", "attak"), "number": ("12.5", "x"), "infinite": ("12.5", "inf")}
    path.write_text(text.replace(*new[damage], 1))
    with pytest.raises(FileFormatError, match="not a table of the attack lab"):
        read_rows(path)


def result(kept):
    """Return what the lab found of three attacks, of which ``kept`` of the theft is left."""
    found = zip("abc", (0.0, 30.0, 90.0), (0.8, 0.9, 0.95), kept, strict=True)
    rows = [
        AttackRow(name, "mix", 1.0, bits, 0.0, quality, theft, 0.0, "none" if bits < 20 else "some")
        for name, bits, quality, theft in found
    ]
    start = AttackRow("untouched", "none", 0.0, 96.0, 96.0, 0.95, None if kept[0] is None else 1.0)
    return AttackResult((*rows, ROWS[2]), start, 0.8, 9, 9)


def test_the_worst_attack_is_one_that_keeps_half_of_the_theft():
    found = result((0.2, 0.7, 1.0))
    assert found.worst.attack == "b"
    assert found.weakest.attack == "a"
    assert found.notes == ()
    assert [row["level"] for row in found.to_dict()["rows"]] == ["none", "some", "some", ""]
    json.dumps(found.to_dict())


def test_where_nothing_could_be_stolen_no_attack_pays():
    found = result((None, None, None))
    assert not found.stealable
    assert found.worst is None
    assert found.weakest.attack == "a"
    assert found.notes == ("nothing-to-steal",)
    assert len(explain(found)) == 1
    assert "theft kept" not in str(found)
    assert found.to_dict()["stealable"] is False


def test_evidence_is_told_for_each_seal():
    X, y = data()
    made = marked()
    found = tm.attack(
        made.model, made.mark, X[1200:], y[1200:], attacks=["refit:0", "round-answers:2"]
    )
    verdict = tm.verify(made.model, made.mark)
    for name, bits in (
        ("splits", found.untouched.split_bits),
        ("leaves", found.untouched.leaf_bits),
    ):
        assert bits == pytest.approx(verdict.seal(name).bits, rel=1e-3)
    refitted = found.rows[0]
    assert refitted.split_bits > 0.9 * found.untouched.split_bits
    assert refitted.leaf_bits < 0.5 * found.untouched.leaf_bits


def test_an_endpoint_of_a_thief_who_has_as_many_rows_is_not_worth_stealing():
    X, y = data()
    made = marked()
    found = tm.attack(
        made.model, made.mark, X[:1200], y[:1200], attacks=["round-answers:2"],
        evaluation=(X[1200:], y[1200:]),
    )  # fmt: skip
    assert found.rows[0].theft_kept is None
    assert not found.stealable
