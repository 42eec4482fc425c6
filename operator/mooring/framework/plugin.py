"""The protocols of the extension points, in the order in which they run for a pod.

A plugin is a class with a `name` and the methods of its extension points; it inherits from nothing.
It is built once per profile as `Plugin(args, handle)`. The methods before `reserve` decide where a
pod goes: they are synchronous, change nothing and use no clock and no randomness. The methods from
`reserve` on may change something and use `handle.api`; `post_filter` may use `handle.api.later`.
"""

from collections.abc import Hashable, Mapping
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from mooring.framework.hints import QueueingHint
from mooring.framework.placements import Placement, PodGroupAssignments
from mooring.framework.post_filter import (
    GroupPreemption,
    PodGroupPostFilterState,
    PostFilterResult,
    PostFilterState,
)
from mooring.framework.verdicts import Explanation, PreFilterResult, Skip, Unschedulable, Wait
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.policy.points import Point
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "POINT_METHODS",
    "BindPlugin",
    "DeviceReadingPlugin",
    "EnqueueExtensions",
    "FilterPlugin",
    "Normalize",
    "PermitPlugin",
    "PlacementGeneratePlugin",
    "PlacementScorePlugin",
    "Plugin",
    "PodGroupPostFilterPlugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "QueuedPodInfo",
    "ReservePlugin",
    "ResourceFilterPlugin",
    "ScorePlugin",
    "by_priority",
    "misspelt_name",
    "points_of",
]


class Normalize(Enum):
    """Says how the scores of the feasible nodes become 0-100 (DefaultNormalizeScore).

    NONE leaves them unchanged. MAX makes the highest score 100. REVERSED makes the highest score 0.
    """

    NONE = "none"
    MAX = "max"
    REVERSED = "reversed"


class Plugin(Protocol):
    """The attributes of every plugin."""

    name: ClassVar[str]
    depends_on_node_only: ClassVar[bool]
    """If True, `filter` and the raw score of a node depend only on the pod's spec (`pod.spec`), on
    that node, and on which nodes exist. `pre_filter` and `pre_score` do not read the cluster.
    Then identical pods share results, and the plugin runs again only for nodes that changed. Such a
    node-only plugin may also set one of these attributes to True:

    - `depends_on_node_object_only`, if it does not read what the pods on a node use; then it runs
      again only if the Node object changed;
    - `runs_for_every_pod`, if it computes all nodes in a few operations on whole columns and
      returns new arrays each time; then only the results for the last pod are kept.

    See also `DeviceReadingPlugin`, `KeyedFilterPlugin` and `KeyedScorePlugin`.
    """
    # A plugin about pod groups may also have `pod_group_formats`, GroupFormats of labels or
    # annotations by which pods name a group (groups/model/pod_group.py).


class EnqueueExtensions(Plugin, Protocol):
    """Says which cluster events may make a pod schedulable that the plugin rejected.

    If the plugin that rejected a pod does not implement this, the pod is tried again after every
    event.
    """

    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]]

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the event may make the pod schedulable, else SKIP.

        The scheduler calls this only for events in `events_to_register`. An exception counts as
        QUEUE.
        """


class PreEnqueuePlugin(Plugin, Protocol):
    """Decides whether a pod may enter the queue."""

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """Return None if the pod may enter the queue; Unschedulable gates it."""


class QueuedPodInfo(Protocol):
    """A queued pod for a QueueSort plugin; times are seconds on a monotonic clock."""

    @property
    def pod(self) -> Pod:
        """The pod that waits in the queue."""

    @property
    def initial_attempt_timestamp(self) -> float:
        """The time when the pod could be tried for the first time."""

    @property
    def timestamp(self) -> float:
        """The time when the pod was added, or when its last attempt ended."""

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun for the pod."""


def by_priority(queued: QueuedPodInfo) -> tuple[int, float]:
    """Return kube-scheduler's sort key: higher priority first, then longer waiting (queuesort/)."""
    return -queued.pod.spec.priority, queued.timestamp


class QueueSortPlugin(Plugin, Protocol):
    """Orders the pods in the active queue.

    All profiles share one queue. Pods whose profiles have different QueueSort plugins are compared
    by priority, then by waiting time.
    """

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int | float | str, ...]:
        """Return the sort key with which the pod enters the active queue; small keys come first."""


