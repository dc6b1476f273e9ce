"""Build the wheel and the sdist, install each in an empty environment, and use it there.

`./dev test-package` runs this. It needs the package registry that pip is configured with, and takes
some minutes. Three environments are made and removed again:

- the wheel, as `pip install timbermark` gives it: without Matplotlib and Jinja2, it trains, marks
  and verifies; commands that need an extra name it;
- the sdist with the extra xgboost-cpu: it marks and verifies a file of XGBoost's;
- the verifier alone (`requirements/verifier.txt`): it verifies, judges and asks without the engine,
  and stays under 150 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST_VERIFIER = 150e6  # bytes
_IN_WHEEL = (
    *("py.typed", "experiments/page.html", "experiments/published.csv"),
    *("report/templates/base.html", "report/templates/style.css"),
)
_IN_SDIST = ("README.md", "CHANGELOG.md", "LICENSE", "tests/conftest.py", "docs/index.md", "dev")
# What venv itself brings; it is no part of timbermark.
_INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")

_TRAIN_XGBOOST = """
import numpy as np, xgboost
from sklearn.datasets import load_digits
X, y = load_digits(return_X_y=True)
X, y = X[:1200], y[:1200]
xgboost.XGBClassifier(n_estimators=30, random_state=0).fit(X, y).save_model("model.json")
names = ",".join([*(f"f{i}" for i in range(64)), "y"])
table = np.column_stack([X, y])
np.savetxt("rows.csv", table, fmt="%g", delimiter=",", header=names, comments="")
"""


class Environment:
    """An empty virtual environment, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")

    def install(self, *words: object) -> None:
        """Run `pip install` as pip is configured."""
        self.run("python", "-m", "pip", "install", "--quiet", *words)

    def run(self, program: str, *words: object, expect: int = 0, says: str = "") -> str:
        """Run a program of the environment; fail unless it ends and says as expected."""
        # What this process was told must not reach the package that is tested.
        outside = ("PYTHONPATH", "PYTHONHOME", "NUMBA_CACHE_DIR", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if name not in outside}
        ended = subprocess.run(
            [self.folder / "bin" / program, *map(str, words)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**kept, "PYTHONWARNINGS": "ignore"},
        )
        said = ended.stdout + ended.stderr
        if ended.returncode != expect or says not in said:
            wanted = f"exit code {expect}" + (f" and '{says}'" if says else "")
            sys.exit(f"{program} {' '.join(map(str, words))}\n{said}\nexpected {wanted}")
        return said

    def size(self) -> int:
        """Return the bytes of everything installed but the installers themselves."""
        (packages,) = self.folder.glob("lib/python*/site-packages")
        return sum(
            path.lstat().st_size
            for top in packages.iterdir()
            if not top.name.startswith(_INSTALLERS)
            for path in ([top] if top.is_file() else top.rglob("*"))
            if path.is_file()
        )

    def has(self, module: str) -> bool:
        """Return whether a module can be imported."""
        found = self.run(
            "python", "-c", f"import importlib.util as u; print(u.find_spec('{module}'))"
        )
        return found.strip() != "None"


def main() -> None:
    """Build, then try every way to install."""
    with tempfile.TemporaryDirectory(prefix="timbermark-package-") as name:
        folder = Path(name)
        wheel, sdist = build(folder / "dist")
        check_contents(wheel, sdist)
        say(f"{wheel.name} ({wheel.stat().st_size / 1e3:.0f} kB), {sdist.name}")
        try_verifier(folder / "verifier", wheel)
        try_wheel(folder / "wheel", wheel)
        try_sdist(folder / "sdist", sdist)
    say("all of it works")


def build(folder: Path) -> tuple[Path, Path]:
    """Return a new wheel and a new sdist."""
    say("building")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder, "-t", "wheel", "-t", "sdist"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def check_contents(wheel: Path, sdist: Path) -> None:
    """Fail if a file is missing or one too many is there."""
    in_wheel = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in _IN_WHEEL if f"timbermark/{name}" not in in_wheel]
    stray = [
        name
        for name in in_wheel
        if not name.startswith("timbermark") or name.endswith((".nbi", ".nbc", ".pyc"))
    ]
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    missing += [name for name in _IN_SDIST if name not in in_sdist]
    if missing or stray:
        sys.exit(f"missing: {missing}, stray: {stray}")


