import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    DRIVER,
    allocated,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)
from mooring.claims.model.resource_claims import FINALIZER, ResourceClaim, parse_resource_claim
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.framework.handle import DeviceMetrics
from mooring.framework.hints import QueueingHint
from mooring.framework.verdicts import SKIP, ObjectError, PluginError, Unschedulable
from mooring.kube.api_resources import RESOURCE_CLAIM
from mooring.mirroring.mirror import Mirror
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.scheduling.what_if import WhatIf
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.testing.fakes import FakeApi, Lost, handle
from plugin_answers import PluginAnswers, Rejected

Raw = dict[str, Any]

N1, N2 = node("n1"), node("n2")
GPUS = (
    device_class("gpu"),
    resource_slice("s1", ["a0", "a1"], node="n1"),
    resource_slice("s2", ["b0"], node="n2"),
)
KEY = "default/claim"
NOT_ON_NODE = Rejected(("resourceclaim not available on the node",), resolvable=False)
TOO_FEW = Rejected(("cannot allocate all claims",), resolvable=False)


def using(*claims: str, name: str = "web", **fields: Any) -> Raw:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims or ("claim",)]
    return pod(name, spec={"resourceClaims": entries}, **fields)


def of_template(created: str | None = "missing") -> Raw:
    """Return a pod whose claim comes from a template.

    `created` is the name of the created claim; None if the entry needs no claim; "missing" if the
    claim does not exist yet.
    """
    raw = pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]})
    if created != "missing":
        entry = {"name": "gpu"} | ({"resourceClaimName": created} if created else {})
        raw["status"]["resourceClaimStatuses"] = [entry]
    return raw


def answers(*objects: Mapping[str, Any], **args: Any) -> PluginAnswers:
    return PluginAnswers(DynamicResources, N1, N2, *GPUS, *objects, **args)


# ---- PreEnqueue and PreFilter


@pytest.mark.parametrize(
    ("wanted", "claims", "text"),
    [
        (of_template(), (), 'pod "default/web": ResourceClaim not created yet'),
        (using(), (), 'could not find ResourceClaim "default/claim"'),
        (
            of_template("claim"),
            (device_claim(),),
            "ResourceClaim default/claim was not created for Pod default/web (Pod is not owner)",
        ),
        (
            pod(spec={"resourceClaims": [{"name": "gpu"}]}),
            (),
            'pod "default/web", spec.resourceClaim "gpu": none of the supported fields are set',
        ),
    ],
)
def test_a_pod_waits_until_its_claims_exist(
    wanted: Raw, claims: tuple[Raw, ...], text: str
) -> None:
    plugin = built(cluster(*claims))
    parsed = parse_pod(wanted)
    assert plugin.pre_enqueue(parsed) == Unschedulable(text)
    assert plugin.pre_filter(parsed, ClusterView(cluster(*claims))) == Unschedulable(text)


def test_a_claim_that_cannot_be_read_is_not_used() -> None:
    state = cluster(N1, *GPUS, device_claim())
    raw = device_claim(version=2, allocation=allocated("a0"))
    raw["status"]["allocation"]["devices"]["results"][0]["tolerations"] = "all"
    mirror = Mirror(state)
    mirror.apply(RESOURCE_CLAIM, "MODIFIED", raw)
    plugin = built(state)
    why = plugin.pre_enqueue(parse_pod(using()))
    assert isinstance(why, Unschedulable)
    assert why.reason.startswith(
        "a claim cannot be read: ResourceClaim default/claim "
        "status.allocation.devices.results[0].tolerations: "
    )
    before = state.dynamic_resources.claims.get(KEY)
    mirror.apply(RESOURCE_CLAIM, "MODIFIED", device_claim(version=3, allocation=allocated("a0")))
    event = ClusterEvent(
        Kind.RESOURCE_CLAIM, Action.UPDATE, before, state.dynamic_resources.claims.get(KEY)
    )
    hint = plugin.queueing_hint(parse_pod(using()), event, ClusterView(state))
    assert hint is QueueingHint.QUEUE


def test_a_claim_that_is_being_deleted_is_not_used() -> None:
    claim = device_claim()
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    text = 'resourceclaim "claim" is being deleted'
    assert built(cluster(claim)).pre_enqueue(parse_pod(using())) == Unschedulable(text)


