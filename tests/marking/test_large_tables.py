"""Large tables: the same mark and model whatever the parts, the scheduler and who dies of it.

What counts as large is far less here than by default, so that tests take seconds.
"""

import json
import random
import re
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import timbermark as tm
from tests.marking.models import KEY
from tests.partitions.killing import Dying, Killing
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking import large_tables, leaves, sealing
from timbermark.marking.budget import Budget
from timbermark.marking.leaves import Hold, set_leaves
from timbermark.marking.measuring import judge_table, report_cost, tally_table
from timbermark.marking.preparing import prepare
from timbermark.marking.rehearsing import Strength, rehearse
from timbermark.ownership import mark
from timbermark.partitions import connect, passes

N, D = 12_000, 6
STRENGTHS = (Strength(72, 2, 0.1, False),)
WIDE = Budget.only(changed=0.2, drift=0.2, accuracy=0.2, auc=0.2, score=0.5)
NAMES = [f"x{i}" for i in range(D)]


@cache
def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)).astype(np.float32).astype(np.float64)
    y = (X[:, 0] * X[:, 1] + X[:, 2] + 0.7 * rng.normal(size=n) > 0).astype(int)
    return X, y


@cache
def model():
    from lightgbm import LGBMClassifier

    X, y = data()
    table = pd.DataFrame(X, columns=NAMES)
    return LGBMClassifier(n_estimators=25, n_jobs=1, verbose=-1).fit(table, y)


@pytest.fixture
def small(monkeypatch):
    """Let tables be large from 3,000 rows on."""
    monkeypatch.setattr(large_tables, "LARGE", 3000)
    monkeypatch.setattr(leaves, "FIRST_SIZE", 3000)


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet) as made:
        yield made


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    X, y = data()
    folder = tmp_path_factory.mktemp("rows")
    table = pd.DataFrame(X, columns=NAMES).assign(y=y)
    for number, places in enumerate(np.array_split(np.arange(N), 9)):
        table.iloc[places].to_parquet(folder / f"part-{number}.parquet")
    return folder


@dataclass(eq=False)
class Made:
    """Everything that a mark is made of, but for its random id."""

    prepared: Any
    found: Any
    hold: Any
    setting: Any
    whole: Any

    def same(self, other):
        assert self.found.strength == other.found.strength
        assert self.found.attempts == other.found.attempts
        np.testing.assert_array_equal(self.found.triggers.X, other.found.triggers.X)
        np.testing.assert_array_equal(self.found.triggers.alphabets, other.found.triggers.alphabets)
        np.testing.assert_array_equal(self.hold.prepared.weight, other.hold.prepared.weight)
        assert self.setting.edit.ensemble == other.setting.edit.ensemble
        assert self.whole.use == other.whole.use
        assert self.whole.cost == other.whole.cost
        return True


def make(X, y, kind="mixed", seed=0, validation=None):
    """Go through all steps of a mark with symbols that are the same each time."""
    with Workers(2) as workers:
        prepared = prepare(model(), X, y, None, validation, seed, workers)
        found = rehearse(prepared, WIDE, STRENGTHS, kind, workers)
        hold = Hold.begin(prepared, found.triggers, workers, lambda said: None)
        symbols = np.arange(found.strength.k) % 2
        setting = set_leaves(
            hold.prepared, found.triggers, symbols, found.strength.lead, workers, False
        )
        tally = tally_table(hold.prepared, setting.edit, lambda said: None)
        use = judge_table(hold.prepared, WIDE, tally)
        whole = SimpleNamespace(
            use=use, cost=report_cost(hold.prepared, setting.edit, workers, tally)
        )
    return Made(prepared, found, hold, setting, whole)


