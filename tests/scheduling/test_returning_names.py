"""A pod's name returns, as in StatefulSets, and two watches show its pods with different delays.

One watch shows pods without a node, the other assigned pods. Here web-0/uid-1 runs on node a and is
deleted. Its successor web-0/uid-2 was seen without a node, and our own decision has put it on node
b, while the watch of assigned pods still shows the first pod. Late events, repeated events and
lists must free nothing of the second pod.
"""

from collections.abc import Callable
from typing import Any

import pytest

from deciding import Deciding
from devices.objects import gpu_node, share_pod
from engines import Engine, until
from kube.api_server import ApiServer, Request
from mooring.framework.verdicts import PluginError
from mooring.kube import api_resources as resources
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.mirroring.mirror import Mirror
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.observe.documents import plain
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.testing.builders import node, pod, pod_group
from mooring.testing.fakes import FakeApi, handle
from mooring.volumes.volume_binding.plugin import VolumeBinding, VolumeBindingArgs
from relists import relisted
from storage_builders import pvc, storage_class

Raw = dict[str, Any]

CARDS = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}


def incarnation(number: int, make: Callable[..., Raw] = pod, **fields: Any) -> Raw:
    """Return the pod web-0 with the uid of this number."""
    raw = make("web-0", **fields)
    raw["metadata"]["uid"] = f"uid-{number}"
    return raw


class Cluster:
    """Our own decisions in a cluster, and the events of the watch of assigned pods."""

    def __init__(self, *objects: Raw, **spec: Any) -> None:
        self.deciding = Deciding(*objects, **spec)
        self.state = self.deciding.state
        self._mirror = Mirror(self.state)

    def show(self, event: Any, raw: Raw) -> None:
        """Apply an event of the watch of assigned pods."""
        self._mirror.apply(resources.POD, event, raw)

    def relist(self, *pods: Raw) -> None:
        """Apply a list of assigned pods with exactly these pods."""
        relisted(self._mirror, resources.POD, pods)

    def assume(self, raw: Raw, on: str) -> Pod:
        """Assume the pod on the node; its Binding is in flight."""
        assumed = parse_pod(raw)
        self.state.assume(assumed, self.state.nodes.row_of[on])
        return assumed

    def reserve(self, raw: Raw, on: str) -> None:
        """Assume the pod on the node, and let its plugins choose its cards."""
        assumed = self.assume(raw, on)
        for plugin in self.deciding.pipeline.reserve:
            assert plugin.reserve(assumed, on) is None

    def decide(self, raw: Raw) -> str | None:
        """Return the chosen node for the pod; None if no node fits."""
        outcome = self.deciding.outcome(raw)
        assert isinstance(outcome, ScheduleResult | FitError)
        return outcome.node if isinstance(outcome, ScheduleResult) else None

    def others(self, make: Callable[..., Raw], **fields: Any) -> set[str]:
        """Assume further such pods until none fits; return their nodes."""
        chosen: list[str] = []
        while (name := self.decide(raw := make(f"other-{len(chosen)}", **fields))) is not None:
            self.reserve(raw, name)
            chosen.append(name)
        return {*chosen}

    def placed(self) -> dict[str, tuple[str, bool]]:
        """Return by uid the node of each counted pod, and whether the pod is assumed."""
        names = self.state.nodes.names
        return {each.pod.uid: (names[each.row], each.assumed) for each in self.state.pods}


FIRST = incarnation(1, cpu="3", node="a")
SECOND = incarnation(2, cpu="3")

Late = Callable[[Cluster, Raw], None]


def again(cluster: Cluster, first: Raw) -> None:
    """Show the first pod as added, like a new watch."""
    cluster.show("ADDED", first)


def modified(cluster: Cluster, first: Raw) -> None:
    """Show a change of the first pod's status."""
    cluster.show("MODIFIED", first)


