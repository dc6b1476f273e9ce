"""What all benchmarks share: the data sets, the clock, the table and the last line of JSON."""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from field_sets import FieldSet, encode_texts, load_field_set
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split

from timbermark.experiments.datasets import Dataset, load_dataset
from timbermark.ownership.evidence import Answers, total_bits, weigh
from timbermark.ownership.mark import Mark

NAMES = ("avila", "letter", "optdigits", "pendigits", "segmentation", "wine")
FOLDER = Path(
    os.environ.get("TIMBERMARK_DATA", Path(__file__).resolve().parents[2] / "shared" / "datasets")
)


_LOADER_NAMES = {
    "segmentation": "image_segmentation",
    "wine": "wine_quality",
    "census": "census_income",
}
"""The names of benchmarks that are not the loader's."""


def load_rows(name: str, published: bool = True) -> Dataset:
    """A data set of the paper, by default with the rows that the paper leaves out."""
    return load_dataset(_LOADER_NAMES.get(name, name), FOLDER, published=published)


def load_field(name: str) -> FieldSet:
    return load_field_set(_LOADER_NAMES.get(name, name), FOLDER)


def load(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows and labels (class numbers), split as in the paper's data table."""
    data = load_rows(name, published=name != "segmentation")
    if data.n_train is not None:
        X, X_test = np.split(data.X, [data.n_train])
        y, y_test = np.split(data.y, [data.n_train])
        return X, y, X_test, y_test
    return _split(data.X, data.y, seed)


def load_prices() -> tuple[np.ndarray, np.ndarray]:
    """Rows of diamonds and their prices; texts become numbers by their order."""
    table = load_field("diamonds")
    return encode_texts(table.rows), np.array(table.target, float)


def load_diamonds(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows of diamonds and their prices."""
    return _split(*load_prices(), seed)


def _split(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
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


def mark_fields(result: Any) -> dict[str, Any]:
    """What a mark is made of: triggers by seal, and the lead of those in leaves."""
    lead = None if result.strength is None else result.strength.lead
    return {"splits": result.mark.n_splits, "leaves": result.mark.n_leaves, "lead": lead}


def redrawn_bits(mark: Mark, answers: Answers, n: int, rng: np.random.Generator) -> np.ndarray:
    """Evidence float64 [n] of one suspect's answers for n other draws of the mark's symbols.

    A suspect without the mark does not know the symbols, so that every draw is a trial. What a
    trigger adds depends on its own symbol alone: it is computed once for each symbol.
    """
    order, k = mark.order_numbers, mark.n_leaves
    each = []
    for symbol in range(mark.q):
        other = mark.with_draws(mark.draws)
        constant = np.full(mark.n_triggers, symbol, np.uint8)
        constant[k:] = min(symbol, 1)
        other._derived.update(symbols=constant, order_numbers=order)
        each.append(weigh(other, answers))
    found = np.empty(n)
    for trial in range(n):
        bits = []
        for parts in zip(*each, strict=True):
            gains = np.stack([part.gains for part in parts])
            symbols = rng.integers(parts[0].q, size=gains.shape[2])
            drawn = gains[symbols, :, np.arange(gains.shape[2])].T
            bits.append(replace(parts[0], gains=drawn).bits)
        found[trial] = total_bits(bits, len(mark.seals))
    return found


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
