"""kopf's handlers: they get an object, and make a change or write a status.

kopf imports other installed clients of Kubernetes, to recognise their objects in the results of
handlers. Mooring's handlers return no such objects, and the 800 models of kubernetes_asyncio take
0.2 seconds and 36 MB. So this module hides these clients while it imports kopf.
"""

import sys
from importlib import import_module
from typing import Final

__all__: tuple[str, ...] = ()

_CLIENTS: Final = ("kubernetes_asyncio", "kubernetes", "pykube")


def _import_kopf() -> None:
    # kopf must not find another client of Kubernetes.
    hidden = [name for name in _CLIENTS if name not in sys.modules]
    # An entry of None makes an import fail as if there were no such module.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # declared without None
    try:
        import_module("kopf")
    finally:
        for name in hidden:
            del sys.modules[name]


_import_kopf()