def terminating(cluster: Cluster, first: Raw) -> None:
    """Show that the deletion of the first pod has begun."""
    metadata = {**first["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.show("MODIFIED", {**first, "metadata": metadata})


def resized(cluster: Cluster, first: Raw) -> None:
    """Show the first pod after an in-place resize."""
    resources_ = {"requests": {"cpu": "3500m"}}
    containers = [{**first["spec"]["containers"][0], "resources": resources_}]
    cluster.show("MODIFIED", {**first, "spec": {**first["spec"], "containers": containers}})


def listed(cluster: Cluster, first: Raw) -> None:
    """Show a list that still contains the first pod."""
    cluster.relist(first)


def listed_twice(cluster: Cluster, first: Raw) -> None:
    """Show two lists that still contain the first pod."""
    cluster.relist(first)
    cluster.relist(first)


def ended(cluster: Cluster, first: Raw) -> None:
    """Show the first pod, and then its end."""
    cluster.show("MODIFIED", first)
    cluster.show("DELETED", first)


def finished(cluster: Cluster, first: Raw) -> None:
    """Show the first pod with the phase Succeeded."""
    cluster.show("MODIFIED", first)
    cluster.show("MODIFIED", {**first, "status": {"phase": "Succeeded"}})


WATCHED = (again, modified, terminating, resized, ended, finished)
LISTED = (listed, listed_twice)
late_news = pytest.mark.parametrize("late", WATCHED + LISTED, ids=lambda late: late.__name__)
late_events = pytest.mark.parametrize("late", WATCHED, ids=lambda late: late.__name__)
"""A list that comes after the confirmation is newer: it holds the successor."""


@late_news
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_no_late_news_of_a_pod_frees_the_node_of_its_successor(late: Late, *, known: bool) -> None:
    """A node of 4 cores must not get 6; the first pod may have been unknown before."""
    cluster = Cluster(node("a"), node("b"), *([FIRST] if known else []))
    cluster.assume(SECOND, "b")
    late(cluster, FIRST)
    assert cluster.placed()["uid-2"] == ("b", True)
    assert "b" not in cluster.others(pod, cpu="3")


@late_events
def test_a_pod_that_was_confirmed_stays_whatever_is_told_of_its_predecessor(late: Late) -> None:
    cluster = Cluster(node("a"), node("b"))
    cluster.assume(SECOND, "b")
    cluster.show("ADDED", incarnation(2, cpu="3", node="b"))
    late(cluster, FIRST)
    assert cluster.placed()["uid-2"] == ("b", False)
    assert "b" not in cluster.others(pod, cpu="3")


@late_news
def test_the_host_port_of_a_successor_is_given_to_nobody_else(late: Late) -> None:
    first = incarnation(1, ports=[8080], node="a")
    cluster = Cluster(node("a"), node("b"), first)
    cluster.assume(incarnation(2, ports=[8080]), "b")
    late(cluster, first)
    assert "b" not in cluster.others(pod, ports=[8080])


def test_the_end_of_a_pod_frees_its_own_node_and_no_other() -> None:
    cluster = Cluster(node("a"), node("b"), FIRST)
    cluster.assume(SECOND, "b")
    modified(cluster, FIRST)
    assert cluster.placed() == {"uid-1": ("a", False), "uid-2": ("b", True)}
    assert cluster.decide(pod("other", cpu="3")) is None
    cluster.show("DELETED", FIRST)
    assert cluster.placed() == {"uid-2": ("b", True)}
    assert cluster.decide(pod("other", cpu="3")) == "a"


def test_a_list_without_the_predecessor_frees_its_own_node_and_no_other() -> None:
    cluster = Cluster(node("a"), node("b"), FIRST)
    cluster.assume(SECOND, "b")
    cluster.relist(FIRST)
    cluster.relist()
    assert cluster.placed() == {"uid-2": ("b", True)}
    assert cluster.decide(pod("other", cpu="3")) == "a"


def test_a_decision_about_a_pod_that_has_gone_frees_nothing_of_its_successor() -> None:
    """The watch of pods without a node may be the late one, too.

    The successor runs on b. Its predecessor seems to wait for a node, so it gets a decision; its
    Binding is rejected, and it is forgotten.
    """
    cluster = Cluster(node("a"), node("b"))
    cluster.show("ADDED", incarnation(2, cpu="3", node="b"))
    first = cluster.assume(incarnation(1, cpu="3"), "a")
    assert cluster.decide(pod("other", cpu="3")) is None
    cluster.state.forget(first)
    assert cluster.placed() == {"uid-2": ("b", False)}
    assert cluster.decide(pod("other", cpu="3")) == "a"


def test_two_pods_of_a_name_that_were_both_assumed_are_forgotten_each_for_itself() -> None:
    """The first pod's Binding is unanswered when the second pod gets a decision."""
    cluster = Cluster(node("a"), node("b"))
    first = cluster.assume(incarnation(1, cpu="3"), "a")
    second = cluster.assume(SECOND, "b")
    cluster.state.forget(first)
    assert cluster.placed() == {"uid-2": ("b", True)}
    cluster.state.forget(second)
    assert cluster.placed() == {}


def test_a_malformed_successor_does_not_keep_its_predecessor_on_its_node() -> None:
    """A malformed object in a list keeps its known version, by uid and not by name."""
    cluster = Cluster(node("a"), node("b"), FIRST)
    malformed = incarnation(2, cpu="not a quantity", node="b")
    cluster.relist(malformed)
    assert cluster.placed() == {}


@late_news
def test_the_card_of_a_successor_is_given_to_nobody_else(late: Late) -> None:
    first = incarnation(1, share_pod, memory=12, card=0, node="a")
    cluster = Cluster(gpu_node("a", 1, 16), gpu_node("b", 1, 16), first, plugins=CARDS)
    cluster.reserve(incarnation(2, share_pod, memory=12), "b")
    late(cluster, first)
    assert "b" not in cluster.others(share_pod, memory=12)


def test_the_card_of_a_predecessor_is_free_once_its_end_is_shown() -> None:
    first = incarnation(1, share_pod, memory=12, card=0, node="a")
    cluster = Cluster(gpu_node("a", 1, 16), gpu_node("b", 1, 16), first, plugins=CARDS)
    cluster.reserve(incarnation(2, share_pod, memory=12), "b")
    modified(cluster, first)
    assert cluster.decide(share_pod("other", 12)) is None
    cluster.show("DELETED", first)
    assert cluster.decide(share_pod("other", 12)) == "a"


@late_news
async def test_a_pod_whose_volumes_are_being_bound_exists_whatever_is_told_of_its_predecessor(
    late: Late,
) -> None:
    """No controller binds the pod's claim, so PreBind must wait until its time limit."""
    raw = incarnation(2, cpu="3", claims=["data"])
    claim, made = pvc("data", storage_class="made"), storage_class("made", provisioner="csi.test")
    claim["metadata"]["resourceVersion"] = "1"
    cluster = Cluster(node("a"), node("b"), made, claim, FIRST)
    objects = {("persistentvolumeclaims", "default/data"): claim}
    api = FakeApi(objects, events=[lambda: late(cluster, FIRST)])
    plugin = VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=7), handle(cluster.state, api))
    assumed = cluster.assume(raw, "b")
    assert plugin.reserve(assumed, "b") is None
    with pytest.raises(PluginError) as caught:
        await plugin.pre_bind(assumed, "b")
    assert "context deadline exceeded: not bound after 7 s: default/data" in str(caught.value)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@late_news
