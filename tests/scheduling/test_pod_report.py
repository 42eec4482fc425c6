"""The report about a pod has its state and the changes that would make it fit."""

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from mooring.framework.decision import PodRef
from mooring.groups.model.pod_group import COSCHEDULING_LABEL, GroupSource
from mooring.groups.state.pod_groups import GROUP_KINDS
from mooring.kube.api_resources import COSCHEDULING_POD_GROUP, POD_GROUP, STORAGE_CLASS, Resource
from mooring.model.events import Kind
from mooring.model.limits import LIMITS, Counted
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.page.queue_view import Queue
from mooring.runtime.queued_pod import PodState, QueuedPod
from mooring.scheduling.outcome import FitError, decision_of
from mooring.scheduling.pod_report import PodReportBuilder, pod_state
from mooring.testing.builders import node, pod, pod_group, uid_of
from scheduler_states import put_profile

REJECTED_BY = frozenset({"NodeResourcesFit"})


class Stage:
    """A node with 4 cpus (2 in use), a queue, and a clock that the test moves."""

    def __init__(self) -> None:
        self.deciding = Deciding(node("a", cpu="4"), pod("low", cpu="2", node="a"))
        self.now = 0.0
        self.scheduler = replace(self.deciding.scheduler, clock=lambda: self.now)
        self.reports = PodReportBuilder(self.scheduler)

    def add(self, raw: dict[str, Any], *, gated: bool = False) -> Pod:
        added = parse_pod(raw)
        self.scheduler.queue.add(added, self.deciding.pipeline, self.now, gated=gated)
        return added

    def pop(self) -> QueuedPod:
        popped = self.scheduler.queue.pop(self.now)
        assert popped is not None
        return popped

    async def report(self, name: str) -> dict[str, Any]:
        report = await self.reports.of(f"default/{name}")
        assert report is not None
        found: dict[str, Any] = plain(report)
        return found


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_nominated_pod_is_told_which_pods_are_yet_to_leave_its_node(stage: Stage) -> None:
    state, log = stage.scheduler.state, stage.scheduler.decisions
    web = stage.add(pod("web", cpu="3"))
    log.seen(web.key, web.uid, 0.0)
    stage.scheduler.queue.add_unschedulable(stage.pop(), REJECTED_BY, 0.0)
    state.nominate(web, "a")
    log.nominated(web.uid, "a", [PodRef.of(parse_pod(pod("low", cpu="2", node="a")))], 0.0)
    report = await stage.report("web")
    assert (report["nominatedNode"], report["victims"]) == ("a", ["default/low"])
    assert "suggestions" not in report
    state.delete(Kind.POD, uid_of("low"))
    report = await stage.report("web")
    assert report["nominatedNode"] == "a"
    assert "victims" not in report


async def test_a_report_and_the_list_of_pending_pods_name_one_cause() -> None:
    """150 pods lack cpu in their own pool, and node affinity rejects all other nodes."""
    others = [node(f"other-{number}", labels={"pool": "other"}) for number in range(9)]
    own = node("own", cpu="2", labels={"pool": "own"})
    deciding = Deciding(own, *others)
    scheduler, pods = deciding.scheduler, range(150)
    for number in pods:
        raw = pod(f"web-{number}", cpu="3", node_selector={"pool": "own"})
        scheduler.queue.add(parse_pod(raw), deciding.pipeline, 0.0)
        popped = scheduler.queue.pop(0.0)
        assert popped is not None
        outcome = deciding.outcome(raw)
        assert isinstance(outcome, FitError)
        decision = decision_of(popped.pod, deciding.pipeline, outcome)
        scheduler.decisions.decided(decision, 0.0, cause=outcome.cause)
        scheduler.queue.add_unschedulable(popped, outcome.diagnosis.plugins, 0.0)
    report = await PodReportBuilder(scheduler).of("default/web-7")
    assert report is not None
    queue = Queue(scheduler, bound=lambda: 0, clock=lambda: 0.0, now=lambda: 0.0)
    (group,) = (await queue.pending()).groups(frozenset(["default"]))["causes"]
    assert (group["cause"], group["pods"]) == (report.cause, 150)
    assert report.cause == "Insufficient cpu"


