"""A few CEL expressions as Python, for tests that are about something else than CEL."""

import re
from dataclasses import dataclass
from typing import Final

from mooring.cel.cel_errors import CompileError
from mooring.claims.device_selector import DeviceView, SelectorError

_ATTRIBUTE: Final = re.compile(r'device\.attributes\["(.+?)"\]\.(\w+) (==|<=|>=) (\w+|"\w+")')
_DRIVER: Final = re.compile(r'device\.driver == "(.+)"')


@dataclass(frozen=True)
class _Small:
    expression: str

    def matches(self, device: DeviceView) -> bool:
        if self.expression in ("true", "false"):
            return self.expression == "true"
        if driver := _DRIVER.fullmatch(self.expression):
            return device.driver == driver[1]
        found = _ATTRIBUTE.fullmatch(self.expression)
        if found is None:
            raise SelectorError(f"not one of the small expressions: {self.expression}")
        domain, name, operator, wanted = found.groups()
        values = device.attributes
        value = values.get(f"{domain}/{name}", values.get(name))
        if value is None:
            raise SelectorError(f"no such key: {name}")
        if operator == "==":
            return str(value) == wanted.strip('"')
        assert isinstance(value, int)
        return value <= int(wanted) if operator == "<=" else value >= int(wanted)


def compile_small(expression: str) -> _Small | CompileError:
    """Return the selector of `true`, `false`, a driver, or an attribute that is compared."""
    if not re.search(r"true|false|device\.", expression):
        return CompileError(f"not an expression: {expression}")
    return _Small(expression)
