"""The claim for the extended resources of a pod's containers.

The expected values were derived by hand from the source of kube-scheduler 1.36.3.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deciding import Deciding
from device_builders import (
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import FINALIZER, ResourceClaim, parse_resource_claim
from mooring.claims.plugin.extended_resource_claims import (
    ExtendedResources,
    NewClaim,
    extended_resources_of,
    new_claim,
)
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.framework.verdicts import SKIP, PluginError, Unschedulable
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.observe.metrics import Metrics
from mooring.scheduling.outcome import ScheduleResult
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import FakeApi, Lost, handle
from plugin_answers import PluginAnswers, Rejected

Raw = dict[str, Any]

GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu", NIC: "nic"}


def container(name: str, *, sidecar: bool = False, **amounts: Any) -> Raw:
    """Return a container with these requests; `gpu` and `nic` stand for the extended resources."""
    names = {"gpu": GPU, "nic": NIC}
    requests = {names.get(key, key): amount for key, amount in amounts.items()}
    raw: Raw = {"name": name, "resources": {"requests": requests}}
    return raw | ({"restartPolicy": "Always"} if sidecar else {})


def of(*containers: Raw, init: tuple[Raw, ...] = ()) -> Pod:
    return parse_pod(pod(spec={"containers": [*containers], "initContainers": [*init]}))


def claim_of(wanted: Pod, classes: Mapping[str, str] = CLASSES) -> NewClaim:
    found = new_claim(wanted, classes)
    assert found is not None
    return found


def requests_of(found: NewClaim) -> dict[str, tuple[str, int]]:
    return {
        each.name: (each.exactly.device_class, each.exactly.count)
        for each in found.claim.spec.requests
        if each.exactly is not None
    }


def test_each_container_has_a_request_for_each_resource() -> None:
    """A request's number is the index of its resource among all resources of the container."""
    found = claim_of(of(container("a", cpu="1", gpu=2, nic=1), container("b", memory="1", gpu=1)))
    assert requests_of(found) == {
        "container-0-request-1": ("gpu", 2),
        "container-0-request-2": ("nic", 1),
        "container-1-request-0": ("gpu", 1),
    }
    assert found.mappings == (
        ("a", GPU, "container-0-request-1"),
        ("b", GPU, "container-1-request-0"),
        ("a", NIC, "container-0-request-2"),
    )


def test_a_request_of_zero_has_a_place_but_no_devices() -> None:
    found = claim_of(of(container("a", gpu=0, nic=1)))
    assert requests_of(found) == {"container-0-request-1": ("nic", 1)}


def test_requests_are_in_the_order_of_their_names_as_text() -> None:
    found = claim_of(of(*(container(f"c{i}", gpu=1) for i in range(12))))
    names = [*requests_of(found)]
    assert names[:4] == [
        "container-0-request-0",
        "container-1-request-0",
        "container-10-request-0",
        "container-11-request-0",
    ]
    assert [container for container, _, _ in found.mappings] == [f"c{i}" for i in range(12)]


def test_a_sidecar_keeps_its_devices_and_counts_among_the_init_containers() -> None:
    found = claim_of(of(container("app", gpu=1), init=(container("proxy", gpu=1, sidecar=True),)))
    assert requests_of(found) == {
        "container-0-request-0": ("gpu", 1),
        "container-1-request-0": ("gpu", 1),
    }


def test_an_init_container_uses_the_devices_of_containers_that_start_later() -> None:
    found = claim_of(
        of(container("a", gpu=1), container("b", gpu=2), init=(container("init", gpu=2),))
    )
    assert requests_of(found) == {
        "container-1-request-0": ("gpu", 1),
        "container-2-request-0": ("gpu", 2),
    }
    assert found.mappings[2:] == (
        ("init", GPU, "container-1-request-0"),
        ("init", GPU, "container-2-request-0"),
    )


def test_an_init_container_does_not_use_the_devices_of_an_earlier_sidecar() -> None:
    found = claim_of(
        of(
            container("app"),
            init=(container("proxy", gpu=3, sidecar=True), container("init", gpu=2)),
        )
    )
    assert requests_of(found) == {
        "container-0-request-0": ("gpu", 3),
        "container-1-request-0": ("gpu", 2),
    }


