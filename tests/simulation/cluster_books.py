"""The content of the model cluster, recounted from its history, and the knowledge of replicas."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from faults.books import GPU_COUNT, GPU_MEMORY, Amount, NodeSeen, PodSeen
from mooring.kube.api_resources import LEASE, NODE, POD, SCHEDULING_PROFILE
from simulation.constraints import Surroundings, refusal
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from simulation.world import World


BOUND_BY_ANOTHER: Final = "bind by another"
"""What a change is that another scheduler makes."""
LATE_SECONDS: Final = 10.0
"""What a replica decides rests on what it was told so long ago at most: its requests may wait."""

_TAKEN_IN_SECONDS: Final = 1.0
"""What a watch has told is in the replica's books so many seconds later at most."""

Told: TypeAlias = Callable[[float], int]
"""Returns up to which version somebody had been told everything at a time."""


class Books:
    """The content of the cluster, recounted from the history."""

    def __init__(self) -> None:
        self.pods: dict[str, PodSeen] = {}
        """By uid, those that exist."""
        self.nodes: dict[str, NodeSeen] = {}
        """By name."""
        self.raw: dict[str, Raw] = {}
        """By uid, each pod that exists, or as it was last."""
        self._around: Surroundings | None = None
        """What is on the nodes now; None if it has changed since somebody asked."""
        self.on_node: dict[str, dict[str, PodSeen]] = defaultdict(dict)
        """By node and uid, those that take something there."""
        self.bound_by: dict[str, Change] = {}
        """By uid, the Binding of each pod that has one."""
        self.versions: dict[str, list[tuple[Change, NodeSeen]]] = defaultdict(list)
        """By name, all that a node of this name has ever been."""
        self.changed_at: dict[str, float] = defaultdict(float)
        """By node, when it changed, or pods came to it or left it."""
        self.waits_since: dict[str, float] = {}
        """By uid of pods without a node, when somebody else than a replica changed it."""
        self.bound_at: dict[str, float] = {}
        """By uid, when pods were bound that exist."""
        self.gone: list[tuple[Change, PodSeen]] = []
        """Pods that do not exist any more, and the change that removed them."""
        self.holder = ""
        """Whose lease it is."""
        self.profiles: set[str] = set()
        """The names of the profiles that exist."""
        self.refusals: list[Callable[[str, PodSeen], bool]] = []
        """Whether an extender or a plugin refuses the node of this name for a pod."""

    def note(self, change: Change) -> None:
        """Apply a change to the books."""
        if change.resource in {POD, NODE}:
            self._around = None
        if change.resource is POD:
            self._note_pod(change)
        elif change.resource is NODE:
            node = NodeSeen.read(change.object)
            if change.after is None:
                self.nodes.pop(node.key, None)
            else:
                self.nodes[node.key] = node
                self.versions[node.key].append((change, node))
            self.changed_at[node.key] = change.at
        elif change.resource is SCHEDULING_PROFILE:
            update = self.profiles.add if change.after is not None else self.profiles.discard
            update(change.name)
        elif change.resource is LEASE and change.after is not None:
            self.holder = change.after["spec"].get("holderIdentity") or ""

    def _note_pod(self, change: Change) -> None:
        pod = PodSeen.read(change.object)
        self.raw[pod.uid] = change.object
        before = self.pods.pop(pod.uid, None)
        if before is not None and self.on_node[before.node].pop(pod.uid, None) is not None:
            self.changed_at[before.node] = change.at
        if change.after is None:
            for known in (self.bound_by, self.bound_at, self.waits_since):
                known.pop(pod.uid, None)
            self.gone.append((change, pod))
            return
        self.pods[pod.uid] = pod
        if pod.node and not pod.finished:
            self.on_node[pod.node][pod.uid] = pod
        if change.what in {"bind", BOUND_BY_ANOTHER}:
            self.bound_by[pod.uid] = change
            self.bound_at[pod.uid] = self.changed_at[pod.node] = change.at
        elif not change.what.startswith("patch status"):
            self.waits_since[pod.uid] = change.at

    def nodes_lately(self, now: float) -> list[str]:
        """Return the names of existing nodes, and of nodes that were deleted a moment ago."""
        since = now - LATE_SECONDS
        return [n for n in self.versions if n in self.nodes or self.changed_at[n] > since]

    def free(self, name: str) -> Amount:
        left = self.nodes[name].allocatable
        for pod in self.on_node[name].values():
            left -= pod.need
        return left

    def waits(self, pod: PodSeen) -> bool:
        """Return whether the pod should get a node and the books can tell which nodes fit."""
        ready = not (pod.node or pod.gated or pod.leaving or pod.finished)
        return ready and pod.scheduler in self.profiles and not pod.constrained

    def takes(self, name: str, pod: PodSeen) -> bool:
        """Return whether the pod fits on the node now."""
        if not self.free(name).covers(pod.need) or self.refuses(name, pod):
            return False
        if refusal(self.raw[pod.uid], name, self._surroundings()) is not None:
            return False
        return not pod.wants_cards or self._has_card(name, dict(pod.need.others)[GPU_MEMORY])

    def refuses(self, name: str, pod: PodSeen) -> bool:
        """Return whether an extender or a plugin rejects the node for the pod."""
        return any(refuses(name, pod) for refuses in self.refusals)

    def _surroundings(self) -> Surroundings:
        """Return the nodes and the pods on them as they are now."""
        if self._around is None:
            nodes = (self.versions[name][-1][0].object for name in self.nodes)
            uids = (uid for pods in self.on_node.values() for uid in pods)
            self._around = Surroundings.known_exactly(nodes, (self.raw[uid] for uid in uids))
        return self._around

    def is_new(self, uid: str, now: float) -> bool:
        """Return whether the pod was bound a moment ago."""
        return self.bound_at.get(uid, 0.0) > now - LATE_SECONDS

    def waited_lately(self, now: float, told: Told) -> Iterator[PodSeen]:
        """Yield the pods that wait, or that waited a moment ago for a process with this `told`."""
        for pod in self.pods.values():
            if not pod.node or self.is_new(pod.uid, now):
                yield pod
        known = told(now - LATE_SECONDS)
        for gone, pod in reversed(self.gone):
            if gone.version <= known:
                return
            yield pod

    def _has_card(self, name: str, memory: int) -> bool:
        """Return whether a card of the node has this much free memory."""
        node = self.nodes[name]
        used = Counter[int]()
        for pod in self.on_node[name].values():
            for card, taken in pod.cards:
                used[card] += taken
        count = dict(node.allocatable.others).get(GPU_COUNT, 0)
        return any(node.card_memory - used[card] >= memory for card in range(count))


