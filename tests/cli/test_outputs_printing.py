"""Errors in the words of the command line: flags in place of parameters."""

import pytest

from timbermark.cli.outputs import say_error, use_flags
from timbermark.errors import InputError, PassphraseNeededError


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("share=0.5 is not from above 0 to 1.", "--share 0.5 is not from above 0 to 1."),
        ("stop_at='now' is wrong.", "--stop-at now is wrong."),
        ('name it, as in protocol="mlflow".', "name it, as in --protocol mlflow."),
        ("open share=0.75, or force=True.", "open --share 0.75, or --force."),
        ("or force=True to replace it.", "or --force to replace it."),
        ("turn it: label_map={'no': 0, 'yes': 1}.", "turn it: --label-map no=0,yes=1."),
        ("give label_map={theirs: yours} and so on.", "give --label-map theirs=yours and so on."),
        ('as in body={"rows": "$rows"}.', 'as in --body \'{"rows": "$rows"}\'.'),
        ("give token=… or headers=….", "give --token-env or --token-file … or --headers-file …."),
        ("n_triggers=8 makes a mark (lead=2).", "--n-triggers 8 makes a mark (--lead 2)."),
        ("The budget's drift=0.01 must be more.", "The budget's --max-drift 0.01 must be more."),
        ("C:\\x=1 and y=2 stay, and my.share=3.", "C:\\x=1 and y=2 stay, and my.share=3."),
        ("nothing to see", "nothing to see"),
        ("it ends with rate=", "it ends with --rate "),
    ],
)  # fmt: skip
def test_parameters_become_flags(said, shown):
    assert use_flags(said) == shown


def test_the_first_word_is_a_flag_if_it_is_the_parameter():
    error = InputError("answers are missing.", hint="wait.", parameter="answers")
    assert say_error(error) == ("--answers are missing.", "wait.")
    # The same word elsewhere is a word.
    error = InputError("The suspect answers with scores.", hint="ok.", parameter="answers")
    assert say_error(error)[0] == "The suspect answers with scores."
    error = InputError("feature_names are wrong.", parameter="feature_names")
    assert say_error(error)[0] == "feature_names are wrong."  # which has no flag


def test_a_passphrase_comes_from_the_environment():
    assert "TIMBERMARK_PASSPHRASE" in say_error(PassphraseNeededError("x is encrypted."))[1]
