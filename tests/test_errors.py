import pickle

import pytest

from timbermark.errors import (
    FileFormatError,
    InputError,
    MissingLibraryError,
    StateError,
    TimbermarkError,
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
