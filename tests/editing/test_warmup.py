from timbermark.editing.warmup import warm_editing
from timbermark.kernels import editing, routing


def test_every_kernel_of_editing_is_compiled_afterwards():
    warm_editing()
    compiled = (routing.route_rows, routing.add_leaf_values, editing.weigh_leaves)
    for kernel in (*compiled, editing.edit_round):
        assert getattr(kernel, "signatures", [True])
