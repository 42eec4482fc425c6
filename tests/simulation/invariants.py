"""What must hold, each as a small function whose name is the sentence.

They know nothing of Mooring's code: they read the model server's history, the requests that left
each replica, and what each watch had told it (`Stream.told`).

How to add one: write a function that returns None, or what is wrong in a few words, and put it into
`AT_EVERY_REQUEST` (the world and a write that leaves a replica), `AT_EVERY_CHANGE` (the world and a
change that the server has carried out), `WHEN_CALM` (the world some time after the last fault),
`WHEN_EMPTY` (after all pods have been deleted) or `AT_THE_END` (when the replicas have stopped).
Those that look into a replica's state are in `state_invariants.py`. Break the code once and see a
seed find it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import orjson

from faults.books import GPU_COUNT, GPU_MEMORY, Amount, NodeSeen, PodSeen
from mooring.kube.resources import LEASE, NODE, POD
from simulation.claim_invariants import (
    no_volume_is_taken_from_its_claim,
    the_volumes_of_a_bound_pod_are_on_its_node,
)
from simulation.device_invariants import (
    every_pod_that_requests_a_card_has_one,
    no_card_has_more_pods_than_memory,
    no_pod_is_bound_where_a_needed_extender_refuses_it,
)
from simulation.group_invariants import (
    every_gang_that_a_node_would_take_is_bound,
    no_part_of_a_gang_is_bound,
)
from simulation.scenario import SCHEDULER
from simulation.state_invariants import (
    a_replica_leads,
    every_pod_without_a_node_is_queued_once,
    nothing_is_assumed_beyond_its_deadline,
    nothing_is_kept_of_pods_that_are_gone,
    the_books_equal_a_recount,
)
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import Sent, World

__all__ = [
    "AT_EVERY_CHANGE",
    "AT_EVERY_REQUEST",
    "AT_THE_END",
    "WHEN_CALM",
    "WHEN_EMPTY",
    "Books",
]

_LATE_SECONDS: Final = 10.0
"""What a replica decides rests on what it was told so long ago at most: its requests may wait."""


class Books:
    """What is in the cluster, recounted from the history."""

    def __init__(self) -> None:
        self.pods: dict[str, PodSeen] = {}
        """By uid, those that exist."""
        self.nodes: dict[str, NodeSeen] = {}
        """By name."""
        self.on_node: dict[str, dict[str, PodSeen]] = defaultdict(dict)
        """By node and uid, those that take something there."""
        self.bound_by: dict[str, Change] = {}
        """By uid, the Binding of each pod that has one."""
        self.allocatable: dict[str, list[tuple[float, Amount]]] = defaultdict(list)
        """By node, what it had from which time on."""
        self.gone: list[tuple[float, PodSeen]] = []
        """Pods that do not exist any more, and since when."""
        self.holder = ""
        """Whose lease it is."""
        self.refuses: Callable[[str, PodSeen], bool] = lambda _node, _pod: False
        """Whether an extender refuses the node of this name for a pod."""

    def note(self, change: Change) -> None:
        """Take a change in."""
        if change.resource is POD:
            self._note_pod(change)
        elif change.resource is NODE:
            node = NodeSeen.read(change.object)
            if change.after is None:
                self.nodes.pop(node.key, None)
            else:
                self.nodes[node.key] = node
                self.allocatable[node.key].append((change.at, node.allocatable))
        elif change.resource is LEASE and change.after is not None:
            self.holder = change.after["spec"].get("holderIdentity") or ""

    def _note_pod(self, change: Change) -> None:
        pod = PodSeen.read(change.object)
        before = self.pods.pop(pod.uid, None)
        if before is not None:
            self.on_node[before.node].pop(pod.uid, None)
        if change.after is None:
            self.bound_by.pop(pod.uid, None)
            self.gone.append((change.at, pod))
            return
        self.pods[pod.uid] = pod
        if pod.node and not pod.finished:
            self.on_node[pod.node][pod.uid] = pod
        if change.what == "bind":
            self.bound_by[pod.uid] = change

    def free(self, name: str) -> Amount:
        """Return what is left of a node."""
        left = self.nodes[name].allocatable
        for pod in self.on_node[name].values():
            left -= pod.need
        return left

    def takes(self, name: str, pod: PodSeen) -> bool:
        """Return whether the node would take the pod now."""
        node = self.nodes[name]
        suits = node.schedulable and pod.selector.items() <= node.labels.items()
        if not suits or self.refuses(name, pod) or not self.free(name).covers(pod.need):
            return False
        return not pod.wants_cards or self._has_card(name, dict(pod.need.others)[GPU_MEMORY])

    def _has_card(self, name: str, memory: int) -> bool:
        """Return whether a card of the node has so much left."""
        node = self.nodes[name]
        used = Counter[int]()
        for pod in self.on_node[name].values():
            for card, taken in pod.cards:
                used[card] += taken
        count = dict(node.allocatable.others).get(GPU_COUNT, 0)
        return any(node.card_memory - used[card] >= memory for card in range(count))


# At every request.


def nobody_writes_while_another_holds_the_lease(world: "World", sent: "Sent") -> str | None:
    """Check that nothing but the lease itself is written then."""
    holder = world.books.holder
    if holder in {"", sent.identity} or "/leases" in sent.path:
        return None
    return f"{sent.identity} sends {sent.what} {sent.path} while {holder} holds it"


def no_pod_is_bound_to_a_second_node(world: "World", sent: "Sent") -> str | None:
    """Check that a replica that has bound a pod sends no Binding of it to another node."""
    if sent.what != "bind":
        return None
    body = orjson.loads(sent.body)
    uid, node = body["metadata"]["uid"], body["target"]["name"]
    bound = world.books.bound_by.get(uid)
    if bound is None or bound.by != sent.identity:
        return None
    there = bound.object["spec"]["nodeName"]
    return f"{sent.path} to {node}, and it is on {there}" if there != node else None


# At every change.


def no_node_holds_more_than_it_has(world: "World", change: Change) -> str | None:
    """Check what the pod requests; what others bound counts if this replica was told of it."""
    if change.what != "bind":
        return None
    books, name = world.books, change.object["spec"]["nodeName"]
    told = _told(world, change.by)
    used = Amount()
    for pod in books.on_node[name].values():
        binding = books.bound_by.get(pod.uid)
        if binding is None or binding.by == change.by or binding.version <= told:
            used += pod.need
    used = _requested_by(PodSeen.read(change.object), used)
    had = _allocatable(books.allocatable[name], change.at)
    if any(amount.covers(used) for amount in had):
        return None
    return f"{name} has {had[-1] if had else 'nothing'}, its pods take {used}"


def _requested_by(pod: PodSeen, used: Amount) -> Amount:
    """Return what is used of the resources that the pod requests.

    Of others a node may have less than its pods, if its name has returned: that is not checked.
    """
    wanted = {name for name, amount in pod.need.others if amount}
    return Amount(
        used.cpu if pod.need.cpu else 0,
        used.memory if pod.need.memory else 0,
        used.pods,
        tuple((name, amount) for name, amount in used.others if name in wanted),
    )


def _allocatable(versions: list[tuple[float, Amount]], at: float) -> list[Amount]:
    """Return what a node had at any time that a decision may rest on."""
    late = [amount for since, amount in versions if since > at - _LATE_SECONDS]
    early = [amount for since, amount in versions if since <= at - _LATE_SECONDS]
    return early[-1:] + late


def _told(world: "World", identity: str) -> int:
    """Return up to which version the replica's mirror has been told of assigned pods."""
    return max(
        (
            stream.told
            for stream in world.server.watches.streams
            if stream.resource is POD
            and stream.process.identity == identity
            and stream.agent == "mooring"
        ),
        default=0,
    )


