"""Decisions about groups: nodes for all members, for the minimum or in a domain; or the reason."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import pytest

from deciding import Deciding
from devices.objects import gpu_node, whole_pod
from extending import put
from group_searching import search_for
from mooring.extenders.verdicts import ExtenderResults
from mooring.groups.model.pod_group import COSCHEDULING_LABEL, GroupKey, GroupSource
from mooring.groups.search.group_decision import (
    GroupDecision,
    decide_group,
    disagreement,
    place_group,
)
from mooring.groups.search.group_search import Devices
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST, KubernetesRules
from mooring.model.pod import Uid, parse_pod
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.outcome import PodRejected
from mooring.testing.builders import (
    cluster,
    coscheduling_pod_group,
    node,
    pod,
    pod_group,
    uid_of,
    volcano_pod_group,
)
from storage_builders import pv, pvc, storage_class

Raw = dict[str, Any]


def members(count: int, start: int = 0, **fields: Any) -> list[Raw]:
    return [pod(f"m{i}", group="g", **fields) for i in range(start, start + count)]


def decided(
    deciding: Deciding,
    raws: list[Raw],
    answers: ExtenderResults | None = None,
    budget: SearchBudget | None = None,
) -> GroupDecision:
    pods = [parse_pod(raw) for raw in raws]
    deciding.state.track_pod_groups(deciding.pipeline.pod_group_formats)
    for one in pods:
        deciding.state.put_unscheduled(one)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    searched = search_for(deciding, raws, budget=budget, answers=answers).searched
    return decide_group(group, searched)


def nodes_of(deciding: Deciding, decision: GroupDecision) -> set[str]:
    return {deciding.state.nodes.names[row] for row in decision.rows.values()}


def racks(**cpus: list[int]) -> list[Raw]:
    """Return nodes in racks; `cpus` has, by rack, the cpu of each node."""
    return [
        node(f"{rack}-{i}", cpu=str(cpu), labels={"rack": rack, "block": rack[0]})
        for rack, amounts in cpus.items()
        for i, cpu in enumerate(amounts)
    ]


def test_members_count_for_a_rule_that_counts_pods() -> None:
    source = 'domain("rack").pods({"app": pod.labels.app}) == 0'
    apart = [{"name": "apart", "filter": source, "message": "one member for each rack"}]
    for rack_count, placed in ((3, 3), (2, 0)):
        nodes = racks(**{f"r{n}": [4, 4] for n in range(rack_count)})
        deciding = Deciding(*nodes, pod_group("g", 3), rules=apart)
        decision = decided(deciding, members(3, labels={"app": "a"}))
        assert len({name[:2] for name in nodes_of(deciding, decision)}) == placed
        assert ("one member for each rack" in decision.message) is (placed == 0)


def test_all_members_are_placed_or_none() -> None:
    deciding = Deciding(node("a", cpu="3"), pod_group("g", 4))
    assert not decided(deciding, members(4, cpu="1")).rows
    assert len(decided(deciding, members(3, cpu="1")).rows) == 0


def test_the_minimum_is_placed_where_not_all_members_fit() -> None:
    deciding = Deciding(node("a", cpu="3"), pod_group("g", 2))
    decision = decided(deciding, members(4, cpu="1"))
    assert len(decision.rows) == 3
    assert decision.message == (
        "1 member beyond the minimum: 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_members_on_a_node_count_for_the_minimum() -> None:
    deciding = Deciding(node("a", cpu="3"), pod_group("g", 4))
    for raw in members(2, cpu="1"):
        deciding.place(raw, "a")
    assert not decided(deciding, members(2, 2, cpu="1")).rows
    deciding = Deciding(node("a", cpu="4"), pod_group("g", 4))
    for raw in members(2, cpu="1"):
        deciding.place(raw, "a")
    assert len(decided(deciding, members(2, 2, cpu="1")).rows) == 2


VOLCANO: Final = {"name": "GangScheduling", "args": {"podGroupPresets": ["Volcano"]}}


def with_roles(**cpus: list[str]) -> list[Raw]:
    """Return members of Volcano's group g; `cpus` has, by role, the cpu of each member."""
    return [
        pod(
            f"{role}-{number}",
            cpu=cpu,
            annotations={"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": role},
        )
        for role, each in cpus.items()
        for number, cpu in enumerate(each)
    ]