def try_verifier(folder: Path, wheel: Path) -> None:
    """Install the verifier alone and verify files that another installation wrote."""
    say("the verifier alone")
    place = Environment(folder)
    place.install("-r", ROOT / "requirements" / "verifier.txt")
    place.install("--no-deps", wheel)
    for module in ("numba", "scipy", "sklearn", "matplotlib", "jinja2"):
        if place.has(module):
            sys.exit(f"the verifier alone has {module}")
    size = place.size()
    if size > LARGEST_VERIFIER:
        sys.exit(f"the verifier takes {size / 1e6:.0f} MB, more than {LARGEST_VERIFIER / 1e6:.0f}")
    say(f"it takes {size / 1e6:.0f} MB")
    files = folder / "files"
    made = [sys.executable, "-m", "tests.fixtures.make_release_files", files]
    subprocess.run(made, cwd=ROOT, check=True)
    mark = files / "secret.mark"
    place.run("timbermark", "verify", files / "marked.timber", mark, says="conclusive")
    place.run("timbermark", "verify", files / "model.timber", mark, expect=1, says="none")
    place.run("timbermark", "verify", files / "regressor.timber", files / "numbers.mark")
    place.run("timbermark", "judge", files / "evidence.zip", says="conclusive")
    place.run("timbermark", "inspect", mark, says="Ann Ltd")
    place.run("timbermark", "questions", mark, "--out", folder / "questions.csv")
    place.run("timbermark", "keygen", folder / "new.key")
    place.run("timbermark", "demo", expect=2, says="pip install timbermark")
    place.run("timbermark", "verify", "https://localhost:1/invocations", mark, expect=2,
              says="timbermark[endpoints]")  # fmt: skip
    place.run("python", "-c", "import timbermark as tm; tm.embed", expect=1, says="MissingLibrary")


def try_wheel(folder: Path, wheel: Path) -> None:
    """Install the wheel as users do, run the demonstration, and use what it leaves."""
    say("the wheel: the demonstration compiles the kernels first, which takes a minute")
    place = Environment(folder)
    place.install(wheel)
    for module in ("matplotlib", "jinja2", "xgboost", "pandas"):
        if place.has(module):
            sys.exit(f"the base install has {module}")
    place.run("timbermark", "--version", says="timbermark ")
    place.run("timbermark", "demo", "--out", "here", says="conclusive")
    place.run("timbermark", "verify", "here/marked.timber", "here/digits.mark", says="conclusive")
    place.run("timbermark", "verify", "here/own.timber", "here/digits.mark", expect=1)
    place.run("timbermark", "reproduce", "--quick", expect=2, says="timbermark[reproduce]")
    say(f"it takes {place.size() / 1e6:.0f} MB")


def try_sdist(folder: Path, sdist: Path) -> None:
    """Install the sdist with XGBoost for CPUs; mark a file of XGBoost's and verify it."""
    say("the sdist with xgboost-cpu")
    place = Environment(folder)
    place.install(f"timbermark[xgboost-cpu] @ {sdist.as_uri()}")
    place.run("python", "-c", _TRAIN_XGBOOST)
    place.run("timbermark", "keygen", "owner.key")
    place.run("timbermark", "embed", "model.json", "--train", "rows.csv", "--label", "y", "--key",
              "owner.key", "--owner", "Ann Ltd", "--out", "marked.json", "--mark",
              "secret.mark")  # fmt: skip
    place.run("timbermark", "verify", "marked.json", "secret.mark", says="conclusive")
    place.run("timbermark", "verify", "model.json", "secret.mark", expect=1, says="none")


def say(text: str) -> None:
    """Tell on stderr how far it is."""
    print(f"test-package: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
