"""Compiles CEL expressions for the allocator."""

from dataclasses import dataclass

from mooring.cel.device_selector import CompileError, DeviceSelector, compile_selector
from mooring.cel.device_selector import DeviceView as CelDeviceView
from mooring.cel.device_selector import SelectorError as CelSelectorError
from mooring.plugins.dynamic_resources.selectors import (
    DeviceView,
    Selector,
    SelectorCompileError,
    SelectorError,
)

__all__ = ["compile_expression"]


def compile_expression(expression: str) -> Selector:
    """Return the compiled expression, which `compile_selector` keeps.

    Raises:
        SelectorCompileError: with the compiler's text.
    """
    compiled = compile_selector(expression)
    if isinstance(compiled, CompileError):
        raise SelectorCompileError(str(compiled))
    return _CelSelector(compiled)


@dataclass(frozen=True, slots=True)
class _CelSelector:
    """A compiled expression as the allocator calls it."""

    compiled: DeviceSelector

    def matches(self, device: DeviceView) -> bool:
        """Return whether it selects the device; SelectorError if it fails for it."""
        view = CelDeviceView(
            device.driver, device.attributes, device.capacity, device.allow_multiple_allocations
        )
        try:
            return self.compiled.matches(view)
        except CelSelectorError as error:
            raise SelectorError(str(error)) from None
