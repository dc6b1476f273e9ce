import numpy as np
import pytest

import timbermark as tm
from tests.tracing.making import NAMES, rows, train
from timbermark.errors import FileFormatError, InputError, PassphraseError
from timbermark.marking.models import open_model
from timbermark.tracing.roll import Roll


def test_every_copy_is_of_the_type_given_and_carries_the_owners_mark(made):
    for name, copy in made.copies.items():
        assert type(copy) is type(made.model)
        assert tm.verify(copy, made.found.mark).level == "conclusive"
        assert tm.trace(copy, made.roll).leakers == (name,)
    assert tm.verify(made.model, made.found.mark).level == "none"
    assert tm.trace(made.model, made.roll).level == "none"


def test_copies_answer_alike_but_in_their_boundaries(made):
    X, _ = rows(seed=9)
    labels = [copy.predict(X) for copy in (made.model, *made.copies.values())]
    changed = [(labels[i] != labels[j]).mean() for i in range(4) for j in range(i)]
    assert max(changed) <= 0.01
    thresholds = [open_model(copy).ensemble.threshold for copy in made.copies.values()]
    assert (thresholds[0] != thresholds[1]).any()


def test_notes_are_those_of_the_owners_mark_and_of_the_copies(made):
    assert made.found.notes == made.found.outcome.notes
    assert all(str(note) in str(made.found) for note in made.found.notes)
    more = tm.copies(made.copies["Bob Ltd"], customers=["New Plc"], roll=made.roll)
    assert (more.notes, str(more).split(",")[0]) == ((), "1 copy")


def test_the_same_name_always_gives_the_same_copy(made):
    again = open_model(made.found.copies["Eve Inc"]).ensemble
    assert np.array_equal(again.threshold, open_model(made.copies["Eve Inc"]).ensemble.threshold)
    with pytest.raises(KeyError):
        made.found.copies["Mallory"]


def test_a_customer_who_comes_later_needs_any_copy_and_the_roll_alone(made):
    more = tm.copies(made.copies["Bob Ltd"], customers=["New Plc"], roll=made.roll)
    assert more.roll.customers == (*NAMES, "New Plc")
    assert tm.trace(more.copies["New Plc"], more.roll).leakers == ("New Plc",)
    assert tm.trace(made.copies["Eve Inc"], more.roll).leakers == ("Eve Inc",)
    # It does not matter when a customer comes: symbols follow from the name.
    both = made.roll.with_customers(["Other", "New Plc"])
    assert np.array_equal(both.symbols(["New Plc"]), more.roll.symbols(["New Plc"]))


@pytest.mark.parametrize("passphrase", [None, "open sesame"])
def test_a_roll_survives_its_file(made, passphrase, tmp_path):
    path = tmp_path / "secret.roll"
    made.roll.save(path, passphrase)
    assert path.stat().st_mode & 0o077 == 0
    read = Roll.load(path, passphrase)
    assert read.to_bytes() == made.roll.to_bytes()
    assert np.array_equal(read.symbols(), made.roll.symbols())
    with pytest.raises(PassphraseError):
        Roll.load(path, "wrong")
    with pytest.raises(InputError) as error:
        made.roll.save(path)
    assert error.value.code == "file.exists"


