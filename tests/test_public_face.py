import os
import subprocess
import sys
from pathlib import Path

import pytest

import timbermark


def test_import_is_light():
    code = (
        "import sys, timbermark; "
        "print(sorted({'numpy', 'scipy', 'sklearn', 'numba', 'typer'} & set(sys.modules)))"
    )
    # A process of its own imports the same timbermark as this one.
    here = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=here
    )
    assert run.stdout.strip() == "[]"


def test_every_public_name_exists_and_is_listed():
    for name in timbermark.__all__:
        assert getattr(timbermark, name) is not None
        assert name in dir(timbermark)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = timbermark.Nonsense
