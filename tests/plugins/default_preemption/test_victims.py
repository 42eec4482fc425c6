"""Victims of a single pod that leave together: groups that are disrupted as a whole."""

from typing import Any

import pytest

from deciding import Deciding
from mooring.extenders.verdicts import PodExtenderResults
from mooring.framework.post_filter import ProcessedCandidates
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, parse_pod
from mooring.plugins.default_preemption import plugin
from mooring.plugins.default_preemption.victims import (
    Victim,
    WholeGroup,
    by_importance,
    may_be_victims,
)
from mooring.policy.profile import Preemption
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError
from mooring.testing.builders import node, pdb, pod, pod_group, uid_of
from pod_terms import apart, to_pods

Raw = dict[str, Any]
URGENT = pod("urgent", cpu="1", priority=100)


def victim(name: str, priority: int = 0, day: int | None = None) -> Pod:
    started = f"2026-01-{day:02}T00:00:00Z" if day is not None else None
    return parse_pod(pod(name, priority=priority, started=started))


def whole(name: str, *on: str, priority: int = 0, **fields: Any) -> list[Raw]:
    """Return a group that is disrupted as a whole, with a member of one CPU on each node."""
    group = pod_group(name, len(on), disruption_mode="PodGroup", priority=priority)
    return [
        group,
        *(
            pod(f"{name}-{i}", group=name, node=n, cpu="1", priority=priority, **fields)
            for i, n in enumerate(on)
        ),
    ]


def groups_of(deciding: Deciding) -> list[PodGroupState]:
    return [*deciding.state.pod_groups.disrupted_whole]


def found(deciding: Deciding, raw: Raw = URGENT, **arguments: Any) -> tuple[str | None, list[str]]:
    decision = deciding.decision(raw, **arguments)
    return decision.nominated_node, sorted(v.key.partition("/")[2] for v in decision.victims)


def test_importance_is_priority_then_age() -> None:
    pods = [victim("new", 5, 9), victim("unstarted", 5), victim("old", 5, 1), victim("top", 9)]
    assert [p.name for p in by_importance(pods)] == ["top", "old", "new", "unstarted"]


def test_groups_are_more_important_than_pods_and_large_ones_than_small_ones() -> None:
    deciding = Deciding(
        node("a"), *whole("small", "a", started="2026-01-01T00:00:00Z"), *whole("large", "a", "a")
    )
    small, large = (WholeGroup(group, deciding.cluster) for group in groups_of(deciding))
    old, top = victim("old", 0, 1), victim("top", 9)
    every: list[Victim] = [old, small, top, large]
    assert by_importance(every) == [top, large, small, old]


def test_a_group_is_no_victim_while_a_member_has_not_run_long_enough_or_its_node_is_gone() -> None:
    deciding = Deciding(
        node("a"),
        *whole("old", "a", "a", started="1970-01-01T00:00:00Z"),
        *whole("young", "a", started="1970-01-01T00:01:00Z"),
        *whole("lost", "a", "gone", started="1970-01-01T00:00:00Z"),
    )
    limits = Preemption(min_runtime_seconds=60)
    found = may_be_victims(groups_of(deciding), deciding.cluster, limits, now=90.0)
    assert [group.key.name for group in found] == ["old"]


def test_a_pod_preempts_the_whole_group_on_all_its_nodes() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"), *whole("g", "a", "b"))
    assert found(deciding)[1] == ["g-0", "g-1"]
    assert (deciding.decision(URGENT).message or "").endswith("preempting 2 victims")


def test_before_kubernetes_1_37_no_member_of_it_is_a_victim_of_a_pod() -> None:
    deciding = Deciding(node("a", cpu="1"), *whole("g", "a"), kubernetesVersion="1.36")
    assert found(deciding) == (None, [])


def test_a_group_whose_priority_is_not_lower_stays() -> None:
    assert found(Deciding(node("a", cpu="1"), *whole("g", "a", priority=100))) == (None, [])


def test_a_pod_of_the_same_priority_leaves_before_a_group() -> None:
    started = "2026-01-01T00:00:00Z"
    deciding = Deciding(
        node("a", cpu="2"), node("b", cpu="1"), *whole("g", "a", "b"), pod("p", cpu="1", node="a")
    )
    assert found(deciding) == ("a", ["p"])
    older = pod("p", cpu="1", node="a", started=started)
    deciding = Deciding(node("a", cpu="2"), node("b", cpu="1"), *whole("g", "a", "b"), older)
    assert found(deciding) == ("a", ["p"])


@pytest.mark.parametrize("ports", [[], [80]])
@pytest.mark.parametrize("budgets", [[], [pdb("other", {"app": "other"})]])
def test_of_equal_priority_a_pod_without_a_group_leaves_before_a_member_since_1_37(
    ports: list[int], budgets: list[Raw]
) -> None:
    """The result is the same by requests, with budgets, and in dry runs."""
    objects = [
        node("a", cpu="2"),
        pod_group("loose", 1),
        pod("alone", cpu="1", node="a", started="2026-01-01T00:00:00Z", ports=ports),
        pod("member", cpu="1", node="a", group="loose", started="2026-01-02T00:00:00Z"),
        *budgets,
    ]
    raw = pod("urgent", cpu="1", priority=100, ports=[80] if ports else [])
    assert found(Deciding(*objects), raw) == ("a", ["alone"])
    if not ports:
        assert found(Deciding(*objects, kubernetesVersion="1.36"), raw) == ("a", ["member"])


