"""What all benchmarks share: the data sets, the clock, the table and the last line of JSON."""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

NAMES = ("avila", "letter", "optdigits", "pendigits", "segmentation", "wine")
FOLDER = Path(
    os.environ.get("TIMBERMARK_DATA", Path(__file__).resolve().parents[2] / "shared" / "datasets")
)


def load(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows and labels (class numbers), split as in the paper's data table."""
    _need_folder()
    read = {
        "avila": lambda: _pair("avila/avila-tr.txt", "avila/avila-ts.txt", -1),
        "optdigits": lambda: _pair("optdigits/optdigits.tra", "optdigits/optdigits.tes", -1),
        "pendigits": lambda: _pair("pendigits/pendigits.tra", "pendigits/pendigits.tes", -1),
        "letter": lambda: _one("letter/letter-recognition.data", 0, seed),
        "segmentation": lambda: _one("segmentation/segmentation.data", 0, seed, skip=5),
        "wine": lambda: _wine(seed),
    }
    X, y, X_test, y_test = read[name]()
    classes = np.unique(np.concatenate([y, y_test]))
    return X, np.searchsorted(classes, y), X_test, np.searchsorted(classes, y_test)


def _need_folder() -> None:
    if not FOLDER.is_dir():
        sys.exit(f"The data sets are not in {FOLDER}. Hint: TIMBERMARK_DATA can name their folder.")


def load_diamonds(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows of diamonds and their prices; texts become numbers by their order."""
    _need_folder()
    table = pandas.read_csv(FOLDER / "field" / "diamonds" / "diamonds.csv")
    for name in ("cut", "color", "clarity"):
        table[name] = table[name].astype("category").cat.codes
    y = table.pop("price").to_numpy(float)
    X, X_test, y, y_test = train_test_split(
        table.to_numpy(float), y, test_size=0.25, random_state=seed
    )
    return X, y, X_test, y_test


def _text(path: str, skip: int = 0, delimiter: str = ",") -> np.ndarray:
    return np.genfromtxt(FOLDER / path, delimiter=delimiter, dtype=str, skip_header=skip)


def _cut(table: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    return np.delete(table, label, axis=1).astype(float), np.char.strip(table[:, label])


def _pair(train: str, test: str, label: int) -> tuple[np.ndarray, ...]:
    return *_cut(_text(train), label), *_cut(_text(test), label)


def _one(path: str, label: int, seed: int, skip: int = 0) -> tuple[np.ndarray, ...]:
    X, y = _cut(_text(path, skip), label)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    return X, y, X_test, y_test


def _wine(seed: int) -> tuple[np.ndarray, ...]:
    red = _text("wine_quality/winequality-red.csv", 1, ";").astype(float)
    white = _text("wine_quality/winequality-white.csv", 1, ";").astype(float)
    both = np.concatenate([red, white])
    colour = np.repeat([0.0, 1.0], [len(red), len(white)])
    X, y = np.column_stack([both[:, :-1], colour]), both[:, -1].astype(int)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    return X, y, X_test, y_test


def alternate(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The best time of each contender; they take turns, so that noise hits all alike."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            gc.collect()
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def show(title: str, header: list[str], rows: list[list[Any]]) -> None:
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row])
    Console(width=120).print(table)


def finish(results: dict[str, Any]) -> None:
    """The last line: everything as JSON."""
    print(json.dumps(results, default=float))


def run_parts(parts: dict[str, Callable[[], dict]]) -> None:
    """Run the parts named on the command line, or all."""
    asked = sys.argv[1:] or list(parts)
    unknown = [name for name in asked if name not in parts]
    if unknown:
        sys.exit(f"There is no part called '{unknown[0]}'. Hint: use {', '.join(parts)}.")
    finish({name: parts[name]() for name in asked})
