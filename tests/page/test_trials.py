"""Tries pods and profiles on the live state, which stays unchanged."""

import asyncio
import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, ClassVar

import pytest
import yaml

from device_builders import device_class, resource_slice
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.events import Kind
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.page import trials
from mooring.page.trials import (
    CompareRequest,
    TryAnswer,
    TryRequest,
    WhatIfRunner,
)
from mooring.page.turns import TrialsBusy
from mooring.plugins import SHIPPED
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import InputError, Manifest, manifests_in
from mooring.simulate.simulation import simulate
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import (
    api_object,
    node,
    pod,
    pod_group,
    priority_class,
    queue_object,
    service,
    uid_of,
)
from new_manifests import GROUP, deployment, gang, listed, new, text
from scheduler_states import SHIPPED_ONLY, put_profile, scheduler_state
from storage_builders import pv, pvc, storage_class

MEMBER = {GROUP: "train"}
ZONE = "topology.kubernetes.io/zone"
CLUSTER = (node("a", cpu="4"), node("b", cpu="8"), pod("runs", cpu="1", node="a"))
PACKED = """
apiVersion: scheduling.mooring.dev/v1alpha1
kind: SchedulingProfile
metadata: {name: packed}
spec:
  pluginConfig:
    - name: NodeResourcesFit
      args: {scoringStrategy: {type: MostAllocated}}
"""


def stage(*objects: dict[str, Any]) -> tuple[SchedulerState, WhatIfRunner]:
    shared = scheduler_state(*(objects or CLUSTER))
    put_profile(shared)
    return shared, WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)


async def tried(manifests: str, *objects: dict[str, Any], **fields: str) -> dict[str, Any]:
    trials = stage(*objects)[1]
    found: dict[str, Any] = plain(
        await trials.tried(TryRequest(manifests, **fields), everything, detailed=True)
    )
    return found


