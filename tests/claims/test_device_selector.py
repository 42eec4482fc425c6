from random import Random

import pytest

from cel.comparing import Difference, differences
from cel.evaluating import GPU, answer, is_true, work_of
from cel.expressions import draw_case
from cel.oracle import VERSIONS, answers
from cel.recorded import read
from mooring.cel.cel_errors import CompileError
from mooring.cel.values import LIMIT_EXCEEDED
from mooring.claims.device_selector import (
    LONGEST_EXPRESSION,
    DeviceView,
    SelectorError,
    compile_selector,
)
from mooring.claims.model.resource_slices import Version
from mooring.model.quantity import parse_quantity


@pytest.mark.deep
@pytest.mark.parametrize("minor", VERSIONS)
def test_recorded_expressions_have_the_results_and_errors_of_kube_scheduler(
    minor: str,
) -> None:
    found, cases = list[Difference](), 0
    for case, by_version in read():
        cases += 1
        found += differences(minor, case, by_version[minor])
    assert found == []
    assert cases > 1000


@pytest.mark.server
@pytest.mark.parametrize("minor", VERSIONS)
def test_drawn_expressions_are_answered_as_the_selectors_of_the_release_answer(minor: str) -> None:
    random = Random(77)  # noqa: S311 # a seed makes it repeatable
    cases = [draw_case(random) for _ in range(300)]
    pairs = zip(cases, answers(minor, cases), strict=True)
    assert [each for case, theirs in pairs for each in differences(minor, case, theirs)] == []


def test_a_name_without_a_domain_has_that_of_the_driver() -> None:
    assert is_true('device.attributes["gpu.example.com"].model == "A100"')
    assert is_true('device.capacity["gpu.example.com"].memory == quantity("40Gi")')
    assert is_true('device.attributes["vendor.io"].firmware == semver("1.10.0")')
    assert is_true('device.driver == "gpu.example.com" && !device.allowMultipleAllocations')


def test_an_unknown_domain_is_an_empty_map_that_is_not_there() -> None:
    assert answer('device.attributes["absent.io"].model == "A100"') == "no such key: model"
    assert is_true('device.attributes["absent.io"] == {}')
    assert answer('"absent.io" in device.attributes') is False
    assert is_true('"vendor.io" in device.attributes')
    assert is_true('!has(device.attributes["absent.io"].model)')


def test_an_attribute_that_is_a_bool_may_be_the_whole_expression() -> None:
    assert is_true('device.attributes["gpu.example.com"].healthy')
    assert answer('device.attributes["gpu.example.com"].model') == (
        "CEL result of type string could not be converted to bool: unsupported native conversion"
        " from string to 'bool'"
    )


def test_the_result_must_be_a_bool_or_of_an_unknown_type() -> None:
    assert answer("1") == "must evaluate to bool or the unknown type, not int"
    assert answer("dyn(1)", attributes_may_be_lists=False) == (
        "must evaluate to bool or the unknown type, not dyn"
    )


def test_a_loop_over_an_attribute_needs_the_rules_of_1_37() -> None:
    expression = 'device.attributes["gpu.example.com"].models.exists(m, m == "H100")'
    device = DeviceView("gpu.example.com", {"models": ("A100", "H100")})
    assert answer(expression, device) is True
    assert "cannot be range of a comprehension" in str(
        answer(expression, device, attributes_may_be_lists=False)
    )


def test_a_value_that_is_no_attribute_is_an_error_whatever_the_expression() -> None:
    wrong = DeviceView("gpu.example.com", {"firmware": Version("1.2")})
    assert answer("true", wrong) == (
        "attribute firmware: parse semantic version: No Major.Minor.Patch elements found"
    )
    empty = DeviceView("gpu.example.com", {"odd": None})
    assert answer("true", empty) == "attribute odd: unsupported attribute value"