def test_each_role_gets_its_minimum_though_more_of_another_would_fit() -> None:
    """The three workers alone would reach the minimum, but leave no room for the launcher."""
    group = volcano_pod_group("g", 3, minTaskMember={"launcher": 1, "worker": 2})
    raws = with_roles(worker=["2", "2", "2"], launcher=["1"])
    deciding = Deciding(node("a", cpu="6"), group, pluginConfig=[VOLCANO])
    decision = decided(deciding, raws)
    assert decision.rows.keys() == {uid_of("worker-0"), uid_of("worker-1"), uid_of("launcher-0")}
    assert decision.message.startswith("1 member beyond the minimum: ")
    on_node = Deciding(node("a", cpu="6"), group, pluginConfig=[VOLCANO])
    on_node.place(raws[0], "a")
    assert decided(on_node, raws[1:]).rows.keys() == {uid_of("worker-1"), uid_of("launcher-0")}


def test_a_group_none_of_whose_roles_may_be_left_out_is_placed_whole_or_not_at_all() -> None:
    group = volcano_pod_group("g", 3, minTaskMember={"launcher": 1, "worker": 2})
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), group, pluginConfig=[VOLCANO])
    decision = decided(deciding, with_roles(worker=["2"] * 4, launcher=["5"]))
    assert not decision.rows
    assert "the group of 5 does not fit: 4 of 5 members fit" in decision.message
    few = decided(deciding, with_roles(worker=["2", "2", "2"]))
    assert few.message == "0 of 1 members of role launcher can be scheduled now"


def passing(raws: list[Raw], *passed: str, failed: tuple[str, ...] = ()) -> ExtenderResults:
    """Return an extender's answers for all pods: these nodes passed, and `failed` did not."""
    answers = ExtenderResults()
    for raw in raws:
        put(answers, raw, passed, failed)
    return answers


def test_a_group_goes_to_a_domain_in_which_extenders_pass_enough_nodes() -> None:
    group = pod_group("g", 4, topology=["rack"])
    deciding = Deciding(*racks(r1=[2, 2], r2=[8, 8]), group)
    raws = members(4, cpu="1")
    answers = passing(raws, "r1-0", "r2-0", "r2-1", failed=("r1-1",))
    assert decided(deciding, raws, answers).domain == ("rack", "r2")
    assert decided(deciding, raws).domain == ("rack", "r1")


def test_a_group_that_extenders_reject_names_them_and_is_equal_to_no_other() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), pod_group("g", 2))
    raws = members(2, cpu="3")
    decision = decided(deciding, raws, passing(raws, "a", failed=("b",)))
    assert decision.message == (
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining; "
        "the group of 2 does not fit: 1 of 2 members fit, needs 3 CPUs more. "
        "0/2 nodes are available: 1 Insufficient cpu, 1 extender http://e: busy."
    )
    assert "Extender" in decision.plugins
    assert not decision.by_specs
    assert decided(deciding, members(3, cpu="3")).by_specs


def test_nodes_that_were_not_sent_to_extenders_are_not_rejected_by_them() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="1"), pod_group("g", 2))
    raws = members(2, cpu="3")
    decision = decided(deciding, raws, passing(raws, "a"))
    assert not decision.rows
    assert "Extender" not in decision.plugins


def test_too_many_different_specs_and_answers_are_said_to_be_so() -> None:
    deciding = Deciding(node("a", pods=2_000), pod_group("g", 2))
    raws = [pod(f"m{i}", group="g", cpu=f"{1 + i % 251}m") for i in range(502)]
    answers = ExtenderResults()
    for number, raw in enumerate(raws):
        passed = ("a", "gone") if number > 250 else ("a",)
        put(answers, raw, passed)
    decision = decided(deciding, raws, answers)
    text = "its members have 502 different specs or answers of extenders, and at most 500 can be"
    assert text in decision.message


def test_a_group_stays_in_one_domain_and_takes_the_tightest() -> None:
    deciding = Deciding(
        *racks(r1=[2, 2], r2=[8, 8], r3=[4, 3]), pod_group("g", 6, topology=["rack"])
    )
    decision = decided(deciding, members(6, cpu="1"))
    assert nodes_of(deciding, decision) == {"r3-0", "r3-1"}
    assert decision.domain == ("rack", "r3")


def test_the_record_says_which_domains_were_tried_and_why_each_failed() -> None:
    deciding = Deciding(*racks(r1=[2], r2=[3]), pod_group("g", 6, topology=["rack"]))
    decision = decided(deciding, members(6, cpu="1"))
    assert {(t.value, t.fits, t.message) for t in decision.tried} == {
        ("r1", 2, "2 of 6 members fit in rack r1, needs 4 CPUs more"),
        ("r2", 3, "3 of 6 members fit in rack r2, needs 3 CPUs more"),
    }
    assert decision.message.startswith(
        "0/2 placements are available, first placement status: "
        "minCount (6) cannot be satisfied: 2 scheduled, 3 remaining; "
        "the group of 6 does not fit: 3 of 6 members fit in rack r2, needs 3 CPUs more; "
    )
    assert not decision.bounded


