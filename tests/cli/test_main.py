import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import timbermark
from timbermark.cli import main
from timbermark.errors import InputError
from timbermark.files import write_container

# A process of its own imports the same timbermark as this one.
HERE = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}


def test_version_goes_to_stdout(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"timbermark {timbermark.__version__}\n"


def test_help_names_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("conclusive", "indicative", "bad input", "unexpected"):
        assert word in shown


def test_unknown_command_is_bad_input(capsys):
    assert main(["no-such-command"]) == 2
    assert "no-such-command" in capsys.readouterr().err


@pytest.fixture
def failing(monkeypatch):
    def fail_with(error):
        def app(**_):
            raise error

        monkeypatch.setattr("timbermark.cli.app.app", app)

    return fail_with


def test_our_errors_become_message_and_hint(failing, capsys):
    failing(InputError("x=1 is wrong.", hint="use 2."))
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "timbermark: x=1 is wrong.\nHint: use 2.\n"


def test_file_that_cannot_be_opened_is_bad_input(failing, capsys):
    failing(FileNotFoundError(2, "No such file or directory", "model.bin"))
    assert main([]) == 2
    assert "model.bin: No such file or directory." in capsys.readouterr().err


def test_full_disk_is_bad_input_without_a_file_name(failing, capsys):
    failing(OSError(28, "No space left on device"))
    assert main([]) == 2
    assert "No space left on device." in capsys.readouterr().err


@pytest.mark.parametrize("error", [ZeroDivisionError("a\nbug"), OSError("odd"), KeyError("k")])
def test_bugs_end_in_one_sentence_that_asks_for_a_report(failing, capsys, monkeypatch, error):
    monkeypatch.delenv("TIMBERMARK_DEBUG", raising=False)
    failing(error)
    assert main([]) == 4
    said = capsys.readouterr().err
    assert "please report it" in said
    assert type(error).__name__ in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 2


def test_debug_variable_shows_the_traceback(failing, capsys, monkeypatch):
    monkeypatch.setenv("TIMBERMARK_DEBUG", "1")
    failing(ZeroDivisionError("a bug"))
    assert main([]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_too_little_memory_is_said_in_a_sentence(failing, capsys):
    failing(MemoryError())
    assert main([]) == 2
    assert "not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (3, 3), (None, 0), ("text", 1)])
def test_exit_codes_pass_through(failing, code, expected):
    failing(SystemExit(code))
    assert main([]) == expected


def test_demo_shows_everything_and_leaves_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "here"]) == 0
    shown = capsys.readouterr()
    assert "training on 1100 rows" in shown.err
    for step in ("1 train", "2 mark", "3 claim", "4 steal", "5 verify", "6 open", "7 judge"):
        assert f"\n{step} " in "\n" + shown.out
    verdicts = {
        line.split("│")[1].strip(): line.split("│")[5].strip()
        for line in shown.out.splitlines()
        if line.startswith("│")
    }
    assert verdicts == {
        "your model, before": "none",
        "your model, marked": "conclusive",
        "averaged by the thief": "conclusive",
        "the thief's own": "none",
    }
    # A mark that costs next to nothing.
    before, after = re.search(r"accuracy (0\.\d+) → (0\.\d+)", shown.out).groups()
    assert float(after) > float(before) - 0.01
    names = shown.out.partition("left in here/: ")[2].splitlines()[0].split(", ")
    assert {"marking.html", "verdict.html", "judgment.html", "pack.zip"} <= set(names)
    assert all((tmp_path / "here" / name).exists() for name in names)
    for name in ("answers.csv", "judgment.html", "questions.csv"):
        assert (tmp_path / "here" / name).stat().st_mode & 0o777 == 0o600
    for suspect, code in (("marked", 0), ("model", 1), ("own", 1)):
        assert main(["verify", f"here/{suspect}.timber", "here/digits.mark"]) == code
    assert main(["judge", "here/pack.zip", "--claim", "here/digits.claim"]) == 0
    asked = ["judge", "here/evidence", "--suspect", "here/answers.csv", "--for", "Judge Judy"]
    assert main(asked) == 0
    assert main(["judge", "here/evidence", "--suspect", "here/own.timber"]) == 1
    capsys.readouterr()
    assert main(["inspect", "here/marked.timber", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["library"]) == ("model", "timbermark")
    assert facts["classes"] == list(range(10))
    assert main(["inspect", "here/digits.mark", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["triggers"] > 64


def test_demo_leaves_other_files_alone(tmp_path, capsys):
    (tmp_path / "owner.key").write_text("precious")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "no demonstration left" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["owner.key"]
    assert (tmp_path / "owner.key").read_text() == "precious"


def test_inspect_refuses_what_is_no_model(tmp_path, capsys):
    (tmp_path / "x").write_text("nothing of ours")
    assert main(["inspect", str(tmp_path / "x")]) == 2
    assert "Hint:" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "absent")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_inspect_names_a_kind_that_it_does_not_know(tmp_path, capsys):
    write_container(tmp_path / "x", "sawdust", 1, {}, {})
    assert main(["inspect", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert "sawdust" in said
    assert "classifier" not in said


def test_inspect_shows_a_key_without_its_secret(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TIMBERMARK_PASSPHRASE", raising=False)
    path = tmp_path / "owner.key"
    assert main(["keygen", str(path)]) == 0
    made = capsys.readouterr().out
    key = timbermark.OwnerKey.load(path)
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    # The public key is what a claim and a judge show.
    for public in (key.fingerprint, key.claim_key.hex()):
        assert public in made
        assert public in shown
    assert timbermark.OwnerKey.load(path).secret.hex() not in shown
    assert "encrypted    no" in shown


def test_inspect_says_that_a_key_is_encrypted(tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "owner.key")
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "timber")
    assert main(["keygen", path, "--passphrase", "--json"]) == 0
    fingerprint = json.loads(capsys.readouterr().out)["fingerprint"]
    assert main(["inspect", path, "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert (known["encrypted"], known["fingerprint"]) == (True, fingerprint)
    monkeypatch.delenv("TIMBERMARK_PASSPHRASE")
    assert main(["inspect", path, "--json"]) == 0
    locked = json.loads(capsys.readouterr().out)
    assert locked["encrypted"]
    assert "fingerprint" not in locked
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "tinder")
    assert main(["inspect", path]) == 2


def test_keygen_keeps_an_existing_key_and_speaks_of_force(tmp_path, capsys):
    path = tmp_path / "owner.key"
    assert main(["keygen", str(path)]) == 0
    before = path.read_bytes()
    assert main(["keygen", str(path)]) == 2
    assert "--force" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_an_empty_passphrase_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "")
    assert main(["keygen", str(tmp_path / "key"), "--passphrase"]) == 2
    assert "empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_does_not_change_the_exit_code(tmp_path):
    key = str(tmp_path / "key")
    assert main(["keygen", key]) == 0
    code = (
        "import os, sys; from timbermark.cli import main; "
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        f"sys.exit(main(['inspect', {key!r}]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=HERE
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_warmup_says_that_kernels_are_ready(capsys):
    assert main(["warmup"]) == 0
    assert "kernels are ready" in capsys.readouterr().out