def places(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [pod for each in found["decisions"] for pod in each["pods"]]


def nodes(found: dict[str, Any]) -> list[str | None]:
    return [each["node"] for each in places(found)]


def simulated(manifests: str, *objects: dict[str, Any]) -> list[str | None]:
    """Return the nodes that `mooring simulate` chooses for the pods of the text, in order."""
    stored = [Manifest("cluster", raw) for raw in objects]
    inputs = inputs_of([*stored, *manifests_in(manifests, "file")], SHIPPED_ONLY)
    found = {a.decision.pod.key: a.decision.node for a in simulate(inputs, SHIPPED_ONLY, seed=0)}
    return [found[pod.key] for pod in inputs.pending]


async def everything(namespaces: Iterable[str]) -> frozenset[str]:
    return frozenset(namespaces)


async def test_a_pod_is_decided_as_the_scheduler_would() -> None:
    found = await tried(text(pod("web", cpu="6")))
    assert nodes(found) == ["b"]
    assert found["details"]["feasible"] == 1
    (decision,) = found["decisions"]
    assert (decision["fits"], decision["feasible"]) == (True, 1)
    assert "suggestions" not in decision


async def test_an_unschedulable_pod_is_told_why_and_what_would_help() -> None:
    found = await tried(text(pod("web", cpu="64")))
    assert nodes(found) == [None]
    assert "2 Insufficient cpu" in found["decisions"][0]["message"]
    first = found["decisions"][0]["suggestions"][0]
    assert first["nodes"] == 1
    assert first["change"] == "if it requested at most 8 of cpu instead of 64"


@pytest.mark.parametrize("where", ["in force", "edited"])
async def test_what_rules_read_is_evaluated_in_as_many_turns_as_it_takes(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "MOST_PER_ATTEMPT", 5_000)
    serials = (node(f"n{i}", labels={"serial": f"n{i}"}) for i in range(40))
    shared = scheduler_state(*serials, most_per_attempt=5_000)
    rules = [{"name": "dear", "filter": "!node.labels.serial.matches('^x(abc){60}')"}]
    profile = {**yaml.safe_load(PACKED), "spec": {"rules": rules}}
    if where == "in force":
        put_profile(shared, rules=rules)
    runner = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    edited = yaml.safe_dump(profile) if where == "edited" else ""
    wanted = TryRequest(text(new(pod())), profile_text=edited)
    (found,) = (await runner.tried(wanted, everything)).decisions
    assert found.fits


async def test_other_work_runs_while_the_rules_of_an_edited_profile_are_planned() -> None:
    """Planning takes milliseconds per rule, and a text may have hundreds of rules."""
    rules = [{"name": f"r{i}", "filter": f"node.name != 'other-{i}'"} for i in range(30)]
    profile = {**yaml.safe_load(PACKED), "spec": {"rules": rules}}
    _, trials = stage()
    wanted = TryRequest("kind: none", profile_text=yaml.safe_dump_all([profile] * 2))
    trying, others = asyncio.create_task(trials.tried(wanted, everything)), 0
    while not trying.done():
        others += 1
        await asyncio.sleep(0)
    with pytest.raises(InputError, match="holds 2 profiles; write one"):
        await trying
    assert others > 30


async def test_nothing_stays_of_a_trial() -> None:
    shared, trials = stage()
    before = shared.cluster.nodes.requested("cpu").tolist()
    plain(await trials.tried(TryRequest(text(deployment("web", 3, "1"))), everything))
    assert shared.cluster.nodes.requested("cpu").tolist() == before
    assert len(shared.state.pods) == 1
    assert not shared.cluster.objects(Kind.REPLICA_SET)
    assert list(shared.queue) == []
    assert list(shared.cluster.pod_groups) == []


async def test_the_pods_of_a_deployment_see_each_other() -> None:
    found = await tried(text(deployment("web", 4, "3")))
    assert sorted(str(name) for name in nodes(found)) == ["None", "a", "b", "b"]
    assert found["details"]["pod"] == places(found)[0]["pod"]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
async def test_the_pods_of_a_controller_go_where_simulate_has_them_go(kind: str) -> None:
    """The default spread constraints count the pods of the same controller."""
    wanted = text({**deployment("web", 9, "100m"), "kind": kind})
    objects = [node(f"n{i}", cpu="16", labels={ZONE: f"z{i % 3}"}) for i in range(20)]
    found = await tried(wanted, *objects)
    assert nodes(found) == simulated(wanted, *objects)
    assert len({*nodes(found)}) == 9


async def test_pods_get_devices_and_volumes_beside_each_other_as_simulate_gives_them() -> None:
    extended = device_class(extendedResourceName="example.com/gpu")
    devices = (extended, resource_slice("own", ["d0", "d1"], node="a"))
    three = text(*(pod(f"gpu-{n}", requests={"example.com/gpu": 1}) for n in range(3)))
    assert nodes(await tried(three, *CLUSTER, *devices)) == ["a", "a", None]
    assert simulated(three, *CLUSTER, *devices) == ["a", "a", None]
    claims = [pvc(f"data-{n}", storage_class="local") for n in range(2)]
    volumes = (storage_class("local"), pv("disk", storage_class="local"), *claims)
    two = text(*(pod(f"db-{n}", claims=[f"data-{n}"]) for n in range(2)))
    assert nodes(await tried(two, *CLUSTER, *volumes)) == ["b", None]
    assert simulated(two, *CLUSTER, *volumes) == ["b", None]


async def test_pods_spread_by_a_service_of_the_text_as_simulate_has_them_spread() -> None:
    objects = [node(f"n{i}", cpu="16") for i in range(4)]
    members = [pod(f"p{i}", cpu="100m", labels={"app": "web"}) for i in range(4)]
    wanted = text(service("web", {"app": "web"}), *members)
    found = await tried(wanted, *objects)
    assert nodes(found) == simulated(wanted, *objects)
    assert len({*nodes(found)}) == 4


async def test_pods_that_preempt_are_nominated_to_the_nodes_that_simulate_has() -> None:
    """Room that a preemption frees is kept for its pod, so the next pod needs another node."""
    low = [pod(f"low-{name}", cpu="1", node=name, priority=1) for name in "abc"]
    objects = [*(node(name, cpu="1") for name in "abc"), *low, priority_class("high", 100)]
    spec = {"priorityClassName": "high", "priority": None}
    wanted = text(*(pod(f"p{i}", cpu="1", spec=spec) for i in range(3)))
    found = await tried(wanted, *objects)
    stored = [Manifest("cluster", raw) for raw in objects]
    inputs = inputs_of([*stored, *manifests_in(wanted, "file")], SHIPPED_ONLY)
    attempts = simulate(inputs, SHIPPED_ONLY, seed=0)
    assert {each["pod"]: each["nominatedNode"] for each in places(found)} == {
        attempt.decision.pod.key: attempt.decision.nominated_node for attempt in attempts
    }
    assert {each["nominatedNode"] for each in places(found)} == {*"abc"}


async def test_what_would_help_is_found_in_the_state_that_was_tried() -> None:
    """The tried state lacks the pod that is replaced, and has the Service of the text."""
    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    args = {"defaultConstraints": [constraint], "defaultingType": "List"}
    labels = {"app": "web"}
    objects = (
        node("a", cpu="1"),
        node("b", cpu="8"),
        pod("old", cpu="1", node="a"),
        pod("web-1", node="b", labels=labels),
    )
    shared = scheduler_state(*objects)
    put_profile(shared, pluginConfig=[{"name": "PodTopologySpread", "args": args}])
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    wanted = text(service("web", labels), pod("web-2", cpu="1", labels=labels))
    found = plain(await trials.tried(TryRequest(wanted), everything))
    assert nodes(found) == [None]
    changes = [each["change"] for each in found["decisions"][0]["suggestions"]]
    assert "when default/old on a ends" in changes
    assert "as it is" not in changes


async def test_the_cluster_may_change_between_two_decisions() -> None:
    shared, trials = stage()
    waiting = asyncio.create_task(
        trials.tried(TryRequest(text(deployment("web", 4, "1"))), everything)
    )
    while not waiting.done():
        shared.state.put_unscheduled(parse_pod(pod("other")))
        await asyncio.sleep(0)
    assert None not in nodes(plain(await waiting))


async def test_a_stored_pod_is_tried_as_if_it_were_new() -> None:
    found = await tried(yaml.safe_dump(pod("runs", cpu="4", node="a")))
    assert nodes(found) == ["b"] or found["details"]["feasible"] == 2


async def test_a_named_profile_decides_whatever_it_matches() -> None:
    shared, trials = stage()
    put_profile(shared, "other", mode="Active")
    found = plain(await trials.tried(TryRequest(text(pod("web")), profile="other"), everything))
    assert found["decisions"][0]["profile"] == "other"
    with pytest.raises(InputError, match='no profile "none" in force'):
        plain(await trials.tried(TryRequest(text(pod("web")), profile="none"), everything))


async def test_an_edited_profile_decides_without_being_put_in_force() -> None:
    shared, trials = stage()
    spread = plain(
        await trials.tried(TryRequest(text(pod("web", cpu="1", memory="1Gi"))), everything)
    )
    found = plain(
        await trials.tried(
            TryRequest(text(pod("web", cpu="1", memory="1Gi")), profile_text=PACKED), everything
        )
    )
    assert (nodes(spread), nodes(found)) == (["b"], ["a"])
    assert list(shared.profiles.in_force) == ["default-scheduler"]


async def test_mistakes_of_an_edited_profile_are_told_with_their_fields() -> None:
    broken = PACKED.replace("MostAllocated", "Fullest")
    with pytest.raises(InputError, match=r"the profile, document 1: spec\.pluginConfig\[0\]"):
        await tried(text(pod("web")), profile_text=broken)


async def test_an_edited_profile_is_bounded() -> None:
    """The profile is read in one step, and no decision is made during this step."""
    windows = [{"start": "25:00", "end": "26:00"}] * 1_000
    profile = {**yaml.safe_load(PACKED), "spec": {"rebalancing": {"windows": windows}}}
    with pytest.raises(InputError, match="the profile: is too long; it has more than 5000 values"):
        await tried(text(pod("web")), profile_text=json.dumps(profile))


async def test_certificates_that_an_edited_profile_names_are_not_read() -> None:
    """Otherwise a user could find out which files the operator has."""
    extender = {
        "urlPrefix": "https://x.example",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"caFile": "/no/such/file"},
    }
    profile = yaml.safe_load(PACKED)
    profile["spec"] = {"extenders": [extender]}
    found = await tried(text(pod("web", cpu="1")), profile_text=yaml.safe_dump(profile))
    assert nodes(found) == ["b"]