def test_an_expression_longer_than_the_api_server_stores_is_refused() -> None:
    assert answer("true" + " " * (LONGEST_EXPRESSION - 4)) is True
    assert "longer than 10240 bytes" in str(answer("true" + " " * LONGEST_EXPRESSION))


def test_an_evaluation_ends_at_the_limit_of_its_work() -> None:
    selector = compile_selector("[1, 2, 3].all(x, x > 0)")
    assert not isinstance(selector, CompileError)
    whole = work_of("[1, 2, 3].all(x, x > 0)")
    assert selector.matches(GPU, whole)
    with pytest.raises(SelectorError, match=LIMIT_EXCEEDED):
        selector.matches(GPU, whole - 1)
    nested = ".all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]".join(["[1, 2, 3]", *[""] * 6])
    assert answer(f"{nested}.all(y, true){')' * 6}") == (
        "operation cancelled: actual cost limit exceeded"
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("v.exists(x, x == 7)", id="walking a list that doubled"),
        pytest.param("7 in v", id="searching it"),
        pytest.param("v == v", id="comparing it"),
        pytest.param('"%s".format([v]) == ""', id="printing it"),
        pytest.param("[v].flatten().size() == 1", id="flattening it"),
        pytest.param("v.distinct() == []", id="comparing its elements"),
    ],
)
def test_a_list_that_doubles_is_never_copied(value: str) -> None:
    doubling = "".join(f"cel.bind(v{i + 1}, v{i} + v{i}, " for i in range(61))
    expression = f"cel.bind(v0, [1, 2], {doubling}cel.bind(v, v61, {value}{')' * 63}"
    assert answer(expression) == "operation cancelled: actual cost limit exceeded"


def test_texts_that_grow_are_bounded_before_they_are_made() -> None:
    doubling = "".join(f"cel.bind(v{i + 1}, v{i} + v{i}, " for i in range(16))
    for last in ('v16.replace("", v16)', "[v16, v16].join(v16 + v16).replace('', v16)"):
        expression = f"cel.bind(v0, 'ab', {doubling}{last}.size() == 1{')' * 17}"
        assert answer(expression) == "operation cancelled: actual cost limit exceeded"


def test_a_pattern_that_python_would_search_for_ever_takes_little_time() -> None:
    device = DeviceView("d", {"s": "a" * 64})
    assert answer('device.attributes["d"].s.matches("^(a|aa|a*)+b$")', device) is False


def test_many_large_patterns_are_bounded_together() -> None:
    patterns = " || ".join(f"'b'.matches('(aaaaaaaa){{999}}{i}')" for i in range(200))
    assert answer(patterns) == (
        "program instantiation failed: operation cancelled: actual cost limit exceeded"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("[", "]"), ("dyn([0][", "])"), ("[1].all(x, ", ")"), ("(true ? ", " : false)"), ("!(", ")")],
    ids=["lists", "indexes", "loops", "conditionals", "negations"],
)
def test_a_tree_of_as_many_levels_as_there_may_be_is_evaluated(before: str, after: str) -> None:
    inner = "0" if "[0]" in before else "true"
    levels = [n for n in range(1, 80) if _levels(before, after, inner, n) is not None]
    deepest = _levels(before, after, inner, levels[-1])
    assert levels[-1] > 20
    assert "internal error" not in str(deepest)


def _levels(before: str, after: str, inner: str, levels: int) -> bool | str | None:
    """Return the answer for an expression with this many levels; None if there are too many."""
    made = answer(f"dyn({before * levels}{inner}{after * levels}) == 1")
    return None if "nested more than" in str(made) else made


def test_capacities_have_the_precision_that_kubernetes_gives_them() -> None:
    device = DeviceView("d", {}, {"small": parse_quantity("8"), "large": parse_quantity("8Ei")})
    assert answer('device.capacity["d"].small.asInteger() == 8', device) is True
    assert answer('device.capacity["d"].large.asInteger() == 8', device) == (
        "cannot convert value to integer"
    )
