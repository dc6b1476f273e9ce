"""Where the files of the data sets are: a folder, the user's cache, or the UCI archive.

Whatever the place, a file is used only if its sha256 is the one noted here, so that everybody's
tables are made from the same bytes. The six sets of the paper can be fetched; the field sets, which
only benchmarks use, must be in the folder.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from timbermark.errors import FileFormatError, InputError
from timbermark.files import atomic_write

VARIABLE = "TIMBERMARK_DATA"
"""The environment variable that names the folder of the data sets."""
_ARCHIVE = "https://archive.ics.uci.edu/static/public"
_TIMEOUT = 60.0
_MOST_BYTES = 64 * 2**20
"""No archive of the six comes near; more is not what was asked for."""

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one data set.

    ``sums`` gives the sha256 of each file that the paper uses, ``unused`` that of published ones
    which it leaves out; the order matters. ``archive`` is empty where the set cannot be fetched.
    """

    folder: str
    archive: str
    sums: dict[str, str]
    unused: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the address of the archive that holds the files."""
        return f"{_ARCHIVE}/{self.archive}"


SOURCES: dict[str, Source] = {
    "avila": Source(
        "avila",
        "459/avila.zip",
        {
            "avila-tr.txt": "493332af20f750a6b0f7b0c581dd2236bb68a8ace52b412aea1c9c82b2076357",
            "avila-ts.txt": "0ec227d595dd8d8dc6804a7139c8b6d6e00e21aaea0d9052085057aa98c3e589",
        },
    ),
    "image_segmentation": Source(
        "segmentation",
        "50/image+segmentation.zip",
        {"segmentation.data": "ed5b5aee8081bbe875357149f73f50d7085e22cc0897f5b52eb7b52fea969a5b"},
        {"segmentation.test": "2e9e966479d54c6aaec309059376dd9c89c1b46bf3a23aceeefb36d20d93a189"},
    ),
    "letter": Source(
        "letter",
        "59/letter+recognition.zip",
        {
            "letter-recognition.data": (
                "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2"
            )
        },
    ),
    "optdigits": Source(
        "optdigits",
        "80/optical+recognition+of+handwritten+digits.zip",
        {
            "optdigits.tra": "e1b683cc211604fe8fd8c4417e6a69f31380e0c61d4af22e93cc21e9257ffedd",
            "optdigits.tes": "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
        },
    ),
    "pendigits": Source(
        "pendigits",
        "81/pen+based+recognition+of+handwritten+digits.zip",
        {
            "pendigits.tra": "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
            "pendigits.tes": "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
        },
    ),
    "wine_quality": Source(
        "wine_quality",
        "186/wine+quality.zip",
        {
            "winequality-red.csv": (
                "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e"
            ),
            "winequality-white.csv": (
                "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836"
            ),
        },
    ),
}
"""The paper's data sets, in the order of its tables."""

FIELD_SOURCES: dict[str, Source] = {
    "census_income": Source(
        "field/census_income",
        "",
        {
            "census-income.data.gz": (
                "5af0244397fa52b5ac93ef5fd8293426b6bc04a30adb6c15f5e527e4dcbef33a"
            )
        },
    ),
    "churn": Source(
        "field/churn",
        "",
        {"churn.csv": "ed041d67e5576ae3956550f5e0c47b78138044b32e6930258b1f539e20629c17"},
    ),
    "diamonds": Source(
        "field/diamonds",
        "",
        {"diamonds.csv": "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4"},
    ),
    "spambase": Source(
        "field/spambase",
        "",
        {"spambase.csv": "b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12"},
    ),
}
"""Data sets of the kind that users have: texts, missing values, two classes, prices."""