def test_no_late_news_of_a_pod_withdraws_the_nomination_of_its_successor(
    late: Late, *, known: bool
) -> None:
    cluster = Cluster(node("a"), node("b"), *([FIRST] if known else []))
    cluster.deciding.nominate(SECOND, "b")
    late(cluster, FIRST)
    nominees = [(each.pod.uid, each.row) for each in cluster.state.nominations]
    assert nominees == [("uid-2", cluster.state.nodes.row_of["b"])]
    assert "b" not in cluster.others(pod, cpu="3")


@late_news
def test_a_successor_stays_a_member_of_its_group(late: Late) -> None:
    first = incarnation(1, cpu="3", node="a", group="gang")
    cluster = Cluster(node("a"), node("b"), pod_group("gang", 1), first)
    second = cluster.assume(incarnation(2, cpu="3", group="gang"), "b")
    late(cluster, first)
    group = cluster.state.pod_groups.of(second)
    assert group is not None
    assert [*group.assumed] == ["uid-2"]


class Returning:
    """An API server that deletes the pod and creates its successor during the first Binding.

    The first Binding gets `first_status`; all other Bindings succeed.
    """

    def __init__(self, first_status: int, successor: Raw) -> None:
        self.engine: Engine
        self.bound: list[tuple[str, str]] = []
        """Uid and node of each Binding."""
        self._first_status = first_status
        self._successor = successor

    def __call__(self, request: Request) -> None:
        if request.method != "POST" or not request.path.endswith("/binding"):
            request.reply(self._successor)
            return
        uid, on = request.body["metadata"]["uid"], request.body["target"]["name"]
        self.bound.append((uid, on))
        if uid != "uid-1":
            request.reply({}, 201)
            return
        self.engine.pending(self._successor)
        if self._first_status == 201:
            request.reply({}, 201)
        else:
            request.refuse(self._first_status, "Refused", "no")


async def returned(first_status: int, successor: Raw, holds: Callable[[Engine], object]) -> Engine:
    """Return the engine after the successor came, the late answer arrived and `holds` is True."""
    server = Returning(first_status, successor)
    async with ApiServer(server) as listening, ApiClient(Connection(listening.url)) as client:
        engine = server.engine = Engine(client, node("a"), node("b"))
        engine.pending(incarnation(1, cpu="3"))
        with engine.running():
            await until(lambda: "uid-1" in dict(server.bound) and not engine.loop.binding)
            await until(lambda: holds(engine) and not engine.loop.binding)
    return engine


def told(engine: Engine) -> tuple[str, list[str]]:
    """Return the state and the steps of the current pod of this name."""
    path = plain(engine.decisions.path("default/web-0"))
    assert path is not None
    assert path["uid"] == "uid-2"
    return path["state"], [step["step"] for step in path["steps"]]


def is_tried(engine: Engine) -> bool:
    """Return whether the successor's attempt has ended without a node."""
    queue = engine.scheduler_state.queue
    waiting = [each for each in queue if each.pod.uid == "uid-2" and each.queue is not None]
    return any(queued.attempts for queued in waiting)


def is_assumed(engine: Engine) -> bool:
    """Return whether the successor counts on a node."""
    placed = engine.scheduler_state.state.pods.get(Uid("uid-2"))
    return placed is not None and placed.assumed


answers = pytest.mark.parametrize("status", [201, 403, 404, 409])


@answers
async def test_a_late_answer_about_a_pod_is_no_step_of_its_successor(status: int) -> None:
    """The successor fits nowhere, so its path must have only its own attempt."""
    engine = await returned(status, incarnation(2, cpu="8"), is_tried)
    assert told(engine) == ("unschedulable", ["seen", "queued", "unschedulable"])


@answers
async def test_a_late_answer_about_a_pod_leaves_its_successor_bound(status: int) -> None:
    engine = await returned(status, incarnation(2, cpu="3"), is_assumed)
    assert told(engine) == ("bound", ["seen", "queued", "assumed", "bound"])
    assert is_assumed(engine)