@pytest.fixture(scope="module")
def in_memory():
    """What rows in memory give."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_tables, "LARGE", 3000)
        patch.setattr(leaves, "FIRST_SIZE", 3000)
        return make(*data())


def arrays(n_parts):
    X, y = data()
    size = -(-N // n_parts)
    return da.from_array(X, chunks=(size, D)), da.from_array(y, chunks=size)


@pytest.mark.parametrize("n_parts", [1, 7, 64])
def test_partitions_change_nothing(small, in_memory, n_parts):
    assert make(*arrays(n_parts)).same(in_memory)


def test_the_same_seed_gives_the_same_mark_and_model_whatever_the_parts(small, monkeypatch):
    def marked(X, y):
        # The mark's random id, from the same seed each time; the clock stands still in tests.
        drawn = SimpleNamespace(token_bytes=random.Random(1).randbytes)
        monkeypatch.setattr(mark, "secrets", drawn)
        options = {"key": KEY, "owner": "Ann Ltd", "budget": WIDE, "n_triggers": 72, "lead": 0.1}
        result = tm.embed(model(), X, y, **options)
        return result.mark.to_bytes(), result.model.booster_.model_to_string(), result.cost

    expected = marked(*data())
    assert expected[1] != model().booster_.model_to_string()
    for n_parts in (1, 7, 64):
        assert marked(*arrays(n_parts)) == expected


def test_frames_and_files_change_nothing(small, in_memory, files):
    X, y = data()
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES)[NAMES[::-1]], npartitions=5)
    assert make(frame, dd.from_pandas(pd.Series(y), npartitions=5)).same(in_memory)
    assert make(str(files / "*.parquet"), "y").same(in_memory)


def test_one_worker_and_two_change_nothing(small, in_memory, files, cluster):
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    one = LocalCluster(n_workers=1, threads_per_worker=2, processes=False, **quiet)
    with one, Client(one):
        assert make(*arrays(7)).same(in_memory)
    with connect(cluster.scheduler_address):
        assert make(str(files), "y").same(in_memory)


def test_workers_that_are_killed_in_every_pass_change_nothing(
    small, in_memory, files, cluster, tmp_path, monkeypatch
):
    plan = passes._plan
    monkeypatch.setattr(passes, "_plan", lambda parts, step: plan(parts, Killing(step, tmp_path)))
    with connect(cluster.scheduler_address):
        assert make(str(files), "y").same(in_memory)
    killed = sorted(path.name for path in tmp_path.iterdir())
    assert [name[:5] for name in killed] == ["pass1", "pass2", "pass3", "pass4"]


def test_workers_that_die_of_a_part_are_said(small, files, cluster, tmp_path, monkeypatch):
    plan = passes._plan
    monkeypatch.setattr(passes, "_plan", lambda parts, step: plan(parts, Dying(step, tmp_path)))
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with connect(cluster.scheduler_address):
        said = refused(str(files), "y")
    assert "died again and again of" in said
    assert re.search(r"part-\d\.parquet \(tcp://", said)


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(passes, "_PATIENCE", "1s")
    for address in ("tcp://127.0.0.1:9", "nowhere"):
        with pytest.raises(InputError, match="does not answer") as caught, connect(address):
            pass
        assert "local" in caught.value.hint


@pytest.mark.parametrize("kind", ["mixed", "rows"])
def test_candidates_come_from_every_row_and_are_the_cheapest(small, kind):
    X, _ = data()
    made = make(*arrays(5), kind=kind)
    assert made.found.triggers.usable > 72
    rows = {row.tobytes() for row in X}
    assert all((row.tobytes() in rows) == (kind == "rows") for row in made.found.triggers.X)
    # They are more undecided than rows are.
    usual = np.median(np.abs(made.prepared.margins))
    assert np.median(np.abs(made.found.triggers.margins)) < 0.5 * usual
    assert not np.array_equal(make(*arrays(5), kind=kind, seed=1).found.triggers.X[:9],
                              made.found.triggers.X[:9])  # fmt: skip


def test_samples_weigh_as_much_as_all_rows(small, in_memory):
    hold, prepared = in_memory.hold.prepared, in_memory.prepared
    assert hold.holding.n_rows == 3000
    stands_for = hold.weight[:, 0] / prepared.task.weigh_rows(hold.margins)[:, 0]
    assert stands_for.sum() == pytest.approx(prepared.holding.n_rows)
    assert stands_for.max() > 1.2 * stands_for.min()
    # The mean margin of all rows is that of the weighted sample.
    X, _ = data()
    with Workers(1) as workers:
        routes = prepared.router.route(X, workers)
        whole = prepared.router.margins(routes, workers)[:, 0]
    error = whole.std() / np.sqrt(3000)
    found = np.average(hold.margins[:, 0], weights=stands_for)
    assert abs(found - whole.mean()) < 4 * error


def test_samples_leave_out_the_rows_that_judge(small, in_memory):
    X, _ = data()
    prepared = in_memory.prepared
    held, table = prepared.large.held, prepared.large.holding
    assert len(held) == 0.3 * N
    judged = {row.tobytes() for row in X[held]}
    step = leaves._Sampling(
        table.bare(), prepared.router, tuple(np.ones(f[-1]) for f in prepared.router.first), 1.0,
        held, 7, N, np.inf,
    )  # fmt: skip
    rows = step.look(next(iter(table.parts.parts[0].read()))).rows
    assert len(rows) == N - len(held)
    assert not any(row.tobytes() in judged for row in rows)
    # As many as there are, and none of those that judge, where all that are left are asked for.
    with Workers(1) as workers:
        most = leaves.hold_by_sample(
            prepared, in_memory.found.triggers, N, workers, lambda said: None
        )
    assert most.holding.n_rows == N - len(held)


def test_what_triggers_do_to_the_rows_in_memory_is_added_up_once(small, in_memory, monkeypatch):
    original, asked, densities = leaves.add_leaves, [], []

    def add(router, pressure, routes, workers):
        asked.append(routes)
        return original(router, pressure, routes, workers)

    def merge(self, results):
        densities.extend(result.density for result in results)
        return sampling_merge(self, results)

    sampling_merge = leaves._Sampling.merge
    monkeypatch.setattr(leaves, "add_leaves", add)
    monkeypatch.setattr(leaves._Sampling, "merge", merge)
    prepared = in_memory.prepared
    with Workers(1) as workers:
        leaves.hold_by_sample(prepared, in_memory.found.triggers, 3000, workers, lambda said: None)
    assert sum(routes is prepared.holding for routes in asked) == 1
    found = np.concatenate(densities)
    assert 0.5 <= found.min() < found.max() <= 10.5


def test_the_sample_is_doubled_while_all_rows_find_the_mark_too_dear(small, monkeypatch):
    sizes = []
    original = sealing.judge_table

    def dear_at_first(prepared, budget, whole):
        sizes.append(prepared.holding.n_rows)
        use = original(prepared, budget, whole)
        return {**use, "drift": 1.5} if len(sizes) < 3 else use

    monkeypatch.setattr(sealing, "judge_table", dear_at_first)
    options = {"budget": WIDE, "n_triggers": 120, "lead": 0.1}
    result = tm.embed(model(), *arrays(3), key=KEY, owner="Ann Ltd", **options)
    assert sizes[:3] == [3000, 6000, N - 3600]
    assert result.mark.draws >= 3
    assert tm.verify(result.model, result.mark).level == "conclusive"
    sizes.clear()
    plan = tm.plan(model(), *arrays(3), **options)
    assert sizes == [3000, 6000, N - 3600]
    assert plan.attempts[-1].most_used < 1.0


def test_marks_of_large_tables_report_all_rows(small, files):
    X, y = data()
    options = {"budget": WIDE, "n_triggers": 72, "lead": 0.1}
    result = tm.embed(model(), str(files), "y", key=KEY, owner="Ann Ltd", **options)
    assert result.bits >= 64
    assert (result.cost.measured_on, result.cost.n_rows) == ("all training", N)
    table = pd.DataFrame(X, columns=NAMES)
    before, after = model().predict(table), result.model.predict(table)
    assert result.cost.changed == (before != after).sum()
    assert result.cost["accuracy"].after == pytest.approx((after == y).mean())
    assert tm.verify(result.model, result.mark).level == "conclusive"
    assert tm.verify(model(), result.mark).level == "none"
    json.dumps(result.cost.to_dict(), allow_nan=False)


def test_validation_rows_report_whatever_they_are(small, files):
    fresh, truth = data(5000, seed=1)
    options = {"budget": WIDE, "n_triggers": 72, "lead": 0.1}
    table = da.from_array(fresh, chunks=(999, D)), da.from_array(truth, chunks=999)
    large = tm.plan(model(), str(files), "y", validation=table, **options)
    assert (large.cost.measured_on, large.cost.n_rows) == ("all validation", 5000)
    few = tm.plan(model(), str(files), "y", validation=(fresh[:800], truth[:800]), **options)
    assert (few.cost.measured_on, few.cost.n_rows) == ("validation", 400)


def same_plans(one, other):
    """Check that two plans have the same triggers; their symbols differ, like their ids."""
    np.testing.assert_array_equal(one.mark.rows(), other.mark.rows())
    assert (one.mark.n_splits, one.mark.n_leaves) == (other.mark.n_splits, other.mark.n_leaves)
    assert one.mark.n_splits > 0
    assert one.attempts[:-1] == other.attempts[:-1]


def test_tables_of_dask_that_are_not_large_are_marked_as_if_they_were_in_memory(files):
    X, y = data()
    wanted = {"budget": WIDE, "n_triggers": 72}
    fresh = data(500, seed=1)
    for options in (wanted, {**wanted, "validation": fresh}, {**wanted, "triggers": "rows"}):
        same_plans(tm.plan(model(), str(files), "y", **options), tm.plan(model(), X, y, **options))
    own = {**wanted, "candidates": da.from_array(X[:5000], chunks=(800, D))}
    here = {**wanted, "candidates": X[:5000]}
    same_plans(tm.plan(model(), *arrays(4), **own), tm.plan(model(), X, y, **here))
    alone = {**wanted, "candidates": da.from_array(X, chunks=(800, D))}
    in_memory = tm.plan(model(), None, candidates=X, **wanted)
    same_plans(tm.plan(model(), None, **alone), in_memory)


def test_regressors_are_marked_in_passes(small):
    from lightgbm import LGBMRegressor

    X, _ = data()
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * np.random.default_rng(5).normal(size=N)
    regressor = LGBMRegressor(n_estimators=40, n_jobs=1, verbose=-1).fit(X, y)
    limits = Budget.only(move=0.5, rmse=0.2, mean=0.5, tail=0.5)
    here = tm.plan(regressor, X, y, budget=limits)
    chunks = da.from_array(X, chunks=(1111, D)), da.from_array(y, chunks=1111)
    same_plans(tm.plan(regressor, *chunks, budget=limits), here)
    assert here.bits >= 64
    assert (here.cost.measured_on, here.cost.n_rows) == ("all training", N)
    assert here.cost["rmse"].before == pytest.approx(
        np.sqrt(np.mean((regressor.predict(X) - y) ** 2)), rel=1e-4
    )


def refused(X, y=None, **options):
    with pytest.raises(InputError) as caught:
        tm.plan(options.pop("model", model()), X, y, **options)
    assert caught.value.hint
    return caught.value.message


def test_one_of_many_files_with_unknown_labels_or_values_is_named(tmp_path, files):
    for number, path in enumerate(sorted(files.glob("*.parquet"))):
        table = pd.read_parquet(path)
        if number == 4:
            table.loc[table.index[3], "y"] = 7
        table.to_parquet(tmp_path / path.name)
    said = refused(tmp_path, "y")
    assert "part-4.parquet" in said
    assert "7" in said
    table.assign(x1=np.inf).to_parquet(tmp_path / "part-4.parquet")
    assert "part-4.parquet" in refused(tmp_path, "y")
    table["y"] = table["y"].astype("Int64")
    table.loc[table.index[0], "y"] = None
    table.to_parquet(tmp_path / "part-4.parquet")
    assert "without a label" in refused(tmp_path, "y")
    labels = data()[1].copy()
    labels[-1] = 5
    assert "partition 3 of the training rows" in refused(arrays(4)[0], da.from_array(labels, 3000))


def test_partitions_with_other_columns_are_named():
    X, y = data()
    frame = pd.DataFrame(X, columns=NAMES)
    import dask

    pieces = [frame.iloc[:6000], frame.iloc[6000:].drop(columns="x3")]
    table = dd.from_delayed(
        [dask.delayed(p) for p in pieces], meta=frame.iloc[:0], verify_meta=False
    )
    said = refused(table, y)
    assert "partition 1" in said
    assert "x3" in said


def test_empty_partitions_are_noted():
    X, y = data()
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4)
    empty = dd.concat([frame, dd.from_pandas(pd.DataFrame(X[:0], columns=NAMES), npartitions=1)])
    plan = tm.plan(model(), empty, y, budget=WIDE, n_triggers=72)
    assert "1 of 5 parts of the training rows are empty." in [str(note) for note in plan.notes]


def test_what_cannot_be_marked_in_parts_is_said():
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = data()
    assert "Groups" in refused(*arrays(2), groups=y)
    piped = make_pipeline(StandardScaler(), clone(model())).fit(X, y)
    assert "numbers that trees see" in refused(*arrays(2), model=piped)
    assert "no training rows" in refused(da.zeros((0, D)))
    assert "too few" in refused(da.from_array(X[:50], chunks=(10, D)))
