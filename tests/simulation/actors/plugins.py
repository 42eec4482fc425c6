"""A third-party plugin that is slow, raises errors or gives wrong results, and its pods."""

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zlib import crc32

import numpy as np

from faults.books import PodSeen
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.plugin import Normalize
from mooring.framework.post_filter import Nomination
from mooring.framework.registry import ENTRY_POINT_GROUP
from mooring.framework.verdicts import SKIP, Explanation, Unschedulable, Wait
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.model.events import Action, Kind
from mooring.model.pod import Pod
from mooring.testing.builders import api_object, pod
from simulation.actors.nodes import touch_all
from simulation.scenario import ACME, NAMESPACE, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change
    from simulation.world import World


_LIES: Final[Mapping[str, Any]] = {
    "nothing": None,
    "text": "yes",
    "class": Unschedulable,
    "nowhere": Nomination("no-such-node", ()),
}
WRONGS: Final[Mapping[str, tuple[str, ...]]] = {
    "pre_filter": ("raises", "exits", "class", "skips"),
    "filter": ("raises", "exits", "nothing", "text", "dtype", "shape", "refuses", "slow"),
    "explain": ("raises", "nothing"),
    "score": ("raises", "nothing", "dtype", "shape", "huge", "slow"),
    "queueing_hint": ("raises", "nothing", "skips"),
    "post_filter": ("raises", "text", "class", "nowhere"),
    "reserve": ("raises", "text", "refuses"),
    "unreserve": ("raises", "exits"),
    "permit": ("raises", "exits", "text", "refuses", "waits"),
    "pre_bind": ("raises", "exits", "sleeps", "hangs"),
    "bind": (
        *("raises", "exits", "text", "skips", "sleeps", "hangs", "lies"),
        *("sends", "lingers"),
    ),
    "post_bind": ("raises", "sleeps", "hangs"),
}
"""What goes wrong, by method."""
_LIE_SECONDS: Final = 75.0
"""So long a pod that a plugin says to have bound has its room, and is tried again."""
_SLOW_SECONDS: Final = 0.2
_LINGER_SECONDS: Final = 1.0
"""So long a plugin that was cancelled goes on, and then binds."""


