"""`python -m laneway.benchmarks`."""

import sys

from laneway.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
