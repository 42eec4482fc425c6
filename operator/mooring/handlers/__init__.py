"""kopf's handlers: an object in, a change or a status out.

kopf imports other clients of Kubernetes if they are installed, to recognise their objects in the
results of handlers. Mooring's handlers return none, and all 800 models of kubernetes_asyncio take
0.2 seconds and 36 MB. So this module imports kopf while these clients are hidden.
"""

import sys
from importlib import import_module
from typing import Final

__all__: tuple[str, ...] = ()

_CLIENTS: Final = ("kubernetes_asyncio", "kubernetes", "pykube")


def _import_kopf() -> None:
    """Import kopf as if none of the clients that are not imported yet were installed."""
    hidden = [name for name in _CLIENTS if name not in sys.modules]
    # An entry of None makes an import fail as if there were no such module.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # declared without None
    try:
        import_module("kopf")
    finally:
        for name in hidden:
            del sys.modules[name]


_import_kopf()