def test_where_a_pod_is_follows_it_from_its_arrival_to_its_node(stage: Stage) -> None:
    scheduler, uid = stage.scheduler, uid_of("web")

    def state() -> PodState | None:
        return pod_state(scheduler, uid)

    assert state() is None
    scheduler.without_profile[uid] = parse_pod(pod("web"))
    assert state() is PodState.NO_PROFILE
    waiting = scheduler.without_profile.pop(uid)
    stage.add(pod("web"), gated=True)
    assert state() is PodState.GATED
    scheduler.queue.remove(uid, 0.0)
    stage.add(pod("web"))
    assert state() is PodState.ACTIVE
    queued = stage.pop()
    assert state() is PodState.IN_FLIGHT
    scheduler.queue.add_after_error(queued, 0.0)
    assert state() is PodState.BACKOFF
    stage.now = 60.0
    scheduler.queue.add_unschedulable(stage.pop(), REJECTED_BY, 60.0)
    assert state() is PodState.UNSCHEDULABLE
    scheduler.queue.remove(uid, 60.0)
    stage.deciding.state.assume(waiting, stage.deciding.state.nodes.row_of["a"])
    assert state() is PodState.BINDING
    stage.deciding.state.put(Kind.POD, uid, parse_pod(pod("web", node="a")))
    assert state() is PodState.BOUND


async def test_an_unschedulable_pod_has_suggestions_the_smallest_change_first(
    stage: Stage,
) -> None:
    stage.add(pod("web", cpu="3"))
    stage.scheduler.queue.add_unschedulable(stage.pop(), REJECTED_BY, 0.0)
    stage.now = 61.0
    report = await stage.report("web")
    assert report["state"] == "unschedulable"
    assert report["pendingSeconds"] == 61.0
    assert report["plugins"] == ["NodeResourcesFit"]
    assert [suggestion["change"] for suggestion in report["suggestions"]] == [
        "if it requested at most 2 of cpu instead of 3",
        "when default/low on a ends",
    ]


async def test_an_active_pod_knows_how_many_are_ahead_of_it(stage: Stage) -> None:
    stage.add(pod("high", priority=10))
    stage.add(pod("first"))
    stage.now = 1.0
    stage.add(pod("second"))
    stage.add(pod("low", priority=-1))
    assert (await stage.report("second"))["ahead"] == 2


async def test_a_gated_pod_names_its_gates(stage: Stage) -> None:
    stage.add(pod("web", spec={"schedulingGates": [{"name": "shop/quota"}]}), gated=True)
    report = await stage.report("web")
    assert report["state"] == "gated"
    assert report["plugins"] == ["SchedulingGates"]
    assert report["heldBack"] == "waiting for scheduling gates: [shop/quota]"
    assert "suggestions" not in report


async def test_the_age_of_a_gated_pod_goes_on_when_its_gates_are_looked_at_again(
    stage: Stage,
) -> None:
    raw = pod("web", spec={"schedulingGates": [{"name": "shop/quota"}]})
    for stage.now in (0.0, 25.0, 50.0):
        stage.add(raw, gated=True)
    stage.now = 61.0
    assert (await stage.report("web"))["pendingSeconds"] == 61.0


async def test_a_pod_that_exceeds_a_limit_says_which(stage: Stage) -> None:
    labels = {f"label-{number}": "" for number in range(LIMITS[Counted.LABELS] + 1)}
    large = stage.add(pod("web", labels=labels), gated=True)
    report = await stage.report("web")
    assert (report["plugins"], report["heldBack"]) == ([], large.limit_exceeded)


