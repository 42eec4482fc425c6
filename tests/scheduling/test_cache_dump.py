"""The dump of the cache has the amounts that decisions count, by uid."""

from collections.abc import Mapping
from typing import Any

from mooring.gpu_cards.model.cards import CardFormat
from mooring.model.events import Kind
from mooring.model.pod import Pod, parse_pod
from mooring.scheduling.cache_dump import cache_dump
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod
from scheduler_states import put_profile, scheduler_state

SHARES = CardFormat(memory_resource="example.com/gpu-mem", count_resource="example.com/gpu-count")
CARDS = {"example.com/gpu-mem": "32", "example.com/gpu-count": "2"}

Record = Mapping[str, Any]


def records(scheduler: SchedulerState, kind: str) -> list[Record]:
    return [record for record in cache_dump(scheduler) if record["kind"] == kind]


def assume(scheduler: SchedulerState, raw: Mapping[str, Any], on: str) -> Pod:
    assumed = parse_pod(raw)
    scheduler.state.assume(assumed, scheduler.state.nodes.row_of[on])
    return assumed


def test_a_node_has_what_its_pods_request_and_each_pod_its_uid_node_and_state() -> None:
    scheduler = scheduler_state(
        node("a", cpu="4"),
        pod("bound", cpu="1", node="a"),
        pod("leaving", cpu="500m", node="a", terminating=True),
    )
    assume(scheduler, pod("new", cpu="2", memory="1Gi"), "a")
    [found] = records(scheduler, "node")
    assert (found["node"], found["podCount"]) == ("a", 3)
    assert found["allocatable"]["cpu"] == 4000
    assert found["requested"]["cpu"] == 3500
    assert found["requested"]["memory"] == 2**30
    uids = {placed.pod.key: placed.pod.uid for placed in scheduler.state.pods}
    assert {
        (one["pod"], one["uid"], one["node"], one["state"]) for one in records(scheduler, "pod")
    } == {
        ("default/bound", uids["default/bound"], "a", "added"),
        ("default/leaving", uids["default/leaving"], "a", "terminating"),
        ("default/new", uids["default/new"], "a", "assumed"),
    }
    requests = {one["pod"]: one["requests"] for one in records(scheduler, "pod")}
    assert requests["default/new"] == {"cpu": 2000, "memory": 2**30}


def test_a_pod_is_told_with_when_it_started() -> None:
    running = pod("running", node="a", started="1970-01-01T00:01:40Z")
    scheduler = scheduler_state(node("a"), running, pod("bound", node="a"))
    started = {one["pod"]: one["started"] for one in records(scheduler, "pod")}
    assert started == {"default/running": 100.0, "default/bound": None}


def test_a_pod_on_a_node_that_does_not_exist_is_told_without_its_node() -> None:
    scheduler = scheduler_state(pod("orphan", cpu="1", node="gone"))
    assert records(scheduler, "node") == []
    [found] = records(scheduler, "pod")
    assert (found["pod"], found["node"], found["state"]) == ("default/orphan", "gone", "added")


def test_cards_are_told_with_their_pods() -> None:
    scheduler = scheduler_state(node("a", resources=CARDS))
    books = scheduler.state.track_cards(SHARES)
    share = assume(scheduler, pod("share", requests={"example.com/gpu-mem": "8"}), "a")
    scheduler.state.assign_cards(share, SHARES, ((1,),))
    assert books.known(0)
    [found] = records(scheduler, "node")
    assert found["cards"] == [{"pod": share.key, "uid": share.uid, "cards": ((1,),), "known": True}]


def test_nominations_and_evictions_are_told() -> None:
    scheduler = scheduler_state(node("a", cpu="1"), pod("victim", cpu="1", node="a"))
    high = parse_pod(pod("high", cpu="1", priority=10))
    scheduler.state.nominate(high, "a")
    scheduler.state.begin_evictions(high, [placed.pod for placed in scheduler.state.pods])
    [found] = records(scheduler, "nomination")
    assert (found["uid"], found["node"], found["awaitsVictims"]) == (high.uid, "a", True)
    [evicted] = records(scheduler, "pod")
    assert evicted["evicting"] is True


def test_pending_pods_are_told_with_their_queue_and_the_end_with_the_number_of_records() -> None:
    scheduler = scheduler_state()
    profile = put_profile(scheduler)
    waiting, stray = parse_pod(pod("waiting")), parse_pod(pod("stray"))
    scheduler.queue.add(waiting, profile.pipeline, 0.0)
    scheduler.without_profile[stray.uid] = stray
    assert {(one["uid"], one["state"]) for one in records(scheduler, "pending")} == {
        (waiting.uid, "active"),
        (stray.uid, "without a profile"),
    }
    assert [*cache_dump(scheduler)][-1] == {"kind": "end", "records": 2}


def test_the_dump_goes_on_when_the_last_nodes_of_the_table_go_meanwhile() -> None:
    scheduler = scheduler_state(*(node(f"n{i}") for i in range(5)))
    dump = cache_dump(scheduler)
    assert next(dump)["node"] == "n0"
    for name in ("n3", "n4"):
        scheduler.state.delete(Kind.NODE, name)
    assert [one.get("node") for one in dump] == ["n1", "n2", None]


def test_the_pods_of_a_node_that_goes_meanwhile_are_told_without_it() -> None:
    scheduler = scheduler_state(node("n0"), node("n1"), pod("left", node="n1"))
    dump = cache_dump(scheduler)
    assert next(dump)["node"] == "n0"
    scheduler.state.delete(Kind.NODE, "n1")
    assert [(one["kind"], one.get("pod")) for one in dump] == [
        ("pod", "default/left"),
        ("end", None),
    ]


def test_a_nomination_to_a_node_that_goes_meanwhile_is_left_out() -> None:
    scheduler = scheduler_state(*(node(f"n{i}") for i in range(3)))
    for name in ("n1", "n2"):
        scheduler.state.nominate(parse_pod(pod(f"to-{name}")), name)
    dump = cache_dump(scheduler)
    while (first := next(dump))["kind"] == "node":
        pass
    assert first["pod"] == "default/to-n1"
    scheduler.state.delete(Kind.NODE, "n2")
    assert [one["kind"] for one in dump] == ["end"]


def test_the_dump_changes_nothing() -> None:
    scheduler = scheduler_state(node("a"))
    rows = scheduler.state.nodes.row_count
    assert [one["kind"] for one in cache_dump(scheduler)] == ["node", "end"]
    assert scheduler.state.nodes.row_count == rows