async def test_a_pod_that_no_profile_takes_says_so() -> None:
    found = await tried(text(pod("web", spec={"schedulerName": "other"})))
    assert found["decisions"][0]["message"] == (
        'no profile in force takes the pod (schedulerName "other"); choose one'
    )
    found = await tried(text(pod("web", spec={"schedulerName": "default-shceduler"})))
    assert found["decisions"][0]["message"] == (
        'no profile in force takes the pod (schedulerName "default-shceduler", '
        "did you mean default-scheduler?); choose one"
    )


async def test_a_scheduling_gate_holds_the_pod_back() -> None:
    found = await tried(text(pod("web", gates=["wait"])))
    assert nodes(found) == [None]
    assert "gate" in found["decisions"][0]["message"]


async def test_priorities_come_from_the_clusters_priority_classes() -> None:
    objects = (node("a", cpu="1"), pod("low", cpu="1", node="a"), priority_class("high", 100))
    found = await tried(
        text(pod("web", cpu="1", spec={"priorityClassName": "high", "priority": None})), *objects
    )
    assert places(found)[0]["nominatedNode"] == "a"
    assert found["decisions"][0]["victims"] == ["default/low"]


async def test_what_admission_would_reject_is_told() -> None:
    spec = {"priorityClassName": "none", "priority": None}
    found = await tried(text(pod("web", spec=spec)))
    assert found["decisions"][0]["message"] == (
        'pods "web" is forbidden: no PriorityClass with name none was found'
    )


