import os
import subprocess
import sys
from pathlib import Path

import pytest

import timbermark
from tests.fixtures.make_release_files import make


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


_WITHOUT_THE_ENGINE = """
import sys
for name in ("sklearn", "scipy", "numba", "llvmlite"):
    sys.modules[name] = None  # which ends every import of it
import timbermark
from timbermark.cli import main
assert main(["verify", *sys.argv[1:]]) == 0
assert main(["check", *sys.argv[1:]]) == 0
assert main(["demo"]) == 2
try:
    timbermark.embed
except timbermark.errors.MissingLibraryError as error:
    print(error)
"""


def test_the_verifier_does_without_the_engine_and_says_what_needs_it(
    tmp_path, real_scrypt, monkeypatch
):
    monkeypatch.setattr("timbermark.guard.drawing._REDRAWN", 2)
    release = tmp_path / "files"
    make(release)
    mark = release / "secret.mark"
    here = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_ENGINE, str(release / "marked.timber"), str(mark)],
        capture_output=True, text=True, env=here, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    said = "is not installed: this is the verifier alone."
    assert said in run.stderr
    assert run.stdout.rstrip().endswith(f"{said} Hint: pip install timbermark")
    assert "conclusive" in run.stdout


def test_every_public_name_exists_and_is_listed():
    for name in timbermark.__all__:
        assert getattr(timbermark, name) is not None
        assert name in dir(timbermark)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = timbermark.Nonsense
