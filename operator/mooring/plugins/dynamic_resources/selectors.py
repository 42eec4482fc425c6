"""What CEL selectors say of devices."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mooring.cel.device_selector import CompileError, DeviceView, SelectorError, compile_selector
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import Device
from mooring.plugins.dynamic_resources.allocation_error import AllocationError

__all__ = ["Compile", "Selector", "Selectors", "cel_selectors"]


class Selector(Protocol):
    """A compiled expression."""

    def matches(self, device: DeviceView) -> bool:
        """Return whether it selects the device.

        Raises:
            SelectorError: if it fails for this device.
        """


Compile = Callable[[str], Selector | CompileError]
"""Compiles an expression, or returns what is wrong with it."""


class Selectors:
    """Compiled selectors, and what they have said so far; made for one allocation.

    Args:
        compile_selector: Compiles an expression.
        rules: The rules of the Kubernetes version.
    """

    __slots__ = ("_compile", "_compiled", "_known", "_rules", "_views")

    def __init__(self, compile_selector: Compile, rules: KubernetesRules) -> None:
        self._compile = compile_selector
        self._rules = rules
        self._compiled: dict[str, Selector | CompileError] = {}
        self._known: dict[tuple[str, DeviceId], bool] = {}
        self._views: dict[DeviceId, DeviceView] = {}

    def match(
        self, expressions: Sequence[str | None], device: Device, device_id: DeviceId, owner: str
    ) -> bool:
        """Return whether all expressions select the device; `owner` is the class or the claim.

        Raises:
            AllocationError: if one cannot be compiled or fails; those behind one that does not
                select the device are not looked at.
        """
        return self.first_against(expressions, device, device_id, owner) is None

    def first_against(
        self, expressions: Sequence[str | None], device: Device, device_id: DeviceId, owner: str
    ) -> int | None:
        """Return the index of the first expression that does not select the device, if any.

        Raises:
            AllocationError: as `match`.
        """
        for index, expression in enumerate(expressions):
            where = f"{owner}: selector #{index}"
            if expression is None:
                raise AllocationError(f"{where}: CEL expression empty (unsupported selector type?)")
            known = self._known.get((expression, device_id))
            if known is None:
                known = self._evaluate(expression, device, device_id, where)
                self._known[expression, device_id] = known
            if not known:
                return index
        return None

    def _evaluate(self, expression: str, device: Device, device_id: DeviceId, where: str) -> bool:
        selector = self._compiled.get(expression)
        if selector is None:
            selector = self._compiled[expression] = self._compile(expression)
        if isinstance(selector, CompileError):
            raise AllocationError(f"{where}: CEL compile error: {selector}")
        try:
            return selector.matches(self._view(device, device_id))
        except SelectorError as error:
            text = str(error)
            if self._rules.selector_errors_name_device:
                where += f" on device {'/'.join(device_id)}"
                if "no such key:" in text:
                    text += (
                        ". consider using CEL optional chaining (.? followed by orValue()) or "
                        "guarding the check with has() for optional fields"
                    )
            raise AllocationError(f"{where}: CEL runtime error: {text}") from None

    def _view(self, device: Device, device_id: DeviceId) -> DeviceView:
        view = self._views.get(device_id)
        if view is None:
            view = self._views[device_id] = DeviceView(
                device_id.driver,
                device.attributes,
                {name: capacity.value for name, capacity in device.capacity.items()},
                device.allow_multiple_allocations,
            )
        return view


def cel_selectors(rules: KubernetesRules) -> Selectors:
    """Return selectors in CEL, as the Kubernetes version knows it."""
    lists = rules.device_attributes_may_be_lists
    return Selectors(lambda text: compile_selector(text, attributes_may_be_lists=lists), rules)
