"""Marking models of 10⁵, 10⁶ and 10⁷ rows × 28, through Dask, against training them and in memory.

Rows are made on the fly and written as 64 Parquet files to a temporary folder (``--folder`` keeps
them elsewhere); a LightGBM model of 100 trees is trained on all of them. Training, marking on a
local cluster of two worker processes, and marking in memory take turns, each in a process of its
own, so that memory is that of the task alone; up to 10⁶ rows the best of three rounds counts, in
wall time and, less dependent on what else runs, in processor time of all processes. ``embed`` runs
with its defaults, but for the share of labels that may change in a large table. At 10⁵ rows a
worker is killed once in every pass, and the mark and the model are compared byte for byte.
``--sizes`` and ``--rounds`` choose the sizes and rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
from common import finish, show

PARTS, FEATURES, TREES = 64, 28, 100
CHANGED = 0.003
"""The share of labels that may change in a large table."""
SEVERAL_UP_TO = IN_MEMORY_UP_TO = 1_000_000
KILLED_AT, KILLED_LARGE = 100_000, 50_000
"""The size at which workers are killed, and what counts as large there: all passes must run."""


def make_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n rows of 28 numbers, some with heavy tails, some of few values, and two classes."""
    rng = np.random.default_rng(seed)
    loadings = 0.6 * np.random.default_rng(11).normal(size=(8, FEATURES))
    hidden = rng.normal(size=(n, 8))
    X = hidden @ loadings + rng.normal(size=(n, FEATURES))
    X[:, :12] = np.exp(0.5 * X[:, :12])
    X[:, 20:24] = 1.1 * np.digitize(X[:, 20:24], [0, 1.5])
    X[:, 24:] = np.abs(X[:, 24:]) ** 1.5
    score = 0.5 * hidden @ np.random.default_rng(5).normal(size=8)
    score += np.sin(1.5 * hidden[:, 0]) * hidden[:, 1] + 0.7 * hidden[:, 2] * hidden[:, 3]
    score -= 0.4 * (hidden[:, 4] ** 2 - 1)
    y = rng.random(n) < 1 / (1 + np.exp(-1.2 * score))
    return X.astype(np.float32), y.astype(np.int64)


