"""Made-up data sets and cells, for tests that are not about the real ones."""

import time

import numpy as np

from timbermark.errors import InputError
from timbermark.experiments.datasets import Dataset
from timbermark.experiments.measuring import MEASURES, Measured, Measures
from timbermark.marking.strategies import Pool


def made_dataset(n=240, n_classes=3, seed=0, n_train=None):
    """Overlapping clouds in the plane, so that some rows are predicted wrongly."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = np.column_stack([np.cos(y * 2.1), np.sin(y * 2.1)]) + rng.normal(scale=0.6, size=(n, 2))
    return Dataset("made", X, y.astype(np.int64), tuple("abcdefgh"[:n_classes]), n_train)


def made_pool(n=200, n_classes=4, seed=0, wrong=0.2):
    """Random rows and probabilities; a share of ``wrong`` is predicted wrongly, 0.9 are allowed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1, 100, 0.01]
    confidence = rng.dirichlet(np.ones(n_classes), n)
    label = confidence.argmax(axis=1)
    missed = rng.random(n) < wrong
    label[missed] = (label[missed] + 1) % n_classes
    return Pool(X, label, confidence, rng.random(n) < 0.9)


def made_cell(cell, n_wrong=7, **numbers):
    """A finished cell with numbers that depend on the cell alone."""
    rng = np.random.default_rng(list(repr(cell).encode()))
    values = dict(zip(MEASURES, rng.random(len(MEASURES)).tolist(), strict=True)) | numbers
    return Measured(cell, 10, 5, n_wrong, Measures(**values), 0.25)


def fake_work(group, cells):
    """Measures nothing; can be sent to other processes."""
    for cell in cells:
        yield made_cell(cell)


def failing_work(group, cells):
    yield made_cell(cells[0])
    raise InputError("This group cannot be measured.", hint="use another.")


def broken_work(group, cells):
    yield made_cell(cells[0])
    raise ZeroDivisionError("a bug")


def dying_work(group, cells):
    """Ends its process as the system's memory guard would."""
    import os
    import signal

    yield made_cell(cells[0])
    time.sleep(0.2)  # let the cell get through
    os.kill(os.getpid(), signal.SIGKILL)
