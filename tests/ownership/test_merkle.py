import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ownership import independent
from timbermark.errors import InputError
from timbermark.ownership.merkle import hash_leaf, merkle_paths, merkle_root, root_from_path

sizes = st.integers(1, 70)


def leaves_of(n):
    return [hash_leaf(bytes([i])) for i in range(n)]


@given(sizes)
def test_the_root_is_that_of_the_recursive_definition(n):
    leaves = leaves_of(n)
    assert merkle_root(leaves) == independent.root(leaves)


def test_known_roots_of_certificate_transparency():
    """The reference tree of RFC 6962's own test data: its first records and roots."""
    records = [b"", b"\x00", b"\x10", bytes.fromhex("2021")]
    leaves = [hash_leaf(record) for record in records]
    assert merkle_root(leaves[:1]) == hashlib.sha256(b"\x00").digest()
    assert merkle_root(leaves[:2]).hex() == (
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    )
    assert merkle_root(leaves[:3]).hex() == (
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    )
    assert merkle_root(leaves).hex() == (
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
    )


@given(sizes)
def test_every_leaf_leads_to_the_root(n):
    leaves = leaves_of(n)
    root = merkle_root(leaves)
    for place, path in enumerate(merkle_paths(leaves, range(n))):
        assert root_from_path(leaves[place], place, n, path) == root


@given(st.integers(2, 40), st.data())
def test_no_other_leaf_place_or_path_leads_there(n, data):
    leaves = leaves_of(n)
    root = merkle_root(leaves)
    place = data.draw(st.integers(0, n - 1))
    (path,) = merkle_paths(leaves, [place])

    def leads(leaf, at, through):
        try:
            return root_from_path(leaf, at, n, through) == root
        except InputError:
            return False

    assert leads(leaves[place], place, path)
    assert not leads(hash_leaf(b"other"), place, path)
    assert not any(leads(leaves[place], other, path) for other in range(n) if other != place)
    at, bit = data.draw(st.integers(0, len(path) - 1)), data.draw(st.integers(0, 255))
    changed = bytearray(path[at])
    changed[bit // 8] ^= 1 << bit % 8
    assert not leads(leaves[place], place, (*path[:at], bytes(changed), *path[at + 1 :]))
    if len(set(path)) > 1:
        assert not leads(leaves[place], place, path[::-1])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 33])
def test_a_path_has_one_length(n):
    leaves = leaves_of(n)
    for place, path in enumerate(merkle_paths(leaves, range(n))):
        with pytest.raises(InputError, match="wrong length"):
            root_from_path(leaves[place], place, n, (*path, bytes(32)))
        if path:
            with pytest.raises(InputError, match="wrong length"):
                root_from_path(leaves[place], place, n, path[:-1])
