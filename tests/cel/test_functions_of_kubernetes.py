import pytest

from cel.evaluating import GPU, answer, is_true, work_of
from mooring.cel.cel_errors import CompileError
from mooring.cel.values import LIMIT_EXCEEDED
from mooring.claims.device_selector import (
    SelectorError,
    compile_selector,
)


@pytest.mark.parametrize(
    "expression",
    [
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("39Gi"))',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("42949672960")) == 0',
        'quantity("1k").add(quantity("1")).compareTo(quantity("1001")) == 0',
        'quantity("1k").sub(1).asInteger() == 999 && sign(quantity("-1")) == -1',
        'quantity("500m").asApproximateFloat() == 0.5 && !quantity("500m").isInteger()',
        'isQuantity("1.5Gi") && !isQuantity("1.5Gx")',
        'device.attributes["vendor.io"].firmware.isGreaterThan(semver("1.9.0"))',
        'semver("v1.2", true).compareTo(semver("1.2.0")) == 0 && !isSemver("v1.2")',
        'semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))',
        'semver("1.2.3").major() == 1 && semver("1.2.3+a") == semver("1.2.3+b")',
        'ip("10.0.0.1").family() == 4 && isIP("::1") && !isIP("1.2.3") && ip("::1").isLoopback()',
        'cidr("10.0.0.0/8").containsIP("10.1.2.3") && !cidr("10.0.0.0/8").containsIP("11.1.2.3")',
        'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")',
        'string(cidr("10.1.2.3/8").masked()) == "10.0.0.0/8"',
        'url("https://u@h.example:8080/p?a=1&a=2").getPort() == "8080"',
        'url("https://h.example/p?a=1&a=2").getQuery() == {"a": ["1", "2"]}',
        '!format.dns1123Label().validate("ok-1").hasValue()',
        'format.named("dns1123Label").value().validate("No").hasValue()',
    ],
)
def test_functions_of_kubernetes_have_their_results(expression: str) -> None:
    assert is_true(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            'device.attributes["gpu.example.com"].model.isGreaterThan(semver("1.0.0"))',
            "no such overload: isGreaterThan(string, kubernetes.Semver)",
        ),
        ('quantity("1.5").asInteger() == 1', "cannot convert value to integer"),
        ('quantity("x") == quantity("1")', None),
        ('device.attributes["vendor.io"].firmware == "1.10.0"', "no such overload"),
    ],
)
def test_values_of_the_wrong_type_are_errors_of_kubernetes(
    expression: str, message: str | None
) -> None:
    expected = (
        "quantities must match the regular expression"
        " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    assert answer(expression) == (message or expected)


@pytest.mark.parametrize(
    "function",
    [
        "isQuantity(t)",
        "isSemver(t)",
        "isSemver(t, true)",
        "isIP(t)",
        "isCIDR(t)",
        "isURL(t)",
        "cidr('10.0.0.0/8').containsIP(t)",
        "cidr('10.0.0.0/8').containsCIDR(t)",
        "format.dns1123Label().validate(t).hasValue()",
    ],
)
def test_a_long_text_takes_work_of_the_evaluation(function: str) -> None:
    compiled = compile_selector(f"cel.bind(t, '{'1' * 1_000}', {function})")
    assert not isinstance(compiled, CompileError)
    with pytest.raises(SelectorError, match=LIMIT_EXCEEDED):
        compiled.matches(GPU, most_work=100)


@pytest.mark.parametrize(
    "read", ['semver("1.2.3") != semver("1.2.4")', 'quantity("1Mi") != quantity("2Mi")']
)
def test_texts_that_are_read_take_work_beside_that_no_limit_is_for(read: str) -> None:
    assert work_of(read) >= work_of('string("1.2.3") != string("1.2.4")') + 30
    most = 'lists.range(9999).all(i, semver("1.2.3") != semver("1.2.4"))'
    assert is_true(most)


def test_a_url_that_is_read_takes_work_beside() -> None:
    assert work_of('url("https://a.b/c").getHost() == "a.b"') > 20
