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

EMBED = """
import sys, time
import numpy as np, xgboost
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 8))
y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=3000) > 1.0).astype(int)
model = xgboost.XGBClassifier(n_estimators=50, n_jobs=2).fit(X, y)
start = time.perf_counter(), time.process_time()
import timbermark as tm
tm.embed(model, X, y, key=tm.OwnerKey.generate(), owner="benchmark", seals=sys.argv[1])
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""


def measure(title: str, code: str, cases: dict[str, str]) -> dict:
    """Run code in two fresh processes for each case: with nothing on disk, then with its cache."""
    table, result = [], {}
    for name, argument in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            times = [
                [float(x) for x in subprocess.run(
                    [sys.executable, "-c", code, argument], env=environment, check=True,
                    capture_output=True, text=True,
                ).stdout.split()]
                for _ in range(2)
            ]  # fmt: skip
        (cold, processor), (warm, _) = times
        table.append([name, cold, processor, warm])
        result[name] = {"cold": cold, "processor": processor, "from_disk": warm}
    show(title, ["case", "cold s", "processor s", "from disk s"], table)
    return result


def first_fit() -> dict:
    return measure("first fit", CODE, {"3 classes": "3", "2 classes": "2", "numbers": "0"})


def first_embed() -> dict:
    return measure("first embed of an XGBoost model", EMBED, {s: s for s in ("both", "splits")})


if __name__ == "__main__":
    run_parts({"fit": first_fit, "embed": first_embed})
