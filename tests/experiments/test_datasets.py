import numpy as np
import pytest
from sklearn.datasets import load_digits

from timbermark.errors import FileFormatError
from timbermark.experiments import datasets
from timbermark.experiments.datasets import NAMES, TITLES, load_dataset

# Features (wine: 11 and the colour), classes, rows for training and all rows. optdigits and
# pendigits have the paper's row counts.
SHAPES = {
    "avila": (10, 12, 10430, 20867),
    "image_segmentation": (19, 7, None, 210),
    "letter": (16, 26, None, 20000),
    "optdigits": (64, 10, 3812, 3812 + 1796),
    "pendigits": (16, 10, 7483, 7483 + 3497),
    "wine_quality": (12, 7, None, 6497),
}


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types(name, shared):
    data = load_dataset(name, shared)
    features, classes, n_train, n = SHAPES[name]
    assert data.X.shape == (n, features)
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.int64
    assert (data.n_train, data.n_classes) == (n_train, classes)
    assert np.array_equal(np.unique(data.y), np.arange(classes))
    assert np.isfinite(data.X).all()
    assert name in TITLES


# Rows for training and all rows where nothing is left out.
PUBLISHED = {
    "image_segmentation": (210, 2310),
    "optdigits": (3823, 5620),
    "pendigits": (7494, 10992),
    "wine_quality": (None, 6497),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows_are_all_rows_of_the_files(name, shared):
    data, paper = load_dataset(name, shared, published=True), load_dataset(name, shared)
    assert (data.n_train, len(data.X)) == PUBLISHED[name]
    assert data.classes == paper.classes
    # The first row that the paper has, where both have it.
    first = 1 if name in ("optdigits", "pendigits") else 0
    assert np.array_equal(data.X[first], paper.X[0])
    assert data.y[first] == paper.y[0]


def test_every_cell_is_read_where_it_stands(shared):
    data = load_dataset("letter", shared)
    lines = (shared / "letter" / "letter-recognition.data").read_text().splitlines()
    for row in (0, 1234, 19999):
        label, *numbers = lines[row].split(",")
        assert data.classes[data.y[row]] == label
        assert data.X[row].tolist() == [float(x) for x in numbers]


def test_test_rows_of_optdigits_are_those_of_scikit_learn(shared):
    data = load_dataset("optdigits", shared)
    X, y = load_digits(return_X_y=True)
    assert np.array_equal(data.X[data.n_train :], X[1:])
    assert np.array_equal(data.y[data.n_train :], y[1:])


def test_wine_has_its_colour_as_last_feature(shared):
    data = load_dataset("wine_quality", shared)
    assert data.X[:1599, -1].tolist() == [0.0] * 1599
    assert (data.X[1599:, -1] == 1.0).all()
    assert data.classes == ("3", "4", "5", "6", "7", "8", "9")
    assert data.X[0, :3].tolist() == [7.4, 0.7, 0.0]


def test_rows_of_different_length_are_refused():
    with pytest.raises(FileFormatError, match="differ in length"):
        datasets._table("avila", "1,2\n1,2,3\n")
