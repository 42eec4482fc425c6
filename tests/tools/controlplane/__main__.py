"""`python -m controlplane`: the control plane from a shell."""

import sys

from controlplane.cli import main

if __name__ == "__main__":
    sys.exit(main())
