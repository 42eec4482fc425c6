import pytest

from mooring.cel.tree import FunctionCall, Literal, Select
from mooring.cel.types import BOOL, STRING
from mooring.cel.values import Failure, MapValue
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.expressions import VARIABLES, check


def mistakes(source: str) -> list[str]:
    with pytest.raises(ProfileInvalid) as caught:
        check(source)
    return [str(mistake) for mistake in caught.value.errors]


def test_a_name_with_a_dot_is_one_variable_and_every_part_has_its_type() -> None:
    root = check('node.labels["disk"] == "ssd"').root
    assert isinstance(root, FunctionCall)
    assert (root.function, root.type) == ("_==_", BOOL)
    read, text = root.args
    assert isinstance(read, FunctionCall)
    labels, key = read.args
    assert isinstance(labels, Select)
    assert (labels.variable, [*labels.parts()]) == ("node.labels", [])
    assert isinstance(key, Literal)
    assert isinstance(text, Literal)
    assert (key.value, text.value, read.type) == ("disk", "ssd", STRING)


def test_a_variable_of_a_macro_hides_those_whose_names_begin_with_it() -> None:
    checked = check("[{'name': 'x'}].all(node, node.name == 'x' && .pod.priority > 3)")
    program = checked.program(checked.root, ["node.name", "pod.priority"])
    assert program.run(("y", 4), 1000) is True


@pytest.mark.parametrize(
    ("source", "value"),
    [("-9223372036854775808", -(2**63)), ("7", 7), ("1.5", 1.5), ("true", True), ("'é'", "é")],
)
def test_constants_of_each_type_are_read(source: str, value: object) -> None:
    root = check(source).root
    assert isinstance(root, Literal)
    assert root.value == value


def test_has_is_a_selection_that_tests_presence() -> None:
    root = check("has(pod.labels.team)").root
    assert isinstance(root, Select)
    assert (root.field, root.tests) == ("team", True)


def test_an_unknown_name_is_a_mistake_with_its_position_and_what_was_meant() -> None:
    assert mistakes("true &&\n  node.lables.x == 'a'") == [
        'line 2, column 3: unknown name "node.lables.x", did you mean node.labels?'
    ]
    assert mistakes("pod.foo == 'a'")[0].endswith(
        "known are " + ", ".join(v for v in VARIABLES if v.startswith("pod."))
    )


def test_has_with_brackets_says_what_to_write_instead() -> None:
    (mistake,) = mistakes('has(node.labels["a/b"])')
    assert mistake.endswith(': for a key in brackets write "key" in node.labels')


@pytest.mark.parametrize(
    "source",
    [
        "'A'.lowerAscii() == 'a'",
        "cel.bind(x, 1, x > 0)",
        "node.labels.?a == 'x'",
        "[3, 1].sort() == []",
    ],
)
def test_what_only_selectors_of_devices_know_is_an_unknown_name(source: str) -> None:
    assert "unknown name" in mistakes(source)[0]


def test_a_wrong_type_is_a_mistake_at_the_operator() -> None:
    (mistake,) = mistakes("node.allocatable.cpu > '4'")
    assert mistake.startswith("line 1, column 22: > does not work with an int and a string")


def test_all_mistakes_are_named_at_once() -> None:
    assert len(mistakes("pod.a == 1 && pod.b == 2")) == 2


@pytest.mark.parametrize("source", ["(" * 90 + "true" + ")" * 90, "1" + "+1" * 90 + " > 2"])
def test_an_expression_that_is_nested_too_deep_is_a_mistake_of_one_line(source: str) -> None:
    (mistake,) = mistakes(source)
    assert mistake.endswith("expression is nested more than 80 levels")


def test_a_syntax_error_is_one_short_line() -> None:
    for mistake in mistakes("pod.ownerKind =="):
        assert len(mistake) < 400
        assert "\n" not in mistake


def test_a_part_is_evaluated_by_itself() -> None:
    checked = check("pod.priority > 3 && pod.ownerKind == 'a'")
    left, right = checked.root.parts()
    assert checked.program(left, ["pod.priority"]).run([4], 1000) is True
    assert checked.program(right, ["pod.ownerKind"]).run(["b"], 1000) is False


def test_an_evaluation_that_fails_says_why() -> None:
    checked = check("pod.labels.team == 'a'")
    program = checked.program(checked.root, ["pod.labels"])
    assert program.run([MapValue()], 1000) == Failure("no such key: team")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("0.0 / 0.0 < 1.0 || 0.0 / 0.0 >= 1.0", False),
        ("true || int('many') > 1", True),
        ("'a' in ['a', 1]", True),
        ("int('many') in []", Failure("type conversion error from 'string' to 'int'")),
    ],
)
def test_values_are_those_of_cels_own_implementation(source: str, value: object) -> None:
    checked = check(source)
    assert checked.program(checked.root, []).run([], 1000) == value


def test_characters_beyond_ascii_do_not_move_the_position() -> None:
    checked = check("'é' == pod.qosClass")
    assert str(checked.mistake([*checked.root.parts()][1], "here")) == "line 1, column 11: here"
