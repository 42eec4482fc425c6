"""Nodes as columns for the canvas, and all data of one node."""

from typing import Any

from device_builders import allocated, device, device_claim, resource_slice
from mooring.gpu_cards.card_args import PRESETS
from mooring.groups.model.pod_group import GroupKey, GroupSource, Reservation
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.page.nodes_view import CORDONED, NOT_READY, PODS, TAINTED, Nodes
from mooring.testing.builders import node, pod, uid_of
from scheduler_states import scheduler_state

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def ready(name: str, **fields: Any) -> dict[str, Any]:
    made = node(name, **fields)
    made["status"] |= READY
    return made


def nodes(*objects: dict[str, Any]) -> Nodes:
    return Nodes(scheduler_state(*objects), lambda: 0.0)


def test_a_resource_is_shown_by_node_with_what_pods_request() -> None:
    shown = nodes(ready("a", cpu="4"), ready("b", cpu="2"), pod("web", cpu="500m", node="a"))
    columns = shown.columns("cpu")
    assert columns.allocatable.tolist() == [4000, 2000]
    assert columns.requested.tolist() == [500, 0]
    assert columns.pods.tolist() == [1, 0]
    slots = shown.columns(PODS)
    assert slots.requested.tolist() == [1, 0]
    assert (slots.allocatable > 0).all()


def test_a_resource_that_no_node_has_is_zero() -> None:
    columns = nodes(ready("a")).columns("example.com/gpu")
    assert columns.allocatable.tolist() == columns.requested.tolist() == [0]


