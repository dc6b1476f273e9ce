import pickle

import pytest

from timbermark.errors import (
    FileFormatError,
    InputError,
    MissingLibraryError,
    StateError,
    TimbermarkError,
    explain_missing,
    require_library,
)


def test_text_is_message_then_hint():
    assert str(InputError("x=1 is wrong.", hint="use 2.")) == "x=1 is wrong. Hint: use 2."


def test_no_hint_leaves_the_message_alone():
    assert str(InputError("x=1 is wrong.")) == "x=1 is wrong."


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InputError, ValueError),
        (FileFormatError, ValueError),
        (StateError, ValueError),
        (MissingLibraryError, ImportError),
    ],
)
def test_each_error_is_ours_and_the_builtin_one(error, builtin):
    with pytest.raises(builtin) as caught:
        raise error("wrong.", hint="right.")
    assert isinstance(caught.value, TimbermarkError)
    assert str(caught.value) == "wrong. Hint: right."


@pytest.mark.parametrize("error", [InputError, MissingLibraryError])
def test_errors_survive_being_sent_between_processes(error):
    back = pickle.loads(pickle.dumps(error("wrong.", hint="right.")))
    assert type(back) is error
    assert (back.message, back.hint) == ("wrong.", "right.")


def test_missing_library_names_the_install_command():
    error = MissingLibraryError.for_extra("lightgbm", "to read a LightGBM model")
    assert error.hint == 'pip install "timbermark[lightgbm]"'
    assert "lightgbm is needed" in error.message


def test_a_library_that_is_there_is_not_asked_for():
    require_library("json", "report", "to draw a chart")
    with pytest.raises(MissingLibraryError, match=r"timbermark\[report\]"):
        require_library("not_a_module_of_anybody", "report", "to draw a chart")


@pytest.mark.parametrize(
    ("module", "package"), [("sklearn.base", "scikit-learn"), ("numba", "numba")]
)
def test_what_the_verifier_alone_lacks_is_named(module, package):
    error = explain_missing(ModuleNotFoundError("missing", name=module))
    assert error.message == f"{package} is not installed: this is the verifier alone."


@pytest.mark.parametrize("module", ["something", None, "timbermark.nowhere"])
def test_other_missing_modules_are_bugs(module):
    assert explain_missing(ModuleNotFoundError("missing", name=module)) is None