class Plugins(Actor):
    """The profile with the plugin, its pods, and the plugin's faults.

    Attributes:
        made: The plugin objects of all processes.
        skipped: The uids of pods for which the plugin's filter did not run.
        bound: The uids of pods that were bound, or that the plugin claims to have bound.
        troubled_until: Until when pods may wait without a reason; infinite until all is calm.
    """

    name = "plugins"

    def __init__(self) -> None:
        self.made: list[_Acme] = []
        self.skipped: set[str] = set()
        self.bound: set[str] = set()
        self.troubled_until = 0.0
        self._lied_until = 0.0
        self._troubles: dict[str, str] = {}
        self._world: World | None = None

    def draw(self, plan: Plan) -> None:
        """Draw the profile, its pods, and the times of faults."""
        random = plan.random
        if not plan.has_plugin:
            return
        plan.step(0.0, self.name, "profile")
        for number in range(random.randint(1, 4)):
            plan.step(
                plan.time(),
                self.name,
                "pods",
                name=f"a{number}",
                count=random.choice((1, 2, 4)),
                cpu=random.choice(("100m", "1", "2", "3")),
                priority=random.choice((0, 0, 100)),
            )
            if plan.chance(0.4):
                plan.step(plan.time(), self.name, "delete", name=f"a{number}-0")
        for _ in range(random.choice((1, 2, 4, 8))):
            at, method = plan.time(), random.choice([*WRONGS])
            how = random.choice(WRONGS[method])
            plan.step(at, self.name, "trouble", method=method, how=how)
            later = at + random.choice((0.3, 4.0, 15.0))
            plan.step(later, self.name, "trouble", method=method, how="")

    def act(self, world: "World", step: Step) -> None:
        args, server = step.args, world.server
        if step.does == "profile":
            server.create(SCHEDULING_PROFILE, _profile(), self.name)
        elif step.does == "trouble":
            self._troubles[args["method"]] = args["how"]
            self.troubled_until = inf
        elif step.does == "pods":
            for number in range(args["count"]):
                raw = pod(
                    f"{args['name']}-{number}",
                    namespace=NAMESPACE,
                    cpu=args["cpu"],
                    priority=args["priority"],
                    spec={"schedulerName": ACME},
                )
                server.create(POD, raw, self.name)
        elif (found := server.storage.get(POD, args["name"], NAMESPACE)) is not None:
            server.delete(POD, found, self.name)

    def changed(self, _world: "World", change: "Change") -> None:
        if change.what == "bind":
            self.bound.add(change.object["metadata"]["uid"])

    def calm(self, world: "World") -> None:
        """End all faults; change nodes, because pods were rejected for no reason."""
        if self._troubles:
            self._troubles = {}
            self.troubled_until = max(self._lied_until, world.timeline.now)
            touch_all(world, self.name)

    def announced(self, world: "World") -> dict[str, EntryPoint]:
        """Return the entry points of the plugin, for a registry."""
        self._world = world
        return {_Acme.name: _Announced(self)}

    def wrong(self, method: str) -> str:
        """Return the fault of this call and count it; "" if the call works."""
        how, world = self._troubles.get(method, ""), self._world
        if how and world is not None:
            world.coverage.note_plugin(method, how)
            if how == "lies":
                self._lied_until = world.timeline.now + _LIE_SECONDS
            if how == "slow":
                world.timeline.now += _SLOW_SECONDS
        return how

    @staticmethod
    def refuses(node: str, pod: PodSeen) -> bool:
        """Return whether the plugin, without a fault, rejects the node for the pod."""
        return pod.scheduler == ACME and _refuses(node, pod.key.partition("/")[2])


class _Announced(EntryPoint):
    """An entry point of a distribution that is not installed."""

    def __init__(self, actor: Plugins) -> None:
        super().__init__(_Acme.name, "acme:Acme", ENTRY_POINT_GROUP)
        vars(self)["actor"] = actor

    def load(self) -> Any:
        """Return the plugin class; its calls ask the actor for faults."""
        return type(_Acme.name, (_Acme,), {"actor": vars(self)["actor"]})