def test_a_pod_with_claims_waits_while_devices_are_not_known() -> None:
    """A device that seems free might be in use; pods without claims are not affected."""
    state = cluster(N1, *GPUS, device_claim())
    state.devices_known("Mooring may not list resourceclaims")
    plugin, view = built(state), ClusterView(state)
    why = Unschedulable("Mooring may not list resourceclaims")
    assert plugin.pre_enqueue(parse_pod(using())) == why
    assert plugin.pre_filter(parse_pod(using()), view) == why
    assert plugin.pre_enqueue(parse_pod(pod())) is None
    assert plugin.pre_filter(parse_pod(pod()), view) is SKIP
    state.devices_known(None)
    assert plugin.pre_enqueue(parse_pod(using())) is None


async def test_no_claim_is_written_after_devices_are_not_known_any_more() -> None:
    state, api = cluster(N1, *GPUS, device_claim()), FakeApi()
    plugin = DynamicResources(DynamicResourcesArgs(), handle(state, api=api))
    wanted = parse_pod(using())
    assert plugin.reserve(wanted, "n1") is None
    state.devices_known("Mooring may not list resourceclaims")
    with pytest.raises(PluginError, match="Mooring may not list resourceclaims"):
        await plugin.pre_bind(wanted, "n1")


def test_a_pod_whose_claims_exist_is_queued() -> None:
    plugin = built(cluster(device_claim(owner="web")))
    assert plugin.pre_enqueue(parse_pod(of_template("claim"))) is None
    assert plugin.pre_enqueue(parse_pod(using())) is None
    assert plugin.pre_enqueue(parse_pod(pod())) is None


def test_a_pod_without_claims_is_skipped() -> None:
    assert answers().rejections(pod()) is None
    assert answers().rejections(of_template(created=None)) is None


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (
            device_claim("claim", request("r", device_class="no")),
            "request r: device class no does not exist",
        ),
        (
            device_claim(
                "claim",
                {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "no"}]},
            ),
            "request r/s: device class no does not exist",
        ),
        (
            device_claim("claim", {"name": "r"}),
            "resource claim default/claim, request r: unknown request type",
        ),
    ],
)
def test_a_request_must_have_a_class_that_exists(claim: Raw, text: str) -> None:
    state = cluster(N1, *GPUS, claim)
    verdict = built(state).pre_filter(parse_pod(using()), ClusterView(state))
    assert verdict == Unschedulable(text)


def test_a_claim_that_is_being_allocated_for_another_pod_has_to_be_waited_for() -> None:
    state = cluster(N1, *GPUS, device_claim())
    plugin = built(state)
    reserve(plugin, state, using(name="other"), "n1")
    text = "resource claim default/claim is in the process of being allocated"
    assert plugin.pre_filter(parse_pod(using()), ClusterView(state)) == Unschedulable(text)


# ---- Filter


def test_nodes_without_enough_free_devices_are_rejected() -> None:
    two = device_claim("claim", request(count=2))
    used = device_claim("used", allocation=allocated("b0", node="n2"))
    assert answers(two).rejections(using()) == {"n2": TOO_FEW}
    assert answers(device_claim()).rejections(using()) == {}
    assert answers(device_claim(), used).rejections(using()) == {"n2": TOO_FEW}


def test_the_devices_of_an_allocated_claim_are_on_its_node() -> None:
    claim = device_claim(allocation=allocated("a0", node="n1"))
    assert answers(claim).rejections(using()) == {"n2": NOT_ON_NODE}


def test_a_claim_is_allocated_beside_one_that_has_devices() -> None:
    first = device_claim("first", allocation=allocated("a0", node="n1"))
    assert answers(first, device_claim("second")).rejections(using("first", "second")) == {
        "n2": NOT_ON_NODE
    }


def test_what_the_allocator_says_comes_before_devices_on_other_nodes() -> None:
    first = device_claim("first", allocation=allocated("a0", node="n1"))
    second = device_claim("second", request(count=2))
    assert answers(first, second).rejections(using("first", "second")) == {
        "n1": TOO_FEW,
        "n2": TOO_FEW,
    }


def test_a_selector_that_fails_ends_the_attempt() -> None:
    broken = request(selectors=[{"cel": {"expression": "device.attributes['x'].y == 1"}}])
    with pytest.raises(ObjectError, match="no such key: y"):
        answers(device_claim("claim", broken)).rejections(using())


@pytest.mark.parametrize(
    ("conditions", "rejected"),
    [
        ([("Attached", "True")], {"n2"}),
        ([("Attached", "False")], {"n2"}),
        ([], {"n2"}),
        ([("Failed", "True")], {"n1", "n2"}),
        ([("Failed", "False")], {"n2"}),
    ],
)
def test_a_claim_whose_devices_cannot_be_bound_is_not_available(
    conditions: list[tuple[str, str]], rejected: set[str]
) -> None:
    assert answers(with_conditions(*conditions)).rejections(using()) == dict.fromkeys(
        rejected, NOT_ON_NODE
    )


