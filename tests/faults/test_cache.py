"""What the auditor says about dumps of a cache that a test makes up: it finds each kind of lie."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from faults.books import GPU_COUNT, GPU_MEMORY, Amount, NodeSeen, PodSeen
from faults.cache import DumpError, Standing, cache_differences, read_dump

Record = dict[str, Any]

SHARE = Amount(500, 2**30, 1, ((GPU_MEMORY, 8),))
NODES = (
    NodeSeen("a", "node-a", Amount(4000, 8 * 2**30, 10)),
    NodeSeen("b", "node-b", Amount(4000, 8 * 2**30, 10, ((GPU_COUNT, 2), (GPU_MEMORY, 32)))),
)
PODS = (
    PodSeen("ns/web-0", "u1", Amount(1000, 2**30, 1), node="a"),
    PodSeen("ns/web-1", "u2", Amount(2000, 0, 1), node="a", leaving=True),
    PodSeen("ns/share", "u3", SHARE, node="b", cards=((1, 8),), wants_cards=True),
    PodSeen("ns/waiting", "u4", Amount(9000, 0, 1)),
)


def resources(amount: Amount) -> dict[str, int]:
    return {"cpu": amount.cpu, "memory": amount.memory, **dict(amount.others)}


def node_record(node: NodeSeen, *pods: PodSeen, cards: list[Record] | None = None) -> Record:
    requested = sum((pod.need for pod in pods), start=Amount())
    return {
        "kind": "node",
        "node": node.key,
        "allocatable": resources(node.allocatable),
        "podSlots": node.allocatable.pods,
        "requested": resources(requested),
        "podCount": requested.pods,
        "cards": cards or [],
    }


def pod_record(pod: PodSeen, **fields: Any) -> Record:
    state = "terminating" if pod.leaving else "added"
    named = {"kind": "pod", "pod": pod.key, "uid": pod.uid, "node": pod.node, "state": state}
    return {**named, "requests": resources(pod.need), "evicting": False, **fields}


def pending_record(pod: PodSeen, **fields: Any) -> Record:
    return {"kind": "pending", "pod": pod.key, "uid": pod.uid, "state": "active", **fields}


def dump() -> dict[str, Record]:
    """Return the records of a dump that is right, by the uid or node they are about."""
    web, other, share, waiting = PODS
    owner = {"pod": share.key, "uid": share.uid, "cards": [[1]], "known": True}
    return {
        "a": node_record(NODES[0], web, other),
        **{pod.uid: pod_record(pod) for pod in (web, other)},
        "b": node_record(NODES[1], share, cards=[owner]),
        share.uid: pod_record(share),
        waiting.uid: pending_record(waiting),
    }


def found(records: Mapping[str, Record]) -> list[str]:
    return sorted(cache_differences([*records.values()], PODS, NODES))


def test_a_dump_that_tells_what_the_api_server_has_is_right() -> None:
    assert found(dump()) == []


def test_a_pod_that_is_not_in_the_books_is_found() -> None:
    records = dump()
    del records["u1"]
    assert found(records) == ["ns/web-0 (u1) is on a, and not in the books"]


def test_a_ghost_beside_a_missing_pod_of_its_name_does_not_cancel_out() -> None:
    """Counts, names, nodes and requests are right: only the uid tells."""
    records = dump()
    records["u1"]["uid"] = "u0"
    assert found(records) == [
        "ns/web-0 (u0) is a ghost in the books, added on a",
        "ns/web-0 (u1) is on a, and not in the books",
    ]


def test_a_pod_on_another_node_is_found() -> None:
    records = dump()
    records["u1"]["node"] = "b"
    assert found(records) == ["ns/web-0 (u1) is on a, in the books on b"]


def test_a_pod_with_other_requests_is_found() -> None:
    records = dump()
    records["u3"]["requests"][GPU_MEMORY] = 4
    [text] = found(records)
    assert text.startswith("ns/share (u3) requests ")


def test_a_pod_that_is_in_the_books_twice_is_found() -> None:
    assert found(dump() | {"again": dump()["u1"]}) == ["u1 is in the books 2 times"]


def test_a_pod_that_is_still_assumed_is_found() -> None:
    records = dump()
    records["u1"]["state"] = "assumed"
    assert found(records) == ["ns/web-0 (u1) is added, in the books assumed"]


def test_an_eviction_that_only_the_books_have_is_found() -> None:
    records = dump()
    records["u1"]["evicting"] = records["u2"]["evicting"] = True
    assert found(records) == ["ns/web-0 (u1) is being evicted in the books only"]


@pytest.mark.parametrize(("name", "amount"), [("cpu", 2999), ("memory", 0)])
def test_a_sum_that_is_not_that_of_the_nodes_pods_is_found(name: str, amount: int) -> None:
    records = dump()
    records["a"]["requested"][name] = amount
    [text] = found(records)
    assert text.startswith("the pods of node a request ")


def test_a_number_of_pods_that_is_not_that_of_the_node_is_found() -> None:
    records = dump()
    records["a"]["podCount"] = 3
    assert len(found(records)) == 1


@pytest.mark.parametrize("field", ["allocatable", "podSlots"])
def test_a_node_with_other_allocatable_is_found(field: str) -> None:
    records = dump()
    records["a"][field] = {"cpu": 1} if field == "allocatable" else 11
    [text] = found(records)
    assert text.startswith("node a has ")


def test_nodes_that_only_one_side_knows_are_found() -> None:
    gone = node_record(NODES[0]) | {"node": "gone"}
    records = dump() | {"gone": gone}
    del records["b"]
    assert found(records) == [
        "node b is not in the books",
        "node gone is in the books and does not exist",
        "ns/share (u3) has cards of b, and none in the books",
    ]


def test_a_node_with_more_on_it_than_its_allocatable_is_found_though_the_books_agree() -> None:
    large = replace(PODS[0], need=Amount(3000, 2**30, 1))
    records = dump()
    records["a"], records["u1"] = node_record(NODES[0], large, PODS[1]), pod_record(large)
    [text] = cache_differences([*records.values()], (large, *PODS[1:]), NODES)
    assert text.startswith("node a has ")


def test_a_card_that_the_books_give_to_a_pod_that_has_gone_is_found() -> None:
    records = dump()
    records["b"]["cards"].append({"pod": "ns/old", "uid": None, "cards": [[0]], "known": True})
    assert found(records) == ["ns/old (None) is a ghost on cards [[0]] of b"]


def test_another_card_than_that_of_the_annotations_is_found() -> None:
    records = dump()
    records["b"]["cards"][0]["cards"] = [[0]]
    assert found(records) == ["ns/share (u3) has cards [1] of b, in the books [[0]]"]


def test_a_pending_pod_that_is_not_queued_is_found() -> None:
    records = dump()
    del records["u4"]
    assert found(records) == ["ns/waiting (u4) is pending, and not queued"]


@pytest.mark.parametrize(("kind", "word"), [("pending", "queued"), ("nomination", "nominated")])
def test_a_pod_of_the_queue_or_a_nomination_that_is_not_pending_is_found(
    kind: str, word: str
) -> None:
    records = dump() | {"old": pending_record(replace(PODS[3], uid="u0"), kind=kind)}
    assert found(records) == [f"ns/waiting (u0) is {word}, and not pending"]


def test_a_pod_that_is_queued_twice_is_found() -> None:
    assert found(dump() | {"again": deepcopy(dump()["u4"])}) == ["u4 is queued 2 times"]


def test_a_dump_without_its_end_is_not_read() -> None:
    lines = ['{"kind": "node"}', '{"kind": "end", "records": 1}']
    assert read_dump("\n".join(lines)) == [json.loads(lines[0])]
    for broken in ("", lines[0], lines[1], "\n".join(lines)[:-1]):
        with pytest.raises(DumpError):
            read_dump(broken)


def test_only_differences_that_stay_are_told() -> None:
    standing = Standing()
    standing.look(0.0, ["stays", "goes", "comes back"])
    standing.look(30.0, ["stays"])
    standing.look(50.0, ["stays", "comes back"])
    assert standing.found == {"stays": 0.0}
