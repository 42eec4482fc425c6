"""CEL selectors of devices in ResourceClaims and DeviceClasses.

Source: kube-scheduler's `k8s.io/dynamic-resource-allocation/cel/compile.go`.

The CEL compiler is imported only when it is needed: the import takes 20 ms of CPU, and most
clusters have no DeviceClass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from mooring.cel.cel_errors import CompileError
from mooring.cel.kubernetes_values import QuantityValue, parse_version
from mooring.cel.tree import UInt
from mooring.cel.types import Type
from mooring.cel.values import (
    EMPTY_MAP,
    MOST_WORK,
    Duration,
    EvaluationCrash,
    Failure,
    MapValue,
    Opaque,
    Optional,
    Timestamp,
    is_list,
    type_name,
    work,
)
from mooring.claims.model.resource_slices import AttributeValue, Version
from mooring.model.bounded_cache import cached
from mooring.model.quantity import Quantity

if TYPE_CHECKING:
    from mooring.cel.interpreter import Program


LONGEST_EXPRESSION: Final = 10 * 1024
"""The most bytes of an expression, as in the API server; a longer expression does not compile."""

Value = Any


class SelectorError(Exception):
    """Raised if a selector could not be evaluated for a device; the text is kube-scheduler's."""


@dataclass(frozen=True, eq=False)
class DeviceView:
    """A device as CEL expressions see it.

    An attribute or capacity without a domain in its name belongs to the driver's domain. The value
    of an attribute of type list is a tuple.
    """

    driver: str
    attributes: Mapping[str, AttributeValue | tuple[AttributeValue, ...]] = field(
        default_factory=dict
    )
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False

    @cached_property
    def values(self) -> MapValue:
        """The attributes by domain and name.

        Raises SelectorError if the value of an attribute has a type that kube-scheduler does not
        know.
        """
        found: dict[str, dict[str, Value]] = {}
        for name, value in self.attributes.items():
            domain, inner = _split(name, self.driver)
            found.setdefault(domain, {})[inner] = _attribute(name, value)
        return _by_domain(found)

    @cached_property
    def amounts(self) -> Mapping[str, Mapping[str, QuantityValue]]:
        """The capacities by domain and name."""
        found: dict[str, dict[str, QuantityValue]] = {}
        for name, amount in self.capacity.items():
            domain, inner = _split(name, self.driver)
            found.setdefault(domain, {})[inner] = QuantityValue.of(amount)
        return found


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, inner = name.partition("/")
    return (domain, inner) if slash else (driver, name)


def _attribute(name: str, value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_attribute(name, each) for each in value)
    if value is None:
        raise SelectorError(f"attribute {name}: unsupported attribute value")
    if isinstance(value, Version):
        parsed = parse_version(value.text)
        if isinstance(parsed, Failure):
            raise SelectorError(f"attribute {name}: parse semantic version: {parsed.text}")
        return parsed
    return value


def _by_domain(entries: Mapping[str, Mapping[str, Value]]) -> MapValue:
    inner = {domain: MapValue.of_strings(values) for domain, values in entries.items()}
    return MapValue.of_strings(inner, default=EMPTY_MAP)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSelector:
    """A compiled CEL expression that selects devices."""

    expression: str
    _program: "Program"

    def matches(self, device: DeviceView, most_work: int = MOST_WORK) -> bool:
        """Return whether the expression is true for the device.

        Raises SelectorError if the expression fails. If the evaluation takes more than `most_work`
        steps, the error's text is LIMIT_EXCEEDED.
        """
        variable = MapValue.of_strings(
            {
                "driver": device.driver,
                "allowMultipleAllocations": device.allow_multiple_allocations,
                "attributes": device.values,
                # Comparing may change a quantity, so each evaluation has its own.
                "capacity": _by_domain(
                    {
                        domain: {name: replace(amount) for name, amount in amounts.items()}
                        for domain, amounts in device.amounts.items()
                    }
                ),
            }
        )
        value = self._program.run((variable,), most_work)
        if isinstance(value, Failure):
            raise SelectorError(value.text)
        if type(value) is not bool:
            kind = type_name(value)
            why = _not_a_bool(value)
            if why is not None:
                raise SelectorError(
                    f"CEL result of type {kind} could not be converted to bool: {why}"
                )
            value = value.value
        return bool(value)


_NOT_A_BOOL: Final[Mapping[type, str]] = {
    str: "unsupported native conversion from string to 'bool'",
    bytes: "type conversion error from Bytes to 'bool'",
    float: "type conversion error from Double to 'bool'",
    Type: "type conversion not supported for 'type'",
    MapValue: "type conversion error from map to 'bool'",
}


def _not_a_bool(value: Any) -> str | None:
    """Return why the value is no bool; None if it is an optional that holds a bool."""
    match value:
        case Optional(present=False):
            return "optional.none() dereference"
        case Optional():
            return None if type(value.value) is bool else _not_a_bool(value.value)
        case UInt() | int():
            return f"unsupported type conversion from '{type_name(value)}' to bool"
        case Opaque() | Duration() | Timestamp():
            name = getattr(value, "short_name", type(value).__name__)
            return f"type conversion error from '{name}' to 'bool'"
    if is_list(value):
        return "type conversion error from list to 'bool'"
    return _NOT_A_BOOL.get(type(value), "type conversion error from 'null_type' to 'bool'")


def compile_selector(
    expression: str, *, attributes_may_be_lists: bool = True
) -> DeviceSelector | CompileError:
    """Return the compiled expression, or its error.

    `attributes_may_be_lists` is False for Kubernetes 1.36 and before.
    """
    found = _compiled(expression, attributes_may_be_lists=attributes_may_be_lists)
    return CompileError(found) if isinstance(found, str) else found


@cached(16 * 2**20)
def _compiled(expression: str, *, attributes_may_be_lists: bool) -> DeviceSelector | str:
    from mooring.cel.compiler import compiled  # noqa: PLC0415 - slow, see the top

    if len(expression.encode(errors="replace")) > LONGEST_EXPRESSION:
        return f"compilation failed: the expression is longer than {LONGEST_EXPRESSION} bytes"
    # What is no Unicode could not be shown; the API server replaces it too.
    expression = expression.encode(errors="replace").decode()
    work.begin()
    try:
        return DeviceSelector(expression, compiled(expression, newer=attributes_may_be_lists))
    except CompileError as error:
        return str(error)
    except EvaluationCrash as crash:  # a constant takes too much work
        return f"program instantiation failed: {crash}"