def test_of_what_init_containers_need_beyond_that_only_the_largest_is_a_request() -> None:
    init = (container("small", gpu=3), container("large", gpu=6), container("none", gpu=1))
    found = claim_of(of(container("app", gpu=2), init=init))
    assert requests_of(found) == {
        "container-1-request-0": ("gpu", 4),
        "container-3-request-0": ("gpu", 2),
    }
    assert found.mappings == (
        ("app", GPU, "container-3-request-0"),
        ("small", GPU, "container-3-request-0"),
        ("small", GPU, "container-1-request-0"),
        ("large", GPU, "container-3-request-0"),
        ("large", GPU, "container-1-request-0"),
        ("none", GPU, "container-3-request-0"),
    )


def test_of_equal_extra_needs_the_first_is_the_request() -> None:
    found = claim_of(of(container("app"), init=(container("a", gpu=2), container("b", gpu=2))))
    assert requests_of(found) == {"container-0-request-0": ("gpu", 2)}
    assert {request for _, _, request in found.mappings} == {"container-0-request-0"}


def test_without_resources_there_is_no_claim() -> None:
    assert new_claim(of(container("app", gpu=1)), {}) is None


def test_the_object_names_the_pod_as_its_controller() -> None:
    wanted = of(container("app", gpu=1))
    fields = claim_of(wanted, {GPU: "gpu"}).fields(wanted)
    assert fields == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": "web-extended-resources-",
            "namespace": "default",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "web",
                    "uid": uid_of("web"),
                    "controller": True,
                }
            ],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "container-0-request-0",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "allocationMode": "ExactCount",
                            "count": 1,
                        },
                    }
                ]
            }
        },
    }


def test_the_pods_status_says_which_request_stands_for_what() -> None:
    found = claim_of(of(container("app", gpu=1)), {GPU: "gpu"})
    created = parse_resource_claim(device_claim("web-extended-resources-x"))
    assert found.status_fields(created) == {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "web-extended-resources-x",
            "requestMappings": [
                {
                    "containerName": "app",
                    "resourceName": GPU,
                    "requestName": "container-0-request-0",
                }
            ],
        }
    }


# ---- Which resources a pod gets devices for

GPUS = device_class("gpu", extendedResourceName=GPU)


def resources(
    wanted: Raw, *objects: Raw, version: str = NEWEST.version
) -> ExtendedResources | None:
    view = ClusterView(cluster(*objects))
    return extended_resources_of(parse_pod(wanted), view, KUBERNETES_RULES[version])


@pytest.mark.parametrize(
    ("wanted", "objects"),
    [(pod(cpu="1"), (GPUS,)), (pod(requests={GPU: 1}), ()), (pod(requests={GPU: 0}), (GPUS,))],
)
def test_a_pod_without_resources_of_classes_has_none(wanted: Raw, objects: tuple[Raw, ...]) -> None:
    assert resources(wanted, *objects) is None


@pytest.mark.parametrize(
    ("version", "known"), [("1.34", False), ("1.35", False), ("1.36", True), ("1.37", True)]
)
def test_classes_stand_for_resources_from_1_36_on(version: str, *, known: bool) -> None:
    assert (resources(pod(requests={GPU: 1}), GPUS, version=version) is not None) == known


def test_every_class_stands_for_a_resource_of_its_name() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    found = resources(pod(requests={name: 1}), device_class("gpu"))
    assert found is not None
    assert found.classes == {name: "gpu"}


def test_a_node_that_offers_a_resource_itself_needs_no_devices_for_it() -> None:
    found = resources(
        pod(requests={GPU: 1, NIC: 1}), GPUS, device_class("nic", extendedResourceName=NIC)
    )
    assert found is not None
    some = found.new_claim(parse_node(node("n", resources={NIC: 4, GPU: 0})))
    assert some is not None
    assert requests_of(some) == {"container-0-request-0": ("gpu", 1)}
    assert found.new_claim(parse_node(node("n", resources={GPU: 1, NIC: 1}))) is None


