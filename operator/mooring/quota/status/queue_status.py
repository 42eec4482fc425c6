"""Computes a Queue's status: its usage, including its child Queues, and whether it is in force."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isinf
from typing import Any, Final, NamedTuple

from mooring.model.events import Kind
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity
from mooring.model.resources import CPU, in_bytes
from mooring.pausing import pause
from mooring.policy.profile_status import LONGEST_MESSAGE
from mooring.quota.model.elastic_quota import ROOT_OF_KOORDINATOR
from mooring.quota.model.queue import Queue, amounts_of
from mooring.quota.state.queue_tree import QueueState
from mooring.quota.state.queues import Queues, below
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects

_NANO: Final = 10**9
_MILLI: Final = 10**6
"""The number of billionths in a thousandth; quantities are computed in billionths."""


class Amounts(NamedTuple):
    """The quota and the usage of a Queue for one resource, in millicores, bytes or counts.

    `nominal` includes the quota that the Queues below lend. `lent` is the quota that other Queues
    use.
    """

    nominal: int
    used: int
    borrowed: int
    lent: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """The status of a Queue for users; the counts include the pods of the Queues below.

    `problem` says why this generation is not in force. `in_force` is the generation in force, or 0.
    """

    uid: str
    generation: int
    problem: str | None
    in_force: int
    pods: int
    waiting: int
    share: float
    amounts: Mapping[str, Amounts]


def queue_views(
    written: Mapping[str, Queue], queues: Queues, waiting: Mapping[str, int]
) -> dict[str, QueueView]:
    """Return the view of each Queue; `waiting` has the number of waiting pods by Queue."""
    pods = Counter({name: queues.pods_in(state) for name, state in queues.states.items()})
    waits, amounts = Counter(waiting), dict[str, dict[str, Amounts]]()
    for state in queues.states.values():
        if state.parent is None:
            for inner in reversed(tuple(below(state))):
                if inner.parent is not None:
                    pods[inner.parent.name] += pods[inner.name]
                    waits[inner.parent.name] += waits[inner.name]
            amounts |= _amounts(state)
    views = dict[str, QueueView]()
    for name, queue in written.items():
        found = queues.states.get(name)
        views[name] = QueueView(
            queue.uid,
            queue.generation,
            queues.problem(name),
            found.queue.generation if found is not None else 0,
            pods[name],
            waits[name],
            found.share if found is not None else 0.0,
            amounts.get(name, {}),
        )
    return views


def _amounts(root: QueueState) -> dict[str, dict[str, Amounts]]:
    found = defaultdict[str, dict[str, Amounts]](dict)
    for resource in sorted(root.used):
        taken = {root.name: 0}
        for state in below(root):
            pause()
            nominal, used = state.nominal[resource], state.used[resource]
            unused = max(0, nominal - max(used, state.guaranteed[resource]))
            # Nothing records who has borrowed from the Queue, so this is the most that is possible.
            lent = min(unused, taken[state.name])
            borrowed = state.borrowed(resource)
            found[state.name][resource] = Amounts(nominal, used, borrowed, lent)
            more = lent + sum(child.borrowed(resource) for child in state.children)
            taken |= dict.fromkeys((child.name for child in state.children), more)
    return found


def status_of(queue: Queue, view: QueueView, now: str) -> dict[str, Any]:
    """Return the status of the Queue; `now` is the time in RFC 3339."""
    known: Sequence[Mapping[str, Any]] = queue.status.get("conditions") or ()
    before = next((each for each in known if each.get("type") == "Ready"), {})
    ready = "True" if view.problem is None else "False"
    since = before.get("lastTransitionTime") if before.get("status") == ready else None
    return {
        "conditions": [
            {
                "type": "Ready",
                "status": ready,
                "observedGeneration": view.generation,
                "lastTransitionTime": since or now,
                "reason": "InForce" if view.problem is None else "Invalid",
                "message": _message(view)[:LONGEST_MESSAGE],
            }
        ],
        "pods": view.pods,
        "waiting": view.waiting,
        "share": "inf" if isinf(view.share) else f"{view.share:.3g}",
        "resources": [
            {
                "name": resource,
                **{
                    field: amount_quantity(resource, amount)
                    for field, amount in amounts._asdict().items()
                },
            }
            for resource, amounts in view.amounts.items()
        ],
    }


def _message(view: QueueView) -> str:
    if view.problem is None:
        return "in force"
    stays = f"generation {view.in_force} stays in force: " if view.in_force else ""
    return f"{stays}{view.problem}"


def queue_documents(
    queues: Mapping[str, Queue], elastic_quotas: Mapping[str, Queue], top: str | None = None
) -> list[dict[str, Any]]:
    """Return the Queues as JSON values, parents first; Queues in a circle of parents come last.

    The keys of `elastic_quotas` are namespaces and names. With `top`, return only this Queue and
    the Queues below it.
    """
    named = {**_with_statuses(queues, elastic_quotas), **queues}
    children = defaultdict[str, list[str]](list)
    for name in sorted(named):
        parent = named[name].parent
        children[parent if parent in named else ""].append(name)
    depths = dict[str, int]()
    for first in (*children[""], *sorted(named)) if top is None else {top} & named.keys():
        left = [(first, 0)]
        while left:
            name, depth = left.pop()
            if name not in depths:
                depths[name] = depth
                left += ((child, depth + 1) for child in reversed(children[name]))
    kinds = {name: "Queue" if name in queues else "ElasticQuota" for name in depths}
    return [_document(named[name], kinds[name], depth) for name, depth in depths.items()]


def _with_statuses(queues: Mapping[str, Queue], elastic: Mapping[str, Queue]) -> dict[str, Queue]:
    """Return the Queues of ElasticQuotas, with statuses in the form that Queue objects have."""
    # The amounts come from `status.used`, which Mooring has written.
    objects = Objects()
    tree = Queues(objects, NodeTable(), lambda _pod: "")
    for kind, read in ((Kind.QUEUE, queues), (Kind.ELASTIC_QUOTA, elastic)):
        for key, queue in read.items():
            objects.put(kind, key, queue)
            tree.changed(kind, key, None, queue)
    tree.settle()
    for state in tree.states.values():
        pause()
        if not state.children:
            with suppress(ManifestError):
                state.charge(amounts_of(state.queue.status, "used", "status"))
    found, written = dict[str, Queue](), tree.written()
    parents = {queue.parent for queue in written.values()}
    for name, view in queue_views(written, tree, {}).items():
        pause()
        queue, is_root = written[name], name == ROOT_OF_KOORDINATOR
        shown = {} if is_root else view.amounts if name in parents else queue.quotas
        own = {r: each for r, each in view.amounts.items() if r in shown}
        status = {**status_of(queue, replace(view, amounts=own), ""), "pods": None, "waiting": None}
        if queue.parent == ROOT_OF_KOORDINATOR:
            status["share"] = None
        is_read = view.problem is not None or not queue.quotas or "used" in queue.status
        found[name] = replace(queue, status=status if is_read else {})
    return found


def _document(queue: Queue, kind: str, depth: int) -> dict[str, Any]:
    status = queue.status
    conditions = status.get("conditions") or ()
    ready: Mapping[str, str] = next((each for each in conditions if each["type"] == "Ready"), {})
    return {
        "name": queue.name,
        "kind": kind,
        "parent": queue.parent or None,
        "depth": depth,
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason"),
        "message": ready.get("message", "no replica of Mooring has read it yet"),
        "pods": status.get("pods"),
        "waiting": status.get("waiting"),
        "share": status.get("share"),
        "resources": status.get("resources") or [],
    }


def amount_quantity(resource: str, amount: int) -> str:
    """Return an amount as a quantity of Kubernetes, in its canonical form."""
    if resource == CPU:
        return Quantity(amount * _MILLI).text
    return Quantity(amount * _NANO, "BinarySI" if in_bytes(resource) else "DecimalSI").text
