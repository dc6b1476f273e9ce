import sys

import timbermark as tm
from timbermark.kernels import compile, editing, growing, routing, updating


def test_every_kernel_of_training_and_marking_is_compiled_afterwards():
    tm.warmup()
    for kernel in (
        routing.route_masked_rows, routing.add_leaf_values, routing.measure_jumps,
        editing.weigh_leaves, editing.edit_round, growing.train_trees, updating.renew_trees,
    ):  # fmt: skip
        assert getattr(kernel, "signatures", [True]), kernel


def test_whoever_waits_for_the_compiler_is_told(monkeypatch, capsys):
    monkeypatch.setattr(compile, "is_cold", lambda kernel: True)
    compile.notice_if_cold(routing.measure_jumps)
    assert capsys.readouterr().err == ""  # not in a file or a log
    monkeypatch.setitem(sys.modules, "ipykernel", compile)
    compile.notice_if_cold(routing.measure_jumps)
    assert "timbermark warmup" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    compile.notice_if_cold(routing.measure_jumps)
    assert "timbermark warmup" in capsys.readouterr().err