def test_a_roll_that_was_changed_is_refused(made):
    whole = made.roll.to_bytes()
    for at in range(40, len(whole), len(whole) // 25):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(FileFormatError):
            Roll.from_bytes(changed)
    with pytest.raises(FileFormatError):
        Roll.from_bytes(whole[:-100])


def test_a_roll_is_not_printed_and_not_pickled(made):
    import pickle

    assert made.roll.grid.secret.hex() not in repr(made.roll)
    with pytest.raises(InputError) as error:
        pickle.dumps(made.roll)
    assert error.value.code == "roll.pickled"


def refused(**changes):
    X, y = rows(300)
    given = {"key": tm.OwnerKey(bytes(32)), "owner": "Ann Ltd", "customers": NAMES, **changes}
    with pytest.raises(InputError) as error:
        tm.copies(train(max_iter=3), X, y, **given)
    return error.value.code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"customers": ["Bob", " Bob"]}, "customers.twice"),
        ({"customers": []}, "customers.none"),
        ({"customers": "Bob"}, "customers.list"),
        ({"customers": ["Bob", "\n"]}, "field.customers"),
        ({"key": None}, "copies.key"),
        ({"owner": " "}, "field.owner"),
        ({"seals": "leaves"}, "copies.seals"),
        ({"colluders": 9}, "field.colluders"),
    ],
)
def test_bad_input_is_refused_with_a_code(changes, code):
    assert refused(**changes) == code


def test_too_few_boundaries_for_a_coalition_are_refused_unless_weak(made):
    with pytest.raises(InputError) as error:
        tm.copies(made.copies["Bob Ltd"], customers=["New"], roll=made.roll, colluders=8)
    assert error.value.code == "copies.too-few"
    more = tm.copies(made.copies["Bob Ltd"], customers=["New"], roll=made.roll, colluders=8,
                     weak=True)  # fmt: skip
    assert more.traces == made.found.traces


def test_a_customer_who_is_there_and_a_roll_of_another_model_are_refused(made):
    for model, name, code in (
        (made.copies["Bob Ltd"], "Eve Inc", "customers.twice"),
        (made.model, "New", "roll.other-model"),
        (train(seed=4), "New", "roll.other-model"),
    ):
        with pytest.raises(InputError) as error:
            tm.copies(model, customers=[name], roll=made.roll)
        assert error.value.code == code
    with pytest.raises(InputError) as error:
        made.roll.symbols(["Mallory"])
    assert error.value.code == "customers.unknown"


def test_models_of_other_libraries_have_copies(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    xgboost = pytest.importorskip("xgboost")
    X, y = rows(1000)
    number = X[:, 0] + X[:, 1] * X[:, 2]
    for model, target, ending in (
        (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1), y, "txt"),
        (xgboost.XGBRegressor(n_estimators=40, n_jobs=1), number, "json"),
    ):
        model.fit(X, target)
        made = tm.copies(model, X, target, customers=["Bob", "Eve"], owner="Ann",
                         key=tm.OwnerKey(bytes(32)), weak=True)  # fmt: skip
        path = tmp_path / f"eve.{ending}"
        tm.save(made.copies["Eve"], path)
        found = tm.trace(path, made.roll)
        assert found.customers[0].names == ("Eve",)
        assert found.bits >= 20
        # What comes out of a file is still a copy from which others are made.
        more = tm.copies(path, customers=["Late"], roll=made.roll, weak=True)
        assert tm.trace(more.copies["Late"], more.roll).customers[0].names == ("Late",)


def test_whole_numbers_carry_copies_between_their_values():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 12, size=(1500, 8)).astype(float)
    y = (X[:, 0] + X[:, 1] * (X[:, 2] > 5) + rng.normal(size=1500) > 9).astype(int)
    model = tm.TimberClassifier(max_iter=80, random_state=0).fit(X, y)
    made = tm.copies(model, X, y, customers=["Bob", "Eve"], owner="Ann", seals="splits",
                     key=tm.OwnerKey(bytes(32)), weak=True)  # fmt: skip
    assert made.traces < 2
    assert "off_grid" in {note.code for note in made.outcome.notes}
    values = made.roll.grid.splits.values
    between = values[:, 1] % 1 != 0
    assert between.sum() > 40
    # No whole number tells that these thresholds moved: answers differ by wide boundaries alone.
    assert (values[between][:, [0, 2]] % 1 == 0).all()
    found = tm.trace(made.copies["Eve"], made.roll)
    assert found.customers[0].names == ("Eve",)
    assert found.bits >= 20
