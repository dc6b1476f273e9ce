import timbermark as tm
from timbermark.kernels import editing, jumps, routing, training, updating


def test_every_kernel_of_training_and_marking_is_compiled_afterwards():
    tm.warmup()
    for kernel in (
        routing.route_plain_rows, routing.add_leaf_values, editing.weigh_leaves, editing.edit_round,
        jumps.measure_jumps, training.train_trees, updating.renew_trees,
    ):  # fmt: skip
        assert getattr(kernel, "signatures", [True]), kernel