async def gang_tried(*objects: dict[str, Any]) -> dict[str, Any]:
    shared = scheduler_state(*CLUSTER)
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    found: dict[str, Any] = plain(await trials.tried(TryRequest(text(*objects)), everything))
    return found


async def test_a_pod_group_gets_nodes_for_all_members_or_for_none() -> None:
    members = [pod(f"m{i}", cpu="3", labels={GROUP: "train"}) for i in range(3)]
    found = await gang_tried(gang("train", 3), *members)
    assert None not in nodes(found)
    larger = [pod(f"m{i}", cpu="3", labels={GROUP: "train"}) for i in range(4)]
    found = await gang_tried(gang("train", 4), *larger)
    (decision,) = found["decisions"]
    assert set(nodes(found)) == {None}
    assert (decision["podGroup"], decision["fits"]) == ("default/train", False)
    assert decision["cause"] == "Insufficient cpu"
    changes = [each["change"] for each in decision["suggestions"]]
    assert "if each member requested at most 2660m of cpu instead of 3" in changes


async def test_a_pod_group_is_told_whom_it_would_preempt() -> None:
    low = [pod(f"low-{name}", cpu="1", node=name, priority=1) for name in "ab"]
    objects = [node("a", cpu="1"), node("b", cpu="1"), *low, priority_class("high", 100)]
    shared = scheduler_state(*objects)
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    spec = {"priorityClassName": "high", "priority": None}
    members = [pod(f"m{i}", cpu="1", labels={GROUP: "train"}, spec=spec) for i in range(2)]
    after = pod("after", cpu="1", spec=spec)
    wanted = TryRequest(text(gang("train", 2), *members, after))
    group, single = plain(await trials.tried(wanted, everything))["decisions"]
    assert not group["fits"]
    assert {each["nominatedNode"] for each in group["pods"]} == {"a", "b"}
    assert {*group["victims"]} == {"default/low-a", "default/low-b"}
    assert (single["pods"], single["victims"]) == ([{"pod": "default/after", "node": None}], [])


