"""``python -m timbermark`` is the command ``timbermark``."""

import sys

from timbermark.cli import main

if __name__ == "__main__":
    sys.exit(main())
