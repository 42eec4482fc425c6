from collections.abc import Callable

import pytest

from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.rule_plan import (
    Amount,
    ConstantValue,
    HasLabel,
    Interpreted,
    NodeLabelValue,
    Operation,
    PodCount,
    Read,
    RulePlan,
    plan_filter,
    plan_score,
)


def mistakes(source: str, make: Callable[[str], RulePlan] = plan_filter) -> list[str]:
    with pytest.raises(ProfileInvalid) as caught:
        make(source)
    return [str(mistake) for mistake in caught.value.errors]


def test_arithmetic_on_amounts_is_an_operation_on_columns() -> None:
    step = plan_filter("node.allocatable.cpu - node.requested.cpu >= 4000").step
    assert isinstance(step, Operation)
    left, right = step.operands
    assert isinstance(left, Operation)
    assert left.function == "_-_"
    assert all(isinstance(operand, Amount) for operand in left.operands)
    assert isinstance(right, ConstantValue)


def test_labels_are_read_by_a_key_that_may_come_from_the_pod() -> None:
    step = plan_filter("node.labels[pod.labels.pool] == 'x' || 'y' in node.labels").step
    assert isinstance(step, Operation)
    compared, present = step.operands
    assert isinstance(compared, Operation)
    label = compared.operands[0]
    assert isinstance(label, NodeLabelValue)
    assert isinstance(label.key, Interpreted)
    assert isinstance(present, HasLabel)


def test_what_reads_the_pod_alone_is_one_step_of_the_interpreter() -> None:
    step = plan_filter("pod.labels.team == 'a' && pod.priority > 3").step
    assert isinstance(step, Interpreted)
    assert step.reads == (Read("pod.labels", "team"), Read("pod.priority"))
    assert step.of_node == ()


def test_a_conversion_of_a_label_is_a_step_of_the_interpreter_inside_of_operations() -> None:
    step = plan_score("int(node.labels.price) * 10").step
    assert isinstance(step, Operation)
    assert isinstance(step.operands[0], Interpreted)
    assert step.operands[0].of_node == (Read("node.labels", "price"),)


def test_a_plan_knows_everything_that_it_reads() -> None:
    plan = plan_score("node.allocatable['example.com/gpu'] + size(pod.labels)")
    assert plan.reads == {
        Read("node.allocatable", "example.com/gpu"),
        Read("pod.labels"),
    }
    assert plan.variables == {"node.allocatable", "pod.labels"}


def test_a_variable_that_a_macro_binds_is_not_read() -> None:
    assert plan_filter("node.taints.exists(t, t.key == 'x')").reads == {Read("node.taints")}


def test_the_whole_expression_is_evaluated_for_one_node_unless_a_key_is_computed() -> None:
    assert plan_filter("node.labels.a == 'x'").whole is not None
    assert plan_filter("node.labels[pod.ownerKind] == 'x'").whole is None


