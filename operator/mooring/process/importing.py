"""Imports the modules of a command as late and as quickly as possible."""

import gc
from importlib import import_module
from types import ModuleType


def import_module_quickly(name: str) -> ModuleType:
    """Import the module while garbage collection is off, and return it."""
    # Modules, classes and functions are never garbage: hundreds of collections would find nothing
    # and take a tenth of the time.
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
