"""What Mooring's dump of its cache says, held against the API server's objects, by uid.

Pods that the dump does not have, pods that only the dump has (ghosts), other nodes or requests than
those of the API server, sums that are not those of the pods, cards that are not those of the
annotations. No code is shared with Mooring.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from faults.books import MOORING, Amount, NodeSeen, PodSeen

Record = Mapping[str, Any]


class DumpError(ValueError):
    """The dump is not complete."""


def read_dump(text: str) -> list[Record]:
    """Return the records of a dump without the last one, which says how many there are."""
    try:
        records = [json.loads(line) for line in text.splitlines()]
    except json.JSONDecodeError as error:
        raise DumpError(f"the dump has a line that is no JSON: {error}") from error
    if not records or records[-1] != {"kind": "end", "records": len(records) - 1}:
        raise DumpError(f"the dump ends after {len(records)} records")
    return records[:-1]


def cache_differences(
    dump: Sequence[Record], pods: Iterable[PodSeen], nodes: Iterable[NodeSeen]
) -> set[str]:
    """Return where the dump differs from the API server's pods and nodes, a sentence for each."""
    seen = [pod for pod in pods if not pod.finished]
    placed = {pod.uid: pod for pod in seen if pod.node}
    by_kind: dict[str, list[Record]] = {}
    for record in dump:
        by_kind.setdefault(record["kind"], []).append(record)
    booked = by_kind.get("pod", [])
    return {
        *_of_pods(placed, booked),
        *_of_nodes({node.key: node for node in nodes}, placed, by_kind.get("node", [])),
        *_of_cards(placed, by_kind.get("node", [])),
        *_of_pending([pod for pod in seen if not pod.node], by_kind),
    }


def _named(record: Record) -> str:
    return f"{record['pod']} ({record['uid']})"


def _of_pods(placed: Mapping[str, PodSeen], booked: Iterable[Record]) -> Iterator[str]:
    """Yield how pods on nodes are not in the books once, there and with their requests."""
    times = Counter(record["uid"] for record in booked)
    yield from (f"{uid} is in the books {n} times" for uid, n in times.items() if n > 1)
    for uid in placed.keys() - times.keys():
        yield f"{placed[uid].key} ({uid}) is on {placed[uid].node}, and not in the books"
    for record in booked:
        pod = placed.get(record["uid"])
        if pod is None:
            yield f"{_named(record)} is a ghost in the books, {record['state']} on {record['node']}"
            continue
        if record["node"] != pod.node:
            yield f"{_named(record)} is on {pod.node}, in the books on {record['node']}"
        if (requests := _amount(record["requests"], 1)) != pod.need:
            yield f"{_named(record)} requests {pod.need}, in the books {requests}"
        state = "terminating" if pod.leaving else "added"
        if record["state"] != state:
            yield f"{_named(record)} is {state}, in the books {record['state']}"
        if record["evicting"] and not pod.leaving:
            yield f"{_named(record)} is being evicted in the books only"


def _amount(resources: Mapping[str, int], pods: int) -> Amount:
    others = tuple((name, resources[name]) for name in sorted(resources) if "/" in name)
    return Amount(resources.get("cpu", 0), resources.get("memory", 0), pods, others)


def _of_nodes(
    nodes: Mapping[str, NodeSeen], placed: Mapping[str, PodSeen], booked: Iterable[Record]
) -> Iterator[str]:
    """Yield where a node's allocatable or the sum of its pods' requests is wrong."""
    used: dict[str, Amount] = {}
    for pod in placed.values():
        used[pod.node] = used.get(pod.node, Amount()) + pod.need
    names = set[str]()
    for record in booked:
        name, node = record["node"], nodes.get(record["node"])
        names.add(name)
        has = _amount(record["allocatable"], record["podSlots"])
        if node is None:
            yield f"node {name} is in the books and does not exist"
        elif has != node.allocatable:
            yield f"node {name} has {node.allocatable}, in the books {has}"
        recount, counted = (
            used.get(name, Amount()),
            _amount(record["requested"], record["podCount"]),
        )
        if _without_zeros(counted) != _without_zeros(recount):
            yield f"the pods of node {name} request {recount}, in the books {counted}"
    yield from (f"node {name} is not in the books" for name in nodes.keys() - names)
    for name, node in nodes.items():
        if not node.allocatable.covers(used.get(name, Amount())):
            yield f"node {name} has {node.allocatable}, and its pods request {used[name]}"


def _without_zeros(amount: Amount) -> Amount:
    others = tuple((name, number) for name, number in amount.others if number)
    return Amount(amount.cpu, amount.memory, amount.pods, others)


def _of_cards(placed: Mapping[str, PodSeen], booked: Iterable[Record]) -> Iterator[str]:
    """Yield where a pod's card in the books is not that of its annotations."""
    owners = {
        owner["uid"]: (owner, record["node"]) for record in booked for owner in record["cards"]
    }
    for uid, (owner, node) in owners.items():
        pod = placed.get(uid or "")
        if pod is None or pod.node != node:
            yield f"{_named(owner)} is a ghost on cards {owner['cards']} of {node}"
            continue
        actual = sorted(card for card, _ in pod.cards)
        if sorted(chain.from_iterable(owner["cards"])) != actual:
            yield f"{_named(owner)} has cards {actual} of {node}, in the books {owner['cards']}"
    for uid, pod in placed.items():
        if pod.cards and uid not in owners:
            yield f"{pod.key} ({uid}) has cards of {pod.node}, and none in the books"


def _of_pending(pending: Iterable[PodSeen], by_kind: Mapping[str, list[Record]]) -> Iterator[str]:
    """Yield pending pods that are not queued once, and others that are queued or nominated."""
    waiting = {pod.uid: pod for pod in pending if not pod.leaving}
    times = Counter(record["uid"] for record in by_kind.get("pending", ()))
    yield from (f"{uid} is queued {n} times" for uid, n in times.items() if n > 1)
    for uid, pod in waiting.items():
        if pod.scheduler == MOORING and uid not in times:
            yield f"{pod.key} ({uid}) is pending, and not queued"
    for kind, word in (("pending", "queued"), ("nomination", "nominated")):
        for record in by_kind.get(kind, ()):
            if record["uid"] not in waiting:
                yield f"{_named(record)} is {word}, and not pending"


class Standing:
    """Differences that are still there after some time; all others are of the moment.

    A dump is of no single moment, and what a fault delays is different for a while.
    """

    SECONDS: Final = 45.0

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        """Those that stood for `SECONDS`, with the time at which they were first seen."""
        self._since: dict[str, float] = {}

    def look(self, now: float, found: Iterable[str]) -> None:
        """Note what is different now."""
        self._since = {text: self._since.get(text, now) for text in found}
        for text, since in self._since.items():
            if now - since >= self.SECONDS:
                self.found.setdefault(text, since)