@pytest.mark.parametrize("other", ["example.com/fpga", "deviceclass.resource.kubernetes.io/no"])
def test_a_node_must_list_the_resources_without_a_class(other: str) -> None:
    found = resources(pod(requests={GPU: 1, other: 1, "x.kubernetes.io/y": 1}), GPUS)
    assert found is not None
    view = cluster(node("n1"), node("n2", resources={other: 0}))
    nodes = ClusterView(view).nodes.take(np.array([view.nodes.row_of[n] for n in ("n1", "n2")]))
    assert (found.rejections(nodes), found.fits_anywhere) == (["cannot fit resource", ""], False)


def test_a_claim_of_an_earlier_attempt_rejects_every_node() -> None:
    left = device_claim("left", owner="web")
    left["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    found = resources(pod(requests={GPU: 1}), GPUS, left)
    assert found is not None
    nodes = ClusterView(cluster(node("n"))).nodes
    assert {*found.rejections(nodes)} == {"cannot schedule extended resource claim"}
    assert not found.fits_anywhere


def test_a_claim_of_another_namespace_keeps_no_pod_from_any_node() -> None:
    """A user of another namespace can write a claim that names any pod's uid as its controller."""
    foreign = device_claim("left", namespace="other", owner="web")
    foreign["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    foreign["metadata"]["ownerReferences"][0]["uid"] = uid_of("web")
    found = resources(pod("web", requests={GPU: 1}), GPUS, foreign)
    assert found is not None
    assert found.fits_anywhere


def test_nodes_that_lack_the_same_resources_need_the_same_claim() -> None:
    state = cluster(
        node("a"), node("b", resources={NIC: 1}), node("c"), node("d", resources={GPU: 1, NIC: 1})
    )
    nodes = ClusterView(state).nodes
    nodes = nodes.take(np.array([state.nodes.row_of[name] for name in "abcd"]))
    found = resources(
        pod(requests={GPU: 1, NIC: 1}), GPUS, device_class("nic", extendedResourceName=NIC)
    )
    assert found is not None
    kinds = {tuple(positions.tolist()): new for positions, new in found.kinds(nodes)}
    assert kinds.keys() == {(0, 2), (1,), (3,)}
    of_kinds = {where: requests_of(new) if new is not None else {} for where, new in kinds.items()}
    assert [len(of_kinds[where]) for where in ((0, 2), (1,), (3,))] == [2, 1, 0]
    assert [*kinds] == [(3,), (1,), (0, 2)]
    ((where, claim),) = found.kinds(nodes.take(np.array([0, 2])))
    assert (where.tolist(), claim) == ([0, 1], kinds[0, 2])
    assert [*found.kinds(nodes.take(np.array([], np.int64)))] == []


@given(st.lists(st.sets(st.sampled_from("abc")), max_size=8))
def test_kinds_are_the_nodes_that_offer_the_same(offers: list[set[str]]) -> None:
    names = {letter: f"example.com/{letter}" for letter in "abc"}
    classes = [device_class(letter, extendedResourceName=name) for letter, name in names.items()]
    state = cluster(
        *(
            node(f"n{i}", resources={names[letter]: 1 for letter in some})
            for i, some in enumerate(offers)
        )
    )
    rows = [state.nodes.row_of[f"n{i}"] for i in range(len(offers))]
    nodes = ClusterView(state).nodes.take(np.array(rows, np.int64))
    found = resources(pod(requests=dict.fromkeys(names.values(), 1)), *classes)
    assert found is not None
    expected: dict[frozenset[str], list[int]] = {}
    for position, some in enumerate(offers):
        expected.setdefault(frozenset("abc") - some, []).append(position)
    of_kinds = {
        frozenset(each.exactly.device_class for each in new.claim.spec.requests if each.exactly)
        if new is not None
        else frozenset[str](): positions.tolist()
        for positions, new in found.kinds(nodes)
    }
    assert of_kinds == expected


# ---- The life of the claim

N1, N2 = node("n1"), node("n2")
DEVICES = (
    GPUS,
    resource_slice("s1", ["a0", "a1"], node="n1"),
    resource_slice("s2", ["b0"], node="n2"),
)
WEB = pod(requests={GPU: 2})
LEFT = device_claim("web-extended-resources-0", request("container-0-request-0"), owner="web")
LEFT["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
LEFT["metadata"]["finalizers"] = [FINALIZER]


def answers(*objects: Raw, **args: Any) -> PluginAnswers:
    return PluginAnswers(DynamicResources, N1, N2, *DEVICES, *objects, **args)


def reasons(found: dict[str, Rejected] | None) -> dict[str, str]:
    assert found is not None
    assert not any(each.resolvable for each in found.values())
    return {name: each.reasons[0] for name, each in found.items()}


def test_nodes_need_devices_for_what_they_do_not_offer_themselves() -> None:
    offering = node("n3", resources={GPU: 8})
    assert reasons(answers(offering).rejections(WEB)) == {"n2": "cannot allocate all claims"}


def test_devices_for_named_claims_and_for_resources_are_found_together() -> None:
    named = pod(
        requests={GPU: 1}, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}
    )
    asked = answers(device_claim(), node("n3", resources={GPU: 8}))
    assert reasons(asked.rejections(named)) == dict.fromkeys(
        ("n2", "n3"), "cannot allocate all claims"
    )


def test_a_node_is_rejected_that_does_not_list_another_resource() -> None:
    wanted = pod(requests={GPU: 1, NIC: 1})
    assert reasons(answers(node("n3", resources={NIC: 1})).rejections(wanted)) == {
        "n1": "cannot fit resource",
        "n2": "cannot fit resource",
        "n3": "cannot allocate all claims",
    }


def test_before_1_36_the_resources_are_left_to_device_plugins() -> None:
    assert answers(kubernetes="1.35").rejections(WEB) is None


def test_a_pod_waits_for_devices_that_are_not_known_unless_no_class_stands_for_its_resources() -> (
    None
):
    state = cluster(N1, *DEVICES)
    plugin, view = DynamicResources(DynamicResourcesArgs(), handle(state)), ClusterView(state)
    state.devices_known("Mooring may not list resourceclaims")
    why = Unschedulable("Mooring may not list resourceclaims")
    assert plugin.pre_filter(parse_pod(WEB), view) == why
    assert plugin.pre_filter(parse_pod(pod(requests={NIC: 1})), view) is SKIP
    state.devices_known(None)
    assert plugin.pre_filter(parse_pod(WEB), view) not in (SKIP, why)


def test_too_many_devices_for_one_claim_fail_the_attempt() -> None:
    text = "claim default/<extended-resources>: number of requested devices 33 exceeds the claim"
    with pytest.raises(PluginError, match=text):
        answers(kubernetes="1.36").rejections(pod(requests={GPU: 33}))


class Attempt:
    """A pod that is reserved on a node, and an API server; the watch shows created claims."""

    def __init__(self, *objects: Raw, wanted: Raw = WEB, on: str = "n1") -> None:
        claims = [each for each in objects if each["kind"] == "ResourceClaim"]
        self.api = FakeApi(
            {("resourceclaims", f"default/{each['metadata']['name']}"): each for each in claims},
            [self.show] * 3,
        )
        self.state = cluster(N1, N2, *DEVICES, *objects)
        self.metrics = Metrics()
        built_with = replace(
            handle(self.state, self.api),
            kubernetes=KUBERNETES_RULES["1.36"],
            device_metrics=self.metrics,
        )
        self.plugin = DynamicResources(DynamicResourcesArgs(), built_with)
        self.pod = parse_pod(wanted)
        self.on = on
        self.state.assume(self.pod, self.state.nodes.row_of[on])
        assert self.plugin.reserve(self.pod, on) is None

    def show(self) -> None:
        """Let the watch show all claims of the API server."""
        for (_, key), raw in self.api.objects.items():
            self.state.put(Kind.RESOURCE_CLAIM, key, parse_resource_claim(raw))

    async def pre_bind(self) -> None:
        await self.plugin.pre_bind(self.pod, self.on)

    async def give_up(self) -> None:
        """Unreserve and forget the pod as the scheduler does; then carry out the waiting writes."""
        self.plugin.unreserve(self.pod, self.on)
        self.state.forget(self.pod)
        await self.api.write_all()

    def counted(self, status: str) -> float | None:
        """Return the metric for claims whose creation ended with this status."""
        name = "dynamic_resource_allocation_resourceclaim_creates_total"
        labels = {"admin_access": "false", "owner_api_group": "", "owner_api_kind": "Pod"}
        return self.metrics.registry.get_sample_value(name, {"status": status, **labels})

    @property
    def created(self) -> list[ResourceClaim]:
        return [parse_resource_claim(raw) for raw in self.api.objects.values()]

    @property
    def in_use(self) -> list[str]:
        books = ClusterView(self.state).dynamic_resources.claims.allocated
        return sorted(each.device for each in books.dedicated)


async def test_pre_bind_creates_the_claim_then_allocates_it_then_sets_the_pods_status() -> None:
    attempt = Attempt()
    assert (attempt.in_use, attempt.api.patches) == (["a0", "a1"], [])
    await attempt.pre_bind()
    written = [(patch.resource, {*patch.body}) for patch in attempt.api.patches]
    assert written == [
        ("resourceclaims", {"apiVersion", "kind", "metadata", "spec"}),
        ("resourceclaims/status", {"metadata", "status"}),
        ("pods/status", {"extendedResourceClaimStatus"}),
    ]
    [claim] = attempt.created
    assert (attempt.counted("success"), attempt.counted("failure")) == (1, None)
    assert claim.name == "web-extended-resources-0"
    assert claim.finalizers == (FINALIZER,)
    assert [consumer.uid for consumer in claim.reserved_for] == [attempt.pod.uid]
    assert claim.allocation is not None
    assert [(r.request, r.device.device) for r in claim.allocation.results] == [
        ("container-0-request-0", "a0"),
        ("container-0-request-0", "a1"),
    ]
    assert attempt.in_use == ["a0", "a1"]
    assert ClusterView(attempt.state).dynamic_resources.claims.held(attempt.pod.uid) == {}


async def test_a_claim_that_cannot_be_created_is_counted() -> None:
    attempt = Attempt()
    attempt.api.failure = PluginError("no")
    with pytest.raises(PluginError, match="no"):
        await attempt.pre_bind()
    assert (attempt.counted("success"), attempt.counted("failure")) == (None, 1)


async def test_named_claims_are_written_before_that_of_resources() -> None:
    named = pod(
        requests={GPU: 1}, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}
    )
    attempt = Attempt(device_claim(), wanted=named)
    await attempt.pre_bind()
    keys = [patch.key for patch in attempt.api.patches]
    assert [*dict.fromkeys(keys)] == [
        "default/claim",
        "default/web-extended-resources-1",
        "default/web",
    ]


async def test_on_a_node_that_offers_the_resource_only_the_named_claims_are_written() -> None:
    """In this case kube-scheduler fails, because it creates a claim without requests."""
    named = pod(
        requests={GPU: 1}, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}
    )
    devices = resource_slice("s3", ["c0"], node="n3")
    attempt = Attempt(
        device_claim(), node("n3", resources={GPU: 1}), devices, wanted=named, on="n3"
    )
    await attempt.pre_bind()
    assert {patch.key for patch in attempt.api.patches} == {"default/claim"}


