"""Rejects nodes on which a host port of the pod is in use (nodeports/)."""

from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import HostPort
from mooring.state.cluster_view import ClusterView
from mooring.state.nodes import EVERY_ADDRESS
from mooring.state.view import BoolArray, NodeView


class NodePorts:
    """Rejects nodes on which another pod uses one of the pod's host ports."""

    name: ClassVar[str] = "NodePorts"
    depends_on_node_only: ClassVar[bool] = True
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.POD, Action.DELETE), (Kind.NODE, Action.ADD)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip | tuple[HostPort, ...]:
        """Return the pod's host ports; SKIP if it has none."""
        return pod.spec.host_ports or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, ports: tuple[HostPort, ...]) -> BoolArray:
        """Return bool[nodes]: True where all host ports of the pod are free."""
        free = np.ones(len(nodes), np.bool_)
        for port in ports:
            free &= nodes.port_free(port)
        return free

    def explain(self, _pod: Pod, nodes: NodeView, _: tuple[HostPort, ...]) -> Explanation:
        """Return the reason for all rejected nodes; evicting the pod that uses the port helps."""
        reason = "node(s) didn't have free ports for the requested pod ports"
        return Explanation.single(reason, len(nodes), resolvable=True)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE when a node was added, or a pod that used one of the ports was deleted."""
        if not isinstance(event.before, Pod):
            return QueueingHint.QUEUE
        freed, wanted = event.before.spec.host_ports, pod.spec.host_ports
        return queue_if(any(_collide(one, other) for one in freed for other in wanted))


def _collide(one: HostPort, other: HostPort) -> bool:
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.ip == other.ip or EVERY_ADDRESS in (one.ip, other.ip)