def victims_go_only_where_somebody_needs_them(world: "World", change: Change) -> str | None:
    """Check that whoever is evicted makes room for a pod of higher priority.

    It may have been bound or deleted a moment before.
    """
    by_replica = change.by.partition("-")[0] in world.replicas
    removes = change.what in {"evict", "delete pods"}
    if change.resource is not POD or not by_replica or not removes or change.before is None:
        return None
    victim = PodSeen.read(change.before)
    late = change.at - _LATE_SECONDS
    existed = [pod for since, pod in world.books.gone if since > late]
    if any(pod.priority > victim.priority for pod in (*existed, *world.books.pods.values())):
        return None
    return f"{victim.key} of priority {victim.priority} goes, and no pod has a higher one"


# When all is calm.


def every_pod_that_a_node_would_take_is_bound(world: "World") -> str | None:
    """Check, some time after the last fault, that nothing waits that could be placed."""
    books = world.books
    for pod in books.pods.values():
        if pod.node or pod.gated or pod.leaving or pod.finished or pod.scheduler != SCHEDULER:
            continue
        if pod.constrained:
            continue
        fitting = [name for name in books.nodes if books.takes(name, pod)]
        if fitting and not _kept_for_others(books, pod, fitting):
            return f"{pod.key} ({pod.uid}) waits, and {fitting} would take it"
    return None


