"""The common part of plugins that assign GPU cards of a node.

Such a plugin decides by the counts of cards in the state, and chooses the cards of an assumed pod.
The Binding writes node and cards in one request, so that the annotation always fits the node.
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
"""The units of the attempt's budget for counting a node's cards: 120 microseconds."""


class AssignsInTrials(ABC):
    """A plugin that assigns devices or volumes to pods at Reserve and in trials."""

    @abstractmethod
    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Assign devices or volumes as `reserve` does; return why this fails, or None.

        The end of the trial undoes the assignment.
        """


def assign_devices(plugins: Iterable[object], pod: Pod, row: int) -> None:
    """Assign devices and volumes to the pod in a trial, as Reserve does; ignore failures."""
    for plugin in plugins:
        if isinstance(plugin, AssignsInTrials):
            plugin.assign(pod, row)


def assign_cards(plugins: Iterable[object], pod: Pod, row: int) -> None:
    """Let the plugins assign cards to a nominated pod that a trial has put on the row's node."""
    # As in kube-scheduler, nominated pods take no devices of claims.
    for plugin in plugins:
        if isinstance(plugin, CardPlugin):
            plugin.assign(pod, row)


def count_cards(cards: Cards, evaluations: Evaluations) -> None:
    """Count the cards of all nodes that are not counted yet, and let other tasks run meanwhile.

    Raises PluginFailed if the attempt's budget is used up; the next call continues.
    """
    while cards.uncounted:
        evaluations.pause("counting the GPUs of the nodes")
        cards.count_row()
        evaluations.spend(_UNITS_PER_NODE)


class CardPlugin(AssignsInTrials):
    """Assigns cards at Reserve and writes them at PreBind; subclasses choose the cards."""

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
        """Begin to count the cards that `args` names and, with `demand`, typical requests."""
        self._format = args.card_format()
        self._cluster = handle.cluster
        self._api = handle.api
        self._assume_cache = handle.assume_cache
        self._cards = handle.assume_cache.track_cards(self._format, demand=demand)
        self._evaluations = handle.evaluations

    @abstractmethod
    def _handled(self, request: CardRequest) -> CardRequest | Skip | Unschedulable:
        """Return the request, PreFilter's SKIP, or why the plugin rejects the pod."""

    @abstractmethod
    def _chosen(self, pod: Pod, request: CardRequest, row: int) -> Assignment | None:
        """Return the best cards for the pod on the node of this row; None if none suffice."""

    @abstractmethod
    def _annotations(
        self, request: CardRequest, assignment: Assignment, row: int
    ) -> Mapping[str, str]:
        """Return the annotations that tell the pod which cards it has got."""

    def largest_card(self, resource: str, rows: IntArray) -> int | None:
        """Return the memory of the nodes' largest card; None if `resource` is not card memory."""
        if resource != self._format.memory_resource:
            return None
        return int(self._cards.total(rows).max(initial=0))

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> CardRequest | Skip | Unschedulable:
        """Return the request for cards; SKIP if there is none; Unschedulable if it is malformed.

        Raises PluginFailed if too many nodes' cards must still be counted.
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
        """Return the request for cards; SKIP if `pre_filter` returns no request."""
        request = self.pre_filter(pod, cluster)
        return SKIP if isinstance(request, Unschedulable) else request

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """Assign the best cards of the node to the pod; return why this fails, or None."""
        row = self._cluster.row(node)
        return None if row is None else self.assign(pod, row)

    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Assign the best cards of the row's node to the pod, which is already on this node.

        Returns Unschedulable if the request is rejected or its cards are not free; otherwise None.
        """
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
        """Do nothing: the cards are freed when the state forgets the pod."""

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Add the pod's cards to the Binding as an annotation; PluginError if a card is missing."""
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
        """Return QUEUE if a pod with cards was deleted or changed, or a node was added or changed.

        The change of a node must concern its labels, annotations or resources.
        """
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
    return node.labels, node.annotations, node.allocatable, node.unavailable
