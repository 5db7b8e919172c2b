"""``python -m sparseshot``, which ``torchrun -m sparseshot`` needs."""

import sys

from sparseshot.cli import main

if __name__ == "__main__":
    sys.exit(main())
