import json
from dataclasses import replace

import numpy as np
import pytest

import timbermark as tm
from tests.tracing.making import NAMES, rows
from tests.verification.servers import ModelServer
from timbermark.errors import InputError
from timbermark.marking.models import close_model, open_model
from timbermark.tracing.roll import Roll
from timbermark.verification.table import write_questions


def test_customers_are_ranked_and_everything_is_in_the_dictionary(made):
    found = tm.trace(made.copies["Bob Ltd"], made.roll)
    assert [finding.level for finding in found.customers] == ["conclusive", "none", "none"]
    assert found.customers[0].matched == found.customers[0].counted
    assert found.group is None
    facts = json.loads(json.dumps(found.to_dict()))
    assert (facts["level"], facts["leakers"]) == ("conclusive", ["Bob Ltd"])
    assert {finding["names"][0] for finding in facts["customers"]} == {*NAMES}
    assert [price["code"] for price in facts["prices"]] == ["customers"]
    assert "Bob Ltd" in str(found)


def test_functions_labels_and_files_are_traced(made, tmp_path):
    copy = made.copies["Eve Inc"]
    path = tmp_path / "leaked.timber"
    tm.save(copy, path)
    assert tm.trace(path, made.roll).leakers == ("Eve Inc",)
    assert tm.trace(lambda X: copy.predict_proba(X), made.roll).leakers == ("Eve Inc",)
    by_labels = tm.trace(lambda X: copy.predict(X), made.roll)
    assert by_labels.kind == "labels"
    assert by_labels.customers[0].names == ("Eve Inc",)
    assert by_labels.bits >= 20


def test_a_table_of_answers_is_traced(made, tmp_path):
    import csv

    asked, answered = tmp_path / "questions.csv", tmp_path / "answers.csv"
    write_questions(made.roll.grid, asked, decoys=1)
    with asked.open() as file:
        head, *lines = list(csv.reader(file))
    scores = made.copies["Eve Inc"].predict_proba(np.array([line[1:] for line in lines], float))
    with answered.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([head[0], "0", "1"])
        writer.writerows(
            [line[0], *map(float, row)] for line, row in zip(lines, scores, strict=True)
        )
    assert tm.trace(answered, made.roll).leakers == ("Eve Inc",)


def test_two_who_average_their_copies_are_found(made):
    pair = [made.copies[name] for name in ("Bob Ltd", "Eve Inc")]
    found = tm.trace(lambda X: np.mean([copy.predict_proba(X) for copy in pair], axis=0), made.roll)
    assert {*found.leakers} == {"Bob Ltd", "Eve Inc"}


def test_a_group_is_named_where_nobody_alone_is_conclusive(made):
    roll = made.roll.with_customers([f"customer {i}" for i in range(17)])
    names = ("Bob Ltd", "Eve Inc", "Zoë & Söhne")
    from_whom = np.random.default_rng(1).integers(0, 3, roll.n_boundaries)
    mixed = np.asarray(roll.symbols(names))[from_whom, np.arange(roll.n_boundaries)]
    base = open_model(made.copies["Bob Ltd"])
    found = tm.trace(close_model(base, roll.place(base.ensemble, mixed)), roll)
    assert found.leakers == ()
    assert found.best is found.group
    assert {*found.group.names} <= {*names}
    assert found.level != "none"
    assert found.to_dict()["group"]["bits"] > found.customers[0].bits


def test_innocent_models_are_traced_to_nobody(made):
    X, y = rows(1500, seed=11)
    other = tm.TimberClassifier(max_iter=40, random_state=1).fit(X, y)
    found = tm.trace(other, made.roll)
    assert found.level == "none"
    assert found.leakers == ()


def test_labels_without_a_boundary_that_shows_in_them_are_refused(made):
    splits = made.roll.grid.splits
    hidden = np.array(splits.reference)
    hidden[:, 1] = hidden[:, 0]
    grid = replace(made.roll.grid, splits=replace(splits, reference=hidden))
    roll = replace(made.roll, grid=grid)
    with pytest.raises(InputError) as error:
        tm.trace(lambda X: made.model.predict(X), roll)
    assert error.value.code == "trace.no-labels"
    with pytest.raises(InputError) as error:
        tm.trace(made.model, roll, answers="labels")
    assert error.value.code == "trace.no-labels"


def test_what_is_no_roll_is_refused(made):
    empty = Roll(made.roll.grid, made.roll.mark, made.roll.edges, made.roll.blank_digest)
    for roll, options, code in (
        (made.found.mark, {}, "roll.type"),
        (empty, {}, "roll.customers"),
        (made.roll, {"judge": "Judy"}, "trace.opening-only"),
        (made.roll, {"journal": "a.journal"}, "option.unfit"),
    ):
        with pytest.raises(InputError) as error:
            tm.trace(made.model, roll, **options)
        assert error.value.code == code


def test_a_suspect_with_other_columns_is_refused(made):
    other = tm.TimberClassifier(max_iter=3).fit(np.arange(40.0).reshape(20, 2), [0, 1] * 10)
    with pytest.raises(InputError):
        tm.trace(other, made.roll)


def test_an_endpoint_is_asked_until_a_customer_is_found_and_a_journal_keeps_it(made, tmp_path):
    copy = made.copies["Bob Ltd"]
    with ModelServer(lambda X: copy.predict_proba(np.asarray(X, float)).tolist()) as server:
        endpoint = tm.Endpoint(server.url(), batch=60)
        journal = tmp_path / "asked.journal"
        found = tm.trace(endpoint, made.roll, journal=journal, decoys=0)
        assert found.leakers == ("Bob Ltd",)
        # 64 bits and their price are enough.
        assert found.answered < made.roll.n_boundaries
        asked = sum(server.asked.values())
        again = tm.trace(endpoint, made.roll, journal=journal, decoys=0)
        assert sum(server.asked.values()) == asked
        assert again.bits == found.bits
        assert tm.trace(endpoint, made.roll, decoys=0, stop_at="off").answered == (
            made.roll.n_boundaries
        )
    innocent = made.model
    with ModelServer(lambda X: innocent.predict_proba(np.asarray(X, float)).tolist()) as server:
        found = tm.trace(tm.Endpoint(server.url(), batch=300), made.roll, decoys=0)
        assert found.level == "none"
