"""``python -m dtdg_lab``: the command line."""

import sys

from dtdg_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