async def test_a_pod_at_permit_names_the_plugins_it_waits_for(stage: Stage) -> None:
    waiting = stage.add(pod("web"))
    stage.pop().times.enter(PodState.PERMIT, 0.0)
    stage.deciding.place(pod("web"), "a")
    stage.scheduler.waiting.enter(waiting, "a", {"Gang": 30.0}, 0.0, lambda *_: None)
    stage.now = 10.0
    report = await stage.report("web")
    assert report["state"] == "waiting at Permit"
    assert report["node"] == "a"
    assert report["waitsFor"] == {"Gang": 20.0}


async def test_an_assumed_pod_is_being_bound(stage: Stage) -> None:
    stage.add(pod("web"))
    stage.pop().times.enter(PodState.BINDING, 0.0)
    stage.deciding.place(pod("web"), "a")
    report = await stage.report("web")
    assert (report["state"], report["node"]) == ("being bound", "a")


async def test_a_bound_pod_names_its_node(stage: Stage) -> None:
    assert await stage.report("low") == {"state": "bound", "node": "a"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nobody", 'no profile takes pods of schedulerName "nobody"'),
        ("moring", 'no profile takes pods of schedulerName "moring", did you mean mooring?'),
        ("mooring", "no SchedulingProfile takes the pod: those for schedulerName "),
    ],
)
async def test_a_pod_without_a_profile_says_why(stage: Stage, name: str, why: str) -> None:
    elsewhere = {"schedulerNames": ["mooring"], "podSelector": {"matchLabels": {"a": "b"}}}
    put_profile(stage.scheduler, "mine", match=elsewhere)
    waiting = parse_pod(pod("web", spec={"schedulerName": name}))
    stage.scheduler.without_profile[uid_of("web")] = waiting
    report = await stage.report("web")
    assert report["state"] == "without a profile"
    assert report["heldBack"].startswith(why)


async def test_a_pod_that_is_not_known_has_no_report(stage: Stage) -> None:
    assert await stage.reports.of("default/other") is None


