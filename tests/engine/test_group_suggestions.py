"""What is suggested for a waiting group makes the whole group fit, by the engine's own word."""

from collections.abc import Iterable, Mapping
from typing import Any

from deciding import Deciding
from devices.objects import gpu_node, share_pod
from mooring.engine.group_suggestions import MOST_STEPS, group_suggestions
from mooring.engine.groups.budget import SearchBudget
from mooring.engine.groups.decision import decide_group
from mooring.engine.groups.search import SearchedMembers
from mooring.engine.result_cache import ResultCache
from mooring.engine.suggestions import Suggestion
from mooring.framework.decision import TextAboutPods
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.testing.builders import coscheduling_pod_group, node, pod, pod_group

Raw = dict[str, Any]
GPU = "example.com/gpu"
GPU_SHARE = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


def members(count: int, **fields: Any) -> list[Raw]:
    return [pod(f"m{number}", group="g", **fields) for number in range(count)]


def pending(deciding: Deciding, raws: Iterable[Raw]) -> list[Pod]:
    pods = [parse_pod(raw) for raw in raws]
    for one in pods:
        deciding.state.put_unscheduled(one)
    return pods


def suggested(
    deciding: Deciding, raws: Iterable[Raw], *, steps: int = MOST_STEPS
) -> list[Suggestion]:
    """Return all suggestions for the group of these members, the cheapest first."""
    pods = pending(deciding, raws)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    found = group_suggestions(
        group,
        pods,
        deciding.pipeline,
        deciding.cluster,
        ResultCache(deciding.state.nodes),
        SearchBudget(steps),
    )
    return sorted((item for item in found if item is not None), key=lambda item: item.cost)


def changes(deciding: Deciding, raws: Iterable[Raw]) -> list[str]:
    return [plain(suggestion.change) for suggestion in suggested(deciding, raws)]


def test_a_group_waits_for_the_pod_that_takes_its_space() -> None:
    """Each member would fit alone, on a or beside the squatter, and the group does not."""
    deciding = Deciding(
        node("a", cpu="8", resources={GPU: 2}),
        node("b", cpu="8", resources={GPU: 2}),
        pod("web", namespace="shop", cpu="4", node="a"),
        pod("squat", namespace="batch", requests={GPU: 1}, node="b"),
        pod_group("g", 4),
    )
    found = suggested(deciding, members(4, requests={GPU: 1}))
    (ending,) = (each for each in found if each.ended)
    assert plain(ending.change) == "when batch/squat on b ends"
    assert isinstance(ending.change, TextAboutPods)
    assert ending.change.otherwise == "when a pod on b ends"
    assert ending.cause == f"pods that use {GPU}"
    assert "as it is" not in [plain(each.change) for each in found]


def test_the_fewest_pods_end_and_pods_of_daemon_sets_do_not() -> None:
    agent = pod("agent", cpu="1", node="a", owner={"kind": "DaemonSet", "name": "a", "uid": "1"})
    others = [pod(f"small-{number}", cpu="1", node="a") for number in range(3)]
    large = [pod(f"large-{number}", cpu="2", node="b") for number in range(2)]
    deciding = Deciding(
        node("a", cpu="4"), node("b", cpu="4"), agent, *others, *large, pod_group("g", 4)
    )
    texts = changes(deciding, members(4, cpu="1"))
    assert "when 2 pods end: default/large-0, default/large-1" in texts


def test_one_pod_on_each_node_ends_where_each_node_lacks_little() -> None:
    nodes = [node(name, cpu="4") for name in "abc"]
    others = [pod(f"{name}-{number}", cpu="1", node=name) for name in "abc" for number in range(3)]
    deciding = Deciding(*nodes, *others, pod_group("g", 3))
    (ending,) = (each for each in suggested(deciding, members(3, cpu="2")) if each.ended)
    assert {ref.name[0] for ref in ending.ended} == {"a", "b", "c"}
    assert len(ending.ended) == 3


def test_pods_of_few_nodes_end_where_members_need_whole_nodes() -> None:
    nodes = [node(name, cpu="4") for name in "abc"]
    others = [pod(f"{name}-{number}", cpu="1", node=name) for name in "abc" for number in range(3)]
    deciding = Deciding(*nodes, *others, pod_group("g", 1))
    (ending,) = (each for each in suggested(deciding, members(1, cpu="4")) if each.ended)
    assert len({ref.name[0] for ref in ending.ended}) == 1
    assert len(ending.ended) == 3


