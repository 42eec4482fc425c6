"""Import what a command needs, as late and as quickly as possible."""

import gc
from importlib import import_module
from types import ModuleType


def import_module_quickly(name: str) -> ModuleType:
    """Import the module and what it imports, without a search for garbage meanwhile.

    Modules, classes and functions stay: hundreds of searches that find nothing would take a tenth
    of the time.
    """
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