async def test_an_attempt_that_is_given_up_before_pre_bind_writes_nothing() -> None:
    attempt = Attempt()
    await attempt.give_up()
    assert (attempt.in_use, attempt.api.patches) == ([], [])


async def test_an_attempt_that_is_given_up_deletes_its_claim() -> None:
    attempt = Attempt()
    await attempt.pre_bind()
    await attempt.give_up()
    assert attempt.created == []
    attempt.state.delete(Kind.RESOURCE_CLAIM, "default/web-extended-resources-0")
    assert attempt.in_use == []


async def test_a_claim_is_deleted_that_was_created_although_no_answer_says_so() -> None:
    attempt = Attempt()
    attempt.api.failure = PluginError("no answer")
    with pytest.raises(PluginError, match="no answer"):
        await attempt.pre_bind()
    attempt.api.failure = None
    attempt.show()
    await attempt.give_up()
    assert (attempt.created, attempt.in_use) == ([], [])


async def test_a_claim_that_the_watch_does_not_show_fails_the_attempt_and_is_deleted() -> None:
    attempt = Attempt()
    attempt.api.events.clear()
    with pytest.raises(PluginError, match="was created, but the watch has not shown it after 120"):
        await attempt.pre_bind()
    assert attempt.in_use == ["a0", "a1"]
    await attempt.give_up()
    assert (attempt.created, attempt.in_use) == ([], [])


