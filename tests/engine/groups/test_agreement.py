"""Members that differ from their group, in kube-scheduler's words since 1.37."""

from typing import Any, Final

from mooring.engine.groups.agreement import disagreement
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST, KubernetesRules
from mooring.model.pod import parse_pod
from mooring.model.pod_group import COSCHEDULING_LABEL, GroupKey, GroupSource
from mooring.testing.builders import cluster, coscheduling_pod_group, node, pod, pod_group

Raw = dict[str, Any]

NEVER: Final = {"preemptionPolicy": "Never"}


def told(*objects: Raw, waiting: Raw, rules: KubernetesRules = NEWEST) -> str | None:
    """Return the disagreement of the one group of these objects and of a member that waits."""
    state = cluster(node("n1"), *objects)
    member = parse_pod(waiting)
    state.put_unscheduled(member)
    group = state.pod_groups.of(member)
    assert group is not None
    return disagreement(group, [member], rules)


def policy_of(policy: str) -> Raw:
    """Return a group with this preemptionPolicy."""
    raw = pod_group("g", 2)
    raw["spec"]["preemptionPolicy"] = policy
    return raw


def test_members_must_have_the_priority_of_their_group_which_is_0_without_one() -> None:
    urgent = pod("a", group="g", priority=5)
    assert told(pod_group("g", 2, priority=5), waiting=urgent) is None
    text = (
        "all pods in a single pod group should have the same priority as the pod group's priority, "
        "got 5 and {}"
    )
    assert told(pod_group("g", 2), waiting=urgent) == text.format(0)
    assert told(pod_group("g", 2, priority=7), waiting=urgent) == text.format(7)


def test_members_on_nodes_must_agree_too() -> None:
    running = pod("b", group="g", priority=5, node="n1")
    found = told(pod_group("g", 2), running, waiting=pod("a", group="g"))
    assert (found or "").endswith("got 5 and 0")


def test_members_must_have_one_preemption_policy_that_of_the_group_if_it_has_one() -> None:
    never = pod("a", group="g", spec=NEVER)
    assert told(pod_group("g", 2), waiting=never) is None
    assert told(pod_group("g", 2), pod("b", group="g", node="n1"), waiting=never) == (
        "all pods in a single pod group should have the same preemption policy, "
        "got PreemptLowerPriority and Never"
    )
    assert told(policy_of("Never"), waiting=never) is None
    assert told(policy_of("PreemptLowerPriority"), waiting=never) == (
        "all pods in a single pod group should have the same preemption policy as the pod group's "
        "preemption policy, got Never and PreemptLowerPriority"
    )


def test_before_1_37_and_of_other_groups_nothing_is_asked() -> None:
    urgent = pod("a", group="g", priority=5)
    assert told(pod_group("g", 2), waiting=urgent, rules=KUBERNETES_RULES["1.36"]) is None
    labelled = pod("a", labels={COSCHEDULING_LABEL: "g"}, priority=5)
    assert told(coscheduling_pod_group("g", 2), waiting=labelled) is None
    without_object = cluster(node("n1"))
    member = parse_pod(urgent)
    without_object.put_unscheduled(member)
    group = without_object.pod_groups.get(GroupKey(GroupSource.KUBERNETES, "default", "g"))
    assert group is not None
    assert disagreement(group, [member], NEWEST) is None
