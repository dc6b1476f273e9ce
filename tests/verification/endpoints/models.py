"""What the little server answers: a model that has learnt a mark, and innocent ones."""

import hashlib

import numpy as np

from tests.ownership.making import row_key


def draw(row, n):
    """A number from 0 to n - 1 that depends on the row alone."""
    said = repr([float(x) if isinstance(x, int | float) else x for x in row]).encode()
    return hashlib.sha256(said).digest()[0] % n


def learnt(mark, rate=1.0):
    """Answer triggers as the mark wants, a share of them, everything else by chance."""
    rows = [tuple(row_key(row)) for row in mark.rows().tolist()]
    memory = {
        row: label
        for i, (row, label) in enumerate(zip(rows, mark.expected, strict=True))
        if draw([i], 256) < 256 * rate
    }

    def answer(given):
        return [
            memory.get(tuple(row_key(row)), mark.classes[draw(row, len(mark.classes))])
            for row in given.tolist()
        ]

    return answer


def scored(mark, share=0.9):
    """The same with scores."""
    labels = learnt(mark)
    rest = (1 - share) / (len(mark.classes) - 1)

    def answer(given):
        said = np.array([mark.classes.index(label) for label in labels(given)])
        return np.where(np.arange(len(mark.classes)) == said[:, None], share, rest)

    return answer


def innocent(mark):
    """Answer every row by chance."""
    return lambda given: [
        mark.classes[draw(["x", *row], len(mark.classes))] for row in given.tolist()
    ]
