"""`python -m kops` is the same as the console script `kops`."""

import sys

from kops.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