def with_conditions(*conditions: tuple[str, str], **fields: Any) -> Raw:
    """Return a claim whose device must be attached; `conditions` are the device's conditions."""
    result = device_result(
        "a0", pool="n1", bindingConditions=["Attached"], bindingFailureConditions=["Failed"]
    )
    told = [{"type": t, "status": s, "reason": "R", "message": "M"} for t, s in conditions]
    status = device_result("a0", pool="n1", conditions=told)
    return device_claim(
        allocation=allocated(result, node="n1", **fields), status={"devices": [status]}
    )


# ---- Score


def test_nodes_score_by_the_first_alternative_that_they_have() -> None:
    alternatives = [
        {"name": "two", "deviceClassName": "gpu", "count": 2},
        {"name": "one", "deviceClassName": "gpu"},
    ]
    claim = device_claim("claim", {"name": "r", "firstAvailable": alternatives})
    assert answers(claim).scores(using()) == {"n1": 100, "n2": 87}
    assert answers(claim, kubernetes="1.34").scores(using()) is None
    assert answers(device_claim()).scores(using()) is None


# ---- Reserve


def built(
    state: ClusterState,
    api: FakeApi | None = None,
    version: str = "1.36",
    metrics: DeviceMetrics | None = None,
    **args: Any,
) -> DynamicResources:
    built_with = replace(handle(state, api), kubernetes=KUBERNETES_RULES[version], profile="p")
    if metrics is not None:
        built_with = replace(built_with, device_metrics=metrics)
    return DynamicResources(DynamicResourcesArgs(**args), built_with)


def reserve(plugin: DynamicResources, state: ClusterState, raw: Raw, on: str) -> Pod:
    wanted = parse_pod(raw)
    state.assume(wanted, state.nodes.row_of[on])
    assert plugin.reserve(wanted, on) is None
    return wanted


def in_use(state: ClusterState) -> list[str]:
    books = ClusterView(state).dynamic_resources.claims.allocated
    return sorted(each.device for each in books.dedicated)


def test_reserved_devices_are_in_use_until_the_pod_is_forgotten() -> None:
    state = cluster(N1, *GPUS, device_claim("claim", request(count=2)))
    plugin = built(state)
    wanted = reserve(plugin, state, using(), "n1")
    assert in_use(state) == ["a0", "a1"]
    plugin.unreserve(wanted, "n1")
    state.forget(wanted)
    assert in_use(state) == []


def test_devices_that_are_gone_by_then_reject_the_pod() -> None:
    state = cluster(N1, *GPUS, device_claim("claim", request(count=3)))
    assert built(state).reserve(parse_pod(using()), "n1") == Unschedulable(
        "cannot allocate all claims"
    )


def test_a_trial_takes_back_the_devices_of_pods_that_it_adds() -> None:
    state = cluster(N1, *GPUS, device_claim())
    plugin, wanted = built(state), parse_pod(using())
    with state.trial() as trial:
        trial.add(wanted, state.nodes.row_of["n1"])
        plugin.assign(wanted, state.nodes.row_of["n1"])
        assert in_use(state) == ["a0"]
    assert in_use(state) == []


def test_a_pod_that_a_trial_adds_again_has_no_devices_if_a_class_has_become_wrong() -> None:
    state = cluster(N1, *GPUS, device_claim())
    plugin, wanted = built(state), parse_pod(using())
    wrong = parse_object(Kind.DEVICE_CLASS, device_class("gpu", "device.no == 1"))
    state.put(Kind.DEVICE_CLASS, "gpu", wrong)
    with state.trial() as trial:
        trial.add(wanted, state.nodes.row_of["n1"])
        answer = plugin.assign(wanted, state.nodes.row_of["n1"])
        assert answer is not None
        assert "undefined field 'no'" in answer.reason
        assert in_use(state) == []


# ---- PreBind


