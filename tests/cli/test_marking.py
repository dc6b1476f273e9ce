import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.utils import shuffle

import timbermark
from timbermark import Mark, OwnerKey, TimberClassifier
from timbermark.cli import main
from timbermark.cli.options import EndpointFlags
from timbermark.cli.outputs import say_error, show_json, use_flags
from timbermark.errors import InputError
from timbermark.marking.budget import Budget
from timbermark.marking.rehearsing import Attempt, Strength, list_strengths, nothing_fits
from timbermark.marking.sealing import Choices
from timbermark.marking.words import Note

NO_LIMITS = [
    word
    for flag in (
        "--max-changed",
        "--max-drift",
        "--max-accuracy-loss",
        "--max-auc-loss",
        "--max-score-change",
        "--max-recall-loss",
        "--max-churn",
        "--max-precision-loss",
        "--max-top-change",
    )
    for word in (flag, "off")
]
# Where it does not matter what the mark is: seals in splits alone take less time.
QUICK = [*NO_LIMITS, "--seals", "splits"]
SECRETS = ("secret", "triggers_rows", "symbols", "reference", "alphabets")


@pytest.mark.parametrize("command", ["plan", "embed"])
def test_limits_that_are_not_given_are_those_of_a_budget(command, tmp_path, monkeypatch):
    found = []

    def refuse(path, choices):
        found.append(choices["budget"])
        raise InputError("Enough.", hint="look at the budget.")

    monkeypatch.setattr("timbermark.cli.marking._open", refuse)
    OwnerKey.generate().save(tmp_path / "key")
    words = [command, str(tmp_path / "model"), "--train", str(tmp_path / "train.csv")]
    if command == "embed":
        words += ["--key", str(tmp_path / "key"), "--owner", "Ann"]
        words += ["--out", str(tmp_path / "out"), "--mark", str(tmp_path / "mark")]
    assert main(words) == 2
    assert found == [Budget()]


