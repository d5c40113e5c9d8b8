"""``python -m builddoctor``."""

import sys

from builddoctor.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
