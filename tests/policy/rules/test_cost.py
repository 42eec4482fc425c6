"""Estimates the cost of evaluations."""

import pytest

from mooring.cel.values import work
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.cost import cost
from mooring.policy.rules.expressions import check
from mooring.policy.rules.rule_plan import plan_filter


def of(source: str) -> int:
    work.begin()
    return cost(check(source).root)


def test_each_part_costs_one_unit() -> None:
    assert of("pod.priority") == 1
    assert of("pod.priority > 3 && pod.qosClass == 'Burstable'") == 7


def test_a_macro_costs_its_body_for_each_item() -> None:
    one, ten = (of(f"{[*range(n)]}.exists(x, x > pod.priority)") for n in (1, 10))
    assert ten > 8 * (one - 1)
    assert of("pod.labels.exists(k, k == 'x')") > one * 10


def test_a_regular_expression_costs_what_its_instructions_may_take_for_a_label() -> None:
    few, many = (of(f"pod.namespace.matches('a{{{times}}}')") for times in (10, 110))
    assert many - few == 5 * 100
    assert few < 150


@pytest.mark.parametrize(
    "source",
    [
        r"node.name.matches('(\\w{1,900}){1,1}$')",
        r"node.name.matches('\\pL{9}')",
        f"{[str(n) for n in range(60)]}.exists(x, (x + node.zone).matches('(x+x+)+y{{20}}'))",
    ],
)
def test_what_costs_too_much_for_a_single_node_is_a_mistake(source: str) -> None:
    with pytest.raises(
        ProfileInvalid, match=r"costs about \d+ units for one node, must cost 10000"
    ):
        plan_filter(source)


def test_a_regular_expression_that_unfolds_to_very_much_is_a_mistake() -> None:
    with pytest.raises(ProfileInvalid, match="expression too large"):
        plan_filter(r"node.name.matches('\\pL{100}')")


def test_ordinary_expressions_are_far_from_the_limit() -> None:
    for source in (
        r"node.name.matches('^ip-\\d{1,3}-\\d{1,3}-\\d{1,3}-\\d{1,3}[.]eu-.*$')",
        f"{[f'zone-{n}' for n in range(64)]}.exists(x, node.zone.startsWith(x))",
        "node.taints.exists(t, t.key.startsWith('repair.acme.example/') && t.effect != '')",
    ):
        assert of(source) < 3000