def test_a_group_that_fits_by_now_is_told_so_and_nothing_else() -> None:
    deciding = Deciding(node("a", cpu="2"), node("b", cpu="2"), pod_group("g", 4))
    (only,) = suggested(deciding, members(4, cpu="1"))
    assert (only.change, only.cause) == ("as it is", "none any more, the members fit by now")
    assert (only.nodes, set(only.examples)) == (2, {"a", "b"})


def test_the_largest_request_of_each_member_is_named() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="4"), pod_group("g", 4))
    first = suggested(deciding, members(4, cpu="3"))[0]
    assert first.change == "if each member requested at most 2 of cpu instead of 3"
    assert (first.cause, first.nodes) == ("cpu", 2)


def test_the_largest_card_bounds_the_request_of_each_member() -> None:
    deciding = Deciding(gpu_node("a", cards=4, memory=16), pod_group("g", 2), plugins=GPU_SHARE)
    (only,) = changes(deciding, [share_pod(f"m{n}", memory=40, group="g") for n in range(2)])
    assert only.endswith("at most 16 of aliyun.com/gpu-mem instead of 40 (no card is larger)")


def test_no_member_is_told_to_do_without_memory() -> None:
    full = pod("full", memory="4Gi", node="a")
    deciding = Deciding(node("a", memory="4Gi"), full, pod_group("g", 2))
    assert changes(deciding, members(2, memory="1Gi")) == ["when default/full on a ends"]


def test_a_taint_is_to_be_tolerated_by_all_members() -> None:
    deciding = Deciding(node("a", taints=("gpu:NoSchedule",)), pod_group("g", 2))
    assert changes(deciding, members(2)) == [
        "if each member tolerated the taint gpu:NoSchedule",
    ]


def test_a_label_that_no_node_has_is_the_cause() -> None:
    deciding = Deciding(node("a"), pod_group("g", 2))
    (only,) = suggested(deciding, members(2, node_selector={"disk": "ssd"}))
    assert only.change == "if each member had no nodeSelector disk=ssd"
    assert only.cause == "no node has the label disk=ssd"


def test_a_smaller_minimum_is_called_as_the_kind_of_the_group_calls_it() -> None:
    deciding = Deciding(node("a", cpu="3"), pod_group("g", 4))
    assert "if its minCount were at most 3 instead of 4" in changes(deciding, members(4, cpu="1"))
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    deciding = Deciding(node("a", cpu="3"), coscheduling_pod_group("g", 4))
    raws = [pod(f"m{number}", cpu="1", labels=labels) for number in range(4)]
    assert "if its minMember were at most 3 instead of 4" in changes(deciding, raws)


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
    found = suggested(deciding, members(4, cpu="1"))
    assert [plain(each.change) for each in found if each.ended] == ["when default/small on b ends"]


def test_what_is_suggested_is_true_in_a_cluster_without_these_pods() -> None:
    objects = [node("a", cpu="4"), node("b", cpu="4"), pod_group("g", 6)]
    others = [pod(f"other-{number}", cpu="1", node="ab"[number % 2]) for number in range(5)]
    found = suggested(Deciding(*objects, *others), members(6, cpu="1"))
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
        searched = SearchedMembers(
            each.pods, fresh.pipeline, fresh.cluster, fresh.shared, seed=0, rejected={}
        )
        assert decide_group(group, searched).rows


def test_nothing_more_is_tried_once_the_budget_is_spent() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("full", cpu="2", node="a"), pod_group("g", 2))
    assert suggested(deciding, members(2, cpu="1"), steps=-1) == []


def test_the_state_is_as_before() -> None:
    deciding = Deciding(node("a", cpu="2"), pod("full", cpu="2", node="a"), pod_group("g", 2))
    suggested(deciding, members(2, cpu="1"))
    assert deciding.cluster.nodes.requested("cpu").tolist()[0] == 2000
    assert [placed.pod.name for placed in deciding.cluster.pods_of("a")] == ["full"]