def known_nodes(
    world: "World", identity: str, name: str, late: float = LATE_SECONDS
) -> list[NodeSeen]:
    """Return the versions of the node that the replica may know, from `late` seconds ago on."""
    return [node for _, node in known_versions(world, identity, name, late)]


def known_versions(
    world: "World", identity: str, name: str, late: float = LATE_SECONDS
) -> list[tuple[Raw, NodeSeen]]:
    """Return the same versions as `known_nodes`, each with its raw object."""
    told = world.server.watches.told(identity, NODE, at=world.timeline.now - late)
    found: list[tuple[Raw, NodeSeen]] = []
    for change, node in reversed(world.books.versions[name]):
        found.append((change.object, node))
        if change.version <= told:
            break
    return found[::-1]


def known_pods(
    world: "World", identity: str, name: str, decided_at: float = inf
) -> Iterator[PodSeen]:
    """Yield the pods on the node that the replica has bound there or has seen there.

    Pods that others have bound count only if the replica saw them before it decided, because its
    API server may be behind.
    """
    books = world.books
    told = world.server.watches.told(identity, POD, at=decided_at - _TAKEN_IN_SECONDS)
    for pod in books.on_node[name].values():
        binding = books.bound_by.get(pod.uid)
        told_of = binding is None or binding.version <= told
        if told_of or (binding is not None and binding.by == identity):
            yield pod


def kept_for_others(books: Books, pod: PodSeen, names: list[str]) -> bool:
    """Return whether all these nodes are kept for other nominated pods of at least its priority."""
    nominated = {
        other.nominated
        for other in books.pods.values()
        if not other.node and other.uid != pod.uid and other.priority >= pod.priority
    }
    return set(names) <= nominated