async def test_who_would_have_to_give_back_borrowed_quota_is_told() -> None:
    queues = [
        queue_object("all"),
        *(queue_object(name, {"cpu": 2}, parent="all") for name in ("lender", "borrower")),
    ]
    lender, borrower = ({QUEUE_LABEL: name} for name in ("lender", "borrower"))
    running = [pod(f"r{i}", cpu="1", node="ab"[i % 2], labels=borrower) for i in range(4)]
    shared = scheduler_state(node("a", cpu="8"), node("b", cpu="8"), *queues, *running)
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    members = [pod(f"m{i}", cpu="1", labels={GROUP: "train", **lender}) for i in range(2)]
    wanted = TryRequest(text(gang("train", 2), *members, pod("more", cpu="1", labels=borrower)))
    group, single = plain(await trials.tried(wanted, everything))["decisions"]
    assert not group["fits"]
    assert len(group["victims"]) == 2
    assert group["message"].endswith("preemption: evicts 2 pods of queue borrower.")
    assert {*group["victims"]} <= {f"default/r{i}" for i in range(4)}
    assert single["victims"] == []
    assert single["message"].startswith("0/2 nodes are available: queue borrower: 4 of 2 cpu used")
    alone = TryRequest(text(pod("one", cpu="1", labels=lender)))
    (decision,) = plain(await trials.tried(alone, everything))["decisions"]
    (victim,) = decision["victims"]
    assert victim in {f"default/r{i}" for i in range(4)}
    assert decision["message"].endswith("preemption: evicts 1 pod of queue borrower.")


async def test_a_group_of_which_only_a_part_is_decided_about_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "MOST_PODS", 2)
    members = [pod(f"m{i}", cpu="1", labels={GROUP: "train"}) for i in range(3)]
    found = await gang_tried(gang("train", 3), *members)
    assert found["more"]
    assert "members that are not decided about" in found["decisions"][0]["message"]


async def test_equal_pods_get_suggestions_once_and_different_ones_each() -> None:
    large = [pod(f"p{i}", cpu=str(64 + i % 2)) for i in range(4)]
    found = await tried(text(*large))
    assert [bool(each.get("suggestions")) for each in found["decisions"]] == [
        True,
        True,
        False,
        False,
    ]


async def test_a_group_has_the_priority_of_its_class_as_its_members_have() -> None:
    high, group = priority_class("high", 1000), pod_group("train", 2)
    group["spec"]["priorityClassName"] = "high"
    spec = {"priorityClassName": "high", "priority": None}
    members = [pod(f"m{i}", group="train", spec=spec) for i in range(2)]
    shared = scheduler_state(*CLUSTER, high)
    put_profile(shared)
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    found = plain(await trials.tried(TryRequest(text(group, *members)), everything))
    assert None not in nodes(found)


async def test_a_member_beyond_the_limits_keeps_its_group_from_being_decided() -> None:
    requests = {f"acme.example/r{i}": 1 for i in range(LIMITS[Counted.RESOURCES] + 1)}
    large = pod("m0", labels={GROUP: "train"}, requests=requests)
    members = [large, pod("m1", labels={GROUP: "train"})]
    found = await gang_tried(gang("train", 2), *members)
    assert nodes(found) == [None, None]
    assert "resources" in found["decisions"][0]["message"]


async def test_an_incomplete_group_says_how_many_members_it_lacks() -> None:
    found = await gang_tried(gang("train", 3), pod("m0", labels={GROUP: "train"}))
    assert nodes(found) == [None]
    assert found["decisions"][0]["message"]


