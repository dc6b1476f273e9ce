"""What a model is trained with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainParams:
    """Everything but the data that decides which trees come out.

    ``min_hessian`` is the least Σh of a child and ``leaf_limit`` the largest |Σg / Σh| of a leaf
    before the learning rate; both keep a leaf of confident rows from exploding.
    """

    max_iter: int = 200
    learning_rate: float = 0.1
    max_leaf_nodes: int = 20
    min_samples_leaf: int = 10
    l2_regularization: float = 0.0
    max_bins: int = 255
    split_sampling: float = 0.1
    min_hessian: float = 1e-3
    leaf_limit: float = 50.0
    seed: int = 0


PAPER = TrainParams(min_hessian=0.0)
"""The engine of the paper: robust LogitBoost, 200 iterations, shrinkage 0.1, 20 leaves of at
least 10 rows, a tenth of the thresholds as split candidates in each node and feature."""