def write_rows(folder: Path, n: int) -> None:
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True)
    sizes = np.full(PARTS, n // PARTS) + (np.arange(PARTS) < n % PARTS)
    for number, size in enumerate(sizes):
        X, y = make_rows(int(size), 1000 + number)
        columns = {f"x{i}": X[:, i] for i in range(FEATURES)}
        parquet.write_table(
            pyarrow.table({**columns, "y": y}), folder / f"part-{number:03d}.parquet"
        )


def read_rows(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    from pyarrow import parquet

    files = sorted(folder.glob("*.parquet"))
    n = sum(parquet.read_metadata(path).num_rows for path in files)
    X, y, start = np.empty((n, FEATURES), np.float32), np.empty(n, np.int64), 0
    for path in files:
        table = parquet.read_table(path)
        stop = start + table.num_rows
        for i in range(FEATURES):
            X[start:stop, i] = table.column(f"x{i}").to_numpy()
        y[start:stop] = table.column("y").to_numpy()
        start = stop
    return X, y


class Memory:
    """The largest resident memory of this process and of each of its children, in bytes."""

    def __init__(self) -> None:
        self.own, self.children, self._stop = 0, {}, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._stop.wait(0.1):
            self.own = max(self.own, here.memory_info().rss)
            for child in here.children(recursive=True):
                try:
                    used = child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self.children[child.pid] = max(self.children.get(child.pid, 0), used)


class Stopwatch:
    """Wall time, and processor time of this process and of the children that stay alive."""

    def __enter__(self) -> Stopwatch:
        self._start, self._cpu = time.perf_counter(), self._processor_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu = self._processor_time() - self._cpu

    @staticmethod
    def _processor_time() -> float:
        here = psutil.Process()
        times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
        return sum(spent.user + spent.system for spent in times)


class Killing:
    """A pass that kills the first worker that looks at a block of it."""

    def __init__(self, step, folder: str) -> None:
        self.step, self.folder, self.title = step, folder, step.title

    def look(self, block):
        note = os.path.join(self.folder, "".join(c for c in self.title if c.isalnum()))
        try:
            os.close(os.open(note, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self.step.look(block)
        os.kill(os.getpid(), signal.SIGKILL)

    def merge(self, results):
        return self.step.merge(results)


def train(folder: Path) -> dict:
    import lightgbm

    X, y = read_rows(folder)
    model = lightgbm.LGBMClassifier(n_estimators=TREES, n_jobs=2, verbose=-1)
    with Stopwatch() as watch:
        model.fit(X, y)
    # The names of the columns in the files are those of the model.
    text = model.booster_.model_to_string()
    old = " ".join(f"Column_{i}" for i in range(FEATURES))
    Path(folder, "model.txt").write_text(text.replace(old, old.replace("Column_", "x")))
    return {"seconds": watch.seconds, "cpu": watch.cpu}


def mark(folder: Path, X, y) -> dict:
    import timbermark as tm
    from timbermark.marking.large_tables import LARGE

    budget = tm.Budget(changed=CHANGED) if int(folder.name) > LARGE else tm.Budget()
    key = tm.OwnerKey.generate()
    with Stopwatch() as watch:
        result = tm.embed(folder / "model.txt", X, y, key=key, owner="Ann Ltd", budget=budget)
    tested = make_rows(200_000, 1)[0]
    before = tm.load(folder / "model.txt").predict(tested)
    after = result.model.predict(tested)
    cost = result.cost.to_dict()
    return {
        "seconds": watch.seconds,
        "cpu": watch.cpu,
        "bits": result.bits,
        "triggers": result.mark.n_triggers,
        "attempts": len(result.attempts),
        "changed": cost["labels_changed_share"],
        "drift": cost["mean_drift"],
        "auc_lost": (cost["before"]["auc"] or 0) - (cost["after"]["auc"] or 0),
        "changed_on_fresh_rows": float(((before > 0.5) != (after > 0.5)).mean()),
    }


def start_cluster():
    from distributed import LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    return LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet)


def mark_through_dask(folder: Path) -> dict:
    from distributed import Client

    with start_cluster() as cluster:
        with Client(cluster), Memory() as memory:
            found = mark(folder, str(folder / "*.parquet"), "y")
        # Beside the workers there are small processes of Python's own.
        workers = sorted(memory.children.values())[-2:]
    return {**found, "driver_gb": memory.own / 1e9, "worker_gb": max(workers) / 1e9}


def kill_workers(folder: Path) -> dict:
    """Return whether a mark and a model are the same in memory and while workers are killed."""
    from distributed import Client

    import timbermark as tm
    from timbermark.marking import large_tables, leaves
    from timbermark.ownership import mark as marks
    from timbermark.partitions import passes

    large_tables.LARGE = large_tables.LARGE = leaves.FIRST_SIZE = KILLED_LARGE
    marks.datetime = SimpleNamespace(now=datetime(2026, 11, 2, 9, tzinfo=UTC).astimezone)
    key, plan = tm.OwnerKey.generate(), passes._plan

    def made(X, y) -> tuple[bytes, bytes]:
        marks.secrets = SimpleNamespace(token_bytes=random.Random(1).randbytes)
        result = tm.embed(folder / "model.txt", X, y, key=key, owner="Ann Ltd")
        result.model.save_model(folder / "marked.txt")
        return result.mark.to_bytes(), (folder / "marked.txt").read_bytes()

    with tempfile.TemporaryDirectory() as notes, start_cluster() as cluster, Client(cluster):
        undisturbed = made(str(folder / "*.parquet"), "y")
        passes._plan = lambda parts, step: plan(parts, Killing(step, notes))
        disturbed = made(str(folder / "*.parquet"), "y")
        killed = len(os.listdir(notes))
    in_memory = made(*read_rows(folder))
    return {"workers_killed": killed, "same": disturbed == undisturbed == in_memory}


def mark_in_memory(folder: Path) -> dict:
    return mark(folder, *read_rows(folder))


TASKS = {
    "train": train,
    "dask": mark_through_dask,
    "memory": mark_in_memory,
    "kill": kill_workers,
}


def run_task(task: str, folder: Path) -> dict:
    """Run a task in a process of its own."""
    # On a busy machine threads that wait for each other in a loop take most of the training time.
    passive = {"OMP_WAIT_POLICY": "passive", **os.environ}
    done = subprocess.run(
        [sys.executable, __file__, "--task", task, "--folder", str(folder)],
        stdout=subprocess.PIPE, check=True, env=passive,
    )  # fmt: skip
    return json.loads(done.stdout.decode().splitlines()[-1])


def measure(folder: Path, n: int, rounds: int) -> dict:
    """Return what every task found in its fastest round, and the lowest processor time."""
    names = ["train", "dask", *(["memory"] if n <= IN_MEMORY_UP_TO else [])]
    runs: dict[str, list[dict]] = {name: [] for name in names}
    for _ in range(rounds if n <= SEVERAL_UP_TO else 1):
        for name in names:
            runs[name].append(run_task(name, folder))
    found: dict = {"runs": runs}
    for name in names:
        best = min(runs[name], key=lambda run: run["seconds"])
        found[name] = {**best, "cpu": min(run["cpu"] for run in runs[name])}
    if n == KILLED_AT:
        found["kill"] = run_task("kill", folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        print(json.dumps(TASKS[given.task](given.folder), default=float))
        return
    results, times, costs = {}, [], []
    with tempfile.TemporaryDirectory(prefix="timbermark-scale-") as temporary:
        for n in given.sizes:
            folder = (given.folder or Path(temporary)) / str(n)
            if not folder.exists():
                write_rows(folder, n)
            results[n] = found = measure(folder, n, given.rounds)
            trained, dask, memory = found["train"], found["dask"], found.get("memory")
            for what, unit in (("seconds", "wall"), ("cpu", "processor")):
                times.append(
                    [
                        f"{n:,}", unit, trained[what], dask[what], memory[what] if memory else "",
                        dask[what] / trained[what], dask[what] / memory[what] if memory else "",
                        f"{1e6 * dask[what] / n:.1f} µs",
                    ]
                )  # fmt: skip
            killed = found.get("kill")
            costs.append(
                [
                    f"{n:,}", dask["triggers"], f"{dask['bits']:.0f}", f"{dask['changed']:.3%}",
                    f"{dask['changed_on_fresh_rows']:.3%}", dask["driver_gb"], dask["worker_gb"],
                    f"{killed['workers_killed']}: {killed['same']}"
                    if killed else "",
                ]
            )  # fmt: skip
            print(json.dumps({n: found}, default=float), file=sys.stderr)
    header = ["rows", "time, s", "train", "embed: Dask", "in memory", "Dask/train", "Dask/memory"]
    show("Marking through Dask, two workers", [*header, "a row"], times)
    header = ["rows", "triggers", "bits", "changed", "on fresh rows", "driver GB", "worker GB"]
    show("What the mark costs", [*header, "workers killed: the same"], costs)
    finish(results)


if __name__ == "__main__":
    main()