def write_csv(path, X, y, names):
    lines = [",".join([*names, "digit"])]
    lines += [
        ",".join([*(f"{v:g}" for v in row), str(label)]) for row, label in zip(X, y, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A model, its tables and a key, as a user has them."""
    place = tmp_path_factory.mktemp("house")
    X, y = shuffle(*load_digits(n_class=5, return_X_y=True), random_state=0)
    names = [f"p{i}" for i in range(64)]
    model = TimberClassifier(max_iter=40, random_state=0).fit(X[:600], y[:600])
    model.save(place / "model")
    write_csv(place / "train.csv", X[:600], y[:600], names)
    write_csv(place / "test.csv", X[600:], y[600:], names)
    write_csv(place / "few.csv", X[:30], y[:30], names)
    OwnerKey.generate().save(place / "key")
    return place


@pytest.fixture(scope="module")
def marked(house, tmp_path_factory):
    """The folder of a strong mark, made once."""
    place = tmp_path_factory.mktemp("marked")
    assert main([*arguments(house, place), *NO_LIMITS]) == 0
    return place


@pytest.fixture
def no_work(monkeypatch):
    """Fail if the long work begins."""

    def reached(*_, **__):
        raise AssertionError("the long work began")

    monkeypatch.setattr("timbermark.marking.embedding.embed", reached)
    monkeypatch.setattr("timbermark.marking.embedding.plan", reached)


def arguments(house, out):
    return [
        "embed", str(house / "model"), "--key", str(house / "key"), "--owner", "Ann Ltd",
        "--out", str(out / "marked"), "--mark", str(out / "mark"),
        "--train", str(house / "train.csv"), "--label", "digit",
    ]  # fmt: skip


def replaced(words, **values):
    """Return arguments with the values of some flags replaced."""
    words = list(words)
    for name, value in values.items():
        words[words.index("--" + name) + 1] = str(value)
    return words


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_defaults_mark_a_model_that_verifies(house, tmp_path, capsys):
    """Run what users run, and verify by the evidence that `embed` promises: labels."""
    words = [*arguments(house, tmp_path), "--validation", str(house / "test.csv"), "--json"]
    assert main(words) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out, parse_constant=pytest.fail)
    assert facts["bits"] >= 64
    assert facts["set"] <= facts["triggers"]["leaves"]
    assert set(facts["seals"]) == {"splits", "leaves"}
    assert facts["alphabet"] in (2, 4)
    assert facts["draws"] >= 1
    assert facts["lead"] == facts["attempts"][-1]["lead"]
    assert {"changed", "drift", "accuracy"} <= set(facts["budget_used"])
    assert facts["not_judged"] == []
    assert facts["cost"]["measured_on"] == "validation"
    assert facts["out"] == str(tmp_path / "marked")
    mark = Mark.load(tmp_path / "mark")
    assert facts["mark_id"] == mark.mark_id.hex()
    assert mark.owner == "Ann Ltd"
    assert mark.secret.hex() not in shown.out
    assert not set(SECRETS) & set(facts)
    assert left(tmp_path) == ["mark", "marked"]
    suspect = [str(tmp_path / "marked"), str(tmp_path / "mark")]
    assert main(["verify", *suspect, "--answers", "labels"]) == 0


def test_a_result_goes_to_stdout_with_each_of_its_notes_once(house, tmp_path, capsys):
    assert main([*arguments(house, tmp_path), *NO_LIMITS]) == 0
    shown = capsys.readouterr()
    assert "bits of evidence" in shown.out
    assert "labels changed" in shown.out
    assert re.search(r"strength: splits \d+ bits, leaves \d+ bits, 4 labels each", shown.out)
    assert f"{tmp_path / 'marked'}: the marked model" in shown.out
    assert "give validation rows" in shown.out
    told = [line for line in shown.out.splitlines() if line.startswith(("Note: ", "Warning: "))]
    assert len(told) == len({*told}) > 0
    assert "note:" not in shown.err + shown.out
    for line in told:
        assert line.partition(": ")[2] not in shown.err


def test_the_suspect_comes_first(marked, capsys):
    for word in ("verify", "check"):
        assert main([word, str(marked / "mark"), str(marked / "marked")]) == 2
        assert str(marked / "mark") in capsys.readouterr().err
    with pytest.raises(InputError) as caught:
        EndpointFlags().open(str(marked / "mark"))
    assert (caught.value.code, caught.value.parameter) == ("suspect.secret", "suspect")
    assert EndpointFlags().open(str(marked / "marked")) == str(marked / "marked")


def test_without_labels_the_scores_of_the_model_stand_for_them(house, capsys):
    lines = (house / "train.csv").read_text().splitlines()
    bare = [line.rpartition(",")[0] for line in lines]
    (house / "bare.csv").write_text("\n".join(bare) + "\n")
    words = ["plan", str(house / "model"), "--train", str(house / "bare.csv")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "with labels estimated from the model's own scores:" in shown
    assert "not judged" not in shown
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["not_judged"] == []
    assert "accuracy" in facts["attempts"][-1]["used"]
    assert "accuracy" not in facts["cost"]["before"]


def test_conclusive_is_0_and_none_is_1(house, marked, capsys):
    assert main(["verify", str(marked / "marked"), str(marked / "mark")]) == 0
    shown = capsys.readouterr().out
    assert "conclusive" in shown
    assert "Ann Ltd" in shown
    assert main(["verify", str(house / "model"), str(marked / "mark"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["level"] == "none"


def test_indicative_is_3_and_weak_marks_are_made_only_when_asked_for(house, tmp_path, capsys):
    words = [*arguments(house, tmp_path), *NO_LIMITS, "--n-triggers", "24", "--seals", "leaves"]
    assert main(words) == 2
    assert "--weak" in capsys.readouterr().err
    assert main([*words, "--weak"]) == 0
    assert str(Note("weak", {"bits": 0.0})).partition(": ")[2] in capsys.readouterr().out
    suspect = [str(tmp_path / "marked"), str(tmp_path / "mark")]
    assert main(["verify", *suspect, "--answers", "labels"]) == 3
    assert "indicative" in capsys.readouterr().out


def test_table_shows_every_trigger_and_keeps_json_valid(marked, capsys):
    words = ["verify", str(marked / "marked"), str(marked / "mark"), "--table"]
    n = Mark.load(marked / "mark").n_triggers
    assert main(words) == 0
    assert len(re.findall(r"wanted .* match$", capsys.readouterr().out, re.M)) == n
    assert main([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["table"]) == n


@pytest.mark.parametrize("absent", [0, 1])
def test_absent_suspect_or_mark_is_bad_input(house, marked, capsys, absent):
    files = [str(marked / "marked"), str(marked / "mark")]
    files[absent] = str(house / "absent")
    assert main(["verify", *files]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_mark_with_a_flipped_bit_is_bad_input(marked, tmp_path, capsys):
    rng = np.random.default_rng(0)
    whole = (marked / "mark").read_bytes()
    for place in rng.integers(0, len(whole), 20):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "changed").write_bytes(changed)
        (tmp_path / "changed").chmod(0o600)
        assert main(["verify", str(marked / "marked"), str(tmp_path / "changed")]) == 2
    assert "Hint:" in capsys.readouterr().err


def test_verify_of_a_timbermark_file_needs_neither_numba_nor_scikit_learn(marked):
    code = (
        "import sys; from timbermark.cli import main; "
        "from timbermark.ownership import symbols; symbols.SCRYPT_N = 2; "
        f"assert main(['verify', {str(marked / 'marked')!r}, {str(marked / 'mark')!r}]) == 0; "
        "print(sorted({'numba', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=here
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_inspect_shows_a_mark_without_its_secrets(house, marked, capsys):
    mark = Mark.load(marked / "mark")
    assert main(["inspect", str(marked / "mark"), "--json"]) == 0
    shown = capsys.readouterr().out
    facts = json.loads(shown, parse_constant=pytest.fail)
    assert (facts["kind"], facts["encrypted"], facts["owner"]) == ("mark", False, "Ann Ltd")
    known = mark.n_triggers, mark.q, round(mark.full_bits, 3)
    assert (facts["triggers"], facts["alphabet"], facts["bits"]) == known
    assert (facts["draws"], facts["protocol"]) == (mark.draws, 3)
    assert facts["model_library"] == "timbermark"
    assert mark.secret.hex() not in shown
    assert not set(SECRETS) & set(facts)
    assert main(["inspect", str(house / "model"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == facts["model_digest"]


def test_plan_shows_the_rehearsal_and_writes_nothing(house, capsys):
    words = ["plan", str(house / "model"), "--candidates", str(house / "train.csv")]
    words += ["--label", "digit"]
    before = left(house)
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert facts["bits"] >= 64
    assert facts["cost"]["measured_on"] == "candidates"
    assert facts["cost"]["before"]["accuracy"] > 0.9
    assert main(words) == 0
    assert "strength: splits" in capsys.readouterr().out
    assert left(house) == before


def test_a_label_that_one_table_lacks_is_a_note_and_that_all_lack_is_refused(
    house, tmp_path, capsys
):
    rows = (house / "train.csv").read_text().splitlines()
    (tmp_path / "bare.csv").write_text("\n".join(row.rpartition(",")[0] for row in rows))
    words = ["plan", str(house / "model"), "--train", str(tmp_path / "bare.csv")]
    words += ["--label", "digit", *NO_LIMITS, "--json"]
    assert main(words) == 2
    assert "no column 'digit'" in capsys.readouterr().err
    assert main([*words, "--validation", str(house / "test.csv")]) == 0
    shown = capsys.readouterr()
    assert "used without labels" in shown.err
    assert json.loads(shown.out)["cost"]["before"]["accuracy"] > 0.9


def test_without_a_label_a_model_without_names_refuses_a_column_too_many(house, capsys, no_work):
    assert main(["plan", str(house / "model"), "--train", str(house / "train.csv")]) == 2
    said = capsys.readouterr().err
    assert "65" in said
    assert "--label" in said


def test_json_has_null_for_what_is_no_number(capsys):
    show_json({"used": {"drift": float("inf")}, "all": (np.float64("nan"), np.int64(3), True)})
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert shown == {"used": {"drift": None}, "all": [None, 3, True]}


@pytest.mark.parametrize("limit", ["0", "1e-9"])
def test_a_limit_that_no_mark_keeps_leaves_nothing(house, tmp_path, capsys, limit):
    words = [*arguments(house, tmp_path), "--max-changed", "off", "--max-drift", limit]
    words += ["--seals", "leaves"]
    assert main([*words, "--json"]) == 2
    assert "--max-drift" in capsys.readouterr().err
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--n-triggers", "8", "--seals", "leaves"],
            "use --n-triggers 96 or more, or allow a weak mark with --weak",
        ),
        (["--n-triggers", "some"], "--n-triggers some must be auto or a whole number"),
        (["--alphabet", "3"], "--alphabet 3 must be auto, 2 or 4"),
        (["--lead", "far"], "--lead far must be auto or a number"),
        (["--lead", "nan"], "--lead nan must be auto or a number"),
        (["--max-changed", "2"], "--max-changed 2.0 must be off or a number"),
        (["--max-drift", "none"], "--max-drift none must be off or a number"),
        (["--max-accuracy-loss", "-1"], "--max-accuracy-loss -1.0 must be off"),
        (["--max-auc-loss", "nan"], "--max-auc-loss nan must be off"),
        (["--triggers", "clever"], "clever"),
        (["--seals", "wax"], "wax"),
        (["--seed", "-1"], "--seed"),
        (["--owner", " "], "--owner"),
        (["--owner", "A\nnn"], "--owner"),
        (["--label", "nothing"], "no column 'nothing'"),
        (["--train", "absent.csv"], "No such file"),
        (["--candidates", "absent.csv"], "No such file"),
        (["--key", "absent.key"], "No such file"),
        (["--state", "x"], "--state"),
        (["--strategy", "auto"], "--strategy"),
    ],
)
def test_bad_choices_are_refused_before_the_long_work(
    house, tmp_path, capsys, no_work, more, message
):
    assert main([*arguments(house, tmp_path), *more]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert left(tmp_path) == []


def test_neither_train_nor_candidates_is_refused(house, capsys, no_work):
    assert main(["plan", str(house / "model")]) == 2
    said = capsys.readouterr().err
    assert "--train" in said
    assert "--candidates" in said


@pytest.mark.parametrize("flag", ["--owner", "--key", "--out", "--mark"])
def test_embed_needs_owner_key_and_outputs(house, tmp_path, capsys, no_work, flag):
    words = arguments(house, tmp_path)
    place = words.index(flag)
    assert main(words[:place] + words[place + 2 :]) == 2
    assert flag in capsys.readouterr().err


@pytest.mark.parametrize("name", ["marked", "mark"])
def test_existing_files_are_kept_without_force(house, tmp_path, capsys, no_work, name):
    (tmp_path / name).write_text("mine")
    assert main(arguments(house, tmp_path)) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"
    assert left(tmp_path) == [name]


def test_force_overwrites_both(house, tmp_path):
    (tmp_path / "marked").write_text("old")
    (tmp_path / "mark").write_text("old")
    assert main([*arguments(house, tmp_path), *QUICK, "--force"]) == 0
    assert main(["verify", str(tmp_path / "marked"), str(tmp_path / "mark")]) == 0


def test_marking_again_keeps_the_old_mark(house, tmp_path, capsys):
    """Models that carry it may be in use: a monthly retraining must not lose last month's proof."""
    words = [*arguments(house, tmp_path), *QUICK]
    assert main(words) == 0
    first = (tmp_path / "mark").read_bytes()
    (tmp_path / "mark.openings").write_text("timbermark openings 1\n")
    capsys.readouterr()
    assert main([*words, "--force"]) == 0
    assert "is kept as" in capsys.readouterr().err
    assert (tmp_path / "mark").read_bytes() != first
    assert (tmp_path / "mark-1").read_bytes() == first
    assert (tmp_path / "mark-1.openings").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("out", "{out}/no/model", "does not exist"),
        ("mark", "{out}/no/mark", "does not exist"),
        ("out", "{out}", "is a folder"),
        ("out", "{out}/../{name}/mark", "--out and --mark are the same file"),
        ("out", "{out}/link", "--out and --mark are the same file"),
        ("out", "{house}/model", "MODEL and --out are the same file"),
        ("mark", "{house}/model", "MODEL and --mark are the same file"),
        ("mark", "{house}/key", "--key and --mark are the same file"),
        ("out", "{house}/train.csv", "--train and --out are the same file"),
    ],
)
def test_outputs_that_cannot_be_are_refused_even_with_force(
    house, tmp_path, capsys, no_work, flag, value, message
):
    (tmp_path / "link").symlink_to(tmp_path / "mark")
    value = value.format(out=tmp_path, name=tmp_path.name, house=house)
    words = replaced(arguments(house, tmp_path), **{flag: value})
    before = {path: path.read_bytes() for path in house.iterdir()}
    assert main([*words, "--force"]) == 2
    assert message in capsys.readouterr().err
    assert left(tmp_path) == ["link"]
    assert {path: path.read_bytes() for path in house.iterdir()} == before


