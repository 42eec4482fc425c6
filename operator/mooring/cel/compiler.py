"""Compiles selectors of devices: parses the text, checks types, and makes a program.

Source: kube-scheduler's `k8s.io/dynamic-resource-allocation/cel/compile.go`.
"""

from typing import Final

from mooring.cel.cel_errors import CompileError, compile_error
from mooring.cel.checker import Checker
from mooring.cel.declarations import functions
from mooring.cel.interpreter import Program, plan
from mooring.cel.parser import parse
from mooring.cel.types import ANY, BOOL, DYN, NAMED, STRING, Type, map_of
from mooring.cel.validators import validate

_DEVICE: Final = Type("struct", "kubernetes.DRADevice")


def compiled(expression: str, *, newer: bool) -> Program:
    """Compile the CEL expression of a device selector.

    `newer` allows attributes that are lists (Kubernetes 1.37 and later). Raises CompileError if the
    expression is no selector, and EvaluationCrash if a constant is too expensive to compute.
    """
    attribute = DYN if newer else ANY
    fields = {
        _DEVICE.name: {
            "driver": STRING,
            "allowMultipleAllocations": BOOL,
            "attributes": map_of(STRING, map_of(STRING, attribute)),
            "capacity": map_of(STRING, map_of(STRING, NAMED["Quantity"])),
        }
    }
    root = parse(expression)
    checker = Checker({"device": _DEVICE}, fields, functions(newer))
    result = checker.check(root)
    mistakes = checker.mistakes or validate(root)
    if mistakes:
        raise compile_error(expression, mistakes)
    if result not in (BOOL, attribute):
        raise CompileError(f"must evaluate to bool or the unknown type, not {result}")
    return plan(root, ("device",), newer=newer)
