"""Reads each file that is named, with half a GiB of memory to spare; prints what came of it.

``python -m tests.libraries.reading_bombs FILE ...``: one line for each file, "refused" or what went
wrong, and by how many MiB the process has grown.
"""

import resource
import sys
import warnings
from pathlib import Path

import timbermark as tm
from timbermark import libraries
from timbermark.errors import TimbermarkError

SPARE = 512 << 20


def main(paths):
    warnings.simplefilter("ignore")
    for library in ("lightgbm", "xgboost", "catboost", "skops.io", "sklearn.ensemble"):
        __import__(library)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in paths:
        try:
            if path.endswith(".mark"):
                tm.Mark.load(path)
            else:
                libraries.open(path)
            said = "read"
        except TimbermarkError:
            said = "refused"
        except BaseException as error:
            said = f"{type(error).__name__}: {str(error)[:100]}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(Path(path).name, said, grown >> 10, sep="\t")


if __name__ == "__main__":
    main(sys.argv[1:])