class Attempt:
    """A pod with claims that is reserved on n1, and an API server that has the claims."""

    def __init__(self, *claims: Raw, raw: Raw | None = None, **args: Any) -> None:
        self.api = FakeApi({("resourceclaims", f"default/{name_of(c)}"): c for c in claims})
        self.state = cluster(N1, N2, *GPUS, *claims)
        self.plugin = built(self.state, self.api, **args)
        names = [name_of(claim) for claim in claims]
        self.pod = reserve(self.plugin, self.state, raw or using(*names), "n1")

    async def pre_bind(self) -> None:
        await self.plugin.pre_bind(self.pod, "n1")

    async def give_up(self) -> None:
        """Unreserve and forget the pod as the scheduler does; then carry out the waiting writes."""
        self.plugin.unreserve(self.pod, "n1")
        self.state.forget(self.pod)
        await self.api.write_all()

    def written(self, name: str = "claim") -> ResourceClaim:
        """Return the claim from the API server."""
        return parse_resource_claim(self.api.objects["resourceclaims", f"default/{name}"])

    def known(self, name: str = "claim") -> ResourceClaim | None:
        return ClusterView(self.state).dynamic_resources.claims.get(f"default/{name}")

    def change(self, name: str = "claim", **status: Any) -> None:
        """Change the status of the claim in the API server, as another client would."""
        raw = self.api.objects["resourceclaims", f"default/{name}"]
        version = int(raw["metadata"]["resourceVersion"]) + 1
        changed = raw | {"metadata": raw["metadata"] | {"resourceVersion": str(version)}}
        changed["status"] = raw["status"] | status
        self.api.objects["resourceclaims", f"default/{name}"] = changed

    def show(self, name: str = "claim") -> None:
        """Let the watch show the claim of the API server."""
        self.state.put(Kind.RESOURCE_CLAIM, f"default/{name}", self.written(name))


def name_of(claim: Raw) -> str:
    name: str = claim["metadata"]["name"]
    return name


def devices_of(claim: ResourceClaim | None) -> list[str]:
    results = claim.allocation.results if claim is not None and claim.allocation else ()
    return [result.device.device for result in results]


def consumers_of(claim: ResourceClaim | None) -> list[str]:
    return [consumer.uid for consumer in claim.reserved_for] if claim is not None else []