def test_a_gang_that_does_not_fit_says_how_far_kube_scheduler_came_since_1_37() -> None:
    """Of 8 members, 1 runs and 2 fit. kube-scheduler stops at the next one; 4 are left then."""
    words = "minCount (8) cannot be satisfied: 3 scheduled, 4 remaining; "
    runs = pod("m7", group="g", cpu="1", node="a")
    for version, said in (("1.37", words), ("1.36", "")):
        objects = node("a", cpu="3"), pod_group("g", 8), runs
        decision = decided(Deciding(*objects, kubernetesVersion=version), members(7, cpu="1"))
        assert decision.message.startswith(
            f"{said}7 members of the group of 8 do not fit: 2 of 7 members"
        )
    few = decided(Deciding(node("a"), pod_group("g", 8)), members(3))
    assert few.message == "minCount (8) cannot be satisfied: 0 scheduled, 3 remaining"


def test_a_gang_whose_members_differ_from_it_is_not_placed_since_1_37() -> None:
    deciding = Deciding(node("a"), pod_group("g", 2))
    decision = decided(deciding, members(2, priority=5))
    assert not decision.rows
    assert decision.message.endswith("the pod group's priority, got 5 and 0")
    older = Deciding(node("a"), pod_group("g", 2), kubernetesVersion="1.36")
    assert len(decided(older, members(2, priority=5)).rows) == 2


def test_members_that_come_later_are_placed_in_the_domain_of_the_others() -> None:
    deciding = Deciding(*racks(r1=[2], r2=[8]), pod_group("g", 2, topology=["rack"]))
    for raw in members(2, cpu="1"):
        deciding.place(raw, "r1-0")
    assert not decided(deciding, members(1, 2, cpu="1")).rows


def preferred() -> Raw:
    return pod_group(
        "g",
        6,
        annotations={
            "scheduling.mooring.dev/topology-keys": "block,rack",
            "scheduling.mooring.dev/topology-mode": "Preferred",
        },
    )


def test_of_several_labels_the_tightest_domain_that_fits_is_taken() -> None:
    deciding = Deciding(*racks(a1=[4], a2=[4], b1=[3], b2=[9]), preferred())
    assert decided(deciding, members(6, cpu="1")).domain == ("rack", "b2")
    deciding = Deciding(*racks(a1=[4], a2=[4], b1=[3], b2=[2]), preferred())
    assert decided(deciding, members(6, cpu="1")).domain == ("block", "a")


def test_a_preferred_topology_gives_way_where_no_domain_fits() -> None:
    deciding = Deciding(*racks(a1=[2], b1=[2], c1=[2]), preferred())
    decision = decided(deciding, members(6, cpu="1"))
    assert len(decision.rows) == 6
    assert decision.domain is None


def test_a_group_whose_label_no_node_has_says_so() -> None:
    deciding = Deciding(node("a"), pod_group("g", 1, topology=["rack"]))
    decision = decided(deciding, members(1))
    assert decision.message == "no topology domain with this label: rack"
    assert decision.plugins == {"TopologyPlacementGenerator"}


def test_what_the_members_are_nominated_to_is_free_for_all_of_them() -> None:
    deciding = Deciding(node("a", cpu="2"), pod_group("g", 2))
    raws = members(2, cpu="1")
    for raw in raws:
        deciding.nominate(raw, "a")
    assert len(decided(deciding, raws).rows) == 2
    assert len(deciding.state.nominations) == 2


def test_a_member_whose_claim_is_missing_names_the_claim() -> None:
    deciding = Deciding(node("a"), pod_group("g", 2))
    raws = [*members(1), pod("x", group="g", claims=["data"])]
    message = decided(deciding, raws).message
    assert 'persistentvolumeclaim "data" not found' in message


def test_members_leave_volumes_to_each_other() -> None:
    """Each node has one local volume, and all members prefer the largest node."""
    count = 6
    nodes = [node(f"n{i}", cpu=str(64 - i)) for i in range(count)]
    volumes = [pv(f"v{i}", nodes=(f"n{i}",), storage_class="static") for i in range(count)]
    claims = [pvc(f"data-{i}", storage_class="static") for i in range(count)]
    storage = (storage_class("static"), *volumes, *claims)
    deciding = Deciding(*nodes, *storage, pod_group("g", count))
    raws = [pod(f"m{i}", cpu="10m", group="g", claims=[f"data-{i}"]) for i in range(count)]
    decision = decided(deciding, raws)
    assert nodes_of(deciding, decision) == {f"n{i}" for i in range(count)}
    free = deciding.state.storage.volumes.available("static").items
    assert {volume.name for volume in free if volume is not None} == {f"v{i}" for i in range(count)}


