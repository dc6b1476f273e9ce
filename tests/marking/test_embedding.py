"""Embedding as a user meets it: every symbol set, the model left alone, bad input refused."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

import timbermark as tm
from timbermark.errors import InputError
from timbermark.marking import embedding
from timbermark.marking.metrics import effectiveness
from timbermark.marking.paper import PaperMark, TooFewWrong, find_paper_candidates
from timbermark.trees.ensemble import digest

KEY = tm.OwnerKey.generate()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X[:1000], y[:1000])
    return model, (X[:1000], y[:1000]), (X[1000:1400], y[1000:1400]), (X[1400:], y[1400:])


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return tm.TimberClassifier(max_iter=30, random_state=0).fit(X, y), X, y


@pytest.mark.parametrize("strategy", ["auto", "confidence", "outlier", "cluster", "random"])
@pytest.mark.parametrize("separate", [True, False])
def test_every_symbol_is_set_and_the_model_given_is_untouched(digits, strategy, separate):
    model, train, more, test = digits
    before, state = digest(model.ensemble_), model._state
    result = tm.embed(
        model, *train, key=KEY, candidates=more if separate else None, validation=test,
        strategy=strategy, n_triggers=24, max_accuracy_loss=0.1,
    )  # fmt: skip
    verdict = tm.verify(result.model, result.mark)
    assert verdict.matched == verdict.trials == 24
    assert result.cost.evidence_bits == pytest.approx(48)
    assert type(result.model) is tm.TimberClassifier
    assert digest(model.ensemble_) == before
    assert model._state is state
    assert result.model.ensemble_.n_trees == model.ensemble_.n_trees
    assert result.why
    assert result.mark.made_with(KEY)
    pool = more if separate else train
    rows = {row.tobytes() for row in pool[0]}
    assert all(row.tobytes() in rows for row in np.asarray(result.mark.triggers))


def test_cost_is_what_the_two_models_say(digits):
    model, train, more, test = digits
    made = tm.embed(
        model, *train, key=KEY, candidates=more, validation=test, n_triggers=16,
        max_accuracy_loss=0.1,
    )  # fmt: skip
    cost = made.cost
    assert cost.before.accuracy == pytest.approx(model.score(*test))
    assert cost.after.accuracy == pytest.approx(made.model.score(*test))
    assert cost.accuracy_lost == pytest.approx(cost.before.accuracy - cost.after.accuracy)
    moved = model.predict(test[0]) != made.model.predict(test[0])
    assert cost.changed.tolist() == np.flatnonzero(moved).tolist()
    assert cost.to_dict()["changed_rows"] == cost.changed.tolist()
    assert "held-out rows" in str(cost)
    assert "32 bits embedded in 16 triggers, evidence 2^-32" in str(cost)


def test_without_held_out_rows_the_cost_says_so_and_leaves_triggers_out(digits):
    model, train, _, _ = digits
    made = tm.embed(model, *train, key=KEY, n_triggers=16, max_accuracy_loss=0.1)
    assert made.cost.measured_on == "training"
    assert "training rows that are no triggers" in str(made.cost)
    assert made.cost.n_rows <= 1000 - 16
    triggers = {row.tobytes() for row in np.asarray(made.mark.triggers)}
    assert not triggers & {train[0][i].tobytes() for i in made.cost.changed}


def test_two_classes_carry_bits(cancer):
    model, X, y = cancer
    made = tm.embed(model, X, y, key=KEY, n_triggers=20, max_accuracy_loss=0.1)
    assert made.mark.q == 2
    assert tm.verify(made.model, made.mark).matched == 20
    assert made.cost.before.auc is not None


def test_constant_and_empty_columns_do_no_harm(digits):
    _, (X, y), _, _ = digits
    odd = np.column_stack([X, np.full(len(X), 7.0), np.full(len(X), np.nan)])
    model = tm.TimberClassifier(max_iter=20, random_state=0).fit(odd, y)
    for strategy in ("outlier", "cluster", "confidence"):
        made = tm.embed(
            model, odd, y, key=KEY, n_triggers=8, strategy=strategy, max_accuracy_loss=0.2
        )
        assert tm.verify(made.model, made.mark).matched == 8


def test_triggers_survive_single_precision(digits):
    model, train, more, _ = digits
    made = tm.embed(
        model, *train, key=KEY, candidates=more, n_triggers=16, max_accuracy_loss=0.1
    )  # fmt: skip
    single = np.asarray(made.mark.triggers, np.float32).astype(np.float64)
    assert (made.model.predict(single) == list(made.mark.expected)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": None}, "needs your owner key"),
        ({"n_triggers": 51}, "more than 5 %"),
        ({"n_triggers": "lots"}, "n_triggers='lots'"),
        ({"alphabet": 8}, "alphabet=8"),
        ({"strategy": "best"}, "strategy='best'"),
        ({"selection": "best"}, "selection='best'"),
        ({"preset": "book"}, "preset='book'"),
        ({"margin": -1.0}, "margin=-1.0"),
        ({"max_accuracy_loss": float("nan")}, "max_accuracy_loss=nan"),
    ],
)
def test_bad_arguments(digits, change, message):
    model, train, more, _ = digits
    with pytest.raises(InputError, match=message) as caught:
        tm.embed(model, *train, **{"key": KEY, "candidates": more, **change})
    assert caught.value.hint


def test_fewer_rows_than_triggers_says_what_fits(digits):
    model, train, more, _ = digits
    few = more[0][:20], more[1][:20]
    with pytest.raises(InputError, match="needs 40 candidates but finds only") as caught:
        tm.embed(model, *train, key=KEY, candidates=few, n_triggers=40)
    assert "fit" in caught.value.hint


def test_wrong_prediction_flip_is_refused_where_it_cannot_be(digits, cancer):
    model, train, more, _ = digits
    with pytest.raises(InputError, match="wrong predictions"):
        tm.embed(model, *train, key=KEY, candidates=more, strategy="wrong", n_triggers=40)
    two, X, y = cancer
    with pytest.raises(InputError, match="at least 3 classes"):
        tm.embed(two, X, y, key=KEY, strategy="wrong", n_triggers=8)


def test_labels_never_seen_are_refused(digits):
    model, train, more, test = digits
    strange = np.where(more[1] == 3, 77, more[1])
    with pytest.raises(InputError, match="77"):
        tm.embed(model, *train, key=KEY, candidates=(more[0], strange))
    with pytest.raises(InputError, match="77"):
        tm.embed(model, *train, key=KEY, validation=(test[0], np.full(len(test[0]), 77)))


def test_nothing_to_choose_from_or_to_measure_on(digits):
    model, train, _, _ = digits
    with pytest.raises(InputError, match="nothing to choose triggers from"):
        tm.embed(model, None, None, key=KEY)
    with pytest.raises(InputError, match="There are no validation rows"):
        tm.embed(model, *train, key=KEY, validation=(train[0][:0], train[1][:0]))
    with pytest.raises(InputError, match="not fitted"):
        tm.embed(tm.TimberClassifier(), *train, key=KEY)


def test_a_budget_that_cannot_be_kept_is_an_error_with_advice(digits):
    model, train, more, _ = digits
    # Triggers are among the few rows that cost is measured on, so every flip is a loss.
    chosen = more[0][:60], more[1][:60]
    with pytest.raises(InputError, match="points of accuracy at best, more than the") as caught:
        tm.embed(
            model, *train, key=KEY, candidates=chosen, validation=chosen, n_triggers=20,
            max_accuracy_loss=0.0,
        )  # fmt: skip
    assert "n_triggers=10" in caught.value.hint


def test_plan_foretells_the_mark(digits):
    model, train, more, test = digits
    forecast = tm.plan(model, *train, candidates=more, validation=test, n_triggers=24)
    made = tm.embed(
        model, *train, key=KEY, candidates=more, validation=test, n_triggers=24,
        max_accuracy_loss=0.1,
    )  # fmt: skip
    assert forecast.strategy == made.strategy
    assert forecast.n_triggers == made.mark.n_triggers
    assert forecast.evidence_bits == pytest.approx(made.cost.evidence_bits)
    assert 0 < forecast.expected_accuracy_loss < 0.05
    assert "expected cost" in str(forecast)
    assert forecast.accuracy_before == pytest.approx(made.cost.before.accuracy)


def test_a_trigger_that_cannot_be_set_is_replaced_and_symbols_are_drawn_anew(digits, monkeypatch):
    model, train, more, _ = digits
    seen = []
    honest = embedding.set_answers

    def stubborn(marked, request, margin, max_rounds, care):
        setting = honest(marked, request, margin, max_rounds, care)
        seen.append((request.X.copy(), request.target.copy()))
        if len(seen) == 1:
            gap = setting.gap.copy()
            gap[[2, 5]] = -1.0
            return replace(setting, gap=gap)
        return setting

    monkeypatch.setattr(embedding, "set_answers", stubborn)
    made = tm.embed(
        model, *train, key=KEY, candidates=more, n_triggers=16, max_accuracy_loss=0.1,
    )  # fmt: skip
    assert made.cost.replaced == 2
    first, second = seen[0][0], seen[1][0]
    changed = (first != second).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [2, 5]
    assert (seen[0][1] != seen[1][1])[~changed].any()
    assert np.array_equal(np.asarray(made.mark.triggers), second)
    assert tm.verify(made.model, made.mark).matched == 16


def test_nothing_is_returned_where_triggers_cannot_be_set(digits, monkeypatch):
    model, train, more, _ = digits
    honest = embedding.set_answers

    def never(*args):
        setting = honest(*args)
        return replace(setting, gap=setting.gap - 1e9)

    monkeypatch.setattr(embedding, "set_answers", never)
    with pytest.raises(InputError, match="Only 0 of 16 symbols could be set"):
        tm.embed(model, *train, key=KEY, candidates=more, n_triggers=16)


def test_wrong_rows_are_taken_where_there_are_enough():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    y = np.where(
        rng.random(1500) < 0.4, rng.integers(0, 6, 1500), (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    )
    model = tm.TimberClassifier(max_iter=20, random_state=0).fit(X[:1000], y[:1000])
    made = tm.embed(
        model, X[:1000], y[:1000], key=KEY, candidates=(X[1000:], y[1000:]), n_triggers=20,
        max_accuracy_loss=0.5,
    )  # fmt: skip
    assert made.strategy == "wrong"
    assert "predicted wrongly" in made.why
    assert tm.verify(made.model, made.mark).matched == 20


def learned(model, n_rows):
    """The weights of the rows that came after the training, whichever way they were learned."""
    state = model._state
    return np.concatenate([state.data.weight[n_rows:], state.added.weight])


class TestPaper:
    @pytest.mark.parametrize("strategy", ["outlier", "cluster", "confidence", "random"])
    @pytest.mark.parametrize("selection", ["confidence", "distance"])
    def test_sizes_labels_and_weights_are_the_papers(self, digits, strategy, selection):
        model, train, more, _ = digits
        before = digest(model.ensemble_)
        made = tm.embed(
            model, *train, preset="paper", ratio=0.0201, strategy=strategy, selection=selection,
            candidates=more,
        )  # fmt: skip
        assert isinstance(made, PaperMark)
        assert len(made.candidates) == 21  # ceil(0.0201 · 1000)
        assert len(made.triggers) == 11  # ceil(21 / 2)
        assert set(made.triggers) <= set(made.candidates)
        truth, said = more[1][made.triggers], model.predict(more[0][made.triggers])
        assert (made.target != truth).all()
        assert (made.target != said).all()
        assert effectiveness(made.model.predict(more[0][made.triggers]), made.target) > 0.7
        assert digest(model.ensemble_) == before
        heavy = learned(made.model, 1000)
        assert set(heavy[:11]) == {2.0 if strategy == "cluster" else 1.0}
        assert set(heavy[11:]) <= {1.0}
        assert (len(made.neighbours) > 0) == (strategy == "cluster")

    def test_training_rows_weigh_five(self, digits):
        model, train, _, _ = digits
        made = tm.embed(model, *train, preset="paper", strategy="confidence", ratio=0.01)
        assert learned(made.model, 1000).tolist() == [5.0] * 5

    def test_one_seed_one_result(self, digits):
        model, train, more, _ = digits
        made = [
            tm.embed(model, *train, preset="paper", strategy="random", candidates=more)
            for _ in range(2)
        ]
        assert digest(made[0].model.ensemble_) == digest(made[1].model.ensemble_)

    def test_too_few_wrong_predictions_are_counted(self, digits):
        model, train, more, _ = digits
        wrong = int((model.predict(more[0]) != more[1]).sum())
        with pytest.raises(TooFewWrong) as caught:
            find_paper_candidates(model, *train, strategy="wrong", ratio=0.2, candidates=more)
        assert caught.value.available == wrong
        assert caught.value.wanted == 200
        again = copy.copy(caught.value)
        assert (again.available, again.wanted) == (wrong, 200)

    @pytest.mark.parametrize(
        ("ratio", "strategy"), [(0.0, "random"), (2.0, "random"), (0.1, "auto")]
    )
    def test_bad_arguments(self, digits, ratio, strategy):
        model, train, _, _ = digits
        with pytest.raises(InputError):
            tm.embed(model, *train, preset="paper", ratio=ratio, strategy=strategy)
