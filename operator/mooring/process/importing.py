"""Imports the modules of a command as late and as quickly as possible."""

import gc
from importlib import import_module
from types import ModuleType


def import_module_quickly(name: str) -> ModuleType:
    """Import the module without garbage collection meanwhile.

    Modules, classes and functions stay: hundreds of collections would find nothing and take a tenth
    of the time.
    """
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
