"""First calls in a fresh environment, with nothing compiled: seconds, and processor seconds.

The second column is what another process pays once machine code lies on disk.
"""

import os
import subprocess
import sys
import tempfile

from common import run_parts, show

CODE = """
import sys, time
import numpy as np
start = time.perf_counter(), time.process_time()
import timbermark as tm
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 5))
n_classes = int(sys.argv[1])
y = np.argsort(np.argsort(X[:, 0])) * n_classes // 500 if n_classes else X[:, 0]
(tm.TimberClassifier if n_classes else tm.TimberRegressor)(max_iter=5).fit(X, y)
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""


def first_fit() -> dict:
    table, result = [], {}
    for n_classes in (3, 2, 0):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            times = [
                [float(x) for x in subprocess.run(
                    [sys.executable, "-c", CODE, str(n_classes)], env=environment, check=True,
                    capture_output=True, text=True,
                ).stdout.split()]
                for _ in range(2)
            ]  # fmt: skip
        (cold, processor), (warm, _) = times
        name = f"{n_classes} classes" if n_classes else "numbers"
        table.append([name, cold, processor, warm])
        result[name] = {"cold": cold, "processor": processor, "from_disk": warm}
    show("first fit", ["answers", "cold s", "processor s", "from disk s"], table)
    return result


if __name__ == "__main__":
    run_parts({"fit": first_fit})
