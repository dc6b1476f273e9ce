"""A claim names models by their trees: the same digest for the model and for every file of it."""

import pytest

import timbermark as tm
from tests.marking.models import KEY
from tests.verification.test_verifying import ROADS, marked
from timbermark.errors import FileFormatError, InputError
from timbermark.verification.suspects import name_model


@pytest.mark.parametrize(("library", "ending"), ROADS)
def test_a_file_has_the_digest_of_its_model(library, ending, tmp_path):
    model, result = marked(library)
    for name, given in (("unmarked", model), ("marked", result.model)):
        tm.save(given, tmp_path / f"{name}.{ending}")
    digest = result.mark.model_digest
    assert name_model(tmp_path / f"unmarked.{ending}").digest == digest == name_model(model).digest
    claim = tm.claim(tmp_path / f"marked.{ending}", result.mark, key=KEY)
    assert claim.marked_digest == name_model(result.model).digest
    assert claim.marked_file is not None
    assert tm.claim(result.model, result.mark, key=KEY).marked_digest == claim.marked_digest
    with pytest.raises(InputError, match="unmarked one"):
        tm.claim(model, result.mark, key=KEY)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "x").write_text("hello")
    with pytest.raises(FileFormatError, match="not a model file"):
        name_model(tmp_path / "x")
    with pytest.raises(InputError, match="not a supported model"):
        name_model(len)
    with pytest.raises(FileNotFoundError):
        name_model(tmp_path / "none")
