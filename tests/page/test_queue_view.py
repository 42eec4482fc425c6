"""Pending pods in groups and lists."""

from typing import Any

import pytest

from mooring.framework.decision import PodRef
from mooring.groups.model.pod_group import COSCHEDULING_LABEL, parse_coscheduling_pod_group
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.observe.records import RecordedStep
from mooring.page.queue_view import Queue, Selected
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import coscheduling_pod_group, node, pod, uid_of
from scheduler_states import put_profile, scheduler_state

ALL = frozenset(["default", "shop", "bank"])
NO_PROFILE = 'no profile takes pods of schedulerName "default-scheduler"'
JOB = {"kind": "Job", "name": "train", "uid": "u", "controller": True}


class Stage:
    """A scheduling queue, its view, and a clock that the test moves."""

    def __init__(self) -> None:
        self.shared: SchedulerState = scheduler_state(node("a"))
        self.pipeline = put_profile(self.shared).pipeline
        self.now = 1000.0
        self.bound = 0
        self.queue = Queue(
            self.shared,
            bound=lambda: self.bound,
            clock=lambda: self.now,
            now=lambda: self.now,
        )

    def add(self, name: str, *, gated: bool = False, **fields: Any) -> None:
        parsed = parse_pod(pod(name, **fields))
        self.shared.queue.add(parsed, self.pipeline, self.now, gated=gated)

    def reject(self, *plugins: str) -> None:
        popped = self.shared.queue.pop(self.now)
        assert popped is not None
        self.shared.queue.add_unschedulable(popped, frozenset(plugins), self.now)

    def fail(
        self, name: str, step: RecordedStep, cause: str, *, namespace: str = "default"
    ) -> None:
        uid = uid_of(name, namespace)
        self.shared.decisions.seen(f"{namespace}/{name}", uid, self.now)
        self.shared.decisions.note(uid, step, self.now, cause=cause)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_pods_are_counted_by_state_cause_and_owner(stage: Stage) -> None:
    for number in range(2):
        stage.add(f"train-{number}", namespace="shop", owner=JOB)
        stage.reject("NodeResourcesFit", "NodeAffinity")
    stage.add("held", gated=True)
    stage.add("new")
    groups = (await stage.queue.pending()).groups(ALL)
    assert groups["total"] == 4
    assert {name: count for name, count in groups["states"].items() if count} == {
        "unschedulable": 2,
        "gated": 1,
        "active": 1,
    }
    assert groups["causes"][0] == {
        "cause": "NodeAffinity, NodeResourcesFit",
        "pods": 2,
        "states": {"unschedulable": 2},
        "oldestSeconds": 0,
    }
    assert {each["cause"] for each in groups["causes"][1:]} == {"gated", "not decided yet"}
    first = groups["owners"][0]
    assert (first["namespace"], first["kind"], first["name"], first["pods"]) == (
        "shop",
        "Job",
        "train",
        2,
    )
    assert groups["otherPods"] == 0


async def test_gated_pods_are_grouped_by_their_gates_and_their_age_goes_on(stage: Stage) -> None:
    spec = {"schedulingGates": [{"name": "shop/quota"}]}
    for _ in range(2):  # from time to time their gates are looked at again
        stage.add("one", gated=True, spec=spec)
        stage.add("two", gated=True, spec=spec)
        stage.now += 25.0
    (cause,) = (await stage.queue.pending()).groups(ALL)["causes"]
    assert (cause["cause"], cause["pods"]) == ("scheduling gates: shop/quota", 2)
    assert cause["oldestSeconds"] == 50


async def test_members_that_are_gated_say_how_many_of_their_group_exist(stage: Stage) -> None:
    for name in ("a", "b"):
        raw = pod(name, labels={COSCHEDULING_LABEL: "train"})
        stage.shared.state.put_unscheduled(parse_pod(raw))
        stage.shared.queue.add(parse_pod(raw), stage.pipeline, stage.now, gated=True)
    assert await causes(stage) == ["PodGroup default/train does not exist"]
    stage.shared.state.put(
        Kind.COSCHEDULING_POD_GROUP,
        "default/train",
        parse_coscheduling_pod_group(coscheduling_pod_group("train", minimum=8)),
    )
    stage.now += 10.0
    assert await causes(stage) == ["2 of 8 members exist"]


async def test_the_members_of_a_group_are_one_owner(stage: Stage) -> None:
    for name in ("a", "b"):
        owner = {**JOB, "name": f"worker-{name}"}
        raw = pod(name, labels={COSCHEDULING_LABEL: "train"}, owner=owner)
        stage.shared.state.put_unscheduled(parse_pod(raw))
        stage.shared.queue.add(parse_pod(raw), stage.pipeline, stage.now)
    pending = await stage.queue.pending()
    (owner,) = pending.groups(ALL)["owners"]
    assert (owner["kind"], owner["name"], owner["pods"]) == ("PodGroup", "train", 2)
    assert pending.page(Selected(owner="default/PodGroup/train"), ALL, 0, 10)["total"] == 2


