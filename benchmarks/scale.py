"""Marking models of 10⁵, 10⁶ and 10⁷ rows × 28, through Dask, against training them and in memory.

Rows are made on the fly and written as 64 Parquet files to a temporary folder (``--folder`` keeps
them elsewhere); a LightGBM model of 100 trees is trained on all of them. Training, marking on a
local cluster of two worker processes, and marking in memory run one after the other, each in a
process of its own, so that memory is that of the task alone. ``--sizes`` chooses the sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from common import finish, show

PARTS, FEATURES, TREES = 64, 28, 100
CHANGED, TRIGGERS = 0.003, 72
"""The share of labels that may change in a large table; what carries the 64 bits."""
IN_MEMORY_UP_TO = 1_000_000


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


def train(folder: Path) -> dict:
    import lightgbm

    X, y = read_rows(folder)
    model = lightgbm.LGBMClassifier(n_estimators=TREES, n_jobs=2, verbose=-1)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    # The names of the columns in the files are those of the model.
    text = model.booster_.model_to_string()
    old = " ".join(f"Column_{i}" for i in range(FEATURES))
    Path(folder, "model.txt").write_text(text.replace(old, old.replace("Column_", "x")))
    return {"seconds": seconds}


def mark(folder: Path, X, y) -> dict:
    import timbermark as tm
    from timbermark.marking.large_tables import LARGE

    budget = tm.Budget(changed=CHANGED) if int(folder.name) > LARGE else tm.Budget()
    start = time.perf_counter()
    result = tm.embed(
        folder / "model.txt", X, y, key=tm.OwnerKey.generate(), owner="Ann Ltd", budget=budget,
        n_triggers=TRIGGERS,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    tested = make_rows(200_000, 1)[0]
    before = tm.load(folder / "model.txt").predict(tested)
    after = result.model.predict(tested)
    cost = result.cost.to_dict()
    return {
        "seconds": seconds,
        "bits": result.bits,
        "triggers": result.strength.k,
        "lead": result.strength.lead,
        "attempts": len(result.attempts),
        "changed": cost["labels_changed_share"],
        "drift": cost["mean_drift"],
        "auc_lost": (cost["before"]["auc"] or 0) - (cost["after"]["auc"] or 0),
        "changed_on_fresh_rows": float(((before > 0.5) != (after > 0.5)).mean()),
    }


def mark_through_dask(folder: Path) -> dict:
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet) as cluster:
        with Client(cluster), Memory() as memory:
            found = mark(folder, str(folder / "*.parquet"), "y")
        # Beside the workers there are small processes of Python's own.
        workers = sorted(memory.children.values())[-2:]
    return {**found, "driver_gb": memory.own / 1e9, "worker_gb": max(workers) / 1e9}


def mark_in_memory(folder: Path) -> dict:
    return mark(folder, *read_rows(folder))


TASKS = {"train": train, "dask": mark_through_dask, "memory": mark_in_memory}


def run_task(task: str, folder: Path) -> dict:
    """Run a task in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--task", task, "--folder", str(folder)],
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.decode().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        print(json.dumps(TASKS[given.task](given.folder), default=float))
        return
    results, table = {}, []
    with tempfile.TemporaryDirectory(prefix="timbermark-scale-") as temporary:
        for n in given.sizes:
            folder = (given.folder or Path(temporary)) / str(n)
            if not folder.exists():
                write_rows(folder, n)
            found = {"train": run_task("train", folder), "dask": run_task("dask", folder)}
            if n <= IN_MEMORY_UP_TO:
                found["memory"] = run_task("memory", folder)
            results[n] = found
            dask, seconds = found["dask"], found["dask"]["seconds"]
            table.append(
                [
                    f"{n:,}", found["train"]["seconds"], seconds,
                    seconds / found["train"]["seconds"],
                    seconds / found["memory"]["seconds"] if "memory" in found else "",
                    f"{1e6 * seconds / n:.1f} µs", f"{dask['bits']:.0f}",
                    f"{dask['changed']:.3%}", f"{dask['changed_on_fresh_rows']:.3%}",
                    dask["driver_gb"], dask["worker_gb"],
                ]
            )  # fmt: skip
            print(json.dumps({n: found}, default=float), file=sys.stderr)
    header = ["rows", "train s", "embed s", "embed/train", "dask/memory", "a row", "bits"]
    header += ["changed", "on fresh rows", "driver GB", "worker GB"]
    show("Marking through Dask, two workers", header, table)
    finish(results)


if __name__ == "__main__":
    main()