def test_members_that_share_a_claim_go_where_its_volume_is_to_be_provisioned() -> None:
    made = storage_class("made", provisioner="csi.example")
    nodes = node("a", cpu="64"), node("b", cpu="8")
    deciding = Deciding(*nodes, made, pvc("data", storage_class="made"), pod_group("g", 2))
    raws = [pod(f"m{i}", cpu="7", group="g", claims=["data"]) for i in range(2)]
    assert nodes_of(deciding, decided(deciding, raws)) == {"a"}
    claim = deciding.state.storage.volumes.claim("default/data")
    assert claim is not None
    assert claim.selected_node is None


def test_members_leave_linked_cards_to_each_other() -> None:
    """A member's search must count the linked cards that GPUTopology gives to earlier members."""
    links = [["X", *(["SYS"] * 3)] for _ in range(4)]
    for i, j in ((0, 2), (1, 3)):
        links[i], links[j] = (["SYS"] * 4 for _ in range(2))
        links[i][j] = links[j][i] = "NV4"
    deciding = Deciding(
        gpu_node("a", 4, 16, links=links),
        gpu_node("b", 4, 16, links=links),
        pod_group("g", 4),
        plugins={"multiPoint": {"enabled": [{"name": "GPUShare"}, {"name": "GPUTopology"}]}},
    )
    linked = {"scheduling.mooring.dev/gpu-link-required": "NVLink"}
    raws = [whole_pod(f"m{i}", 2, group="g", annotations=linked) for i in range(4)]
    rows = decided(deciding, raws).rows
    assert Counter(rows.values()) == {0: 2, 1: 2}
    assert deciding.state.pods.get(uid_of("m0")) is None


def test_the_minimum_resources_must_be_free_before_placement_is_tried() -> None:
    """Members that do not exist yet may need these resources."""

    def tried(resources: dict[str, str]) -> GroupDecision:
        group = coscheduling_pod_group("g", 2, resources=resources)
        label = {COSCHEDULING_LABEL: "g"}
        deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), group)
        return decided(deciding, [pod(f"m{i}", cpu="1", labels=label) for i in range(2)])

    assert len(tried({"cpu": "8"}).rows) == 2
    short = tried({"cpu": "8500m", "memory": "1Gi"})
    assert (short.rows, short.tries) == ({}, 0)
    assert short.message == (
        "minResources of the group needs 8500m of cpu, and 8 are free in the cluster"
    )
    assert "NodeResourcesFit" in short.plugins
    assert not tried({"example.com/gpu": "1"}).rows


def test_what_members_on_nodes_request_counts_for_the_minimum_resources() -> None:
    label = {COSCHEDULING_LABEL: "g"}
    deciding = Deciding(
        node("a", cpu="4"),
        coscheduling_pod_group("g", 2, resources={"cpu": "4"}),
        pod("bound", cpu="1", labels=label, node="a"),
    )
    assert len(decided(deciding, [pod("m", cpu="1", labels=label)]).rows) == 1


def test_the_domains_of_a_group_share_one_budget() -> None:
    deciding = Deciding(
        *racks(**{f"r{i}": [1, 1] for i in range(50)}), pod_group("g", 3, topology=["rack"])
    )
    port = members(3, cpu="1", ports=(80,))
    unbounded = decided(deciding, port)
    assert len(unbounded.tried) == 50
    bounded = decided(deciding, port, budget=SearchBudget(20))
    assert 1 <= len(bounded.tried) < 10
    assert bounded.bounded
    assert "was found within" in bounded.message


def test_members_of_very_many_specs_are_not_searched_for() -> None:
    deciding = Deciding(node("a", cpu="100"), pod_group("g", 501))
    raws = [pod(f"m{i}", group="g", cpu=f"{i + 1}m") for i in range(501)]
    decision = decided(deciding, raws)
    assert not decision.rows
    assert "its members have 501 different specs, and at most 500" in decision.message


NEVER: Final = {"preemptionPolicy": "Never"}


