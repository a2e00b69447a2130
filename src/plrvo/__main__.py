"""`python -m plrvo` is the `plrvo` command."""

import sys

from plrvo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
