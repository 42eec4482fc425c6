from typing import Any

import pytest

from device_builders import (
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.groups.model.pod_group import NODES_RESERVED
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import Manifest
from mooring.simulate.simulation import SimulatedAttempt, Simulation, simulate
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import api_object, namespace, node, pod, pod_group, priority_class


def attempts(
    *objects: dict[str, Any],
    seed: int = 0,
    nodes: int | None = None,
    plugins: tuple[type[Any], ...] = (),
) -> list[SimulatedAttempt]:
    registry = Registry((*SHIPPED, *plugins), {})
    manifests = [Manifest(f"document {i}", raw) for i, raw in enumerate(objects)]
    inputs = inputs_of(manifests, registry)
    return list(simulate(inputs, registry, seed=seed, nodes=nodes))


def places(*objects: dict[str, Any], **options: Any) -> dict[str, str | None]:
    return {a.decision.pod.key: a.decision.node for a in attempts(*objects, **options)}


def profile(name: str, **spec: Any) -> dict[str, Any]:
    return api_object("SchedulingProfile", name, spec=spec)


def test_a_scheduled_pod_counts_for_the_next_one() -> None:
    found = places(node("n1", cpu="1"), node("n2", cpu="1"), *(pod(n, cpu="1") for n in "abc"))
    assert sorted(filter(None, found.values())) == ["n1", "n2"]
    assert found["default/c"] is None


def test_pods_are_ordered_by_priority_then_creation_then_input() -> None:
    unstored = pod("unstored")
    del unstored["metadata"]["creationTimestamp"]
    order = [
        a.decision.pod.name
        for a in attempts(
            unstored,
            pod("late", created="2026-01-02T00:00:00Z"),
            pod("early-1"),
            pod("early-2"),
            pod("urgent", priority=5, created="2026-01-03T00:00:00Z"),
        )
    ]
    assert order == ["urgent", "early-1", "early-2", "late", "unstored"]


def test_an_unschedulable_pod_has_kube_schedulers_message_and_a_reason_for_every_node() -> None:
    (attempt,) = attempts(node("n1", cpu="1"), node("n2", unschedulable=True), pod(cpu="2"))
    decision = attempt.decision
    assert decision.node is None
    assert decision.message is not None
    assert decision.message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    )
    assert {n: r.plugin for n, r in decision.rejections.items()} == {
        "n1": "NodeResourcesFit",
        "n2": "NodeUnschedulable",
    }


def test_without_nodes_there_is_one_message() -> None:
    (attempt,) = attempts(pod())
    assert attempt.decision.message == "no nodes available to schedule pods"


def test_a_gated_pod_is_not_scheduled_and_comes_last() -> None:
    first, last = attempts(node("n1"), pod("gated", gates=["wait"], priority=9), pod("free"))
    assert (first.decision.pod.key, first.decision.node) == ("default/free", "n1")
    assert last.decision.message == "waiting for scheduling gates: [wait]"


def test_many_gates_are_no_failure_of_the_plugin() -> None:
    """The API server does not limit the number of gates, and failures trigger an alert."""
    (found,) = attempts(pod("web", gates=[f"example.com/{'g' * 60}{i}" for i in range(20)]))
    assert (found.decision.message or "").startswith("waiting for scheduling gates: [example.com/g")
    assert (found.decision.message or "").endswith("...]")


@pytest.mark.parametrize(
    "disabled",
    [
        (),
        ("VolumeRestrictions",),
        ("VolumeRestrictions", "VolumeBinding"),
        ("VolumeRestrictions", "VolumeBinding", "VolumeZone"),
    ],
)
def test_a_long_name_of_a_claim_is_no_failure_of_a_plugin(disabled: tuple[str, ...]) -> None:
    """The API server accepts a pod that names an impossible claim."""
    plugins = {"multiPoint": {"disabled": [{"name": name} for name in disabled]}}
    web = pod("web", claims=["c" * 2_000])
    (found,) = attempts(node("a"), web, profile("default-scheduler", plugins=plugins))
    assert f'persistentvolumeclaim "{"c" * 250}..." not found' in (found.decision.message or "")
    assert "returned a reason" not in (found.decision.message or "")