def test_an_empty_passphrase_is_refused_before_the_long_work(
    house, tmp_path, capsys, no_work, monkeypatch
):
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "")
    assert main([*arguments(house, tmp_path), "--passphrase"]) == 2
    assert "passphrase is empty" in capsys.readouterr().err


def test_passphrases_protect_the_mark(house, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "timber")
    assert main([*arguments(house, tmp_path), *QUICK, "--passphrase"]) == 0
    verify = ["verify", str(tmp_path / "marked"), str(tmp_path / "mark")]
    assert main(verify) == 0
    assert main(["inspect", str(tmp_path / "mark")]) == 0
    assert "Ann Ltd" in capsys.readouterr().out
    monkeypatch.setenv("TIMBERMARK_PASSPHRASE", "tinder")
    assert main(verify) == 2
    monkeypatch.delenv("TIMBERMARK_PASSPHRASE")
    capsys.readouterr()
    assert main(verify) == 2
    assert "set TIMBERMARK_PASSPHRASE" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "mark"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["encrypted"]
    assert "owner" not in facts


def fail_to_save(*_, **__):
    raise InputError("The disk is gone.")


def test_a_model_that_cannot_be_written_takes_its_mark_back(house, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("timbermark.marking.models.save", fail_to_save)
    words = [*arguments(house, tmp_path), *QUICK]
    assert main(words) == 2
    assert left(tmp_path) == []
    (tmp_path / "mark").write_text("the mark before")
    assert main([*words, "--force"]) == 2
    assert (tmp_path / "mark").read_text() == "the mark before"
    assert left(tmp_path) == ["mark"]


def test_a_run_that_is_told_to_end_while_it_writes_leaves_nothing(house, tmp_path, monkeypatch):
    save = timbermark.save

    def save_and_be_ended(model, path, **given):
        save(model, path, **given)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("timbermark.marking.models.save", save_and_be_ended)
    assert main([*arguments(house, tmp_path), *QUICK]) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_lost_at_the_last_moment_takes_the_mark_back(house, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    assert main([*arguments(house, tmp_path), *QUICK]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_bug_while_marking_leaves_nothing(house, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("timbermark.marking.embedding.embed", fail)
    assert main(arguments(house, tmp_path)) == 4
    assert "please report" in capsys.readouterr().err
    assert left(tmp_path) == []


def python_errors():
    """Errors that the Python side raises, as it words them."""
    attempt = Attempt(Strength(72, 2, 0.35), 70, {"changed": 3.0, "drift": 1.5}, 12, 60.0)
    yield nothing_fits([attempt], Budget())
    yield nothing_fits([Attempt(Strength(72, 2, 0.35), 50, {"drift": 0.5}, 12, 9.0)], Budget())
    yield nothing_fits([], Budget())
    for call in (
        lambda: Choices(triggers="rare"),
        lambda: list_strengths(2, 8, "auto", "auto"),
        lambda: list_strengths(3, "auto", 4, "auto"),
        lambda: list_strengths(3, 0, "auto", "auto"),
        lambda: list_strengths(3, "auto", "auto", 21.5),
        lambda: Budget(auc=7),
    ):
        with pytest.raises(InputError) as caught:
            call()
        yield caught.value


def test_no_error_of_marking_keeps_the_words_of_python():
    for error in python_errors():
        message, hint = say_error(error)
        said = f"{message} {hint}"
        assert not re.search(r"\w=\S|None|'auto'|budget|for it", said), said
        assert "--" in said
        assert use_flags(message) == message


def test_a_limit_that_is_too_tight_is_named_by_its_flag():
    error = next(python_errors())
    message, hint = say_error(error)
    assert message == "The weakest mark would use 3.0 times --max-changed 0.01."
    assert hint.startswith("allow --max-changed 0.033, ask for fewer triggers with --n-triggers")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Two-class models of other libraries, and a table with columns that they do not use."""
    pytest.importorskip("pandas")
    place = tmp_path_factory.mktemp("clinic")
    data = load_breast_cancer(as_frame=True)
    table = data.data.assign(sick=data.target.astype(bool), patient="joe")
    table.to_csv(place / "rows.csv.gz")
    OwnerKey.generate().save(place / "key")
    return place, data


def mark_clinic(place, out, model, name):
    return [
        "embed", str(model), "--key", str(place / "key"), "--owner", "Ann Ltd",
        "--out", str(out / name), "--mark", str(out / "mark"),
        "--train", str(place / "rows.csv.gz"), "--label", "sick", *NO_LIMITS,
    ]  # fmt: skip


def test_xgboost_files_with_text_columns_beside_and_true_false_labels(clinic, tmp_path, capsys):
    xgboost = pytest.importorskip("xgboost")
    place, data = clinic
    model = xgboost.XGBClassifier(n_estimators=40, n_jobs=1).fit(data.data, data.target)
    model.save_model(place / "model.json")
    assert main(mark_clinic(place, tmp_path, place / "model.json", "marked.txt")) == 2
    assert ".json or .ubj" in capsys.readouterr().err
    assert left(tmp_path) == []
    words = mark_clinic(place, tmp_path, place / "model.json", "marked.ubj")
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    seen = [one for one in facts["cost"]["figures"] if one["rows"] == "training"]
    assert next(one["before"] for one in seen if one["code"] == "accuracy") > 0.95
    assert main(["verify", str(tmp_path / "marked.ubj"), str(tmp_path / "mark")]) == 0
    assert main(["verify", str(place / "model.json"), str(tmp_path / "mark")]) == 1
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "marked.ubj"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["library"] == "XGBoost"


def test_labels_with_names_for_a_file_that_stores_none(clinic, tmp_path, capsys):
    xgboost = pytest.importorskip("xgboost")
    place, data = clinic
    xgboost.XGBClassifier(n_estimators=40, n_jobs=1).fit(data.data, data.target).save_model(
        tmp_path / "model.json"
    )
    names = data.target.map({0: "malignant", 1: "benign"})
    data.data.assign(sick=names).to_csv(tmp_path / "rows.csv.gz", index=False)
    words = mark_clinic(place, tmp_path, tmp_path / "model.json", "marked.json")
    words[words.index("--train") + 1] = str(tmp_path / "rows.csv.gz")
    assert main(words) == 2
    assert "--label-map" in capsys.readouterr().err
    mapped = ["--label-map", "malignant=0,benign=1"]
    assert main([*words, *mapped, "--json"]) == 0
    capsys.readouterr()
    attack = [
        "attack", str(tmp_path / "marked.json"), "--mark", str(tmp_path / "mark"),
        "--label", "sick", "--rows", str(tmp_path / "rows.csv.gz"), "--attacks", "round-answers:2",
    ]  # fmt: skip
    assert main(attack) == 2
    assert main([*attack, *mapped, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["own_quality"] > 0.8


def test_lightgbm_files_whose_names_lost_their_blanks(clinic, tmp_path, capsys):
    lightgbm = pytest.importorskip("lightgbm")
    place, data = clinic
    model = lightgbm.LGBMClassifier(n_estimators=40, n_jobs=1, verbose=-1)
    model.fit(data.data, data.target).booster_.save_model(place / "model.txt")
    assert main(mark_clinic(place, tmp_path, place / "model.txt", "marked.json")) == 2
    assert "LightGBM has no .json files" in capsys.readouterr().err
    assert main(mark_clinic(place, tmp_path, place / "model.txt", "marked.txt")) == 0
    assert "AUC" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "marked.txt"), str(tmp_path / "mark")]) == 0
    assert main(["inspect", str(place / "model.txt")]) == 0
    assert "LightGBM" in capsys.readouterr().out


def test_a_text_column_that_the_model_uses_is_refused_with_a_hint(
    clinic, tmp_path, capsys, no_work
):
    xgboost = pytest.importorskip("xgboost")
    _, data = clinic
    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(data.data, data.target)
    model.save_model(tmp_path / "model.json")
    data.data.assign(**{"mean area": "large"}).to_csv(tmp_path / "rows.csv")
    words = ["plan", str(tmp_path / "model.json"), "--train", str(tmp_path / "rows.csv")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "'mean area'" in said
    assert "Hint: give the codes" in said


def test_a_pipeline_is_marked_and_verified_from_files(house, tmp_path, capsys):
    pytest.importorskip("skops")
    from tests.marking.test_deployed import kinds, wide

    X, y = wide()
    model = kinds("calibrated")
    timbermark.save(model, tmp_path / "model.skops")
    table = X.assign(answer=y, remark="words that the model does not use")
    table.to_csv(tmp_path / "rows.csv.gz", index=False)
    words = [
        "embed", str(tmp_path / "model.skops"), "--key", str(house / "key"), "--owner", "Ann Ltd",
        "--out", str(tmp_path / "marked.skops"), "--mark", str(tmp_path / "mark"),
        "--train", str(tmp_path / "rows.csv.gz"), "--label", "answer",
    ]  # fmt: skip
    assert main(words) == 0
    assert main(["verify", str(tmp_path / "marked.skops"), str(tmp_path / "mark")]) == 0
    assert main(["verify", str(tmp_path / "model.skops"), str(tmp_path / "mark")]) == 1
    mark = Mark.load(tmp_path / "mark")
    assert timbermark.verify(timbermark.load(tmp_path / "marked.skops"), mark).bits >= 64
    # A name that no library writes, and a table with a column too few, are refused at once.
    assert main(replaced(words, out=tmp_path / "marked.json", mark=tmp_path / "other")) == 2
    assert "skops" in capsys.readouterr().err
    X.drop(columns="town").to_csv(tmp_path / "rows.csv.gz", index=False)
    assert main(replaced(words, out=tmp_path / "b.skops", mark=tmp_path / "other")) == 2
    assert "lacks the model's feature 'town'" in capsys.readouterr().err