@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ("node.allocatable.cpu", "must be true or false, is of type int"),
        (
            "string(node.allocatable.cpu) == '4'",
            "line 1, column 7: node.allocatable can only be compared and used in arithmetic",
        ),
        (
            "size(node.labels) > 3",
            "line 1, column 5: node.labels can only be read by a key that is written out",
        ),
        (
            "node.labels[node.zone] == 'a'",
            "line 1, column 17: the key of node.labels must not depend on the node",
        ),
        (
            "has(node.allocatable.cpu)",
            "line 1, column 4: node.allocatable has 0 for no amount: compare with 0",
        ),
        (
            "'cpu' in pod.requests",
            "line 1, column 7: pod.requests has 0 for no amount: compare with 0",
        ),
        (
            "[1].exists(x, [1].exists(y, x == y))",
            "line 1, column 11: a macro (all, exists, ...) must not contain another one",
        ),
        (
            "[1].map(x, x + 1).exists(x, x == 1)",
            "line 1, column 25: a macro (all, exists, ...) must not contain another one",
        ),
        (
            "([1] + [2]).exists(x, x == 1)",
            "line 1, column 19: a macro (all, exists, ...) must go through a list or a name",
        ),
        (
            "pod.labels.all(k, k == node.zone)",
            "line 1, column 15: a macro that goes through pod.labels must not read the node",
        ),
        (
            "pod.qosClass.matches(pod.namespace)",
            "line 1, column 25: a regular expression must be a text as it is written",
        ),
        (
            "node.name.matches('(')",
            "line 1, column 19: error parsing regexp: missing closing ): `(`",
        ),
        (
            "[node.name].exists(x, x == pod.ownerKind + pod.namespace)",
            "line 1, column 19: node.name and the pod can only be compared: ==, startsWith, ...",
        ),
        (
            f"pod.priority in [{', '.join(map(str, range(65)))}]",
            "line 1, column 17: a list must have 64 or fewer items, has 65",
        ),
    ],
)
def test_what_could_not_be_evaluated_quickly_is_a_mistake(source: str, mistake: str) -> None:
    assert mistake in mistakes(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("node.pods('a in b') == 0", 'line 1, column 11: "a in b" is no condition of a selector'),
        ("node.pods({'a b': 'c'}) == 0", 'line 1, column 12: "a b" is not a qualified name'),
        ("node.pods({'a': 'b c'}) == 0", 'line 1, column 17: "b c" is not a label value'),
        ("node.pods({'a': 'b', 'a': 'c'}) == 0", 'the label "a" is there twice'),
        (
            "node.pods({'a': node.zone}) == 0",
            "line 1, column 21: which pods are counted must not depend on the node",
        ),
        ("node.pods({'a': dyn(1)}) == 0", "the value of a label must be a string"),
        ("node.pods({pod.namespace: 'b'}) == 0", "the label must be written out"),
        ("node.pods(pod.labels) == 0", "write the labels out, as in {"),
        ("node.pods({}, []) == 0", "must name a namespace; {} stands for all namespaces"),
        ("node.pods({}, ['A_b']) == 0", "must be the name of a namespace, as it is written"),
        (
            "domain(pod.namespace).pods({}) == 0",
            'line 1, column 7: write the node label out, as in domain("rack").pods(...)',
        ),
        ("domain('').pods({}) == 0", '"" is not a qualified name'),
        ("domain('a') == domain('b')", 'domain("label") must be followed by .pods(...)'),
        (
            "[1].exists(x, x == node.pods({}))",
            "line 1, column 11: a count of pods can only be compared and used in arithmetic",
        ),
        (
            "node.pods({}) + " * 8 + "node.pods({}) == 0",
            "pods must not be counted more than 8 times",
        ),
    ],
)
def test_which_pods_are_counted_is_written_out(source: str, said: str) -> None:
    (mistake,) = mistakes(source)
    assert said in mistake


def test_a_text_of_several_lines_is_named_in_one() -> None:
    for source in (r"node.pods('a b\n\n" + "c" * 500 + "') == 0", r"domain('a\nb').pods({}) == 0"):
        (mistake,) = mistakes(source)
        assert "\n" not in mistake
        assert len(mistake) < 300


def test_a_count_of_pods_has_its_domain_its_labels_and_its_namespaces() -> None:
    plan = plan_filter('domain("a/rack").pods({"app": pod.labels.app, "x": "y"}, ["b"]) < 1')
    (count,) = plan.counts
    assert (count.key, count.namespace_labels) == ("a/rack", None)
    assert count.namespaces == frozenset({"b"})
    assert count.pods.selector(["db"]).matches({"app": "db", "x": "y"})
    assert not count.pods.selector(["db"]).matches({"app": "web", "x": "y"})
    assert plan.reads == {Read("node.pods", "a/rack"), Read("pod.labels", "app")}
    assert plan.whole is None, "the interpreter cannot count"


def test_pods_of_a_node_are_counted_by_a_selector_that_is_written_as_text() -> None:
    plan = plan_score('100 - node.pods("app in (a, b),!old", {"env": "prod"})')
    (count,) = plan.counts
    assert (count.key, count.namespaces) == (None, None)
    assert count.pods.selector([]).matches({"app": "b"})
    assert not count.pods.selector([]).matches({"app": "b", "old": ""})
    assert count.namespace_labels is not None
    assert count.namespace_labels.selector([]).matches({"env": "prod"})
    assert isinstance(plan.step, Operation)
    assert isinstance(plan.step.operands[1], PodCount)


def test_an_expression_has_a_limited_number_of_parts() -> None:
    wide = " || ".join("(" + " || ".join(["true"] * 15) + ")" for _ in range(12))
    assert mistakes(wide) == ["must have 256 or fewer parts, has 359"]


def test_a_score_is_a_number() -> None:
    assert mistakes("true", plan_score) == [
        "must be a number (an int or a double), is of type bool"
    ]
    plan_score("1.5")
