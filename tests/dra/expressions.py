"""CEL expressions for selectors of devices."""

from typing import Final

_GPU: Final = 'device.attributes["gpu.example.com"]'
_MEMORY: Final = 'device.capacity["gpu.example.com"].memory'

GOOD: Final = (
    'device.driver == "gpu.example.com"',
    'device.driver != "gpu.example.com"',
    "true",
    "false",
    f'"model" in {_GPU} && {_GPU}.model == "h100"',
    f'has({_GPU}.model) && {_GPU}.model in ["a100", "h100"]',
    f'{_GPU}.?model.orValue("none") != "l4"',
    f'"index" in {_GPU} ? {_GPU}.index >= 1 : false',
    f'"numa" in {_GPU} && {_GPU}.numa == 0',
    f'"numa" in {_GPU} && {_GPU}["numa"] < 1.5',
    f"!has({_GPU}.healthy) || {_GPU}.healthy",
    f'has({_GPU}.version) && {_GPU}.version.isGreaterThan(semver("1.2.3"))',
    f'has({_GPU}.version) && {_GPU}.version.compareTo(semver("v2", true)) < 0',
    f"has({_GPU}.version) && {_GPU}.version.major() == 1",
    f'device.capacity["gpu.example.com"].size() > 0 && {_MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f'has({_MEMORY}) && {_MEMORY}.isLessThan(quantity("25G"))',
    f"has({_MEMORY}) && {_MEMORY}.asApproximateFloat() > 1e10",
    'device.attributes["unknown.example.com"].size() == 0',
    '!("unknown.example.com" in device.attributes)',
    '"gpu.example.com" in device.attributes',
    "device.allowMultipleAllocations == false",
    f'cel.bind(gpu, {_GPU}, has(gpu.model) && gpu.model.startsWith("h"))',
    f'has({_GPU}.model) && {_GPU}.model.lowerAscii().matches("^[ah]")',
    f'{_GPU}.exists(name, name == "index")',
    f'{_GPU}.all(name, name != "nothing")',
    f"has({_GPU}.index) && {_GPU}.index == 1.0",
    f'has({_GPU}.model) && {_GPU}.model == 1 || device.driver.endsWith(".com")',
)
"""Expressions that fail for no device."""

FAILING: Final = (
    f'{_GPU}.model == "h100"',
    f"{_GPU}.index > 0 && {_GPU}.numa == 0",
    f"{_GPU}.nothing",
    f'{_GPU}.index < "1"',
    f"{_GPU}.model > 1",
    f"{_GPU}.model",
    f"{_GPU}.index",
    f"{_GPU}.index + 9223372036854775807 > 0",
    f"1 / {_GPU}.index > 0",
    f"1 % {_GPU}.index == 0",
    f'{_MEMORY}.compareTo(quantity("lots")) > 0',
    f'{_GPU}.version.isLessThan(semver("one"))',
    f'{_GPU}.model.isLessThan(semver("1.0.0"))',
    'device.capacity["net.example.com"].memory.sign() == 1',
    f'{_GPU}.healthy || {_GPU}.model == "a100"',
    f"{_GPU}.index.matches('x')",
    "[1, 2][5] == 1",
    f'{_GPU}.model.substring(9) == ""',
    f"int({_GPU}.model) == 1",
)
"""Expressions that fail at run time for some devices or all."""

WRONG: Final = (
    "device.name == 'd0'",
    "device.driver",
    "device.driver == 1",
    "device.driver.matches(1)",
    "unknown == 1",
    "quantity(1) == quantity(2)",
    "device.driver.foo()",
    '"a" + 1 == "a1"',
)
"""Expressions that do not compile; an API server stores none that cannot even be parsed."""