@pytest.mark.parametrize("step", [RecordedStep.REJECTED, RecordedStep.ERROR])
async def test_a_pod_that_failed_after_its_node_was_chosen_has_that_as_cause(
    stage: Stage, step: RecordedStep
) -> None:
    stage.add("web")
    stage.reject("NodeResourcesFit")
    stage.fail("web", RecordedStep.UNSCHEDULABLE, "Insufficient cpu")
    stage.fail("web", step, "too late")
    assert await causes(stage) == ["too late"]


async def test_a_nominated_pod_waits_for_the_pods_that_it_preempts(stage: Stage) -> None:
    stage.add("web")
    stage.reject("NodeResourcesFit")
    stage.fail("web", RecordedStep.UNSCHEDULABLE, "Insufficient cpu")
    victim = parse_pod(pod("victim", node="a"))
    stage.shared.state.put(Kind.POD, victim.uid, victim)
    stage.shared.state.nominate(parse_pod(pod("web")), "a")
    stage.shared.decisions.nominated(uid_of("web"), "a", [PodRef.of(victim)], stage.now)
    assert await causes(stage) == ["waits until the pods that it preempts have left its node"]
    stage.shared.state.delete(Kind.POD, victim.uid)
    stage.now += 10.0
    assert await causes(stage) == ["Insufficient cpu"]


async def causes(stage: Stage) -> list[str]:
    return [each["cause"] for each in (await stage.queue.pending()).groups(ALL)["causes"]]


async def test_the_dominant_cause_is_shown_where_it_is_known(stage: Stage) -> None:
    for name in ("web", "job"):
        stage.add(name)
        stage.reject("NodeResourcesFit", "NodeAffinity")
    stage.fail("web", RecordedStep.UNSCHEDULABLE, "Insufficient cpu")
    causes = (await stage.queue.pending()).groups(ALL)["causes"]
    assert {each["cause"] for each in causes} == {
        "Insufficient cpu",
        "NodeAffinity, NodeResourcesFit",
    }


async def test_a_cause_that_only_pods_of_other_namespaces_have_is_not_named(stage: Stage) -> None:
    """A cause is a plugin's text, which may name pods."""
    for namespace in ("shop", "bank"):
        stage.add(f"{namespace}-pod", namespace=namespace)
        stage.reject("NodeResourcesFit")
    stage.fail("bank-pod", RecordedStep.UNSCHEDULABLE, "waits for bank/vault", namespace="bank")
    stage.fail("shop-pod", RecordedStep.UNSCHEDULABLE, "Insufficient cpu", namespace="shop")
    pending = await stage.queue.pending()
    groups = pending.groups(frozenset(["shop"]))
    assert [each["cause"] for each in groups["causes"]] == ["Insufficient cpu"]
    assert groups["otherCauses"] == 1
    assert "vault" not in str(groups)
    assert pending.groups(ALL)["otherCauses"] == 0


async def test_owners_and_pods_of_other_namespaces_are_counted_and_not_named(stage: Stage) -> None:
    stage.add("web", namespace="shop")
    stage.add("vault", namespace="bank")
    pending = await stage.queue.pending()
    shop = frozenset(["shop"])
    groups = pending.groups(shop)
    assert (groups["total"], groups["otherPods"]) == (2, 1)
    listed = pending.page(Selected(), shop, 0, 10)
    assert [each["pod"] for each in listed["pods"]] == ["shop/web"]
    assert "vault" not in str((groups, listed))
    assert "bank" not in str((groups, listed))
    assert pending.page(Selected(namespace="bank"), shop, 0, 10)["total"] == 0


async def test_a_list_has_the_longest_pending_pods_first_and_comes_in_parts(stage: Stage) -> None:
    for number in range(5):
        stage.add(f"pod-{number}")
        stage.now += 10
    pending = await stage.queue.pending()
    part = pending.page(Selected(), ALL, 1, 2)
    assert part["total"] == 5
    assert [each["pod"] for each in part["pods"]] == ["default/pod-1", "default/pod-2"]
    assert [each["pendingSeconds"] for each in part["pods"]] == [40, 30]
    assert pending.page(Selected(), ALL, 10, 2)["pods"] == []


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (Selected(state="gated"), ["default/held"]),
        (Selected(cause="NodeAffinity"), ["shop/train"]),
        (Selected(namespace="shop"), ["shop/train"]),
        (Selected(owner="shop/Job/train"), ["shop/train"]),
        (Selected(search="t/he"), ["default/held"]),
        (Selected(state="no such state"), []),
        (Selected(owner="x"), []),
        (Selected(state="gated", namespace="shop"), []),
    ],
)
async def test_a_list_may_be_narrowed(
    stage: Stage, selected: Selected, expected: list[str]
) -> None:
    stage.add("train", namespace="shop", owner=JOB)
    stage.reject("NodeAffinity")
    stage.add("held", gated=True)
    page = (await stage.queue.pending()).page(selected, ALL, 0, 10)
    assert [each["pod"] for each in page["pods"]] == expected