def find_files(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    cache: Path | None = None,
    fetch: Fetch | None = None,
    published: bool = False,
) -> dict[str, bytes]:
    """Return the content of the files of the data set ``name``, each checked, by file name.

    Looked for in ``folder`` (or the one that TIMBERMARK_DATA names), then in ``cache`` (the
    user's), then fetched from the UCI archive and kept in the cache. ``published`` also asks for
    the files that the paper leaves out.

    Raises InputError for a name that is not known, a folder that does not exist and a download
    that fails, FileFormatError for a file whose content is not what it should be.
    """
    known = {**SOURCES, **FIELD_SOURCES}
    if name not in known:
        raise InputError(
            f"There is no data set '{name}' in the paper.", hint=f"use one of {', '.join(SOURCES)}."
        )
    source = known[name]
    sums = {**source.sums, **source.unused} if published else source.sums
    cache = cache_folder() if cache is None else cache
    for place in (_given_folder(folder), cache):
        paths = None if place is None else _paths_in(place, name, source.folder, sums)
        if paths is not None:
            return {path.name: _read_checked(path, sums[path.name]) for path in paths}
    if not source.archive:
        raise InputError(
            f"The files of the data set {name} are not here.",
            hint=f"{VARIABLE} names a folder that holds them in {source.folder}.",
        )
    found = _unpack(name, source.url, sums, _download(name, source.url, fetch or fetch_url))
    for file, content in found.items():
        place = cache / source.folder
        place.mkdir(parents=True, exist_ok=True)
        atomic_write(place / file, content)
    return found


def cache_folder() -> Path:
    """Return the folder of the user's cache in which downloaded data sets are kept."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "timbermark" / "datasets"


def fetch_url(url: str) -> bytes:
    """Return the content of an address, at most 64 MB of it. Raises OSError where that fails."""
    from urllib.request import urlopen

    with urlopen(url, timeout=_TIMEOUT) as answer:
        return bytes(answer.read(_MOST_BYTES + 1))


def _given_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    said = folder if folder is not None else os.environ.get(VARIABLE) or None
    if said is None:
        return None
    place = Path(said)
    if not place.is_dir():
        raise InputError(
            f"The folder of the data sets, {place}, does not exist.",
            hint=f"--data or {VARIABLE} names a folder that holds the files of the UCI archive.",
        )
    return place


def _paths_in(place: Path, name: str, folder: str, files: Iterable[str]) -> list[Path] | None:
    """Return the paths of all files, or None where one is absent."""
    for within in (place / folder, place / name, place):
        paths = [within / file for file in files]
        if all(path.is_file() for path in paths):
            return paths
    return None


def _read_checked(path: Path, expected: str) -> bytes:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise FileFormatError(
            f"{path} is not the file that the UCI archive publishes: its sha256 is {found[:12]}…, "
            f"expected {expected[:12]}….",
            hint="delete it, or put the original in its place.",
        )
    return content


def _download(name: str, url: str, fetch: Fetch) -> bytes:
    hint = f"fetch it yourself, and name its folder with --data or {VARIABLE}."
    try:
        content = fetch(url)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The data set {name} could not be fetched from {url} ({error}).", hint=hint
        ) from error
    if len(content) > _MOST_BYTES:
        raise InputError(f"{url} is larger than a data set of the paper can be.", hint=hint)
    return content


def _unpack(name: str, url: str, sums: dict[str, str], content: bytes) -> dict[str, bytes]:
    """Return the members with the right sums, wherever in the archive they are."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.infolist():
                file = Path(member.filename).name
                if file in sums and file not in found and member.file_size <= _MOST_BYTES:
                    data = archive.read(member)
                    if hashlib.sha256(data).hexdigest() == sums[file]:
                        found[file] = data
    # The last one is what zipfile raises for encrypted members and for a compression it lacks.
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise FileFormatError(
            f"What {url} holds is no zip archive ({error}).",
            hint="try again later, or fetch the files yourself and name their folder with --data.",
        ) from error
    missing = [file for file in sums if file not in found]
    if missing:
        raise FileFormatError(
            f"{url} does not hold {missing[0]} of the data set {name} with the sha256 that "
            "it should have.",
            hint="the archive has changed; fetch the original file, and name its folder with "
            "--data.",
        )
    return {file: found[file] for file in sums}
