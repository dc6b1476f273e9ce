"""A digest names the bytes that were read."""

import hashlib

import pytest

import timbermark as tm
from tests.verification.test_verifying import marked
from timbermark import libraries
from timbermark.errors import InputError
from timbermark.verification import file_digests


def test_the_digest_is_that_of_the_file(tmp_path):
    path = tmp_path / "model.json"
    tm.save(marked("xgboost")[0], path)
    foreign, digest = file_digests.open_with_digest(path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert foreign.library == "XGBoost"


def test_a_file_that_changes_meanwhile_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    tm.save(marked("xgboost")[0], path)
    opened = libraries.open

    def swap(given):
        found = opened(given)
        path.write_bytes(path.read_bytes() + b" ")
        return found

    monkeypatch.setattr(libraries, "open", swap)
    with pytest.raises(InputError, match="changed while it was read"):
        file_digests.open_with_digest(path)