@pytest.mark.parametrize("described", [False, True], ids=["by name alone", "with its PodGroup"])
async def test_a_pod_that_joins_a_group_counts_beside_the_members_that_it_has(
    *, described: bool
) -> None:
    members = [pod("m0", node="a", labels={GROUP: "train"}), pod("m1", labels={GROUP: "train"})]
    shared = scheduler_state(*CLUSTER, gang("train", 3), *members)
    put_profile(shared)
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    objects = [gang("train", 3)] if described else []

    async def message(*names: str) -> str | None:
        raws = [pod(name, labels={GROUP: "train"}) for name in names]
        found = await trials.tried(TryRequest(text(*objects, *raws)), everything)
        said: str | None = plain(found)["decisions"][0]["message"]
        return said

    assert await message("m2", "m3") is None
    assert await message("m2") == "1 of 2 members can be scheduled now"
    assert await message("m0") == "2 of 3 members exist"


async def test_a_node_may_go_when_a_group_has_got_it() -> None:
    shared = scheduler_state(*CLUSTER)
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)

    async def last(namespaces: Iterable[str]) -> frozenset[str]:
        """Let the watch delete the node in the next pause; return all namespaces as visible."""
        delete = partial(shared.state.delete, Kind.NODE, "b")
        asyncio.get_running_loop().call_soon(shared.turn.post, delete)
        return frozenset(namespaces)

    manifests = text(gang("train", 1), pod("m0", cpu="6", labels={GROUP: "train"}))
    assert nodes(plain(await trials.tried(TryRequest(manifests), last))) == ["b"]
    assert "b" not in shared.state.nodes.row_of


async def only_default(namespaces: Iterable[str]) -> frozenset[str]:
    return frozenset(namespaces) & {"default"}


async def test_a_pod_of_a_namespace_that_the_user_may_not_see_is_not_tried() -> None:
    """The decision would depend on pod groups, claims and pods of that namespace."""
    definition = {**gang("train", 3), "metadata": {"name": "train", "namespace": "bank"}}
    shared = scheduler_state(*CLUSTER, definition, pod("vault", namespace="bank", node="a"))
    put_profile(shared, plugins={"multiPoint": {"enabled": [{"name": "GangScheduling"}]}})
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    member = pod("m0", namespace="bank", labels={GROUP: "train"})
    wanted = TryRequest(text(member, pod("vault", namespace="bank"), pod("web")))
    found = plain(await trials.tried(wanted, only_default, detailed=True))
    message = "you may not get the pods of namespace bank; choose another namespace"
    shown = [(pods["pods"][0], pods["message"]) for pods in found["decisions"]]
    assert [(each["pod"], each["node"], said) for each, said in shown] == [
        ("bank/m0", None, message),
        ("bank/vault", None, message),
        ("default/web", "b", None),
    ]
    assert found["details"]["pod"] == "default/web"
    [first, *_] = (await trials.tried(wanted, everything)).decisions
    assert first.message != message


async def test_a_runtime_class_is_left_out_with_a_note() -> None:
    found = await tried(text(pod("web", spec={"runtimeClassName": "gvisor"})))
    assert None not in nodes(found)
    assert "RuntimeClasses are not known here" in found["notes"][0]


@pytest.mark.parametrize(
    ("manifests", "mistake"),
    [
        ("", "makes no pods"),
        ("kind: [", "expected"),
        ("just words", "must be an object"),
        (text(api_object("ConfigMap", "web")), "ConfigMap of v1 makes no pods here"),
        (text(pod() | {"apiVersion": "apps/v1"}), "apps/v1 is not read for Pod; write v1"),
        (text(service("web", {"app": "web"})), "the text makes no pods"),
        (
            text(pod("web"), pod_group("train", 2)).replace("minCount", "minMembers"),
            'PodGroup default/train spec.schedulingPolicy.gang.minMembers: unknown field "min',
        ),
        (
            text(deployment("web", 1, "1")).replace("apps/v1", "apps.kruise.io/v1"),
            "kind: Deployment of apps.kruise.io/v1 makes no pods here",
        ),
        ("a: &x [1]\nb: *x", "aliases"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("- " * 70 + "x", "nested deeper"),
        ("- x\n" * 60_000, "too long"),
        (
            text(pod("web")).replace("containers", "container"),
            'document 1: Pod default/web spec.container: unknown field "container"',
        ),
        (
            text(pod("web"), pod("web")),
            "Pod default/web: is given already in the pods, document 1",
        ),
        (listed(new(pod(f"p{i}")) for i in range(501)), "more than 500 objects"),
        (text(pod("web", cpu="no number")), "no number"),
    ],
)
async def test_mistakes_are_told(manifests: str, mistake: str) -> None:
    with pytest.raises(InputError, match=mistake):
        await tried(manifests)


async def test_a_million_replicas_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST_PODS", 20)
    found = await tried(text(deployment("web", 1_000_000, "1m")))
    assert len(found["decisions"]) == 20
    assert found["more"]


async def test_only_a_few_requests_wait() -> None:
    trials = stage()[1]
    waiting = [
        asyncio.create_task(trials.tried(TryRequest(text(deployment("web", 2, "1"))), everything))
        for _ in range(10)
    ]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(answer, TrialsBusy) for answer in answers) == 2
    assert sum(isinstance(answer, TryAnswer) for answer in answers) == 8


