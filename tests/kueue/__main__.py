"""The command `python -m kueue`, which builds Kueue's controller once, into the cache."""

import sys

from controlplane import ControlPlaneError
from controlplane.build import ensure_built
from kueue.controller import MODULE, sources


def main() -> int:
    """Return the exit code: 0 if it is built and its manifests are there, 1 if that failed."""
    try:
        ensure_built(module=MODULE)
        sources()
    except ControlPlaneError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
