"""The protocols of the extension points, in the order in which a pod meets them.

A plugin is a class with a `name` and the methods of the points it serves; there is nothing to
inherit from. It is built once per pipeline as `Plugin(args, handle)`. Deciding methods are
synchronous and pure: they read the pod and read-only columns and return facts. Only the methods
from `reserve` on may change something, and only they reach the API, through `handle.api`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

from mooring.framework.hints import QueueingHint
from mooring.framework.post_filter import Nomination, NotEligible, PostFilterState
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.verdicts import Explanation, PreFilterResult, Skip, Unschedulable, Wait
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.policy.points import Point
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "POINT_METHODS",
    "BindPlugin",
    "EnqueueExtensions",
    "FilterPlugin",
    "Normalize",
    "PermitPlugin",
    "Plugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ReservePlugin",
    "ResourceFilterPlugin",
    "ScorePlugin",
    "points_of",
]


class Normalize(Enum):
    """How raw scores become 0-100 over the feasible nodes (upstream's DefaultNormalizeScore)."""

    NONE = "none"
    MAX = "max"
    REVERSED = "reversed"


class Plugin(Protocol):
    """What every plugin has."""

    name: ClassVar[str]
    row_local: ClassVar[bool]
    """True if filter and raw score of a node depend on nothing but the pod's shape, that node's
    row and `nodes.set_version`. Their results are then kept and shared by identical pods, and
    computed again only for rows that changed; pre_filter and pre_score must not read the cluster.
    A row-local plugin that does not even read what the node's pods take may say so by a class
    attribute `ignores_pods = True`, and is then asked again only when the node itself changed.
    """


class EnqueueExtensions(Plugin, Protocol):
    """A plugin that says which cluster events may make a pod schedulable that it rejected.

    A pod rejected by a plugin without this is tried again after any event.
    """

    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]]

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: Snapshot) -> QueueingHint:
        """Whether the event, one of `events_to_register`, may let the rejected pod pass now."""


class PreEnqueuePlugin(Plugin, Protocol):
    """May hold a pod back before it ever enters the queue."""

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """None to let it pass."""


class QueueSortPlugin(Plugin, Protocol):
    """Orders the pods that wait to be tried.

    All profiles share one queue. Pods whose profiles name different plugins take turns by priority,
    then by how long they have waited.
    """

    def sort_key(self, queued: QueuedPod) -> tuple[int | float | str, ...]:
        """Smaller keys are tried first; asked again only when the pod enters the queue anew."""


class PreFilterPlugin(Plugin, Protocol):
    """Looks at the pod and the cluster once per attempt."""

    def pre_filter(
        self, pod: Pod, cluster: Snapshot
    ) -> Any | Skip | PreFilterResult | Unschedulable:
        """The state to hand to this plugin's filter."""


class FilterPlugin(Plugin, Protocol):
    """Says on which nodes the pod can run."""

    def filter(self, pod: Pod, nodes: NodeView, state: Any) -> BoolArray:
        """bool[len(nodes)], True where the pod fits."""

    def explain(self, pod: Pod, nodes: NodeView, state: Any) -> Explanation:
        """Why the nodes failed; asked only for rows on which `filter` says False."""


@runtime_checkable
class ResourceFilterPlugin(FilterPlugin, Protocol):
    """A filter that rejects nodes for lack of a pod slot or of requested amounts, nothing else."""

    def resource_requests(self, state: Any) -> Mapping[str, int]:
        """The amounts that must be free, by resource."""


class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits; may make room."""

    def post_filter(self, attempt: PostFilterState) -> Nomination | Unschedulable | NotEligible:
        """A nomination, or why this plugin cannot help."""


class PreScorePlugin(Plugin, Protocol):
    """Looks at the feasible nodes once before they are scored."""

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: Snapshot) -> Any | Skip:
        """The state to hand to this plugin's score."""


class ScorePlugin(Plugin, Protocol):
    """Says how good each feasible node is."""

    normalize: ClassVar[Normalize]

    def score(self, pod: Pod, nodes: NodeView, state: Any) -> IntArray:
        """int64[len(nodes)]: 0-100 where `normalize` is NONE, else any non-negative number."""


class ReservePlugin(Plugin, Protocol):
    """Keeps account of what a placement takes; `unreserve` must undo a `reserve` cut short."""

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """None once the plugin's own resources are set aside."""

    def unreserve(self, pod: Pod, node: str) -> None:
        """Nothing is set aside any more; called even if `reserve` was not reached."""


class PermitPlugin(Plugin, Protocol):
    """The last word before binding."""

    def permit(self, pod: Pod, node: str) -> Wait | Unschedulable | None:
        """None to approve."""


class PreBindPlugin(Plugin, Protocol):
    """Work that must be done before the pod is bound."""

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Returns when done; raises to stop the binding."""


class BindPlugin(Plugin, Protocol):
    """Binds the pod."""

    async def bind(self, pod: Pod, node: str) -> Skip | None:
        """None once bound; SKIP leaves it to the next bind plugin; raises if it failed."""


class PostBindPlugin(Plugin, Protocol):
    """Hears of a bound pod."""

    async def post_bind(self, pod: Pod, node: str) -> None:
        """Clean-up; nothing depends on it any more."""


POINT_METHODS: dict[Point, str] = {
    Point.PRE_ENQUEUE: "pre_enqueue",
    Point.QUEUE_SORT: "sort_key",
    Point.PRE_FILTER: "pre_filter",
    Point.FILTER: "filter",
    Point.POST_FILTER: "post_filter",
    Point.PRE_SCORE: "pre_score",
    Point.SCORE: "score",
    Point.RESERVE: "reserve",
    Point.PERMIT: "permit",
    Point.PRE_BIND: "pre_bind",
    Point.BIND: "bind",
    Point.POST_BIND: "post_bind",
}
"""The method by which a class shows that it serves a point."""


def points_of(plugin: type) -> frozenset[Point]:
    """The extension points a plugin class serves."""
    return frozenset(
        point for point, method in POINT_METHODS.items() if callable(getattr(plugin, method, None))
    )