def test_all_of_a_group_that_is_removed_is_put_back_if_the_pod_fits_beside_it() -> None:
    deciding = Deciding(
        node("a", cpu="3"), *whole("g", "a", "a", priority=5), pod("p", cpu="1", node="a")
    )
    assert found(deciding) == ("a", ["p"])
    larger = pod("larger", cpu="2", priority=100)
    assert found(deciding, larger) == ("a", ["g-0", "g-1"]), "without p it does not fit yet"


def test_a_group_costs_what_all_its_members_cost() -> None:
    """The profile compares only one candidate: the cheapest one by requests."""
    few = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        node("c", cpu="1"),
        *whole("g", "a", "b"),
        pod("p", cpu="1", node="c"),
        pluginConfig=[{"name": "DefaultPreemption", "args": few}],
    )
    assert found(deciding) == ("c", ["p"])


def test_budgets_count_for_each_member() -> None:
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        *whole("g", "a", "b", labels={"app": "db"}),
        pdb("guard", {"app": "db"}, allowed=1),
        node("c", cpu="1"),
        pod("p", cpu="1", node="c", priority=50),
    )
    assert found(deciding) == ("c", ["p"])
    violating = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        *whole("g", "a", "b", labels={"app": "db"}),
        pdb("guard", {"app": "db"}, allowed=0),
    ).outcome(URGENT)
    assert isinstance(violating, FitError)
    assert violating.nomination is not None
    assert violating.nomination.violations == 2
    strict = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        *whole("g", "a", "b", labels={"app": "db"}),
        pdb("guard", {"app": "db"}, allowed=1),
        preemption={"disruptionBudgets": "Strict"},
    )
    assert found(strict) == (None, [])


def test_the_profiles_limits_hold_for_all_members() -> None:
    objects = (node("a", cpu="1"), node("b", cpu="1"), *whole("g", "a", "b"))
    assert found(Deciding(*objects, preemption={"maxVictims": 1})) == (None, [])
    assert found(Deciding(*objects, preemption={"maxVictims": 2}))[1] == ["g-0", "g-1"]
    young = {"minRuntimeSeconds": 60}
    assert found(Deciding(*objects, preemption=young), now=1e9) == (None, [])


def in_zone(name: str) -> Raw:
    return node(name, cpu="1", labels={"zone": "z", "kubernetes.io/hostname": name})


def away_from(app: str, cpu: str = "1") -> Raw:
    away = apart(to_pods({"app": app}, "zone"))
    return pod("urgent", cpu=cpu, priority=100, affinity=away)


def test_members_on_other_nodes_are_gone_in_a_dry_run_too() -> None:
    objects = [in_zone("a"), in_zone("b"), *whole("g", "a", "b", labels={"app": "x"})]
    assert found(Deciding(*objects), away_from("x"))[1] == ["g-0", "g-1"]
    assert found(Deciding(*objects, kubernetesVersion="1.36"), away_from("x")) == (None, [])


def test_a_group_too_large_for_a_dry_run_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_MOST_IN_DRY_RUN", 1)
    objects = [in_zone("a"), in_zone("b"), *whole("g", "a", "b", labels={"app": "x"})]
    assert found(Deciding(*objects), away_from("x")) == (None, [])
    assert found(Deciding(*objects))[1] == ["g-0", "g-1"], "where requests decide there is none"


def test_members_that_are_being_evicted_are_only_waited_for() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"), *whole("g", "a", "b"))
    evicted = deciding.state.pods.get(uid_of("g-0"))
    assert evicted is not None
    deciding.state.begin_evictions(parse_pod(pod("other", priority=500)), [evicted.pod])
    assert found(deciding) == ("a", ["g-0"])


def test_preempt_extenders_get_all_members_and_may_leave_them() -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"), *whole("g", "a", "b"))

    def with_extenders(**answers: Any) -> Any:
        urgent = parse_pod(URGENT)
        given = PodExtenderResults(urgent, preempts=True, **answers)
        return decide(urgent, deciding.pipeline, deciding.shared, seed=0, answers=given)

    call = with_extenders()
    assert [sorted(v.name for v in c.victims) for c in call.candidates] == [["g-0", "g-1"]] * 2
    left = ProcessedCandidates(tuple(c for c in call.candidates if c.node == "b"))
    nomination = with_extenders(processed=left).nomination
    assert (nomination.node, sorted(v.name for v in nomination.victims)) == ("b", ["g-0", "g-1"])


def test_victims_are_the_same_after_dry_runs_have_given_members_elsewhere_other_slots() -> None:
    objects = [node(name, cpu="4") for name in "abc"]
    objects += whole("g", "a", "b", "c", ports=[80])
    objects += [pod(f"on-{name}", cpu="1", node=name, priority=50) for name in "abc"]
    deciding = Deciding(*objects, pdb("guard", {}, allowed=0))
    raw = pod("urgent", cpu="3", priority=100, ports=[80])
    node_name, victims = found(deciding, raw)
    assert victims == ["g-0", "g-1", "g-2"]
    assert node_name in ("a", "b", "c")
