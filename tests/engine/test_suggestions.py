"""What is suggested for a pending pod makes it fit, by the word of the engine itself."""

from collections.abc import Mapping
from typing import Any

from hypothesis import assume, given, settings

import strategies
from deciding import Deciding
from devices.objects import gpu_node, share_pod
from mooring.engine.cycle import decide
from mooring.engine.outcome import FitError, ScheduleResult
from mooring.engine.result_cache import ResultCache
from mooring.engine.suggestions import Suggestion, suggestions
from mooring.engine.what_if import WhatIf
from mooring.framework.decision import TextAboutPods
from mooring.model.pod import parse_pod
from mooring.observe.documents import plain
from mooring.testing.builders import node, pod
from mooring.testing.contract import Scenario

Raw = Mapping[str, Any]
CPU = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
GPU_SHARE = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


def suggested(deciding: Deciding, raw: Raw) -> list[Suggestion]:
    """Return all suggestions, the cheapest first."""
    what_if = WhatIf(deciding.cluster, ResultCache(deciding.state.nodes))
    found = suggestions(parse_pod(raw), deciding.pipeline, what_if)
    return sorted((item for item in found if item is not None), key=lambda item: item.cost)


def changes(deciding: Deciding, raw: Raw) -> list[str]:
    return [plain(suggestion.change) for suggestion in suggested(deciding, raw)]


def hidden(deciding: Deciding, raw: Raw) -> list[str]:
    """Return what users read who may not get the pods that are to end."""
    texts = (suggestion.change for suggestion in suggested(deciding, raw))
    return [text.otherwise for text in texts if isinstance(text, TextAboutPods)]


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
    assert first.cause == "memory"
    assert first.nodes == 2
    assert set(first.examples) == {"a", "b"}


def test_a_pod_that_fits_by_now_is_told_so_and_nothing_else() -> None:
    deciding = Deciding(node("a", cpu="4"), node("b", cpu="1"), node("c", unschedulable=True))
    (only,) = suggested(deciding, pod("web", cpu="2"))
    assert only.change == "as it is"
    assert only.cause == "no filter rejects every node any more"
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


def test_a_taint_is_named_with_its_value_and_effect() -> None:
    deciding = Deciding(node("a", taints=("team=gpu:NoSchedule",)))
    assert changes(deciding, pod("web")) == ["if it tolerated the taint team=gpu:NoSchedule"]


def test_a_cordoned_node_is_called_so() -> None:
    deciding = Deciding(node("a", unschedulable=True))
    assert changes(deciding, pod("web")) == ["if it might use cordoned nodes"]


def test_a_label_that_no_node_has_is_named() -> None:
    deciding = Deciding(node("a", labels={"disk": "hdd"}))
    raw = pod("web", node_selector={"disk": "ssd"})
    (only,) = suggested(deciding, raw)
    assert only.change == "if it had no nodeSelector disk=ssd"
    assert only.cause == "no node has the label disk=ssd"


def test_a_label_that_other_nodes_have_is_not_called_missing() -> None:
    full = pod("other", cpu="4", node="a")
    deciding = Deciding(node("a", cpu="4", labels={"disk": "ssd"}), node("b", cpu="4"), full)
    first = suggested(deciding, pod("web", cpu="3", node_selector={"disk": "ssd"}))[-1]
    assert first.cause == "nodeSelector disk"


def test_a_label_of_the_node_affinity_that_no_node_has_is_named() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    (only,) = suggested(Deciding(node("a")), pod("web", spec={"affinity": affinity}))
    assert only.cause == "no node has the label zone in (a,b)"


def test_a_feature_that_no_node_declares_is_named() -> None:
    raw = pod("web", spec={"hostNetwork": True, "hostUsers": False})
    (only,) = suggested(Deciding(node("a")), raw)
    assert only.change == "if it had no hostUsers: false beside hostNetwork"
    assert only.cause == "no node declares the feature UserNamespacesHostNetworkSupport"
    declaring = node("b", status={"declaredFeatures": ["UserNamespacesHostNetworkSupport"]})
    full = pod("other", cpu="4", node="b")
    found = suggested(Deciding(node("a"), declaring, full), {**raw, "spec": raw["spec"] | CPU})
    assert "feature UserNamespacesHostNetworkSupport" in {item.cause for item in found}


def test_a_claim_that_is_missing_is_to_be_created() -> None:
    (only,) = suggested(Deciding(node("a")), pod("web", namespace="shop", claims=["nope"]))
    assert only.change == "once you create claim shop/nope"
    assert only.cause == "claim shop/nope does not exist"
    assert (only.nodes, only.examples) == (1, ("a",))


def test_a_request_is_bounded_by_the_largest_card_and_not_by_the_node() -> None:
    deciding = Deciding(gpu_node("a", cards=4, memory=16), plugins=GPU_SHARE)
    assert changes(deciding, share_pod("train", memory=40)) == [
        "if it requested at most 16 of aliyun.com/gpu-mem instead of 40 (no card is larger)"
    ]


def test_a_request_by_container_is_bounded_by_the_largest_card_too() -> None:
    """With HAMi each container has cards of its own, and their memory counts by card."""
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


def test_nothing_is_suggested_without_nodes() -> None:
    assert changes(Deciding(), pod("web")) == []


@settings(max_examples=200)
@given(strategies.scenarios())
def test_every_suggestion_is_true(scenario: Scenario) -> None:
    deciding = Deciding(*scenario.nodes, *scenario.others)
    assume(isinstance(deciding.outcome(scenario.pod), FitError))
    for suggestion in suggested(deciding, scenario.pod):
        ended = {pod.key for pod in suggestion.ended}
        remaining = [raw for raw in scenario.others if _key(raw) not in ended]
        fresh = Deciding(*scenario.nodes, *remaining)
        (changed,) = suggestion.pods
        outcome = decide(changed, fresh.pipeline, fresh.cluster, fresh.shared, seed=0)
        assert isinstance(outcome, ScheduleResult), suggestion
        if not suggestion.ended:
            assert outcome.feasible_nodes == suggestion.nodes, suggestion


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}" if raw["kind"] == "Pod" else ""