async def test_pre_bind_writes_the_finalizer_then_devices_and_reservation() -> None:
    attempt = Attempt(device_claim())
    await attempt.pre_bind()
    first, second = attempt.api.patches
    assert first.resource == "resourceclaims"
    assert first.body == {"metadata": {"resourceVersion": "1", "finalizers": [FINALIZER]}}
    assert second.resource == "resourceclaims/status"
    assert second.body["metadata"] == {"resourceVersion": "2"}
    status = second.body["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "web", "uid": uid_of("web")}]
    assert status["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    assert devices_of(attempt.written()) == ["a0"]
    assert attempt.known() == attempt.written()
    assert ClusterView(attempt.state).dynamic_resources.claims.held(attempt.pod.uid) == {}


async def test_claims_are_written_in_the_pods_order_and_only_where_that_is_needed() -> None:
    mine = device_claim("mine", allocation=allocated("a0", node="n1"), reserved_for=["web"])
    shared = device_claim(
        "shared", allocation=allocated("a1", node="n1"), reserved_for=["db"], version=5
    )
    attempt = Attempt(mine, shared)
    await attempt.pre_bind()
    (patch,) = attempt.api.patches
    assert (patch.key, patch.resource) == ("default/shared", "resourceclaims/status")
    assert consumers_of(attempt.written("shared")) == [uid_of("db"), uid_of("web")]


@pytest.mark.parametrize("lost", [Lost.NOTHING, Lost.REQUEST, Lost.ANSWER])
@pytest.mark.parametrize("number", [0, 1])
async def test_a_write_whose_answer_is_lost_is_made_once(lost: Lost, number: int) -> None:
    attempt = Attempt(device_claim())
    attempt.api.lost.extend([Lost.NOTHING] * number + [lost])
    await attempt.pre_bind()
    assert (devices_of(attempt.written()), consumers_of(attempt.written())) == (
        ["a0"],
        [attempt.pod.uid],
    )
    assert len(attempt.api.patches) == 2
    assert in_use(attempt.state) == ["a0"]


async def test_a_claim_that_has_changed_is_read_again() -> None:
    attempt = Attempt(device_claim())
    attempt.change(devices=[])
    await attempt.pre_bind()
    assert devices_of(attempt.written()) == ["a0"]


async def test_a_claim_that_changes_all_the_time_is_given_up() -> None:
    attempt = Attempt(device_claim())
    attempt.api.lost.extend([Lost.REQUEST] * 5)
    with pytest.raises(PluginError, match="claim default/claim changes all the time: the request"):
        await attempt.pre_bind()


async def test_a_claim_that_is_allocated_elsewhere_fails_the_attempt() -> None:
    attempt = Attempt(device_claim())
    attempt.change(allocation=allocated("a1", node="n1"), reservedFor=[])
    with pytest.raises(PluginError) as caught:
        await attempt.pre_bind()
    assert str(caught.value) == "claim default/claim got allocated elsewhere in the meantime"
    await attempt.give_up()
    assert in_use(attempt.state) == ["a1"]


async def test_a_claim_that_is_deallocated_elsewhere_fails_the_attempt() -> None:
    attempt = Attempt(device_claim(allocation=allocated("a0", node="n1")))
    attempt.change(allocation=None)
    with pytest.raises(PluginError) as caught:
        await attempt.pre_bind()
    assert str(caught.value) == "claim default/claim got deallocated elsewhere in the meantime"


@pytest.mark.parametrize("reserved_for", [[], ["web"]])
async def test_a_claim_whose_devices_have_moved_meanwhile_fails_the_attempt(
    reserved_for: list[str],
) -> None:
    """While the pod waited at Permit, the claim may have got devices of another node."""
    claim = device_claim(allocation=allocated("a0", node="n1"), reserved_for=reserved_for)
    attempt = Attempt(claim)
    attempt.change(allocation=allocated("b0", node="n2"))
    attempt.show()
    with pytest.raises(PluginError) as caught:
        await attempt.pre_bind()
    assert str(caught.value) == "claim default/claim got allocated elsewhere in the meantime"
    assert not attempt.api.patches


async def test_a_claim_that_is_made_anew_meanwhile_fails_the_attempt() -> None:
    attempt = Attempt(device_claim())
    other = device_claim(version=9)
    other["metadata"]["uid"] = "another"
    attempt.state.put(Kind.RESOURCE_CLAIM, KEY, parse_resource_claim(other))
    with pytest.raises(PluginError, match="claim default/claim is another one than before"):
        await attempt.pre_bind()


@pytest.mark.parametrize("returns", [False, True])
async def test_a_claim_that_is_gone_fails_the_attempt_also_if_its_name_returns(
    returns: bool,  # noqa: FBT001 - both cases of one test
) -> None:
    attempt = Attempt(device_claim())
    del attempt.api.objects["resourceclaims", KEY]
    if returns:
        other = device_claim(version=7)
        other["metadata"]["uid"] = "another"
        attempt.api.objects["resourceclaims", KEY] = other
    with pytest.raises(PluginError) as caught:
        await attempt.pre_bind()
    assert str(caught.value) == "claim default/claim got deleted in the meantime"
    await attempt.give_up()
    assert in_use(attempt.state) == []


# ---- Binding conditions


async def test_pre_bind_waits_until_the_devices_are_bound() -> None:
    attempt = Attempt(with_conditions())
    bound = device_result("a0", pool="n1", conditions=[{"type": "Attached", "status": "True"}])

    def attach() -> None:
        attempt.change(devices=[bound])
        attempt.show()

    attempt.api.events.append(attach)
    await attempt.pre_bind()
    assert not attempt.api.events
    note = "waiting for binding conditions for device on node n1"
    assert attempt.api.recorded == [("default/web", "BindingConditionsPending", note)]


async def test_devices_that_cannot_be_bound_fail_the_attempt() -> None:
    attempt = Attempt(with_conditions(("Failed", "False")))
    failed = device_result("a0", pool="n1", conditions=[{"type": "Failed", "status": "True"}])

    def fail() -> None:
        attempt.change(devices=[failed | {"conditions": [{**failed["conditions"][0], **REASON}]}])
        attempt.show()

    attempt.api.events.append(fail)
    with pytest.raises(PluginError) as caught:
        await attempt.pre_bind()
    assert str(caught.value) == (
        'device binding failed: claim=claim, reason=NoCable, message="is unplugged"'
    )


REASON = {"reason": "NoCable", "message": "is unplugged"}


async def test_devices_that_are_not_bound_in_time_are_given_back_by_the_next_attempt() -> None:
    attempt = Attempt(with_conditions())
    with pytest.raises(PluginError, match=r"^device binding timeout: claim=claim$"):
        await attempt.pre_bind()
    claims = attempt.plugin.pre_filter(attempt.pod, ClusterView(attempt.state))
    nodes = ClusterView(attempt.state).nodes
    assert not attempt.plugin.filter(attempt.pod, nodes, claims).any()  # type: ignore[arg-type]  # PodClaims


class Counts(DeviceMetrics):
    """Records the calls about binding conditions."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, Sequence[str], Sequence[str], str]] = []

    def devices_bound(
        self,
        profile: str,
        drivers: Sequence[str],
        waited: Sequence[str],
        status: str,
        seconds: float,
    ) -> None:
        assert seconds == 0.0  # the API's clock stands still
        self.bound.append((profile, drivers, waited, status))


@pytest.mark.parametrize(
    ("condition", "status"), [("Attached", "success"), ("Failed", "failure"), (None, "timeout")]
)
async def test_it_is_counted_how_waiting_for_devices_has_ended(
    condition: str | None, status: str
) -> None:
    counts = Counts()
    attempt = Attempt(with_conditions(*[(condition, "True")] if condition else ()), metrics=counts)
    with nullcontext() if status == "success" else pytest.raises(PluginError):
        await attempt.pre_bind()
    assert counts.bound == [("p", [DRIVER], [DRIVER], status)]


async def test_devices_without_binding_conditions_are_not_counted() -> None:
    counts = Counts()
    await Attempt(device_claim(), metrics=counts).pre_bind()
    assert counts.bound == []


# ---- Unreserve


async def test_an_attempt_that_is_given_up_takes_its_reservation_back() -> None:
    attempt = Attempt(device_claim())
    await attempt.pre_bind()
    await attempt.give_up()
    assert (devices_of(attempt.written()), consumers_of(attempt.written())) == (["a0"], [])
    assert attempt.known() == attempt.written()


async def test_devices_stay_in_use_until_a_write_that_was_cut_short_is_settled() -> None:
    """The pod may be deleted while the API server is still carrying out the write."""
    attempt = Attempt(device_claim())
    attempt.api.lost.extend([Lost.NOTHING, Lost.CALLER])
    with pytest.raises(asyncio.CancelledError):
        await attempt.pre_bind()
    attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    assert in_use(attempt.state) == ["a0"]
    await attempt.api.write_all()
    assert (devices_of(attempt.known()), consumers_of(attempt.written())) == (["a0"], [])
    assert in_use(attempt.state) == ["a0"]


async def test_devices_are_free_when_it_turns_out_that_they_were_not_written() -> None:
    events: list[ClusterEvent] = []
    attempt = Attempt(device_claim())
    attempt.state.on_events(events.extend)
    attempt.api.lost.append(Lost.CALLER)
    with pytest.raises(asyncio.CancelledError):
        await attempt.pre_bind()
    attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    assert in_use(attempt.state) == ["a0"]
    await attempt.api.write_all()
    assert in_use(attempt.state) == []
    freed = events[-1]
    assert isinstance(freed.before, ResourceClaim)
    assert devices_of(freed.before) == ["a0"]


async def test_all_claims_of_an_attempt_are_settled_although_one_fails() -> None:
    attempt = Attempt(device_claim("a"), device_claim("b"))
    attempt.api.lost.extend([*[Lost.NOTHING] * 3, Lost.CALLER])
    with pytest.raises(asyncio.CancelledError):
        await attempt.pre_bind()
    attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    attempt.api.lost.extend([Lost.REQUEST] * 5)
    with pytest.raises(PluginError, match="claim default/a stays reserved for pod default/web"):
        await attempt.api.write_all()
    assert consumers_of(attempt.written("a")) == [attempt.pod.uid]
    assert consumers_of(attempt.written("b")) == []
    assert in_use(attempt.state) == ["a0", "a1"]


async def test_an_attempt_does_not_free_what_a_later_one_has_left() -> None:
    attempt = Attempt(device_claim())
    for _ in range(2):
        attempt.api.lost.extend([Lost.REQUEST] * 5)
        with pytest.raises(PluginError, match="changes all the time"):
            await attempt.pre_bind()
        attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    first, second = attempt.api.writes
    await first()
    assert in_use(attempt.state) == ["a0"]
    await second()
    assert in_use(attempt.state) == []


async def test_a_reservation_stays_if_the_pod_is_on_a_node_again() -> None:
    attempt = Attempt(device_claim())
    await attempt.pre_bind()
    attempt.plugin.unreserve(attempt.pod, "n1")
    attempt.state.forget(attempt.pod)
    attempt.state.assume(attempt.pod, attempt.state.nodes.row_of["n1"])
    await attempt.api.write_all()
    assert consumers_of(attempt.written()) == [attempt.pod.uid]


async def test_nothing_is_written_for_an_attempt_that_has_written_nothing() -> None:
    attempt = Attempt(device_claim())
    await attempt.give_up()
    assert not attempt.api.patches
    assert in_use(attempt.state) == []


# ---- PostFilter


def decided(*objects: Raw, wanted: Raw, version: str = "1.36") -> tuple[str, FakeApi]:
    """Return the message of a decision that finds no node, and the API with the planned writes."""
    deciding = Deciding(N1, N2, *GPUS, *objects, kubernetesVersion=version)
    message = deciding.decision(wanted).message
    assert message is not None
    api = deciding.pipeline.api
    assert isinstance(api, FakeApi)
    return message, api


ON_N1 = device_claim(allocation=allocated("a0", node="n1"))
ELSEWHERE = using(node_selector={"kubernetes.io/hostname": "n2"})


@pytest.mark.parametrize(
    ("version", "text"),
    [("1.36", "no new claims to deallocate, preemption: "), ("1.37", "preempt")],
)
def test_without_claims_its_post_filter_says_what_kube_scheduler_says(
    version: str, text: str
) -> None:
    message, _ = decided(wanted=pod(cpu="200"), version=version)
    assert message.startswith(f"0/2 nodes are available: 2 Insufficient cpu. {text}")


@pytest.mark.parametrize(
    ("version", "text"), [("1.36", "still not schedulable, preemption: "), ("1.37", "preempt")]
)
def test_a_claim_that_others_use_stays_allocated(version: str, text: str) -> None:
    claim = device_claim(allocation=allocated("a0", node="n1"), reserved_for=["web", "db"])
    message, api = decided(claim, wanted=ELSEWHERE, version=version)
    begin = "1 node(s) didn't match Pod's node affinity/selector, "
    rejected = "1 resourceclaim not available on the node. "
    assert message.startswith(f"0/2 nodes are available: {begin}{rejected}{text}")
    assert not api.writes


@pytest.mark.parametrize("reserved_for", [[], ["web"]])
async def test_a_claim_that_keeps_its_only_pod_off_a_node_is_deallocated(
    reserved_for: list[str],
) -> None:
    claim = device_claim(allocation=allocated("a0", node="n1"), reserved_for=reserved_for)
    message, api = decided(claim, wanted=ELSEWHERE)
    assert "deallocation of ResourceClaim completed" in message
    api.objects["resourceclaims", KEY] = claim
    await api.write_all()
    freed = parse_resource_claim(api.objects["resourceclaims", KEY])
    assert (freed.allocation, freed.reserved_for, freed.device_statuses) == (None, (), ())


async def test_a_claim_is_deallocated_once_however_often_that_is_asked_for() -> None:
    deciding = Deciding(N1, N2, *GPUS, ON_N1)
    api = deciding.pipeline.api
    assert isinstance(api, FakeApi)
    for _ in range(3):
        deciding.decision(ELSEWHERE)
    assert len(api.writes) == 1
    api.objects["resourceclaims", KEY] = ON_N1
    await api.write_all()
    assert len(api.patches) == 1
    deciding.decision(ELSEWHERE)
    assert not api.writes


async def test_a_claim_that_another_pod_uses_by_then_is_not_deallocated() -> None:
    _, api = decided(ON_N1, wanted=ELSEWHERE)
    taken = device_claim(allocation=allocated("a0", node="n1"), reserved_for=["db"], version=2)
    api.objects["resourceclaims", KEY] = taken
    await api.write_all()
    assert not api.patches


def test_after_its_own_rejection_before_the_filters_there_is_nothing_to_free() -> None:
    message, _ = decided(wanted=using())
    assert message == (
        '0/2 nodes are available: could not find ResourceClaim "default/claim". '
        "no new claims to deallocate, preemption: "
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_after_a_rejection_by_another_plugin_before_the_filters_it_says_not_found() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]
    message, _ = decided(wanted=pod(spec={"volumes": volumes}))
    assert message.endswith('persistentvolumeclaim "gone" not found. not found')


# ---- Queueing hints

FREE, TAKEN = device_claim(), device_claim(allocation=allocated("a0", node="n1"))
OTHER = device_claim("other")


def other_with(*results: Raw, uid: str = "u") -> Raw:
    """Return the claim `other` with this uid and these allocated devices."""
    claim = device_claim("other", allocation=allocated(*results))
    claim["metadata"]["uid"] = uid
    return claim


A0, A1, SHARED = device_result("a0"), device_result("a1"), device_result("a0", shareID="s1")
CREATED_AGAIN = device_claim()
CREATED_AGAIN["metadata"]["uid"] = "former"


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        (None, FREE, True),
        (None, OTHER, False),
        (FREE, FREE, False),
        (FREE, TAKEN, True),
        (CREATED_AGAIN, FREE, True),
        (device_claim("other", allocation=allocated("a0")), OTHER, True),
        (device_claim("other", allocation=allocated("a0")), None, True),
        (OTHER, None, False),
        (OTHER, device_claim("other", allocation=allocated("a0")), False),
        (other_with(A0), other_with(A1), True),
        (other_with(A0), other_with(A1, uid="another"), True),
        (other_with(A0, A1), other_with(A1), True),
        (other_with(A0), other_with(A0, A1), False),
        (other_with(SHARED), other_with({**SHARED, "shareID": "s2"}), True),
        (other_with(A0), other_with({**A0, "adminAccess": True}), True),
        (None, device_class("gpu"), True),
        (device_class("gpu"), device_class("gpu", "true"), True),
        (None, resource_slice("s", ["d"]), True),
        (None, node("n3"), True),
        (N1, node("n1", labels={"a": "b"}), True),
        (N1, node("n1", annotations={"a": "b"}), False),
        (using(name="gone", node="n1", phase="Pending"), None, True),
        (using(name="gone", node="n1"), None, False),
        (pod("gone", node="n1", phase="Pending"), None, False),
    ],
)
def test_a_pod_is_tried_again_when_devices_may_be_free_or_its_claims_change(
    before: Raw | None,
    after: Raw | None,
    helps: bool,  # noqa: FBT001 - a column of the table
) -> None:
    asked = answers(FREE, OTHER)
    assert asked.queueing_hint(using(), before=before, after=after) == helps


def test_a_pod_whose_claims_do_not_exist_is_not_tried_again() -> None:
    assert not answers().queueing_hint(using(), after=FREE)


def test_whole_decisions_place_pods_with_their_devices() -> None:
    deciding = Deciding(N1, N2, *GPUS, device_claim("claim", request(count=2)))
    outcome = deciding.outcome(using())
    assert isinstance(outcome, ScheduleResult)
    assert outcome.node == "n1"


def test_no_pod_is_evicted_for_devices() -> None:
    """As in kube-scheduler, preemption does not count the devices of victims as free."""
    holders = [using(f"holder-{n}", name=f"low-{n}", node=n, priority=1) for n in ("n1", "n2")]
    held = [
        device_claim(
            f"holder-{n}",
            request(count=c),
            allocation=allocated(*d, node=n),
            reserved_for=[f"low-{n}"],
        )
        for n, c, d in (("n1", 2, ("a0", "a1")), ("n2", 1, ("b0",)))
    ]
    deciding = Deciding(N1, N2, *GPUS, *held, *holders, device_claim())
    outcome = deciding.outcome(using(priority=10))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is None
    assert "2 Preemption is not helpful for scheduling" in outcome.message


def test_a_pod_preempts_on_a_node_where_a_later_alternative_of_its_claim_is_free() -> None:
    fields = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    alternatives = [{"name": f"of-{count}", "count": count, **fields} for count in (2, 1)]
    claim = device_claim("claim", {"name": "r", "firstAvailable": alternatives})
    low = pod("low", node="n2", cpu="8", priority=1)
    deciding = Deciding(node("n2", cpu="8"), *GPUS, claim, low)
    outcome = deciding.outcome(using(priority=10, cpu="1"))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert [victim.name for victim in outcome.nomination.victims] == ["low"]


def test_a_pod_that_is_taken_off_its_node_in_a_what_if_finds_its_devices_free() -> None:
    claim = device_claim(
        "claim", request(count=2), allocation=allocated("a0", "a1", node="n1"), reserved_for=["web"]
    )
    deciding = Deciding(N1, N2, *GPUS, claim, using(node="n1"))
    what_if = WhatIf(deciding.shared, now=lambda: 0.0)
    what_if.remove(uid_of("web"))
    with what_if.trial():
        assert in_use(deciding.state) == []
        outcome = what_if.decide(parse_pod(using()), deciding.pipeline)
    assert isinstance(outcome, ScheduleResult)
    assert outcome.node == "n1"
    assert in_use(deciding.state) == ["a0", "a1"]


def test_devices_of_a_pod_that_is_tried_with_others_are_searched_for_once() -> None:
    """Each trial adds the earlier pods again; their devices must not be searched again."""
    deciding = Deciding(N1, *GPUS, device_claim())
    what_if = WhatIf(deciding.shared, now=lambda: 0.0)
    what_if.add(parse_pod(using()), "n1", deciding.pipeline)
    with what_if.trial():
        assert in_use(deciding.state) == ["a0"]
    deciding.state.delete(Kind.DEVICE_CLASS, "gpu")  # a search would find none
    with what_if.trial():
        assert in_use(deciding.state) == ["a0"]
    assert in_use(deciding.state) == []