def _kept_for_others(books: Books, pod: PodSeen, names: list[str]) -> bool:
    """Return whether nominated pods that wait keep these nodes."""
    nominated = {
        other.nominated
        for other in books.pods.values()
        if not other.node and other.uid != pod.uid and other.priority >= pod.priority
    }
    return set(names) <= nominated


# At the end.


def every_replica_stops_in_order(world: "World") -> str | None:
    """Check that SIGTERM ends a replica with 0, and the lease is nobody's then."""
    codes = {replica.identity: replica.exit_code for replica in world.replicas.values()}
    if any(code != 0 for code in codes.values()):
        return f"the exit codes are {codes}"
    return f"{world.books.holder} has the lease still" if world.books.holder else None


def no_error_is_left_to_nobody(world: "World") -> str | None:
    """Check that no task or callback has failed without anybody who hears of it."""
    for replica in world.replicas.values():
        for context in replica.loop.errors:
            return f"{replica.identity}: {context.get('message')}: {context.get('exception')!r}"
    return None


def no_task_is_left(world: "World") -> str | None:
    """Check that a replica that stops has ended all that it began."""
    for replica in world.replicas.values():
        if replica.left_behind:
            return f"{replica.name} leaves {replica.left_behind[:3]}"
    return None


AT_EVERY_REQUEST: Final[tuple[Callable[["World", "Sent"], str | None], ...]] = (
    nobody_writes_while_another_holds_the_lease,
    no_pod_is_bound_to_a_second_node,
)
AT_EVERY_CHANGE: Final[tuple[Callable[["World", Change], str | None], ...]] = (
    no_node_holds_more_than_it_has,
    victims_go_only_where_somebody_needs_them,
    no_part_of_a_gang_is_bound,
    no_card_has_more_pods_than_memory,
    every_pod_that_requests_a_card_has_one,
    no_pod_is_bound_where_a_needed_extender_refuses_it,
    no_volume_is_taken_from_its_claim,
    the_volumes_of_a_bound_pod_are_on_its_node,
)
WHEN_CALM: Final[tuple[Callable[["World"], str | None], ...]] = (
    a_replica_leads,
    every_pod_that_a_node_would_take_is_bound,
    every_gang_that_a_node_would_take_is_bound,
    every_pod_without_a_node_is_queued_once,
    nothing_is_assumed_beyond_its_deadline,
    the_books_equal_a_recount,
)
WHEN_EMPTY: Final[tuple[Callable[["World"], str | None], ...]] = (
    the_books_equal_a_recount,
    nothing_is_kept_of_pods_that_are_gone,
)
AT_THE_END: Final[tuple[Callable[["World"], str | None], ...]] = (
    every_replica_stops_in_order,
    no_error_is_left_to_nobody,
    no_task_is_left,
)