def test_a_pod_of_another_scheduler_has_no_profile() -> None:
    (attempt,) = attempts(node("n1"), pod(spec={"schedulerName": "other"}))
    assert (attempt.decision.profile, attempt.decision.node) == (None, None)
    assert attempt.decision.message == 'no profile takes pods of schedulerName "other"'


def test_a_pod_of_a_misspelt_scheduler_name_is_told_which_is_meant() -> None:
    (attempt,) = attempts(node("n1"), pod(spec={"schedulerName": "defaultscheduler"}))
    assert attempt.decision.message == (
        'no profile takes pods of schedulerName "defaultscheduler", did you mean default-scheduler?'
    )


def test_profiles_of_the_input_apply_by_namespace() -> None:
    def strategy(name: str) -> list[dict[str, Any]]:
        return [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": name}}}]

    dense = {"schedulerNames": ["x"], "namespaceSelector": {"matchLabels": {"env": "batch"}}}
    found = places(
        profile("packed", match=dense | {"precedence": 1}, pluginConfig=strategy("MostAllocated")),
        profile("spread", match={"schedulerNames": ["x"]}),
        namespace("jobs", {"env": "batch"}),
        node("full"),
        node("free"),
        pod("there", cpu="2", memory="8Gi", node="full"),
        pod("a", namespace="jobs", cpu="100m", memory="100Mi", spec={"schedulerName": "x"}),
        pod("b", cpu="100m", memory="100Mi", spec={"schedulerName": "x"}),
    )
    assert found == {"jobs/a": "full", "default/b": "free"}


def test_scores_are_weighted_and_add_up() -> None:
    (attempt,) = attempts(node("n1"), node("n2", cpu="8"), pod(cpu="1"))
    scores = attempt.decision.scores
    assert scores is not None
    assert scores.keys() == {"n1", "n2"}
    for score in scores.values():
        assert score.total == sum(score.plugins.values())
    assert attempt.feasible == 2


def test_a_record_can_be_limited_to_the_best_node() -> None:
    (attempt,) = attempts(node("n1"), node("n2", cpu="8"), pod(cpu="1"), nodes=1)
    assert attempt.decision.scores is not None
    assert [*attempt.decision.scores] == [attempt.decision.node]


def test_the_same_seed_gives_the_same_decisions_and_seeds_differ() -> None:
    objects = [node(f"n{i}") for i in range(8)] + [pod(f"p{i}") for i in range(4)]
    by_seed = [places(*objects, seed=seed) for seed in range(8)]
    assert by_seed[3] == places(*objects, seed=3)
    assert len({tuple(found.values()) for found in by_seed}) > 1


def test_a_host_port_of_an_earlier_pod_is_in_use() -> None:
    found = places(node("n1"), pod("a", ports=[80]), pod("b", ports=[80]))
    assert found == {"default/a": "n1", "default/b": None}


class Quota:
    """A plugin whose Reserve accepts one pod and rejects all others."""

    name = "Quota"
    depends_on_node_only = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        self._taken = 0

    def reserve(self, _pod: Pod, _node: str) -> Unschedulable | None:
        self._taken += 1
        return Unschedulable("quota used up") if self._taken > 1 else None

    def unreserve(self, _pod: Pod, _node: str) -> None:
        self._taken -= 1


def test_a_pod_rejected_at_reserve_is_forgotten() -> None:
    enabled = profile("default-scheduler", plugins={"reserve": {"enabled": [{"name": "Quota"}]}})
    objects = [enabled, node("n1", cpu="2"), *(pod(n, cpu="1") for n in "abc")]
    first, *others = attempts(*objects, plugins=(Quota,))
    assert first.decision.node == "n1"
    assert {a.decision.message for a in others} == {"0/1 nodes are available: 1 quota used up."}


class Fails:
    name = "Fails"
    depends_on_node_only = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def pre_filter(self, _pod: Pod, _cluster: ClusterView) -> None:
        raise PluginError("the catalogue is empty")


class FailsForOne(Fails):
    """A plugin that fails for the pod `broken`."""

    name = "FailsForOne"

    def pre_enqueue(self, pod: Pod) -> None:
        """Raise an error for the pod `broken`; accept all other pods."""
        if pod.name == "broken":
            raise SystemExit("the catalogue is empty")


def test_a_pre_enqueue_that_fails_leaves_that_pod_alone_without_a_node() -> None:
    enabled = profile(
        "default-scheduler", plugins={"preEnqueue": {"enabled": [{"name": "FailsForOne"}]}}
    )
    found = attempts(enabled, node("n1"), pod("broken"), pod("web"), plugins=(FailsForOne,))
    placed, failed = (a.decision for a in found)
    assert (placed.pod.key, placed.node, placed.message) == ("default/web", "n1", None)
    assert (failed.pod.key, failed.node) == ("default/broken", None)
    text = 'running PreEnqueue plugin "FailsForOne": the catalogue is empty (test_simulation.py:'
    assert failed.message is not None
    assert failed.message.startswith(text)


def test_a_plugin_error_leaves_the_pod_without_a_node() -> None:
    enabled = profile("default-scheduler", plugins={"preFilter": {"enabled": [{"name": "Fails"}]}})
    (attempt,) = attempts(enabled, node("n1"), pod(), plugins=(Fails,))
    assert (attempt.decision.node, attempt.decision.message) == (
        None,
        'running PreFilter plugin "Fails": the catalogue is empty',
    )


@pytest.mark.parametrize("percentage", [5, 0])
def test_a_search_that_stops_early_starts_where_the_last_one_ended(percentage: int) -> None:
    sampling = profile("default-scheduler", percentageOfNodesToScore=percentage)
    nodes = [node(f"n{i:03}") for i in range(250)]
    first, second = attempts(sampling, *nodes, pod("a"), pod("b"))
    assert (first.feasible, second.feasible) == (
        min(250, 100 if percentage else 120),
        first.feasible,
    )
    assert first.decision.scores is not None
    assert second.decision.scores is not None
    assert first.decision.scores.keys() != second.decision.scores.keys()


def test_a_preemption_is_recorded_and_its_victims_stay() -> None:
    first, second = attempts(
        node("n1", cpu="1"),
        pod("victim", cpu="1", node="n1"),
        pod("urgent", cpu="1", priority=9),
        pod("later", cpu="1"),
    )
    assert first.decision.node is None
    assert first.decision.nominated_node == "n1"
    assert [v.key for v in first.decision.victims] == ["default/victim"]
    assert (second.decision.node, second.decision.victims) == (None, ())


def test_pods_of_lower_priority_do_not_get_the_resources_of_a_nomination() -> None:
    found = places(
        node("n1", cpu="2"),
        pod("victim", cpu="1", node="n1"),
        pod("urgent", cpu="2", priority=9),
        pod("fits-now", cpu="1"),
    )
    assert found == {"default/urgent": None, "default/fits-now": None}


def test_a_nomination_in_the_dump_is_respected() -> None:
    found = places(
        node("n1", cpu="1"),
        pod("waits", cpu="1", priority=5, nominated="n1", gates=["wait"]),
        pod("low", cpu="1"),
        pod("high", cpu="1", priority=9),
    )
    assert found == {"default/high": "n1", "default/low": None, "default/waits": None}


@pytest.mark.parametrize("also", [(), ("m0",)])
def test_reserved_nodes_in_the_dump_keep_out_lower_pods_also_where_the_group_is_not_decided_about(
    also: tuple[str, ...],
) -> None:
    told = "reserved for the group: n1, until 2026-11-28T13:12:00Z"
    condition = {"type": NODES_RESERVED, "status": "True", "message": told}
    registry = Registry(SHIPPED, {})
    why = "0/1 nodes are available: 1 node(s) reserved for podgroup/g until 13:12 UTC."
    for priority, answer in ((0, (None, why)), (1, ("n1", None))):
        objects = (
            node("n1", cpu="4"),
            pod("runs", cpu="2", node="n1"),
            pod_group("g", 1, status={"conditions": [condition]}),
            pod("m0", cpu="4", group="g", nominated="n1", priority=1),
            pod("small", cpu="2", priority=priority),
        )
        inputs = inputs_of([Manifest("file", raw) for raw in objects], registry)
        chosen = [one for one in inputs.pending if one.name in ("small", *also)]
        attempts = Simulation(inputs, registry, preempts=False).attempts(chosen)
        found = {each.decision.pod.name: each.decision for each in attempts}
        assert (found["small"].node, found["small"].message) == answer


def test_the_time_is_the_latest_one_in_the_dump() -> None:
    """A profile with `minRuntimeSeconds` must protect a young pod whenever the test runs."""
    spare = profile("default-scheduler", preemption={"minRuntimeSeconds": 3600})
    old, young = "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"
    (attempt,) = attempts(
        spare,
        node("n1", cpu="1"),
        node("n2", cpu="1"),
        pod("old", cpu="1", node="n1", started=old),
        pod("young", cpu="1", node="n2", started=young),
        pod("urgent", cpu="1", priority=9),
    )
    assert [v.key for v in attempt.decision.victims] == ["default/old"]


def test_a_pod_that_waits_for_terminating_victims_keeps_its_nomination_in_the_record() -> None:
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    (attempt,) = attempts(
        node("n1", cpu="1"),
        pod("victim", cpu="1", node="n1", terminating=True, status={"conditions": [preempted]}),
        pod("waits", cpu="1", priority=5, nominated="n1"),
    )
    assert attempt.decision.nominated_node == "n1"
    assert attempt.decision.victims == ()


def test_an_attempt_knows_the_controller_and_the_reason_in_a_few_words() -> None:
    owner = {"kind": "Job", "name": "night", "uid": "u"}
    (attempt,) = attempts(node("n1"), pod("a", cpu="9", owner=owner))
    assert (attempt.owner, attempt.reason) == ("Job default/night", "Insufficient cpu")


def test_a_profile_can_decide_about_pods_that_it_does_not_match() -> None:
    registry = Registry(SHIPPED, {})
    objects = (node("n1"), pod("a"), profile("packed"))
    inputs = inputs_of([Manifest("file", raw) for raw in objects], registry)
    (attempt,) = simulate(inputs, registry, seed=0, profile="packed")
    assert (attempt.decision.profile, attempt.decision.node) == ("packed", "n1")


def test_a_pod_that_is_forbidden_is_rejected_with_the_answer_of_the_api_server() -> None:
    raw = pod("a", spec={"priorityClassName": "gone"})
    del raw["spec"]["priority"]
    (attempt,) = attempts(node("n1"), raw)
    words = "forbidden: no PriorityClass with name gone was found"
    assert attempt.decision.message == f'pods "a" is {words}'
    assert attempt.reason == words


def gang(name: str, size: int, **fields: Any) -> list[dict[str, Any]]:
    return [pod(f"{name}{i}", group=name, **fields) for i in range(size)]


def test_the_members_of_a_group_get_nodes_together_or_not_at_all() -> None:
    found = places(
        node("n1", cpu="4"),
        pod_group("fits", 3),
        pod_group("waits", 3),
        *gang("fits", 3, cpu="1"),
        *gang("waits", 3, cpu="1"),
        pod("single", cpu="1"),
    )
    assert found == {
        **{f"default/fits{i}": "n1" for i in range(3)},
        **{f"default/waits{i}": None for i in range(3)},
        "default/single": "n1",
    }


def test_a_node_that_was_compared_with_no_other_is_not_called_the_only_one() -> None:
    group = attempts(node("n1"), node("n2"), pod_group("train", 2), *gang("train", 2))
    (nominated,) = attempts(node("n1"), node("n2"), pod("web", nominated="n2"))
    assert {each.reason for each in group} == {"placed together with its pod group"}
    assert (nominated.decision.node, nominated.reason) == ("n2", "its nominated node")
    assert {each.feasible for each in (*group, nominated)} == {0}


def of_class(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the object as a user writes it, with a PriorityClass."""
    spec = {key: value for key, value in raw["spec"].items() if key != "priority"}
    metadata = {key: value for key, value in raw["metadata"].items() if key != "uid"}
    return {**raw, "metadata": metadata, "spec": {**spec, "priorityClassName": name}}


def test_a_new_group_has_the_priority_of_its_class_as_its_members_have() -> None:
    members = [of_class(raw, "high") for raw in gang("train", 2)]
    group, high = of_class(pod_group("train", 2), "high"), priority_class("high", 1000)
    assert places(group, node("n1"), *members, high) == dict.fromkeys(
        ("default/train0", "default/train1"), "n1"
    )


def test_a_new_group_whose_class_is_missing_says_so() -> None:
    group = of_class(pod_group("train", 2), "gone")
    answer = 'podgroups.scheduling.k8s.io "train" is forbidden: no PriorityClass with name gone was'
    for attempt in attempts(node("n1"), group, *gang("train", 2)):
        assert attempt.decision.message == f"{answer} found"


def test_a_pod_beyond_the_limits_gets_no_node_as_in_a_cluster() -> None:
    requests = {f"acme.example/r{i}": 1 for i in range(LIMITS[Counted.RESOURCES] + 1)}
    (attempt,) = attempts(node("n1"), pod("large", requests=requests))
    assert attempt.decision.node is None
    assert "resources" in str(attempt.decision.message)


def test_a_member_of_a_group_that_is_not_complete_says_so() -> None:
    (attempt,) = attempts(node("n1"), pod_group("g", 2), *gang("g", 1))
    assert attempt.decision.message == "1 of 2 members exist"
    assert attempt.reason == "1 of 2 members exist"


def test_members_of_a_group_that_does_not_fit_have_its_cause_as_reason() -> None:
    found = attempts(node("n1", cpu="2"), pod_group("g", 3), *gang("g", 3, cpu="1"))
    assert {attempt.reason for attempt in found} == {"Insufficient cpu"}


def test_the_preemption_for_a_group_is_recorded() -> None:
    first, second = attempts(
        node("n1", cpu="2"),
        pod("low", cpu="2", node="n1"),
        pod_group("g", 2, priority=10),
        *gang("g", 2, cpu="1", priority=10),
    )
    assert first.decision.nominated_node == second.decision.nominated_node == "n1"
    assert [v.key for v in first.decision.victims] == ["default/low"]
    assert first.decision.node is None


# ---- Claims for devices

GPUS = (
    device_class("gpu"),
    resource_slice("s1", ["d0"], node="n1"),
    resource_slice("s2", ["d0", "d1"], node="n2"),
)


def using(name: str, claim: str, **fields: Any) -> dict[str, Any]:
    entries = [{"name": "gpu", "resourceClaimName": claim}]
    return pod(name, spec={"resourceClaims": entries}, **fields)


def test_devices_that_a_pod_gets_are_in_use_for_the_next_one() -> None:
    claims = [
        device_claim(name, request(count=count))
        for name, count in zip("abc", (2, 1, 1), strict=True)
    ]
    pods = [using(f"p-{name}", name) for name in "abc"]
    found = places(node("n1"), node("n2"), *GPUS, *claims, *pods)
    assert found == {"default/p-a": "n2", "default/p-b": "n1", "default/p-c": None}


def test_pods_that_share_a_claim_go_to_the_node_of_its_devices() -> None:
    pods = [using(name, "claim") for name in ("p1", "p2", "p3")]
    found = places(node("n1"), node("n2"), *GPUS, device_claim(), *pods)
    assert len({*found.values()}) == 1
    assert None not in found.values()


def test_members_of_a_group_that_share_a_claim_are_placed_together() -> None:
    group = pod_group("g", 3)
    members = [using(name, "claim", group="g") for name in ("p1", "p2", "p3")]
    two = device_claim("claim", request(count=2))
    found = places(node("n1"), node("n2"), *GPUS, group, two, *members)
    assert {*found.values()} == {"n2"}


def test_members_of_a_group_take_devices_beside_each_other() -> None:
    claims = [device_claim(name) for name in "abcd"]
    members = [using(f"p-{name}", name, group="g") for name in "abc"]
    objects = (node("n1"), node("n2"), *GPUS, *claims)
    found = places(*objects, pod_group("g", 3), *members)
    assert sorted(str(where) for where in found.values()) == ["n1", "n2", "n2"]
    more = (*members, using("p-d", "d", group="g"))
    assert {*places(*objects, pod_group("g", 4), *more).values()} == {None}