async def test_the_rest_after_a_decision_does_not_count_the_turns_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, runner = stage()
    now, rests = 0.0, list[float]()
    runner.clock, sleep = lambda: now, asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", rest)
    manifests = text(pod("web", cpu="64"), gang("train", 1), pod("m", cpu="64", labels=MEMBER))
    asked = asyncio.create_task(runner.tried(TryRequest(manifests), everything))
    while not asked.done():
        async with scheduler.turn:
            await sleep(0)
            now += 100.0
    assert len((await asked).decisions) == 2
    assert not any(rests)


class SlowAfterServices:
    """A filter whose first call after a change of Services takes 20 ms."""

    name: ClassVar[str] = "SlowAfterServices"
    depends_on_node_only: ClassVar[bool] = False
    now: ClassVar[float] = 0.0
    versions: ClassVar[set[int]] = set()

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, _pod: Pod, cluster: ClusterView) -> Skip:
        version = cluster.object_changes(Kind.SERVICE)
        if version not in self.versions:
            self.versions.add(version)
            type(self).now += 0.02
        return SKIP

    def filter(self, _pod: Pod, nodes: NodeView, _state: object) -> BoolArray:
        return nodes.present


async def test_a_first_decision_that_takes_long_does_not_end_its_trial() -> None:
    """Each trial adds the Services of the text again, and plugins must examine them again."""
    registry = Registry((*SHIPPED, SlowAfterServices), {})
    shared = scheduler_state(node("a", cpu="64"), registry=registry)
    put_profile(
        shared,
        registry=registry,
        plugins={"multiPoint": {"enabled": [{"name": SlowAfterServices.name}]}},
    )
    runner = WhatIfRunner(shared, registry, now=lambda: 0.0, clock=lambda: SlowAfterServices.now)
    manifests = text(service("web", {"app": "web"}), deployment("web", 20, "1"))
    found = await runner.tried(TryRequest(manifests), everything)
    assert len(found.decisions) == 20
    assert len(SlowAfterServices.versions) == 1


class _Labels(dict[str, str]):
    """Labels that record the threads that read them."""

    threads: set[int]

    def __contains__(self, key: object) -> bool:
        self.threads.add(threading.get_ident())
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.threads.add(threading.get_ident())
        return super().get(key, default)


async def test_nodes_for_a_daemon_set_are_looked_for_beside_the_event_loop() -> None:
    """A comparison of 1,000 node affinity terms with 5,000 nodes takes seconds."""
    shared, trials = stage()
    table, labels = shared.state.nodes.nodes, _Labels()
    labels.threads = set()
    assert table[0] is not None
    table[0] = replace(table[0], labels=labels)
    daemons = deployment("logs", 1, "1m")
    daemons["kind"] = "DaemonSet"
    del daemons["spec"]["replicas"]
    daemons["spec"]["template"]["spec"]["nodeSelector"] = {"none": "such"}
    with pytest.raises(InputError, match="makes no pods"):
        plain(await trials.tried(TryRequest(text(daemons)), everything))
    assert labels.threads
    assert threading.get_ident() not in labels.threads