class Gang:
    """A group that does not fit because of one other pod, although each member fits alone."""

    def __init__(self, minimum: int = 3) -> None:
        objects = [node("a", cpu="3"), pod("squat", namespace="batch", cpu="1", node="a")]
        self.deciding = Deciding(*objects, pod_group("g", minimum))
        self.now = 0.0
        self.scheduler = replace(self.deciding.scheduler, clock=lambda: self.now)
        self.source = GroupSource.KUBERNETES
        self.unserved: dict[Kind, Resource] = {}
        self.reports = PodReportBuilder(
            self.scheduler,
            groups=self.described,
            unserved=lambda: self.unserved,
        )

    def described(self, namespace: str, name: str) -> list[dict[str, Any]]:
        source, message = self.source.value, "does not fit"
        return [{"podGroup": f"{namespace}/{name}", "source": source, "message": message}]

    def add(self, *names: str, gates: tuple[str, ...] = (), tried: bool = True) -> None:
        for name in names:
            spec = {"schedulingGates": [{"name": gate} for gate in gates]}
            added = parse_pod(pod(name, cpu="1", group="g", spec=spec))
            self.scheduler.state.put_unscheduled(added)
            gated = bool(gates) or not tried
            self.scheduler.queue.add(added, self.deciding.pipeline, 0.0, gated=gated)
            if not gated:
                popped = self.scheduler.queue.pop(0.0)
                assert popped is not None
                self.scheduler.queue.add_unschedulable(popped, REJECTED_BY, 0.0)

    async def report(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = plain(await self.reports.of(f"default/{name}"))
        return found

    async def group(self) -> dict[str, Any]:
        (found,) = plain(await self.reports.of_groups("default", "g"))
        document: dict[str, Any] = found
        return document


async def test_a_member_is_explained_as_its_group_is() -> None:
    gang = Gang()
    gang.add("m0", "m1", "m2")
    report = await gang.report("m0")
    changes = [each["change"] for each in report["suggestions"]]
    assert "as it is" not in changes
    assert "when batch/squat on a ends" in changes
    assert report["group"]["podGroup"] == "default/g"
    assert report["group"]["message"] == "does not fit"
    assert report["group"]["remedy"] is None
    assert (await gang.group())["suggestions"] == report["suggestions"]


async def test_a_group_that_preempts_says_which_pods_are_yet_to_leave_and_suggests_nothing() -> (
    None
):
    gang = Gang()
    gang.add("m0", "m1", "m2")
    member = parse_pod(pod("m1", cpu="1", group="g"))
    victim = PodRef.of(parse_pod(pod("squat", namespace="batch")))
    gang.scheduler.state.nominate(member, "a")
    gang.scheduler.decisions.seen(member.key, member.uid, 0.0)
    gang.scheduler.decisions.nominated(member.uid, "a", [victim], 0.0)
    document = await gang.group()
    assert (document["victims"], document["suggestions"]) == (["batch/squat"], None)
    gang.scheduler.state.delete(Kind.POD, victim.uid)
    document = await gang.group()
    assert document["victims"] is None
    assert document["suggestions"]


async def test_a_group_without_enough_members_says_how_many_are_to_be_created() -> None:
    gang = Gang(8)
    gang.add("m0", "m1", tried=False)
    report = await gang.report("m0")
    assert report["plugins"] == ["GangScheduling"]
    assert report["heldBack"] == "2 of 8 members exist"
    document = await gang.group()
    assert document["remedy"] == "create 6 more of its members, or require at most 2"
    assert document["suggestions"] == []


async def test_a_group_with_gated_members_names_them() -> None:
    gang = Gang()
    gang.add("m0", "m1")
    gang.add("m2", gates=("quota",))
    assert (await gang.group())["remedy"] == "remove the scheduling gates of m2"
    assert (await gang.report("m0"))["suggestions"] == []
    (document,) = await gang.reports.of_groups("default", "g")
    assert document["remedy"].otherwise == "remove the scheduling gates of 1 members"


async def test_a_group_whose_object_is_missing_is_to_be_created() -> None:
    gang = Gang()
    gang.add("m0", tried=False)
    gang.scheduler.state.delete(Kind.POD_GROUP, "default/g")
    assert (await gang.group())["remedy"] == (
        "create podgroups.scheduling.k8s.io/g in namespace default"
    )


IN_KUBERNETES = pod("m", group="g")
BY_LABEL = pod("m", labels={COSCHEDULING_LABEL: "g"})


@pytest.mark.parametrize(
    ("resource", "member", "begins"),
    [
        (POD_GROUP, IN_KUBERNETES, "have the API server serve podgroups.scheduling.k8s.io, "),
        (COSCHEDULING_POD_GROUP, BY_LABEL, "install the CRD podgroups.scheduling.x-k8s.io, "),
    ],
)
async def test_a_group_whose_kind_is_not_served_is_not_to_be_created(
    resource: Resource, member: dict[str, Any], begins: str
) -> None:
    gang = Gang()
    gang.scheduler.state.delete(Kind.POD_GROUP, "default/g")
    gang.scheduler.state.put_unscheduled(parse_pod(member))
    gang.source = GroupSource(str(resource))
    gang.unserved = {
        kind: resource for kind, source in GROUP_KINDS.items() if source == gang.source
    }
    assert (await gang.group())["remedy"].startswith(begins)


async def test_a_pod_with_volumes_says_which_kinds_of_storage_are_not_served(stage: Stage) -> None:
    served = PodReportBuilder(stage.scheduler, unserved=lambda: {Kind.STORAGE_CLASS: STORAGE_CLASS})
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    stage.add(pod("web", spec={"volumes": [claim]}))
    stage.add(pod("plain"))
    for name, expected in (("web", ["storageclasses.storage.k8s.io"]), ("plain", None)):
        report = await served.of(f"default/{name}")
        assert report is not None
        assert report.not_served == expected


async def test_a_bound_member_names_its_group_and_needs_nothing() -> None:
    gang = Gang()
    member = parse_pod(pod("m0", cpu="1", group="g", node="a"))
    gang.scheduler.state.put(Kind.POD, member.uid, member)
    report = await gang.report("m0")
    assert report["group"]["podGroup"] == "default/g"
    assert "suggestions" not in report
    assert (await gang.group())["suggestions"] is None


async def test_what_would_make_a_group_fit_is_looked_for_once_for_all_members() -> None:
    gang = Gang()
    gang.add("m0", "m1", "m2")
    first = await gang.report("m0")
    gang.scheduler.state.delete(Kind.POD, uid_of("squat", "batch"))
    gang.now = 1.0
    assert (await gang.report("m1"))["suggestions"] == first["suggestions"]
    gang.now = 3.0
    (now,) = (await gang.report("m2"))["suggestions"]
    assert now["change"] == "as it is"


async def test_suggestions_end_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_seconds: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", at_once)
    gang = Gang()
    gang.add("m0", "m1", "m2")
    seconds = count(0.0, 100.0)
    scheduler = replace(gang.scheduler, clock=lambda: next(seconds))
    slow = PodReportBuilder(scheduler, groups=gang.described)
    async with asyncio.timeout(60):
        report = await slow.of("default/m0")
    assert report is not None
    assert report.suggestions == []


def with_claims(*names: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": each, "resourceClaimName": each} for each in names]}


def devices_stage(*claims: dict[str, Any]) -> Stage:
    """Return nodes without a device, with a used device, and two with another model."""
    models = {"a": "h100", "b": "l4", "c": "l4"}
    stage = Stage()
    stage.deciding = Deciding(
        *(node(name) for name in (*models, "bare")),
        device_class("gpu"),
        *(
            resource_slice(f"s-{name}", [device("d0", attributes={"model": model})], node=name)
            for name, model in models.items()
        ),
        device_claim("hidden", namespace="secret", allocation=allocated("d0", node="a")),
        *claims,
    )
    stage.scheduler = replace(stage.deciding.scheduler, clock=lambda: stage.now)
    stage.reports = PodReportBuilder(stage.scheduler)
    return stage


async def test_a_pod_without_devices_says_what_excludes_them_on_how_many_nodes() -> None:
    is_h100 = f"device.attributes['{DRIVER}'].model == 'h100'"
    wanted = request(selectors=[{"cel": {"expression": is_h100}}])
    stage = devices_stage(device_claim("mine", wanted))
    stage.add(pod("web", spec=with_claims("mine")))
    stage.scheduler.queue.add_unschedulable(stage.pop(), frozenset({"DynamicResources"}), 0.0)
    report = await stage.report("web")
    excluded = [
        {"reason": "selector #0 of request r", "devices": 2, "nodes": 2},
        {"reason": "in use", "devices": 1, "nodes": 1},
        {"reason": "no devices", "devices": 0, "nodes": 1},
    ]
    asked = {"request": "r", "count": 1, "enoughOn": 0, "excluded": excluded}
    assert report["claims"] == {
        "claims": [
            {"name": "mine", "claim": "mine", "state": "not allocated", "requests": [asked]}
        ],
        "nodes": 4,
        "nodesInAll": 4,
    }
    assert "hidden" not in str(report)
    assert [each["change"] for each in report["suggestions"]] == [
        (
            "if it had no selector #0 in request r of claim mine "
            "(device.attributes['gpu.example.com'].model == 'h100')"
        ),
        "if it had no claim mine",
    ]


async def test_a_gated_pod_names_all_claims_that_it_waits_for() -> None:
    ended = device_claim("ended")
    ended["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stage = devices_stage(ended)
    spec = with_claims("none", "ended")
    spec["resourceClaims"].append({"name": "new", "resourceClaimTemplateName": "one"})
    stage.add(pod("web", spec=spec), gated=True)
    report = await stage.report("web")
    assert report["heldBack"] == 'could not find ResourceClaim "default/none"'
    assert [(each["name"], each["state"]) for each in report["claims"]["claims"]] == [
        ("none", "does not exist"),
        ("ended", "is being deleted"),
        ("new", "not created yet from ResourceClaimTemplate one"),
    ]
