from functools import partial
from typing import Any

import pytest

from driving import driven
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.policy.rules.rule import Rule, missing_on_nodes, plan_one_by_one
from mooring.policy.rules.rule_plan import plan_filter


def mistakes(*rules: dict[str, Any]) -> list[str]:
    with pytest.raises(ProfileInvalid) as caught:
        read(SchedulingProfileSpec, {"rules": [*rules]}, "spec")
    return [str(mistake) for mistake in caught.value.errors]


def test_a_mistake_in_an_expression_has_the_path_of_the_field_and_the_position() -> None:
    right = {"name": "a", "filter": "true"}
    assert mistakes(right, {"name": "b", "score": "node.cpu * 2"})[0].startswith(
        'spec.rules[1].score: line 1, column 1: unknown name "node.cpu"'
    )


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        ({}, "spec.rules[0]: must have either filter or score"),
        (
            {"filter": "true", "score": "1"},
            "spec.rules[0]: must have either filter or score",
        ),
        (
            {"score": "1", "message": "no"},
            "spec.rules[0].message: belongs to a filter, the rule is a score",
        ),
        (
            {"filter": "true", "weight": 2},
            "spec.rules[0].weight: belongs to a score, the rule is a filter",
        ),
        (
            {"filter": "true", "normalize": "Max"},
            "spec.rules[0].normalize: belongs to a score, the rule is a filter",
        ),
    ],
)
def test_a_rule_is_a_filter_or_a_score_with_the_fields_of_one(
    rule: dict[str, Any], mistake: str
) -> None:
    assert mistakes({"name": "a", **rule}) == [mistake]


def test_names_of_rules_differ() -> None:
    rule = {"name": "a", "filter": "true"}
    assert mistakes(rule, rule) == ["spec.rules[1].name: a is there already"]


def test_a_profile_has_at_most_32_rules() -> None:
    rules = [{"name": f"r{i}", "filter": "true"} for i in range(33)]
    assert mistakes(*rules) == ["spec.rules: must have 32 or fewer items, has 33"]


def test_an_expression_has_at_most_1024_characters() -> None:
    long = {"name": "a", "filter": "true" + " " * 1021}
    assert mistakes(long) == ["spec.rules[0].filter: must have 1024 or fewer characters"]


def test_a_rule_runs_as_a_plugin_of_its_name() -> None:
    spec = read(SchedulingProfileSpec, {"rules": [{"name": "a", "score": "1"}]}, "spec")
    assert [rule.plugin for rule in spec.rules] == ["Rules/a"]


def test_what_rules_read_and_no_node_has_is_named_once_for_each_rule() -> None:
    sources = (
        "has(node.labels.rack) && node.labels.rack == 'a' && 'zone' in node.labels",
        "node.requested.cpu + node.requested.gpus + node.requested.pods > 3",
        "node.pods({'not-of-nodes': 'x'}) == 0 && pod.labels.other == 'x'",
    )
    rules = [read(Rule, {"name": f"r{n}", "filter": s}, "") for n, s in enumerate(sources)]
    rules.append(read(Rule, {"name": "s", "score": "domain('row').pods({})"}, ""))
    assert [*map(str, missing_on_nodes(rules, {"zone"}, {"cpu", "gpu"}))] == [
        'rules[0].filter: no node has the label "rack"',
        'rules[1].filter: no node has the resource "gpus", did you mean gpu?',
        'rules[3].score: no node has the label "row"',
    ]


def test_rules_are_planned_one_per_step_before_the_profile_is_read() -> None:
    rules = [{"name": f"r{i}", "filter": f'node.labels.rack != "planned-{i}"'} for i in range(3)]
    assert driven(partial(plan_one_by_one, {"spec": {"rules": rules}})) == (None, 3)
    assert plan_filter('node.labels.rack != "planned-2"').variables == {"node.labels"}


@pytest.mark.parametrize(
    "written",
    [{}, {"spec": 1}, {"spec": {"rules": "x"}}, {"spec": {"rules": [1, {"filter": 2}, {}]}}],
)
def test_what_is_no_rule_is_left_for_whoever_reads_the_profile(written: dict[str, Any]) -> None:
    assert driven(partial(plan_one_by_one, written)) == (None, 0)


def test_a_rule_that_is_wrong_does_not_keep_the_others_from_being_planned() -> None:
    rules = [{"filter": "1 +"}, {"score": "node.labels.size"}, {"score": "1.0"}]
    assert driven(partial(plan_one_by_one, {"spec": {"rules": rules}})) == (None, 3)