class PlacementGeneratePlugin(Plugin, Protocol):
    """Says where a pod group may be placed as a whole; runs before the filters of its members."""

    def generate_placements(
        self, group: PodGroupState, parent: Placement, cluster: ClusterView
    ) -> tuple[Placement, ...] | Unschedulable:
        """Return parts of `parent`, the most wanted first; `(parent,)` if it need not be divided.

        Unschedulable, or an empty tuple, means that no placement is possible.
        """


class PreFilterPlugin(Plugin, Protocol):
    """Runs once per attempt, before the filters."""

    def pre_filter(
        self, pod: Pod, cluster: ClusterView
    ) -> Any | Skip | PreFilterResult | Unschedulable:
        """Return the state for this plugin's `filter`, or a verdict (see `framework.verdicts`)."""


class FilterPlugin(Plugin, Protocol):
    """Decides on which nodes the pod can run."""

    def filter(self, pod: Pod, nodes: NodeView, state: Any) -> BoolArray:
        """Return bool[len(nodes)]: True where the pod fits."""

    def explain(self, pod: Pod, nodes: NodeView, state: Any) -> Explanation:
        """Return why nodes are rejected. `nodes` has only nodes where `filter` returned False."""


@runtime_checkable
class ResourceFilterPlugin(FilterPlugin, Protocol):
    """A filter that checks nothing but free pod slots and free amounts of resources."""

    def resource_requests(self, state: Any) -> Mapping[str, int]:
        """Return how much of each resource must be free on the node."""


@runtime_checkable
class DeviceReadingPlugin(Plugin, Protocol):
    """A node-only plugin whose results for some pods also depend on devices and their classes."""

    def devices_version(self, pod: Pod) -> Hashable:
        """Return a value that changes whenever changed devices may change the pod's results.

        Return None if the results do not depend on devices. Be quick: each decision calls this.
        """


@runtime_checkable
class KeyedFilterPlugin(FilterPlugin, Protocol):
    """A filter with `depends_on_node_object_only` that reads only some fields of the spec."""

    def filter_key(self, pod: Pod) -> Hashable:
        """Return the values of the pod's spec that `pre_filter` and `filter` read.

        Pods whose values are equal share one result.
        """


class PostFilterPlugin(Plugin, Protocol):
    """Runs when no node fits; may find a node where the pod would fit after evictions."""

    def post_filter(self, state: PostFilterState) -> PostFilterResult:
        """Return a nomination, candidates for extenders, or the reason why there is none."""


@runtime_checkable
class PodGroupPostFilterPlugin(PostFilterPlugin, Protocol):
    """A PostFilter plugin that also runs when a pod group fits nowhere."""

    def pod_group_post_filter(self, state: PodGroupPostFilterState) -> GroupPreemption:
        """Return a nomination of all members, or the reason why there is none.

        The method may call `mooring.pausing.pause` at the head of a loop. Other tasks may run
        meanwhile, but they do not change the cluster.
        """


class PreScorePlugin(Plugin, Protocol):
    """Runs once per attempt, before the scores, with the feasible nodes."""

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: ClusterView) -> Any | Skip:
        """Return the state for this plugin's `score`; SKIP if `score` need not run."""


class ScorePlugin(Plugin, Protocol):
    """Scores the feasible nodes; a higher score is better."""

    normalize: ClassVar[Normalize]

    def score(self, pod: Pod, nodes: NodeView, state: Any) -> IntArray:
        """Return int64[len(nodes)]: 0-100 if `normalize` is NONE, else any numbers from 0 on."""


@runtime_checkable
class KeyedScorePlugin(ScorePlugin, Protocol):
    """A score with `depends_on_node_object_only` that reads only some fields of the spec."""

    def score_key(self, pod: Pod) -> Hashable:
        """Return the values of the pod's spec that `pre_score` and `score` read.

        Pods whose values are equal share one result.
        """