async def test_a_pod_being_decided_bound_or_waiting_is_shown_so(stage: Stage) -> None:
    stage.add("flying")
    queued = stage.shared.queue.pop(stage.now)
    assert queued is not None

    async def state() -> str:
        stage.now += 10
        (each,) = (await stage.queue.pending()).page(Selected(), ALL, 0, 10)["pods"]
        return str(each["state"])

    assert await state() == "in flight"
    queued.times.enter(PodState.BINDING, stage.now)
    assert await state() == "being bound"
    queued.times.enter(PodState.PERMIT, stage.now)
    stage.shared.waiting.enter(queued.pod, "a", {"Gang": 60.0}, stage.now, lambda *_: None)
    assert await state() == "waiting at Permit"
    assert stage.queue.counts()["waiting at Permit"] == 1
    queued.times.enter(PodState.BOUND, stage.now)
    stage.now += 10
    assert (await stage.queue.pending()).keys == []


async def test_pods_without_a_profile_are_listed(stage: Stage) -> None:
    stage.shared.without_profile[uid_of("lost")] = parse_pod(pod("lost"))
    (each,) = (await stage.queue.pending()).page(Selected(), ALL, 0, 10)["pods"]
    assert (each["pod"], each["state"]) == ("default/lost", "without a profile")
    assert each["cause"] == NO_PROFILE


async def test_an_empty_queue_has_no_groups(stage: Stage) -> None:
    pending = await stage.queue.pending()
    groups = pending.groups(ALL)
    assert (groups["total"], groups["causes"], groups["owners"]) == (0, [], [])
    assert pending.page(Selected(), ALL, 0, 10) == {"total": 0, "offset": 0, "pods": []}


async def test_what_was_read_is_kept_for_two_seconds(stage: Stage) -> None:
    first = await stage.queue.pending()
    stage.now += 1
    assert await stage.queue.pending() is first
    stage.now += 1
    assert await stage.queue.pending() is not first


def test_the_trend_has_the_counts_of_the_last_hour(stage: Stage) -> None:
    assert stage.queue.trend()["time"] == []
    for number in range(400):
        stage.now += 10
        stage.bound = number
        stage.queue.sample()
    stage.add("web")
    stage.queue.sample()
    trend = stage.queue.trend()
    assert {len(column) for column in trend.values()} == {360}
    assert trend["active"][-2:] == [0, 1]
    assert trend["bound"][-1] == 399


DEPLOYMENT = {"kind": "ReplicaSet", "name": "web-5d8f", "uid": "u", "controller": True}


async def test_pods_of_a_deployment_have_it_as_owner(stage: Stage) -> None:
    stage.add("web-1", namespace="shop", owner=DEPLOYMENT, labels={"pod-template-hash": "5d8f"})
    (owner,) = (await stage.queue.pending()).groups(ALL)["owners"]
    assert (owner["namespace"], owner["kind"], owner["name"]) == ("shop", "Deployment", "web")


async def test_the_pods_of_one_namespace_are_counted_alone(stage: Stage) -> None:
    stage.add("web-1", namespace="shop")
    stage.add("web-1", namespace="bank", gated=True)
    groups = (await stage.queue.pending()).groups(ALL, "bank")
    assert (groups["total"], groups["states"]["gated"], groups["states"]["active"]) == (1, 1, 0)
    assert [owner["namespace"] for owner in groups["owners"]] == ["bank"]
    assert (await stage.queue.pending()).groups(ALL, "none")["total"] == 0


async def test_the_pods_of_a_workload_are_found(stage: Stage) -> None:
    hashed = {"pod-template-hash": "5d8f"}
    for number in (1, 2):
        stage.add(f"web-{number}", namespace="shop", owner=DEPLOYMENT, labels=hashed)
    stage.add("other", namespace="shop")
    placed = pod("web-0", namespace="shop", owner=DEPLOYMENT, labels=hashed, node="a")
    stage.shared.state.put(Kind.POD, parse_pod(placed).uid, parse_pod(placed))
    stray = parse_pod(pod("web-3", namespace="shop", owner=DEPLOYMENT, labels=hashed))
    stage.shared.without_profile[stray.uid] = stray
    found = await stage.queue.workload("shop", "Deployment", "web")
    assert (found["placed"], found["total"]) == (1, 3)
    assert {row["pod"]: row["cause"] for row in found["pods"]} == {
        "shop/web-1": "not decided yet",
        "shop/web-2": "not decided yet",
        "shop/web-3": NO_PROFILE,
    }
    assert (await stage.queue.workload("shop", "ReplicaSet", "web-5d8f"))["total"] == 3
    assert (await stage.queue.workload("bank", "Deployment", "web"))["total"] == 0


async def test_causes_and_owners_of_any_length_are_cut(stage: Stage) -> None:
    long = {**JOB, "kind": "K" * 5000, "name": "n" * 5000}
    stage.add("web-1", owner=long)
    stage.reject("P" * 5000)
    groups = (await stage.queue.pending()).groups(ALL)
    assert len(groups["causes"][0]["cause"]) == 256
    assert {len(groups["owners"][0][part]) for part in ("kind", "name")} == {253}
    page = (await stage.queue.pending()).page(Selected(), ALL, 0, 10)
    assert len(page["pods"][0]["cause"]) == 256
