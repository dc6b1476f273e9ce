import csv
import importlib.util
import io
from pathlib import Path

import pytest

import timbermark.cli.demo  # noqa: F401 - registers the command
from tests.experiments.making import fake_work
from timbermark import errors
from timbermark.cli import main
from timbermark.experiments import page, running, tables

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture
def fast(monkeypatch, shared):
    """Nothing is measured and no model of another library is trained."""
    monkeypatch.setattr(running, "MeasureGroup", lambda folder: fake_work)
    found = tables.SharedErrors(48, 1796, {"LightGBM": 0.9}, {"LightGBM": 0.8}, ())
    monkeypatch.setattr(page, "find_shared_errors", lambda split: found)
    monkeypatch.setattr(page, "illustrate", lambda: None)
    monkeypatch.setattr(page, "draw_strategies", lambda shown, path: path.write_bytes(b"x"))
    monkeypatch.setenv("TIMBERMARK_DATA", str(shared))


def run(*arguments):
    return main(["reproduce", *map(str, arguments)])


def test_everything_goes_to_the_folder(fast, tmp_path, capsys):
    assert run("--quick", "--jobs", 1, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    summary, listed = shown.out.splitlines()[:8], shown.out.splitlines()[8:]
    assert summary[0].startswith("Watermarking effectiveness, D_cand = D_train: ours 0.")
    assert [Path(line).name for line in listed] == [
        "results.csv", "tables.md", "tables.html", "accuracy.png", "strategies.png",
        "shared-errors.png",
    ]  # fmt: skip
    assert all(Path(line).exists() for line in listed)
    assert "drawing figures" in shown.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "results.csv").read_text())))
    assert {row["dataset"] for row in rows} == {"image_segmentation", "wine_quality", "average"}


def test_a_second_run_takes_up_what_is_there(fast, tmp_path, capsys):
    options = ("--dataset", "letter", "--jobs", 1, "--out", tmp_path)
    assert run("--table", 2, "--seeds", 1, *options) == 0
    cells = (tmp_path / "cells.csv").read_text()
    assert len(cells.splitlines()) == 1 + 30
    assert "going on" not in capsys.readouterr().err
    assert run("--table", 2, "--seeds", 2, *options) == 0
    assert "going on: 50% is there already" in capsys.readouterr().err
    assert (tmp_path / "cells.csv").read_text().startswith(cells)
    assert run("--table", 2, "--seeds", 2, *options) == 0
    shown = capsys.readouterr()
    assert "all cells are there already" in shown.err
    assert "accuracy.png" not in shown.out


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_number_of_jobs_gives_the_same_files(fast, tmp_path, jobs):
    for folder, number in (("one", 1), ("many", jobs)):
        options = ("--dataset", "avila", "--seeds", 2, "--jobs", number)
        assert run("--table", 1, *options, "--out", tmp_path / folder) == 0
    for name in ("results.csv", "tables.md", "tables.html"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "9"], "There is no table 9."),
        (["--dataset", "iris"], "There is no data set 'iris' in the paper."),
        (["--seeds", "0"], "seeds=0 must be at least 1."),
        (["--jobs", "0"], "jobs=0 must be at least 1."),
        (["--data", "/nowhere/at/all"], "does not exist."),
    ],
)
def test_bad_input_is_one_sentence(fast, tmp_path, capsys, arguments, message):
    assert run(*arguments, "--out", tmp_path / "out") == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Hint:" in shown.err
    assert not (tmp_path / "out").exists()


def test_a_wrong_file_is_refused_before_anything_runs(fast, tmp_path, capsys, shared):
    bad = tmp_path / "data" / "letter"
    bad.mkdir(parents=True)
    original = (shared / "letter" / "letter-recognition.data").read_bytes()
    (bad / "letter-recognition.data").write_bytes(original[:-1] + b"x")
    options = ("--dataset", "letter", "--data", tmp_path / "data", "--out", tmp_path / "out")
    assert run(*options) == 2
    assert "is not the file that the UCI archive publishes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_bar_for_terminals_only(fast, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    options = ("--dataset", "letter", "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    assert run("--table", 1, *options) == 0
    assert "100%" in capsys.readouterr().err
    assert run("--table", 2, *options) == 0


def test_help_names_every_option(capsys):
    assert run("--help") == 0
    shown = capsys.readouterr().out
    for option in ("--table", "--dataset", "--seeds", "--jobs", "--out", "--data", "--quick"):
        assert option in shown


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_what_draws_is_asked_for_before_anything_is_measured(module, tmp_path, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == module else found(name))
    assert main(["reproduce", "--quick", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"{module} is needed" in said
    assert 'pip install "timbermark[reproduce]"' in said
    assert not (tmp_path / "out").exists()
