import hashlib
import io
import re
import zipfile
from urllib.error import URLError

import pytest

from timbermark.errors import FileFormatError, InputError
from timbermark.experiments import datasets
from timbermark.experiments.datasets import SOURCES, Source, cache_folder, find_files

GOOD = {"one.txt": b"1,2,a\n", "two.txt": b"3,4,b\n"}


@pytest.fixture(autouse=True)
def one_small_source(monkeypatch, tmp_path):
    """A data set of two files; no folder is named by the environment and the cache is empty."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in GOOD.items()}
    monkeypatch.setitem(SOURCES, "avila", Source("av", "1/av.zip", sums))
    monkeypatch.delenv("TIMBERMARK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(folder, files=GOOD):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def no_network(url):
    raise AssertionError(f"{url} was fetched")


@pytest.mark.parametrize("layout", ["av", "avila", "."])
def test_files_of_a_folder_come_first(tmp_path, layout):
    put(tmp_path / "data" / layout)
    put(cache_folder() / "av", dict.fromkeys(GOOD, b"broken"))
    assert find_files("avila", tmp_path / "data", fetch=no_network) == GOOD


def test_environment_names_the_folder(tmp_path, monkeypatch):
    put(tmp_path / "data")
    monkeypatch.setenv("TIMBERMARK_DATA", str(tmp_path / "data"))
    assert find_files("avila", fetch=no_network) == GOOD


def test_cache_comes_second_and_download_last(tmp_path):
    asked = []

    def fetch(url):
        asked.append(url)
        return zipped({f"deep/er/{name}": content for name, content in GOOD.items()})

    (tmp_path / "empty").mkdir()
    assert find_files("avila", tmp_path / "empty", fetch=fetch) == GOOD
    assert asked == ["https://archive.ics.uci.edu/static/public/1/av.zip"]
    assert find_files("avila", tmp_path / "empty", fetch=no_network) == GOOD
    assert {path.name for path in (cache_folder() / "av").iterdir()} == set(GOOD)


def test_fetching_is_what_the_standard_library_does(monkeypatch):
    opened = []

    class Answer(io.BytesIO):
        pass

    def urlopen(url, timeout):
        opened.append((url, timeout > 0))
        return Answer(zipped(GOOD))

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert find_files("avila") == GOOD
    assert opened == [("https://archive.ics.uci.edu/static/public/1/av.zip", True)]


@pytest.mark.parametrize("place", ["folder", "cache"])
def test_a_changed_byte_is_refused(tmp_path, place):
    folder = put(tmp_path / "data") if place == "folder" else put(cache_folder() / "av")
    (folder / "two.txt").write_bytes(b"3,5,b\n")
    with pytest.raises(FileFormatError, match=r"two\.txt is not the file that the UCI archive"):
        find_files("avila", folder if place == "folder" else None, fetch=no_network)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>not found</html>", "no zip archive"),
        (zipped(GOOD)[:-30], "no zip archive"),
        (zipped({"one.txt": GOOD["one.txt"]}), r"does not hold two\.txt"),
        (zipped(GOOD | {"two.txt": b"other"}), r"does not hold two\.txt"),
    ],
)
def test_a_wrong_archive_is_refused_and_leaves_nothing(answer, message):
    with pytest.raises(FileFormatError, match=message):
        find_files("avila", fetch=lambda url: answer)
    assert not cache_folder().exists()


def test_a_second_member_of_the_same_name_may_be_the_right_one():
    answer = zipped({"old/one.txt": b"another", **GOOD})
    assert find_files("avila", fetch=lambda url: answer) == GOOD


@pytest.mark.parametrize("error", [URLError("no route"), TimeoutError("timed out")])
def test_a_failed_download_says_what_to_do(error):
    def fetch(url):
        raise error

    with pytest.raises(InputError, match="could not be fetched") as caught:
        find_files("avila", fetch=fetch)
    assert "--data" in caught.value.hint


def test_an_endless_answer_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "_MOST_BYTES", 10)
    with pytest.raises(InputError, match="larger than"):
        find_files("avila", fetch=lambda url: bytes(11))


def test_names_and_folders_that_do_not_exist(tmp_path):
    with pytest.raises(InputError, match="no data set 'iris'"):
        find_files("iris")
    with pytest.raises(InputError, match="does not exist"):
        find_files("avila", tmp_path / "nowhere", fetch=no_network)


def test_sums_are_those_of_the_shared_folder(shared, monkeypatch):
    monkeypatch.undo()
    lines = (shared / "SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split(maxsplit=1)) for line in lines)
    for source in SOURCES.values():
        for file, found in {**source.sums, **source.unused}.items():
            assert listed[f"./{source.folder}/{file}"] == found
            assert re.fullmatch("[0-9a-f]{64}", found)