def test_flags_say_what_keeps_pods_off_a_node() -> None:
    cordoned = ready("cordoned")
    cordoned["spec"]["unschedulable"] = True
    broken = node("broken")
    broken["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    tainted = ready("tainted", taints=["gpu=true:NoSchedule"])
    preferred = ready("preferred", taints=["spot=true:PreferNoSchedule"])
    flags = nodes(ready("well"), cordoned, broken, tainted, preferred).columns("cpu").flags
    assert flags.tolist() == [0, CORDONED, NOT_READY, TAINTED, 0]


def test_only_nodes_that_changed_are_in_the_changes() -> None:
    shared = scheduler_state(ready("a"), ready("b"))
    shown = Nodes(shared)
    before = shown.columns("cpu")
    assert shown.columns("cpu").changes(before) is None
    placed = pod("web", cpu="500m", node="b")
    shared.state.put(Kind.POD, uid_of("web"), parse_object(Kind.POD, placed))
    changes = shown.columns("cpu").changes(before)
    assert changes is not None
    assert {name: column.tolist() for name, column in changes.items()} == {
        "at": [1],
        "allocatable": [before.allocatable[1]],
        "requested": [500],
        "pods": [1],
        "flags": [0],
    }


def test_the_version_changes_with_nodes_and_labels_and_not_with_pods() -> None:
    shared = scheduler_state(ready("a"))
    shown = Nodes(shared)
    first = shown.version()
    placed = parse_object(Kind.POD, pod("web", node="a"))
    shared.state.put(Kind.POD, uid_of("web"), placed)
    assert shown.version() == first
    shared.state.put(Kind.NODE, "a", parse_object(Kind.NODE, ready("a", labels={"rack": "r1"})))
    assert shown.version() != first


async def test_a_snapshot_groups_the_nodes_by_a_label() -> None:
    shown = nodes(ready("a", zone="x"), ready("b", zone="y"), ready("c", zone="x"), ready("d"))
    snapshot = await shown.snapshot(shown.columns("cpu"), "cpu", None)
    assert snapshot["label"] == "topology.kubernetes.io/zone"
    assert snapshot["names"] == ["a", "b", "c", "d"]
    assert snapshot["groups"] == {"values": ["x", "y"], "codes": [0, 1, 0, -1]}
    assert "kubernetes.io/hostname" in snapshot["labels"]
    assert snapshot["resources"][:3] == ["cpu", "memory", "pods"]


async def test_a_snapshot_names_the_nodes_of_its_columns_whatever_comes_meanwhile() -> None:
    shared = scheduler_state(ready("a"), ready("b"))

    def another_node_takes_the_row() -> float:
        shared.state.delete(Kind.NODE, "a")
        shared.state.put(Kind.NODE, "z", parse_object(Kind.NODE, ready("z")))
        return 0.0

    shown = Nodes(shared, another_node_takes_the_row)
    snapshot = await shown.snapshot(shown.columns("cpu"), "cpu", None)
    assert snapshot["names"] == ["a", "b"]
    assert shared.state.nodes.names == ["z", "b"]


async def test_without_zones_and_racks_nodes_are_not_grouped_unless_a_label_is_chosen() -> None:
    shown = nodes(ready("a", labels={"team": "red"}))
    columns = shown.columns("cpu")
    assert (await shown.snapshot(columns, "cpu", None))["label"] == ""
    chosen = await shown.snapshot(columns, "cpu", "team")
    assert chosen["groups"] == {"values": ["red"], "codes": [0]}


def test_a_node_is_shown_with_its_pods_taints_and_free_resources() -> None:
    shown = nodes(
        ready("a", cpu="4", memory="8Gi", taints=["gpu=true:NoSchedule"]),
        pod("web", cpu="1500m", memory="2Gi", node="a"),
    )
    found = shown.details("a", frozenset(["default"]))
    assert found is not None
    assert found["taints"] == [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]
    assert found["largestPod"]["cpu"] == "2500m"
    assert found["largestPod"]["memory"] == "6Gi"
    (placed,) = found["pods"]
    assert placed["pod"] == "default/web"
    assert placed["requests"] == {"cpu": "1500m", "memory": "2Gi"}
    assert placed["state"] == "bound"


def test_a_reserved_node_says_for_whom_and_what_is_left_beside_the_group() -> None:
    shared = scheduler_state(ready("a", cpu="4", memory="8Gi"))
    shown = Nodes(shared, lambda: 0.0)
    member = parse_pod(pod("m", cpu="3", memory="1Gi", group="g"))
    key = GroupKey(GroupSource.KUBERNETES, "default", "g")
    for priority, left in ((1, "1"), (0, "4")):
        kept = Reservation(key, 0.0, priority)
        shared.state.nominate(member, "a", reservation=kept)
        found = shown.details("a", frozenset(["default"]))
        assert found is not None
        assert found["largestPod"]["cpu"] == left
        assert found["reserved"] == "reserved for podgroup/default/g until 00:00 UTC"
    hidden = shown.details("a", frozenset())
    assert hidden is not None
    assert hidden["reserved"] is None


def test_a_full_node_takes_no_pod() -> None:
    shown = nodes(ready("a", cpu="1"), pod("web", cpu="1", node="a"))
    found = shown.details("a", frozenset())
    assert found is not None
    assert found["largestPod"] is None


def test_pods_of_other_namespaces_are_counted_and_not_named() -> None:
    shown = nodes(
        ready("a"), pod("web", namespace="shop", node="a"), pod("vault", namespace="bank", node="a")
    )
    assert shown.namespaces_on("a") == frozenset(["shop", "bank"])
    found = shown.details("a", frozenset(["shop"]))
    assert found is not None
    assert [each["pod"] for each in found["pods"]] == ["shop/web"]
    assert found["otherPods"] == 1
    assert "vault" not in str(found)


def test_nominated_pods_are_shown_to_those_who_may_get_them() -> None:
    shared = scheduler_state(ready("a"))
    preemptor = parse_object(Kind.POD, pod("large", namespace="bank"))
    shared.state.nominate(preemptor, "a")
    shown = Nodes(shared)
    assert shown.namespaces_on("a") == frozenset(["bank"])
    mine, others = (shown.details("a", frozenset(each)) for each in (["bank"], ["shop"]))
    assert mine is not None
    assert others is not None
    assert [each["pod"] for each in mine["nominated"]] == ["bank/large"]
    assert (others["nominated"], others["otherNominated"]) == ([], 1)


def test_cards_are_shown_with_those_owners_that_the_user_may_get() -> None:
    gpus = {"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "2"}
    raw = ready("g")
    raw["status"]["allocatable"] |= gpus
    raw["status"]["capacity"] = dict(raw["status"]["allocatable"])
    share = {"aliyun.com/gpu-mem": "4"}
    annotations = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1"}
    shared = scheduler_state(
        raw,
        pod("mine", namespace="shop", requests=share, annotations=annotations, node="g"),
        pod("other", namespace="bank", requests=share, annotations=annotations, node="g"),
    )
    books = shared.state.track_cards(PRESETS["gpushare"])
    found = Nodes(shared).details("g", frozenset(["shop"]))
    assert found is not None
    (gpu,) = found["gpus"]
    assert books is not None
    assert gpu["cards"][1]["owners"] == ["shop/mine"]
    assert gpu["cards"][1]["otherOwners"] == 1
    assert "bank" not in str(found)


def test_an_unknown_node_is_none() -> None:
    shown = nodes(ready("a"))
    assert shown.details("b", frozenset()) is None
    assert shown.namespaces_on("b") is None


def test_devices_name_their_claims_and_pods_and_count_those_of_other_namespaces() -> None:
    shared = scheduler_state(
        ready("a"),
        resource_slice("s", [device("d0", attributes={"model": "l4"}), "d1", "d2"], node="a"),
        resource_slice("fabric", ["f0"], pool="fabric"),
        device_claim("c", allocation=allocated("d0", node="a"), reserved_for=["web"]),
        device_claim("other", namespace="secret", allocation=allocated("d1", node="a")),
    )
    shown = Nodes(shared)
    assert shown.namespaces_on("a") == frozenset({"default", "secret"})
    found = shown.details("a", frozenset({"default"}))
    assert found is not None
    devices = [(d["device"], d["state"], d["otherHolders"]) for d in found["devices"]]
    assert devices == [
        ("d0", "in use", 0),
        ("d1", "in use", 1),
        ("d2", "free", 0),
        ("f0", "free", 0),
    ]
    assert found["devices"][0]["holders"] == [
        {"claim": "default/c", "pods": ["default/web"], "adminAccess": False}
    ]
    assert found["devices"][0]["attributes"] == {"model": "l4"}
    assert "other" not in str(found["devices"][1]["holders"])
    assert found["otherDevices"] == 0


def test_of_many_devices_some_are_shown_and_the_others_counted() -> None:
    slices = [
        resource_slice(f"s{n}", [f"d{n}-{i}" for i in range(100)], node="a", slices=3)
        for n in range(3)
    ]
    found = nodes(ready("a"), *slices).details("a", frozenset())
    assert found is not None
    assert (len(found["devices"]), found["otherDevices"]) == (200, 100)
