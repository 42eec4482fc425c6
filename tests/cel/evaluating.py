"""Functions with which tests compile and evaluate device selectors."""

from typing import Any, Final

from mooring.cel.cel_errors import CompileError
from mooring.cel.values import work
from mooring.claims.device_selector import (
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.claims.model.resource_slices import Version
from mooring.model.quantity import parse_quantity

GPU: Final = DeviceView(
    "gpu.example.com",
    {"model": "A100", "memory": 40, "healthy": True, "vendor.io/firmware": Version("1.10.0")},
    {"memory": parse_quantity("40Gi")},
)


def answer(expression: str, device: DeviceView = GPU, **options: Any) -> bool | str:
    """Return the result of the expression for the device, or the text of its error."""
    compiled = compile_selector(expression, **options)
    if isinstance(compiled, CompileError):
        return str(compiled)
    try:
        return compiled.matches(device)
    except SelectorError as error:
        return str(error)


def is_true(expression: str, device: DeviceView = GPU) -> bool:
    """Return whether the expression is true for the device; False if it fails."""
    return answer(expression, device) is True


def work_of(expression: str, device: DeviceView = GPU) -> int:
    """Return the units of work that the evaluation for the device takes; it must not fail."""
    compiled = compile_selector(expression)
    assert not isinstance(compiled, CompileError), compiled
    compiled.matches(device)
    return work.done
