import json

import pytest

import timbermark
from timbermark.cli import main
from timbermark.errors import InputError


def test_version_goes_to_stdout(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"timbermark {timbermark.__version__}\n"


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


def test_bugs_keep_their_traceback(failing):
    failing(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        main([])


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (None, 0), ("text", 1)])
def test_exit_codes_pass_through(failing, code, expected):
    failing(SystemExit(code))
    assert main([]) == expected


def test_demo_marks_verifies_and_leaves_its_files(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "here"]) == 0
    shown = capsys.readouterr()
    assert "45 of 45" in shown.out
    assert shown.out.count("marked (public)") >= 1
    assert shown.out.count("not marked") == 2
    assert "training on 900 rows" in shown.err
    for suspect, code in (("marked", 0), ("model", 1), ("innocent", 1)):
        assert main(["verify", f"here/{suspect}.timber", "here/digits.mark"]) == code
    capsys.readouterr()
    assert main(["inspect", "here/marked.timber", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["trees"] == 2000
    assert facts["classes"] == list(range(10))
    assert main(["inspect", "here/model.timber"]) == 0
    assert "softmax" in capsys.readouterr().out


def test_inspect_refuses_what_is_no_model(tmp_path, capsys):
    (tmp_path / "x").write_text("nothing of ours")
    assert main(["inspect", str(tmp_path / "x")]) == 2
    assert "Hint:" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "absent")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_warmup_says_that_kernels_are_ready(capsys):
    assert main(["warmup"]) == 0
    assert "kernels are ready" in capsys.readouterr().out