class Comparing:
    """A cluster with two profiles that place pods differently."""

    def __init__(self) -> None:
        self.shared, self.trials = stage()
        self.pipeline = self.shared.profiles.in_force["default-scheduler"].pipeline

    def queue(self, name: str, **fields: Any) -> None:
        self.shared.queue.add(parse_pod(pod(name, **fields)), self.pipeline, 0.0)

    async def compared(self, **fields: Any) -> dict[str, Any]:
        wanted = CompareRequest("default-scheduler", other_text=PACKED, **fields)
        found: dict[str, Any] = plain(await self.trials.compared(wanted, everything))
        return found


async def test_two_profiles_are_compared_for_pending_pods() -> None:
    comparing = Comparing()
    comparing.queue("web", cpu="1", memory="1Gi")
    found = await comparing.compared()
    assert found["profiles"] == ["default-scheduler", "packed"]
    assert found["results"] == [
        {"pod": "default/web", "now": None, "nodes": ["b", "a"], "causes": [None, None]}
    ]
    assert (found["different"], found["placed"], found["total"]) == (1, [1, 1], 1)


async def test_running_pods_are_compared_as_if_none_of_them_had_a_node() -> None:
    comparing = Comparing()
    found = await comparing.compared(namespace="default", running=True)
    assert found["results"][0]["now"] == "a"
    assert found["results"][0]["nodes"] == ["b", "a"]
    assert comparing.shared.cluster.pod(uid_of("runs")) is not None


@pytest.mark.parametrize("running", [True, False])
async def test_other_work_runs_while_pods_to_compare_are_looked_for(running: bool) -> None:  # noqa: FBT001 - parametrized
    """A namespace may have a hundred thousand pods."""
    bound = (pod(f"runs-{number}", node="a") for number in range(20))
    ticks, others = count(0.0, 0.001), 0
    shared = scheduler_state(node("a"), *bound)
    pipeline = put_profile(shared).pipeline
    for number in range(20):
        shared.queue.add(parse_pod(pod(f"waits-{number}")), pipeline, 0.0)
    trials = WhatIfRunner(shared, SHIPPED_ONLY, clock=lambda: next(ticks), now=lambda: 0.0)

    async def nothing(_namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset()

    wanted = CompareRequest(
        "default-scheduler", other="default-scheduler", namespace="default", running=running
    )
    comparing = asyncio.create_task(trials.compared(wanted, nothing))
    while not comparing.done():
        others += 1
        await asyncio.sleep(0)
    with pytest.raises(InputError, match="no such pod"):
        await comparing
    assert others > 5


async def test_pods_to_compare_are_those_first_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "MOST_COMPARED", 20)
    comparing = Comparing()
    for number in range(25):
        comparing.queue(f"pod-{number}", cpu="1m")
    comparing.queue("urgent", cpu="1m", priority=9)
    found = await comparing.compared()
    assert found["results"][0]["pod"] == "default/urgent"
    assert len(found["results"]) == 20
    assert found["total"] == 26


async def test_pods_that_the_user_may_not_get_are_not_compared() -> None:
    comparing = Comparing()
    comparing.queue("vault", namespace="bank")
    comparing.queue("web", namespace="shop")
    wanted = CompareRequest("default-scheduler", other="default-scheduler")

    async def shop(_namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(["shop"])

    found = plain(await comparing.trials.compared(wanted, shop))
    assert [each["pod"] for each in found["results"]] == ["shop/web"]
    assert found["total"] == 1


@pytest.mark.parametrize(
    ("wanted", "mistake"),
    [
        (
            CompareRequest("default-scheduler", running=True, other="default-scheduler"),
            "which namespace",
        ),
        (CompareRequest("default-scheduler"), "name the other profile"),
        (CompareRequest("none", other="default-scheduler"), 'no profile "none"'),
        (CompareRequest("default-scheduler", other="default-scheduler"), "no such pod"),
    ],
)
async def test_a_comparison_that_cannot_be_made_says_why(
    wanted: CompareRequest, mistake: str
) -> None:
    with pytest.raises(InputError, match=mistake):
        await stage()[1].compared(wanted, everything)