def told(*objects: Raw, waiting: Raw, rules: KubernetesRules = NEWEST) -> str | None:
    """Return the disagreement among the members of the group, or None.

    `objects` are the group and its members on nodes; `waiting` is a member without a node.
    """
    state = cluster(node("n1"), *objects)
    member = parse_pod(waiting)
    state.put_unscheduled(member)
    group = state.pod_groups.of(member)
    assert group is not None
    return disagreement(group, [member], rules)


def policy_of(policy: str) -> Raw:
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


class Planning:
    """An attempt to place a group; the first `rejections` plans are rejected."""

    def __init__(self, deciding: Deciding, *raws: Raw, rejections: int = 0) -> None:
        self.deciding = deciding
        self.pods = {member.uid: member for member in map(parse_pod, raws)}
        for member in self.pods.values():
            deciding.state.put_unscheduled(member)
        self.left, self.plans = rejections, list[Mapping[Uid, int]]()
        self.after_a_rejection: Callable[[], object] = lambda: None
        self.reserved = list[ExitStack]()

    def commit(self, rows: Mapping[Uid, int], devices: Devices) -> None:
        self.plans.append(rows)
        if self.left:
            self.left -= 1
            name = self.deciding.state.nodes.names[next(iter(rows.values()))]
            self.after_a_rejection()
            raise PodRejected("Limits", "no", name, self.pods[next(iter(rows))])
        pipeline, state = self.deciding.pipeline, self.deciding.state
        for uid, row in rows.items():
            about = self.pods[uid], row, pipeline, state, devices.get(uid)
            self.reserved.append(assume_and_reserve(*about))

    def decision(self) -> GroupDecision:
        deciding, pods = self.deciding, [*self.pods.values()]
        group = deciding.state.pod_groups.of(pods[0])
        assert group is not None
        about = deciding.pipeline, deciding.shared
        return place_group(group, pods, *about, self.commit, seed=0)


def gang(count: int, **fields: Any) -> list[Raw]:
    return [pod(f"g-{i}", group="g", **fields) for i in range(count)]


def test_a_plan_is_made_again_without_the_node_that_rejects_a_member() -> None:
    nodes = [node("a", cpu="2"), node("b", cpu="2")]
    planning = Planning(Deciding(*nodes, pod_group("g", 1)), *gang(1, cpu="1"), rejections=1)
    decision = planning.decision()
    assert [len(rows) for rows in planning.plans] == [1, 1]
    assert planning.plans[0] != planning.plans[1] == decision.rows


def test_a_group_is_planned_eight_times_at_most() -> None:
    nodes = [node(f"n{i}") for i in range(20)]
    planning = Planning(Deciding(*nodes, pod_group("g", 2)), *gang(2), rejections=100)
    decision = planning.decision()
    assert len(planning.plans) == 8
    assert not decision.rows
    assert decision.plugins == {"Limits"}
    assert decision.bounded


def test_plans_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members with host ports are placed one by one, and each takes one step of the budget."""
    monkeypatch.setattr(
        "mooring.groups.search.group_decision.SearchBudget", partial(SearchBudget, 20)
    )
    nodes = [node(f"n{i}") for i in range(10)]
    raws = gang(4, ports=(80,))
    planning = Planning(Deciding(*nodes, pod_group("g", 4)), *raws, rejections=100)
    planning.decision()
    assert 0 < len(planning.plans) <= 5


def test_a_node_that_rejects_a_member_may_go_before_the_group_is_planned_again() -> None:
    deciding = Deciding(node("small", cpu="1"), node("large"), pod_group("g", 1))
    planning = Planning(deciding, pod("m", cpu="2", group="g"), rejections=1)
    planning.after_a_rejection = partial(deciding.state.delete, Kind.NODE, "large")
    decision = planning.decision()
    assert not decision.rows
    assert decision.message == "member default/m: 0/1 nodes are available: 1 no."


def test_members_with_local_volumes_are_reserved_by_the_first_plan() -> None:
    """All members prefer the largest node. A failed plan would exclude it only for one member."""
    nodes = [node(f"n{i}", cpu=str(64 - i)) for i in range(6)]
    volumes = [pv(f"v{i}", nodes=(f"n{i}",), storage_class="static") for i in range(6)]
    claims = [pvc(f"data-{i}", storage_class="static") for i in range(6)]
    deciding = Deciding(*nodes, storage_class("static"), *volumes, *claims, pod_group("g", 6))
    raws = (pod(f"m{i}", group="g", cpu="10m", claims=[f"data-{i}"]) for i in range(6))
    planning = Planning(deciding, *raws)
    assert len({*planning.decision().rows.values()}) == 6
    assert (len(planning.plans), len(planning.reserved)) == (1, 6)
