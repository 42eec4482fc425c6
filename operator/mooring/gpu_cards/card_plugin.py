"""The common part of plugins that assign GPU cards of a node.

The state counts the cards. Such a plugin decides by these counts and chooses the cards of an
assumed pod. The Binding writes node and cards together, so the annotation always belongs to the
node.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from mooring.framework.evaluations import Evaluations
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, PluginError, Skip, Unschedulable
from mooring.gpu_cards.card_args import CardArgs
from mooring.gpu_cards.model.cards import Assignment, CardRequest, CardRequestError, card_request
from mooring.gpu_cards.state.card_counts import Cards
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

__all__ = ["AssignsInTrials", "CardPlugin", "assign_cards", "assign_devices", "count_cards"]

_UNITS_PER_NODE: Final = 1200
"""The cost of counting one node: about 120 us with eight cards and a pod on each."""


class AssignsInTrials(ABC):
    """A plugin that gives pods devices or volumes, at Reserve and when a trial adds a pod."""

    @abstractmethod
    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Reserve as `reserve` does, but in a trial, whose end undoes it."""


def assign_devices(plugins: Iterable[object], pod: Pod, row: int) -> None:
    """Assign devices to a pod in a trial, as these plugins would at Reserve."""
    for plugin in plugins:
        if isinstance(plugin, AssignsInTrials):
            plugin.assign(pod, row)


def assign_cards(plugins: Iterable[object], pod: Pod, row: int) -> None:
    """Give a pod that a trial has added to the row the cards that these plugins choose.

    This is for nominated pods. As in kube-scheduler, the devices of their claims do not count.
    """
    for plugin in plugins:
        if isinstance(plugin, CardPlugin):
            plugin.assign(pod, row)


def count_cards(cards: Cards, evaluations: Evaluations) -> None:
    """Count the cards of all nodes that were not counted before, with pauses.

    Raises PluginFailed if that is more than one attempt may do; the next call goes on.
    """
    while cards.uncounted:
        evaluations.pause("counting the GPUs of the nodes")
        cards.count_row()
        evaluations.spend(_UNITS_PER_NODE)


class CardPlugin(AssignsInTrials):
    """Reads requests, assigns cards at Reserve, writes them at PreBind; subclasses choose cards."""

    name: ClassVar[str]
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.POD, Action.DELETE),
            (Kind.POD, Action.UPDATE),
            (Kind.NODE, Action.ADD),
            (Kind.NODE, Action.UPDATE),
        }
    )

    def __init__(self, args: CardArgs, handle: Handle, *, demand: bool = False) -> None:
        """Track the cards of this format; if `demand` is true, also typical requests."""
        self._format = args.card_format()
        self._cluster = handle.cluster
        self._api = handle.api
        self._assume_cache = handle.assume_cache
        self._cards = handle.assume_cache.track_cards(self._format, demand=demand)
        self._evaluations = handle.evaluations

    @abstractmethod
    def _handled(self, request: CardRequest) -> CardRequest | Skip | Unschedulable:
        """Return the request if this plugin handles it, SKIP if not, or why it is rejected."""

    @abstractmethod
    def _chosen(self, pod: Pod, request: CardRequest, row: int) -> Assignment | None:
        """Return the best cards of the node in this row for a pod that is assumed there.

        None if none fit.
        """

    @abstractmethod
    def _annotations(
        self, request: CardRequest, assignment: Assignment, row: int
    ) -> Mapping[str, str]:
        """Return the annotations that name the pod's cards of the row."""

    def largest_card(self, resource: str, rows: IntArray) -> int | None:
        """Return the memory of the largest card of the rows; None for any other resource."""
        if resource != self._format.memory_resource:
            return None
        return int(self._cards.total(rows).max(initial=0))

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> CardRequest | Skip | Unschedulable:
        """Return the cards that the pod requests; SKIP for none, and reject a malformed request.

        Raises PluginFailed if the cards of too many nodes are yet to be counted.
        """
        try:
            request = card_request(pod.spec, self._format)
        except CardRequestError as error:
            return Unschedulable(str(error))
        if request is None:
            return SKIP
        count_cards(self._cards, self._evaluations)
        return self._handled(request)

    def pre_score(self, pod: Pod, _nodes: NodeView, cluster: ClusterView) -> CardRequest | Skip:
        """Return the cards that the pod requests; SKIP if `pre_filter` would reject the pod."""
        request = self.pre_filter(pod, cluster)
        return SKIP if isinstance(request, Unschedulable) else request

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """Assign the best cards of the node to the pod."""
        row = self._cluster.row(node)
        return None if row is None else self.assign(pod, row)

    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Assign the best cards of the row to a pod that is assumed there, also in a trial."""
        request = self.pre_filter(pod, self._cluster)
        if isinstance(request, Unschedulable):
            return request
        if request is SKIP:
            return None
        assignment = self._chosen(pod, request, row)
        if assignment is None:
            node = self._cluster.nodes.name(row)
            return Unschedulable(f"GPUs of node {node} are not free any more")
        self._assume_cache.assign_cards(pod, self._format, assignment)
        return None

    def unreserve(self, _pod: Pod, _node: str) -> None:
        """Do nothing: the pod's cards are freed when it is forgotten."""

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Add the pod's cards as annotations to its binding; PluginError if the node lost them."""
        self._evaluations.begin_attempt()
        request = self.pre_filter(pod, self._cluster)
        if not isinstance(request, CardRequest):
            return
        placed = self._cluster.pod(pod.uid)
        if placed is None or placed.cards is None:
            raise PluginError(f"no GPU is assigned to {pod.key}")
        _, assignment = placed.cards
        if max(map(max, assignment)) >= len(self._cards.known(placed.row)):
            raise PluginError(f"GPUs of node {node} have gone")
        self._api.annotate(pod, self._annotations(request, assignment, placed.row))

    def queueing_hint(self, _pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a pod with cards left or changed, or a node came or changed its cards."""
        match event.before, event.after:
            case Pod() as before, after:
                same = isinstance(after, Pod) and (
                    before.spec is after.spec and before.annotations == after.annotations
                )
                return queue_if(not same and self._has_cards(before))
            case Node() as before, Node() as after:
                return queue_if(_read_of(before) != _read_of(after))
            case _:
                return QueueingHint.QUEUE

    def _has_cards(self, pod: Pod) -> bool:
        try:
            return card_request(pod.spec, self._format) is not None
        except CardRequestError:
            return False


def _read_of(node: Node) -> tuple[Mapping[str, object], ...]:
    """Return the values from which a node's cards are read (`node_cards`)."""
    return node.labels, node.annotations, node.allocatable, node.unavailable
