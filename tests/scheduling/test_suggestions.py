"""Each suggestion for a waiting pod or group makes it fit, as a real decision confirms."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings

import strategies
from deciding import Deciding
from devices.objects import gpu_node, share_pod
from mooring.framework.decision import TextAboutPods
from mooring.groups.search.group_decision import decide_group
from mooring.groups.search.group_search import SearchedMembers
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.suggestions import Suggestion, suggestions
from mooring.scheduling.what_if import WhatIf
from mooring.testing.builders import coscheduling_pod_group, node, pod, pod_group, queue_object
from mooring.testing.contract import Scenario
from node_selectors import expression, required_nodes, term

Raw = Mapping[str, Any]
GPU = "example.com/gpu"
GPU_SHARE = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


def suggested(deciding: Deciding, raw: Raw) -> list[Suggestion]:
    """Return all suggestions for the pod, the smallest change first."""
    what_if = WhatIf(ResultCache(deciding.cluster))
    found = suggestions([parse_pod(raw)], deciding.pipeline, what_if)
    return sorted(found, key=lambda item: item.cost)


def changes(deciding: Deciding, raw: Raw) -> list[str]:
    return [plain(suggestion.change) for suggestion in suggested(deciding, raw)]


def hidden(deciding: Deciding, raw: Raw) -> list[str]:
    """Return the suggestions for users who may not get the pods that would have to end."""
    texts = (suggestion.change for suggestion in suggested(deciding, raw))
    return [text.otherwise for text in texts if isinstance(text, TextAboutPods)]


def members(count: int, **fields: Any) -> list[Raw]:
    return [pod(f"m{number}", group="g", **fields) for number in range(count)]


def pending(deciding: Deciding, raws: Iterable[Raw]) -> list[Pod]:
    pods = [parse_pod(raw) for raw in raws]
    for one in pods:
        deciding.state.put_unscheduled(one)
    return pods


def group_suggested(deciding: Deciding, raws: Iterable[Raw], **most: int) -> list[Suggestion]:
    """Return all suggestions for the group of these members, the smallest change first."""
    pods = pending(deciding, raws)
    group = deciding.state.pod_groups.of(pods[0])
    what_if = WhatIf(ResultCache(deciding.cluster))
    found = suggestions(pods, deciding.pipeline, what_if, group, **most)
    return sorted(found, key=lambda item: item.cost)


def group_changes(deciding: Deciding, raws: Iterable[Raw]) -> list[str]:
    return [plain(suggestion.change) for suggestion in group_suggested(deciding, raws)]


def test_the_largest_request_that_fits_is_named_with_the_nodes_that_have_it() -> None:
    deciding = Deciding(
        node("a", memory="4Gi"),
        node("b", memory="4Gi"),
        node("c", memory="2Gi"),
        pod("other", memory="1Gi", node="a"),
        pod("another", memory="1Gi", node="b"),
    )
    first = suggested(deciding, pod("web", memory="8Gi"))[0]
    assert first.change == "if it requested at most 3Gi of memory instead of 8Gi"
    assert first.nodes == 2
    assert set(first.examples) == {"a", "b"}


def test_a_pod_that_fits_by_now_is_told_so_and_nothing_else() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="1"), node("c", unschedulable=True))
    (only,) = suggested(deciding, pod("web", cpu="2"))
    assert only.change == "as it is"
    assert (only.nodes, only.examples, only.ended) == (1, ("a",), ())


def test_a_resource_that_no_node_has_is_to_be_given_up() -> None:
    deciding = Deciding(node("a"))
    raw = pod("web", requests={"example.com/gpu": 2})
    assert changes(deciding, raw) == [
        "if it did not request example.com/gpu (it requests 2)",
    ]


def test_no_pod_is_told_to_do_without_cpu() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("other", cpu="2", node="a"))
    assert changes(deciding, pod("web", cpu="1")) == ["when default/other on a ends"]


def test_pods_of_other_queues_are_to_end_if_the_quota_is_used_up() -> None:
    """The end of a pod that is in no queue frees a node, but no quota."""
    queues = [queue_object(name, {"cpu": 2}, parent="all") for name in ("lender", "borrower")]
    lender, borrower = ({QUEUE_LABEL: name} for name in ("lender", "borrower"))
    deciding = Deciding(
        *(node(name, cpu="9") for name in "ab"),
        queue_object("all"),
        *queues,
        *(pod(f"other-{i}", node="a", cpu="1", created="2025-01-01T00:00:00Z") for i in range(4)),
        *(pod(f"low-{i}", node="ab"[i % 2], cpu="1", labels=borrower) for i in range(4)),
    )
    assert changes(deciding, pod("web", cpu="1", labels=lender)) == ["when default/low-0 on a ends"]
    (change,) = changes(deciding, pod("web", cpu="2", labels=lender))
    assert change == "when 2 pods end: default/low-0, default/low-2"


def test_a_taint_is_named_with_its_value_and_effect() -> None:
    deciding = Deciding(node("a", taints=("team=gpu:NoSchedule",)))
    assert changes(deciding, pod("web")) == ["if it tolerated the taint team=gpu:NoSchedule"]


def test_a_cordoned_node_is_called_so() -> None:
    deciding = Deciding(node("a", unschedulable=True))
    assert changes(deciding, pod("web")) == ["if it might use cordoned nodes"]


def test_a_label_that_no_node_has_is_named() -> None:
    deciding = Deciding(node("a", labels={"disk": "hdd"}))
    raw = pod("web", node_selector={"disk": "ssd"})
    assert changes(deciding, raw) == ["if it had no nodeSelector disk=ssd"]


def test_a_node_affinity_is_to_be_given_up() -> None:
    raw = pod("web", affinity=required_nodes(term(expression("zone", "In", "a", "b"))))
    assert changes(Deciding(node("a")), raw) == ["if it had no required node affinity"]


def test_a_feature_that_no_node_declares_is_named() -> None:
    raw = pod("web", spec={"hostNetwork": True, "hostUsers": False})
    expected = "if it had no hostUsers: false beside hostNetwork"
    assert changes(Deciding(node("a")), raw) == [expected]


def test_a_claim_that_is_missing_is_to_be_created() -> None:
    (only,) = suggested(Deciding(node("a")), pod("web", namespace="shop", claims=["nope"]))
    assert only.change == "once you create claim shop/nope"
    assert (only.nodes, only.examples) == (1, ("a",))


def test_a_request_is_bounded_by_the_largest_card_and_not_by_the_node() -> None:
    deciding = Deciding(gpu_node("a", cards=4, memory=16), plugins=GPU_SHARE)
    assert changes(deciding, share_pod("train", memory=40)) == [
        "if it requested at most 16 of aliyun.com/gpu-mem instead of 40 (no card is larger)"
    ]


def test_a_request_by_container_is_bounded_by_the_largest_card_too() -> None:
    """HAMi gives each container its own cards, whose memory is counted per card."""
    labels = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "8000"}
    amounts = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 16000}
    deciding = Deciding(
        node("a", labels=labels, resources=amounts),
        plugins=GPU_SHARE,
        pluginConfig=[{"name": "GPUShare", "args": {"preset": "hami"}}],
    )
    wanted = pod("train", requests={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9000})
    assert (
        "if it requested at most 8000 of nvidia.com/gpumem instead of 9000 (no card is larger)"
    ) in changes(deciding, wanted)


def test_a_request_is_bounded_by_what_the_cards_have_free() -> None:
    others = [share_pod(f"other-{n}", memory=10, node="a", card=n) for n in range(2)]
    deciding = Deciding(gpu_node("a", cards=2, memory=16), *others, plugins=GPU_SHARE)
    assert (
        "if it requested at most 6 of aliyun.com/gpu-mem instead of 12 (no card has more free)"
    ) in changes(deciding, share_pod("train", memory=12))


def test_where_no_single_change_is_enough_two_are_named() -> None:
    deciding = Deciding(node("a", cpu="2", taints=("team=gpu:NoSchedule",)))
    assert (
        "if it requested at most 2 of cpu instead of 4 and tolerated the taint team=gpu:NoSchedule"
    ) in changes(deciding, pod("web", cpu="4"))


def test_two_taints_of_one_node_are_tolerated_together() -> None:
    deciding = Deciding(node("a", taints=("x:NoSchedule", "y:NoExecute")))
    assert changes(deciding, pod("web")) == [
        "if it tolerated the taint x:NoSchedule and tolerated the taint y:NoExecute"
    ]


def test_the_fewest_pods_that_must_end_are_named() -> None:
    deciding = Deciding(
        node("a", cpu="4"),
        pod("small", cpu="1", node="a"),
        pod("large", cpu="2", node="a"),
    )
    assert "when default/large on a ends" in changes(deciding, pod("web", cpu="3"))


def test_a_pod_of_a_daemon_set_is_not_expected_to_end() -> None:
    deciding = Deciding(
        node("a", cpu="4"),
        pod("agent", cpu="2", node="a", owner={"kind": "DaemonSet", "name": "agent", "uid": "1"}),
    )
    raw = pod("web", cpu="3")
    assert changes(deciding, raw) == ["if it requested at most 2 of cpu instead of 3"]


def test_a_node_that_is_too_small_is_not_worth_waiting_for() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("other", cpu="2", node="a"))
    assert not any("end" in change for change in changes(deciding, pod("web", cpu="3")))


def test_who_may_not_get_the_pods_that_end_reads_how_many_they_are() -> None:
    one = Deciding(node("a", cpu="2"), pod("low", cpu="2", node="a"))
    assert hidden(one, pod("web", cpu="1")) == ["when a pod on a ends"]
    two = Deciding(node("a", cpu="2"), *(pod(f"low-{n}", cpu="1", node="a") for n in range(2)))
    assert hidden(two, pod("web", cpu="2")) == ["when 2 pods on a end"]


def test_nodes_may_go_between_two_suggestions() -> None:
    deciding = Deciding(*(node(name, cpu="2") for name in "ab"))
    for name in "ab":
        deciding.place(pod(f"on-{name}", cpu="1"), name)
    what_if = WhatIf(ResultCache(deciding.cluster))
    found = suggestions([parse_pod(pod("web", cpu="2"))], deciding.pipeline, what_if)
    assert plain(next(found).change) == "if it requested at most 1 of cpu instead of 2"
    assert plain(next(found).change) == "when default/on-a on a ends"
    deciding.state.delete(Kind.NODE, "a")
    deciding.state.delete(Kind.NODE, "b")
    assert [*found] == []


def test_nothing_is_suggested_without_nodes() -> None:
    assert changes(Deciding(), pod("web")) == []


@pytest.mark.deep
@settings(max_examples=100)
@given(strategies.scenarios())
def test_every_suggestion_is_true(scenario: Scenario) -> None:
    deciding = Deciding(*scenario.nodes, *scenario.others)
    assume(isinstance(deciding.outcome(scenario.pod), FitError))
    for suggestion in suggested(deciding, scenario.pod):
        ended = {pod.key for pod in suggestion.ended}
        remaining = [raw for raw in scenario.others if _key(raw) not in ended]
        fresh = Deciding(*scenario.nodes, *remaining)
        (changed,) = suggestion.pods
        outcome = decide(changed, fresh.pipeline, fresh.shared, seed=0)
        assert isinstance(outcome, ScheduleResult), suggestion
        if not suggestion.ended:
            assert outcome.feasible_nodes == suggestion.nodes, suggestion


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}" if raw["kind"] == "Pod" else ""


def test_a_group_waits_for_the_pod_that_takes_its_space() -> None:
    """Each member fits alone, on node a or beside the other pod, but the group does not."""
    deciding = Deciding(
        node("a", cpu="8", resources={GPU: 2}),
        node("b", cpu="8", resources={GPU: 2}),
        pod("web", namespace="shop", cpu="4", node="a"),
        pod("squat", namespace="batch", requests={GPU: 1}, node="b"),
        pod_group("g", 4),
    )
    found = group_suggested(deciding, members(4, requests={GPU: 1}))
    (ending,) = (each for each in found if each.ended)
    assert plain(ending.change) == "when batch/squat on b ends"
    assert isinstance(ending.change, TextAboutPods)
    assert ending.change.otherwise == "when a pod on b ends"
    assert "as it is" not in [plain(each.change) for each in found]


def test_the_fewest_pods_end_and_pods_of_daemon_sets_do_not() -> None:
    agent = pod("agent", cpu="1", node="a", owner={"kind": "DaemonSet", "name": "a", "uid": "1"})
    others = [pod(f"small-{number}", cpu="1", node="a") for number in range(3)]
    large = [pod(f"large-{number}", cpu="2", node="b") for number in range(2)]
    deciding = Deciding(
        node("a", cpu="4"), node("b", cpu="4"), agent, *others, *large, pod_group("g", 4)
    )
    texts = group_changes(deciding, members(4, cpu="1"))
    assert "when 2 pods end: default/large-0, default/large-1" in texts


def test_one_pod_on_each_node_ends_where_each_node_lacks_little() -> None:
    nodes = [node(name, cpu="4") for name in "abc"]
    others = [pod(f"{name}-{number}", cpu="1", node=name) for name in "abc" for number in range(3)]
    deciding = Deciding(*nodes, *others, pod_group("g", 3))
    (ending,) = (each for each in group_suggested(deciding, members(3, cpu="2")) if each.ended)
    assert {ref.name[0] for ref in ending.ended} == {"a", "b", "c"}
    assert len(ending.ended) == 3


def test_pods_of_few_nodes_end_where_members_need_whole_nodes() -> None:
    nodes = [node(name, cpu="4") for name in "abc"]
    others = [pod(f"{name}-{number}", cpu="1", node=name) for name in "abc" for number in range(3)]
    deciding = Deciding(*nodes, *others, pod_group("g", 1))
    (ending,) = (each for each in group_suggested(deciding, members(1, cpu="4")) if each.ended)
    assert len({ref.name[0] for ref in ending.ended}) == 1
    assert len(ending.ended) == 3


def test_a_group_that_fits_by_now_is_told_so_and_nothing_else() -> None:
    deciding = Deciding(node("a", cpu="2"), node("b", cpu="2"), pod_group("g", 4))
    (only,) = group_suggested(deciding, members(4, cpu="1"))
    assert only.change == "as it is"
    assert (only.nodes, set(only.examples)) == (2, {"a", "b"})


def test_the_largest_request_of_each_member_is_named() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), pod_group("g", 4))
    first = group_suggested(deciding, members(4, cpu="3"))[0]
    assert first.change == "if each member requested at most 2 of cpu instead of 3"
    assert first.nodes == 2


def test_the_largest_card_bounds_the_request_of_each_member() -> None:
    deciding = Deciding(gpu_node("a", cards=4, memory=16), pod_group("g", 2), plugins=GPU_SHARE)
    (only,) = group_changes(deciding, [share_pod(f"m{n}", memory=40, group="g") for n in range(2)])
    assert only.endswith("at most 16 of aliyun.com/gpu-mem instead of 40 (no card is larger)")


def test_no_member_is_told_to_do_without_memory() -> None:
    full = pod("full", memory="4Gi", node="a")
    deciding = Deciding(node("a", memory="4Gi"), full, pod_group("g", 2))
    assert group_changes(deciding, members(2, memory="1Gi")) == ["when default/full on a ends"]


def test_a_taint_is_to_be_tolerated_by_all_members() -> None:
    deciding = Deciding(node("a", taints=("gpu:NoSchedule",)), pod_group("g", 2))
    assert group_changes(deciding, members(2)) == [
        "if each member tolerated the taint gpu:NoSchedule",
    ]


def test_a_label_that_no_node_has_is_named_for_all_members() -> None:
    deciding = Deciding(node("a"), pod_group("g", 2))
    found = group_changes(deciding, members(2, node_selector={"disk": "ssd"}))
    assert found == ["if each member had no nodeSelector disk=ssd"]


def test_a_smaller_minimum_is_called_as_the_kind_of_the_group_calls_it() -> None:
    deciding = Deciding(node("a", cpu="3"), pod_group("g", 4))
    assert "if its minCount were at most 3 instead of 4" in group_changes(
        deciding, members(4, cpu="1")
    )
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    deciding = Deciding(node("a", cpu="3"), coscheduling_pod_group("g", 4))
    raws = [pod(f"m{number}", cpu="1", labels=labels) for number in range(4)]
    assert "if its minMember were at most 3 instead of 4" in group_changes(deciding, raws)


def test_pods_end_in_the_domain_in_which_the_most_members_fit() -> None:
    def rack(name: str) -> Mapping[str, str]:
        return {"rack": name}

    deciding = Deciding(
        node("a", cpu="4", labels=rack("r1")),
        node("b", cpu="4", labels=rack("r2")),
        pod("large", cpu="3", node="a"),
        pod("small", cpu="1", node="b"),
        pod_group("g", 4, topology=["rack"]),
    )
    found = group_suggested(deciding, members(4, cpu="1"))
    assert [plain(each.change) for each in found if each.ended] == ["when default/small on b ends"]


def test_what_is_suggested_is_true_in_a_cluster_without_these_pods() -> None:
    objects = [node("a", cpu="4"), node("b", cpu="4"), pod_group("g", 6)]
    others = [pod(f"other-{number}", cpu="1", node="ab"[number % 2]) for number in range(5)]
    found = group_suggested(Deciding(*objects, *others), members(6, cpu="1"))
    assert any(each.ended for each in found)
    for each in found:
        ended = {ref.name for ref in each.ended}
        left = [raw for raw in others if raw["metadata"]["name"] not in ended]
        fresh = Deciding(*objects, *left)
        pods = pending(fresh, members(6, cpu="1"))
        group = fresh.state.pod_groups.of(pods[0])
        assert group is not None
        if "minCount" in plain(each.change):
            continue  # of the group, and not of its members
        searched = SearchedMembers(each.pods, fresh.pipeline, fresh.shared, seed=0)
        assert decide_group(group, searched).rows


def test_nothing_more_is_tried_once_the_budget_is_spent() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("full", cpu="2", node="a"), pod_group("g", 2))
    assert group_suggested(deciding, members(2, cpu="1"), steps=-1) == []


def test_the_state_is_as_before() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("full", cpu="2", node="a"), pod_group("g", 2))
    group_suggested(deciding, members(2, cpu="1"))
    assert deciding.cluster.nodes.requested("cpu").tolist()[0] == 2000
    assert [placed.pod.name for placed in deciding.cluster.pods_of("a")] == ["full"]