class PlacementScorePlugin(Plugin, Protocol):
    """Scores the placements in which a pod group fits; a higher score is better."""

    normalize: ClassVar[Normalize]

    def score_placement(
        self, group: PodGroupState, assignments: PodGroupAssignments, cluster: ClusterView
    ) -> int:
        """Return the placement's score: 0-100 if `normalize` is NONE, else any number from 0 on."""


class ReservePlugin(Plugin, Protocol):
    """Reserves the plugin's own resources for a pod that is assumed on a node."""

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """Reserve resources for the pod and return None; Unschedulable rejects the pod."""

    def unreserve(self, pod: Pod, node: str) -> None:
        """Undo `reserve`. The scheduler calls it even if `reserve` failed or was not called."""


class PermitPlugin(Plugin, Protocol):
    """Approves, rejects or delays the binding."""

    def permit(self, pod: Pod, node: str) -> Wait | Unschedulable | None:
        """Return None to approve, Unschedulable to reject, Wait to delay (`waiting_pods`)."""


class PreBindPlugin(Plugin, Protocol):
    """Prepares the binding of a pod, for example by provisioning its volumes."""

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Prepare the binding of the pod; an exception stops it."""


class BindPlugin(Plugin, Protocol):
    """Binds the pod to its node, or leaves this to the next Bind plugin."""

    async def bind(self, pod: Pod, node: str) -> Skip | None:
        """Bind the pod, or return SKIP to leave this to the next plugin; raise if binding fails."""


class PostBindPlugin(Plugin, Protocol):
    """Cleans up, or tells others, after the API server has bound a pod; cannot undo the binding."""

    async def post_bind(self, pod: Pod, node: str) -> None:
        """Act on the binding. The result is ignored, and exceptions are only recorded."""


POINT_METHODS: dict[Point, str] = {
    Point.PRE_ENQUEUE: "pre_enqueue",
    Point.QUEUE_SORT: "sort_key",
    Point.PLACEMENT_GENERATE: "generate_placements",
    Point.PRE_FILTER: "pre_filter",
    Point.FILTER: "filter",
    Point.POST_FILTER: "post_filter",
    Point.PRE_SCORE: "pre_score",
    Point.SCORE: "score",
    Point.PLACEMENT_SCORE: "score_placement",
    Point.RESERVE: "reserve",
    Point.PERMIT: "permit",
    Point.PRE_BIND: "pre_bind",
    Point.BIND: "bind",
    Point.POST_BIND: "post_bind",
}
"""The method of each extension point; a class that has the method serves the point."""

_OTHER_NAMES: Final = (
    "explain",
    "unreserve",
    "queueing_hint",
    "events_to_register",
    "resource_requests",
    "depends_on_node_only",
    "depends_on_node_object_only",
    "runs_for_every_pod",
    "devices_version",
    "filter_key",
    "score_key",
)
"""The names of a plugin's optional attributes and methods, beside the extension points' methods."""
_SIMILAR: Final = 0.8
"""The likeness (difflib's ratio) to a known name above which a plugin's method is reported as
misspelt: `filtr` is reported, `store` is not."""


def points_of(plugin: type) -> frozenset[Point]:
    """Return the extension points whose methods the plugin class has."""
    return frozenset(
        point for point, method in POINT_METHODS.items() if callable(getattr(plugin, method, None))
    )


def misspelt_name(plugin: type) -> str:
    """Return a message if a public name of the plugin looks like a misspelt method, else ""."""
    known = (*POINT_METHODS.values(), *_OTHER_NAMES)
    # The scheduler would never call `filtr` or `prefilter`, and nobody would see an error.
    lacking = [name for name in known if not hasattr(plugin, name)]
    public = [name for name in dir(plugin) if not name.startswith("_") and name not in known]
    for name in public:
        ratios = ((_likeness(name, other), other) for other in lacking)
        likeness, meant = max(ratios, default=(0.0, ""))
        if likeness > _SIMILAR:
            return (
                f"has {name}, which is nothing that the scheduler knows; if you mean {meant}, "
                f"call it so, otherwise call it _{name}"
            )
    return ""


def _likeness(name: str, meant: str) -> float:
    first, second = (text.replace("_", "").lower() for text in (name, meant))
    return SequenceMatcher(None, first, second).ratio() if first[:1] == second[:1] else 0.0
