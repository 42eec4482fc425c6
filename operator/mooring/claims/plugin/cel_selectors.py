"""Evaluates CEL selectors for devices, and caches the answers."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mooring.cel.cel_errors import CompileError
from mooring.cel.values import work
from mooring.claims.device_selector import (
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.claims.model.resource_claims import DeviceId
from mooring.claims.model.resource_slices import Device
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.attribute_reads import (
    EVERYTHING,
    attributes_read,
    attributes_seen,
)
from mooring.model.bounded_cache import BoundedCache
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.quantity import Quantity, QuantityFormat

_UNITS_PER_EVALUATION: Final = 400
_UNITS_PER_WORK: Final = 3
_UNITS_IF_KNOWN: Final = 50
"""The units of the attempt's budget (`Evaluations`) for reading a cached answer."""


class Selector(Protocol):
    """A compiled CEL expression that selects devices."""

    def matches(self, device: DeviceView) -> bool:
        """Return whether the expression selects the device; SelectorError if it fails."""


Compile = Callable[[str], Selector | CompileError]
"""Compiles an expression, or returns its error."""


class Selectors:
    """Compiled selectors with cached answers, for one allocation.

    Args:
        compile_selector: Compiles an expression.
        rules: The rules of the Kubernetes version.
        budget: Lets other tasks run after each new answer; None: never.
    """

    def __init__(
        self, compile_selector: Compile, rules: KubernetesRules, budget: Budget | None = None
    ) -> None:
        self._budget = budget
        self._compile = compile_selector
        self._rules = rules
        self._compiled: dict[str, Selector | CompileError] = {}
        self._known: dict[tuple[str, DeviceId], bool] = {}
        self._views: dict[DeviceId, DeviceView] = {}

    def match(
        self, expressions: Sequence[str | None], device: Device, device_id: DeviceId, owner: str
    ) -> bool:
        """Return whether all expressions select the device.

        `owner` (the class or claim) is named in errors. Raises AllocationError if an expression
        fails or cannot be compiled, and PluginFailed if the budget is used up.
        """
        return self.first_against(expressions, device, device_id, owner) is None

    def first_against(
        self, expressions: Sequence[str | None], device: Device, device_id: DeviceId, owner: str
    ) -> int | None:
        """Return the index of the first expression that rejects the device; None if all select it.

        Raises the same errors as `match`.
        """
        for index, expression in enumerate(expressions):
            where = f"{owner}: selector #{index}"
            if expression is None:
                raise AllocationError(f"{where}: CEL expression empty (unsupported selector type?)")
            known = self._known.get((expression, device_id))
            if known is None:
                known = self._evaluate(expression, device, device_id, where)
                self._known[expression, device_id] = known
                if self._budget is not None:
                    self._budget.pause()
            if not known:
                return index
        return None

    def _evaluate(self, expression: str, device: Device, device_id: DeviceId, where: str) -> bool:
        selector = self._compiled.get(expression)
        if selector is None:
            selector = self._compiled[expression] = self._compile(expression)
        if isinstance(selector, CompileError):
            text = str(selector)
            if not self._rules.cel_errors_name_container:
                text = text.replace(" (in container '')", "")
            raise AllocationError(f"{where}: CEL compile error: {text}")
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


def cel_selectors(rules: KubernetesRules, budget: Budget | None = None) -> Selectors:
    """Return CEL selectors for a Kubernetes version; each evaluation spends units of `budget`."""
    lists = rules.device_attributes_may_be_lists

    def compiled(expression: str) -> Selector | CompileError:
        found = compile_selector(expression, attributes_may_be_lists=lists)
        if isinstance(found, CompileError):
            return found
        return _Remembering(expression, budget, lists=lists)

    return Selectors(compiled, rules, budget)


class _Asked(NamedTuple):
    """The key of a cached answer: an expression, and the device's values that it reads."""

    expression: str
    attributes_may_be_lists: bool
    driver: str
    attributes: tuple[tuple[str, type, Any], ...]
    capacity: tuple[tuple[str, int, QuantityFormat], ...]
    allow_multiple_allocations: bool

    def answer(self) -> bool | str:
        """Return whether the expression selects the device, or the text of its error."""
        selector = compile_selector(
            self.expression, attributes_may_be_lists=self.attributes_may_be_lists
        )
        if isinstance(selector, CompileError):
            raise selector
        view = DeviceView(
            driver=self.driver,
            attributes={name: value for name, _, value in self.attributes},
            capacity={name: Quantity(nano, form) for name, nano, form in self.capacity},
            allow_multiple_allocations=self.allow_multiple_allocations,
        )
        try:
            return selector.matches(view)
        except SelectorError as error:
            return str(error)


_answers: Final[BoundedCache[_Asked, bool | str]] = BoundedCache(32 * 2**20)


class _Remembering:
    """Evaluates a CEL expression once for all devices with equal values."""

    def __init__(self, expression: str, budget: Budget | None, *, lists: bool) -> None:
        self._expression = expression
        self._budget = budget
        self._lists = lists
        self._reads = attributes_read(expression)
        self._reads_capacity = self._reads is EVERYTHING or "capacity" in expression

    def matches(self, device: DeviceView) -> bool:
        capacity = device.capacity.items() if self._reads_capacity else ()
        asked = _Asked(
            self._expression,
            self._lists,
            device.driver,
            attributes_seen(device.attributes, self._reads),
            tuple([(name, amount.nano, amount.format) for name, amount in capacity]),
            device.allow_multiple_allocations,
        )
        says, units = _answers.get(asked), _UNITS_IF_KNOWN
        if says is None:
            says = asked.answer()
            units = _UNITS_PER_EVALUATION + _UNITS_PER_WORK * work.done
            _answers.put(asked, says)
        if self._budget is not None:
            self._budget.work(units)
        if isinstance(says, str):
            raise SelectorError(says)
        return says