@pytest.mark.parametrize("lost", [Lost.REQUEST, Lost.ANSWER])
async def test_a_lost_write_of_the_allocation_is_made_once(lost: Lost) -> None:
    attempt = Attempt()
    attempt.api.lost.append(lost)
    await attempt.pre_bind()
    [claim] = attempt.created
    assert claim.allocation is not None
    assert len(claim.reserved_for) == 1


async def test_devices_stay_in_use_until_a_claim_that_was_half_written_is_deleted() -> None:
    attempt = Attempt()
    attempt.api.lost.append(Lost.CALLER)
    with pytest.raises(asyncio.CancelledError):
        await attempt.pre_bind()
    attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    assert attempt.in_use == ["a0", "a1"]
    await attempt.api.write_all()
    assert (attempt.created, attempt.in_use) == ([], [])


# ---- A claim that an earlier attempt has left


def test_a_claim_that_is_left_rejects_all_nodes() -> None:
    assert reasons(answers(LEFT).rejections(WEB)) == dict.fromkeys(
        ("n1", "n2"), "cannot schedule extended resource claim"
    )


@pytest.mark.parametrize("version", ["1.36", "1.37"])
async def test_a_claim_that_is_left_is_deleted_after_its_finalizer(version: str) -> None:
    deciding = Deciding(N1, N2, *DEVICES, LEFT, kubernetesVersion=version)
    assert deciding.decision(WEB).message == (
        "0/2 nodes are available: 2 cannot schedule extended resource claim. "
        "deletion of ResourceClaim completed, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    api = deciding.pipeline.api
    assert isinstance(api, FakeApi)
    api.objects["resourceclaims", "default/web-extended-resources-0"] = LEFT
    await api.write_all()
    assert api.objects == {}


def test_the_deletion_of_a_claim_that_was_left_has_the_pod_tried_again() -> None:
    other = LEFT | {"metadata": LEFT["metadata"] | {"ownerReferences": []}}
    assert answers(LEFT).queueing_hint(WEB, before=LEFT)
    assert not answers(LEFT).queueing_hint(WEB, before=other)


def test_a_pod_that_leaves_its_devices_has_others_tried_again() -> None:
    assert answers().queueing_hint(WEB, before=pod("other", requests={GPU: 1}))
    assert not answers().queueing_hint(WEB, before=pod("other", requests={NIC: 1}))


# ---- Whole decisions


def test_whole_decisions_give_pods_devices_or_what_nodes_offer() -> None:
    deciding = Deciding(N1, N2, node("n3", resources={GPU: 2}), *DEVICES)
    for wanted, nodes in ((2, {"n1", "n3"}), (1, {"n1", "n2", "n3"})):
        outcome = deciding.outcome(pod(requests={GPU: wanted}))
        assert isinstance(outcome, ScheduleResult)
        assert outcome.feasible_nodes == len(nodes)


def test_a_class_that_comes_to_stand_for_the_resource_changes_what_is_kept() -> None:
    """The cached results of the pod must be dropped when the DeviceClass changes."""
    deciding = Deciding(N1, *DEVICES[1:], device_class("gpu"))
    assert "Insufficient example.com/gpu" in (deciding.decision(WEB).message or "")
    deciding.state.put(Kind.DEVICE_CLASS, "gpu", parse_device_class(GPUS))
    assert isinstance(deciding.outcome(WEB), ScheduleResult)
    deciding.state.put(Kind.DEVICE_CLASS, "gpu", parse_device_class(device_class("gpu")))
    assert "Insufficient example.com/gpu" in (deciding.decision(WEB).message or "")


def test_a_pod_is_tried_again_when_another_class_stands_for_its_resource() -> None:
    newer = device_class("newer", "false", extendedResourceName=GPU)
    newer["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    wanted, slices = pod(requests={GPU: 1}), resource_slice("s", ["d"], node="n1")
    asked = PluginAnswers(DynamicResources, node("n1"), slices, GPUS, newer)
    assert reasons(asked.rejections(wanted)) == {"n1": "cannot allocate all claims"}
    asked.state.delete(Kind.DEVICE_CLASS, "newer")
    assert asked.rejections(wanted) == {}
    assert asked.queueing_hint(wanted, before=newer)
    assert not asked.queueing_hint(wanted, before=device_class("nic", extendedResourceName=NIC))
    assert not asked.queueing_hint(pod(), before=device_class("other"))