class _Acme:
    """Rejects some nodes, waits at Permit, and binds pods itself."""

    name: ClassVar[str] = "Acme"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )
    actor: ClassVar[Plugins]

    def __init__(self, _args: Any, handle: Handle) -> None:
        self._handle = handle
        self._reserved: dict[str, str] = {}
        self.actor.made.append(self)

    def pre_filter(self, pod: Pod, _cluster: Any) -> Any:
        """Return the pod's name as state, or SKIP or a wrong value if the fault says so."""
        how = self._wrong("pre_filter")
        if how == "skips":
            self.actor.skipped.add(pod.uid)
            return SKIP
        return _LIES.get(how, pod.name)

    def filter(self, pod: Pod, nodes: Any, _state: Any) -> Any:
        """Return the mask of nodes that the plugin accepts."""
        names = [nodes.name(row) for row in range(len(nodes))]
        honest = np.array([not _refuses(name, pod.name) for name in names], np.bool_)
        return _bent(honest, self._wrong("filter"))

    def explain(self, _pod: Pod, nodes: Any, _state: Any) -> Any:
        if self._wrong("explain"):
            return None
        return Explanation.single("acme refuses it", len(nodes), resolvable=False)

    def score(self, _pod: Pod, nodes: Any, _state: Any) -> Any:
        """Return the same score for every node."""
        return _bent(np.full(len(nodes), 7, np.int64), self._wrong("score"))

    def queueing_hint(self, _pod: Pod, _event: Any, _cluster: Any) -> Any:
        """Return QUEUE for any change of a node."""
        how = self._wrong("queueing_hint")
        return {"nothing": None, "skips": QueueingHint.SKIP}.get(how, QueueingHint.QUEUE)

    def post_filter(self, _state: Any) -> Any:
        """Return that evictions cannot help."""
        return _LIES.get(self._wrong("post_filter"), Unschedulable("acme knows no way"))

    def reserve(self, pod: Pod, node: str) -> Any:
        self._reserved[pod.uid] = node
        how = self._wrong("reserve")
        return Unschedulable("acme has nothing left") if how == "refuses" else _LIES.get(how)

    def unreserve(self, pod: Pod, _node: str) -> None:
        self._reserved.pop(pod.uid, None)
        self._wrong("unreserve")

    def permit(self, pod: Pod, _node: str) -> Any:
        """Let half of the pods wait a moment."""
        how = self._wrong("permit")
        if how == "refuses":
            return Unschedulable("acme permits nothing")
        if how == "text":
            return how
        if how != "waits" and crc32(pod.uid.encode()) % 2:
            return None
        if how != "waits":
            allow = self._handle.waiting_pods.allow
            asyncio.get_running_loop().call_later(0.2, allow, pod.uid, self.name)
        return Wait(3.0)

    async def pre_bind(self, _pod: Pod, _node: str) -> None:
        """Wait for a moment."""
        await _asleep(self._wrong("pre_bind"))

    async def bind(self, pod: Pod, node: str) -> Any:
        """Bind the pod."""
        how = self._wrong("bind")
        if how == "sends":
            sent = asyncio.ensure_future(self._handle.api.bind(pod, node))
            sent.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
            await asyncio.sleep(0.01)
            raise RuntimeError("acme has sent it, and does not know")
        await _asleep(how)
        if how == "lies":
            self.actor.bound.add(pod.uid)  # whoever is bound is not unreserved
        if how in {"lies", "skips", "text"}:
            return {"lies": None, "skips": SKIP}.get(how, how)
        await self._handle.api.bind(pod, node)
        return None

    async def post_bind(self, _pod: Pod, _node: str) -> None:
        """Wait for a moment."""
        await _asleep(self._wrong("post_bind"))

    def keeps(self, waiting: Any) -> set[str]:
        """Return the uids of reserved pods; empty unless `waiting` belongs to its own process."""
        return set(self._reserved) if self._handle.waiting_pods is waiting else set()

    def _wrong(self, method: str) -> str:
        """Return the fault of this call; raise an error if the fault is an exception."""
        how = self.actor.wrong(method)
        if how == "raises":
            raise RuntimeError(f"acme cannot {method}")
        if how == "exits":
            raise SystemExit(3)
        return how


async def _asleep(how: str) -> None:
    try:
        await asyncio.sleep({"sleeps": 2.0, "hangs": 1e6, "lingers": 1e6}.get(how, 0.01))
    except asyncio.CancelledError:
        if how != "lingers":
            raise
        await asyncio.sleep(_LINGER_SECONDS)


def _bent(honest: Any, how: str) -> Any:
    """Return the array with this fault, for example a wrong dtype or shape."""
    bent: Mapping[str, Callable[[], Any]] = {
        "dtype": lambda: honest.astype(np.float32),
        "shape": lambda: np.append(honest, honest[:1]),
        "refuses": lambda: np.zeros_like(honest),
        "huge": lambda: honest + 2**62,
    }
    if how in bent:
        return bent[how]()
    return _LIES.get(how, honest)


def _refuses(node: str, pod: str) -> bool:
    return crc32(f"{pod}/{node}".encode()) % 5 == 0


def _profile() -> dict[str, Any]:
    uses = [{"name": _Acme.name}]
    binders = {"disabled": [{"name": "*"}], "enabled": [*uses, {"name": "DefaultBinder"}]}
    plugins = {"multiPoint": {"enabled": uses}, "bind": binders}
    return api_object("SchedulingProfile", ACME, spec={"plugins": plugins})
