"""Finds which Queues are in force, which Queue each pod is in, and how much each Queue uses.

A Queue comes into force when its spec is valid and its parents are in force. An older version stays
in force until the newer version can replace it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sys import getsizeof
from typing import Final

from mooring.model.bounded_cache import BoundedCache
from mooring.model.events import Kind
from mooring.model.indexes import add_count
from mooring.model.pod import Pod
from mooring.model.resources import amount_text
from mooring.model.selectors import LabelSelector
from mooring.model.wording import listed
from mooring.pausing import pause
from mooring.quota.model.elastic_quota import (
    NO_QUEUES,
    ROOT_OF_KOORDINATOR,
    queues_of,
    with_own_quotas,
)
from mooring.quota.model.queue import DEEPEST, PODS, QUEUE_LABEL, Queue
from mooring.quota.state.claim_users import ClaimUsers, devices_of, named_claims
from mooring.quota.state.queue_tree import QueueState
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.pods import NO_QUEUE
from mooring.state.topology.pod_selection import PodSelector, SelectionIndex, selection

_MOST_NAMED: Final = 3
_DEFAULTS: Final = ("default", *NO_QUEUES)
"""Names of Volcano and Koordinator that mean no Queue, unless a Queue with this name exists."""
_MEMBERSHIPS_BYTES: Final = 2**20

Membership = tuple[QueueState | None, str | None]
Usage = Mapping[int, Mapping[str, int]]
"""Amounts by the `number` of a Queue, and then by resource."""


class Queues:
    """The Queues in force; only `ClusterState` changes this object."""

    def __init__(self, objects: Objects, nodes: NodeTable, queue_of: Callable[[Pod], str]) -> None:
        self._objects = objects
        self._nodes = nodes
        self._queue_of = queue_of
        self._in_force: dict[str, Queue] = {}
        self._problems: dict[str, str] = {}
        self._states: dict[str, QueueState] = {}
        self._by_number: dict[int, QueueState] = {}
        self._numbers: dict[str, int] = {}
        self._used: dict[int, dict[str, int]] = {}
        """The amounts by resource that the pods of each Queue use, by the Queue's number."""
        self._claims = ClaimUsers(objects)
        self._drawing: SelectionIndex[str] = SelectionIndex()
        """The Queues in force that select namespaces; pods of these namespaces need no label."""
        self._not_ready: list[tuple[str, LabelSelector]] = []
        """Queues that select namespaces, but are not in force; pods of these namespaces wait."""
        self._memberships: BoundedCache[tuple[str, str], Membership] = BoundedCache(
            _MEMBERSHIPS_BYTES, lambda key, found: getsizeof(key) + getsizeof(found[1] or "")
        )
        """The Queue of a pod, by the pod's namespace and the name in its Queue label."""
        self._elastic: Mapping[str, Queue] = {}
        """The Queues of ElasticQuotas, by name."""
        self._below_root: Mapping[str, int] = {}
        """By resource, the sum of the quotas below the root of Koordinator's tree, if it exists."""
        self._queues_changed = self._nodes_changed = False
        self._changed_namespaces: set[str] = set()
        self._names_changed = False
        self.resources: frozenset[str] = frozenset()
        """The resources for which a Queue in force has a quota."""
        self.changes = 0
        """A number that grows with each change of a Queue or of its usage."""
        self.decreases = 0
        """A number that grows when the usage of a Queue decreases or its quota changes."""
        self.is_reduced = False
        """Whether `without` has subtracted usage at the moment."""

    @property
    def states(self) -> Mapping[str, QueueState]:
        """The Queues in force by name."""
        return self._states

    def problem(self, name: str) -> str | None:
        """Return why the newest version of a Queue is not in force; None if it is."""
        return self._problems.get(name)

    def pods_in(self, state: QueueState) -> int:
        """Return how many pods of this Queue are on nodes; pods of child Queues do not count."""
        return self._used[state.number].get(PODS, 0)

    def numbered(self, number: int) -> QueueState | None:
        """Return the Queue with this number in the pod columns; None if it is not in force."""
        return self._by_number.get(number)

    def of(self, pod: Pod) -> QueueState | None:
        """Return the Queue in force that the pod is in; None if it is in no Queue."""
        return self.membership(pod)[0] if self._states else None

    def number_of(self, pod: Pod) -> int:
        """Return the number of the pod's Queue, or NO_QUEUE."""
        state = self.of(pod)
        return NO_QUEUE if state is None else state.number

    def borrower_of(self, pod: Pod) -> str:
        """Return the name of the pod's Queue if it or an ancestor of it has borrowed; else ""."""
        state = self.of(pod)
        if state is None or not any(each.share for each in state.path):
            return ""
        return state.name

    def shares(self, name: str) -> tuple[float, ...]:
        """Return the shares of a Queue and its ancestors, the share of the root first.

        Return () if none of these Queues has borrowed, or if the Queue is not in force.
        """
        state = self._states.get(name)
        shares = [each.share for each in reversed(state.path)] if state is not None else []
        return tuple(shares) if any(shares) else ()

    def parent_of(self, name: str) -> str:
        """Return the name of the parent of a Queue in force; "" if it has none."""
        state = self._states.get(name)
        return state.queue.parent if state is not None else ""

    def lacking(self, state: QueueState, amounts: Mapping[str, int]) -> str | None:
        """Return why the Queue may not use these amounts in addition; None if it may."""
        amounts = self.in_devices(state.number, amounts)
        if state.stays_nominal(amounts):
            return None
        for resource, amount in amounts.items():
            if resource in state.used and amount > state.available(resource):
                return _why_not(state, resource, amount)
        return None

    def in_devices(self, number: int, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Return the amounts with devices in place of claims; see `ClaimUsers.in_devices`."""
        return self._claims.in_devices(number, amounts)

    def without(self, usage: Usage) -> AbstractContextManager[None]:
        """Return a context; while it is open, this usage is subtracted from the Queues."""
        return self._counting(usage, -1)

    def with_more(self, usage: Usage) -> AbstractContextManager[None]:
        """Return a context; while it is open, this usage is added to the Queues."""
        return self._counting(usage, 1) if usage else nullcontext()

    @contextmanager
    def _counting(self, usage: Usage, sign: int) -> Iterator[None]:
        before, self.is_reduced = self.is_reduced, self.is_reduced or sign < 0
        self._charge(usage, sign)
        try:
            yield
        finally:
            self._charge(usage, -sign)
            self.is_reduced = before

    def _charge(self, usage: Usage, sign: int) -> None:
        for number, amounts in usage.items():
            if (state := self._by_number.get(number)) is not None:
                signed = {resource: sign * amount for resource, amount in amounts.items()}
                state.charge(self._claims.counted(number, signed))

    def attach(self, number: int, pod: Pod) -> None:
        """Add the pod's requests to its Queue when the pod comes to a node."""
        if number != NO_QUEUE:
            self._count_pod(number, pod, 1)

    def detach(self, number: int, pod: Pod) -> None:
        """Subtract the pod's requests from its Queue when the pod leaves its node."""
        if number != NO_QUEUE:
            self.decreases += 1
            self._count_pod(number, pod, -1)

    def _count_pod(self, number: int, pod: Pod, sign: int) -> None:
        amounts: Mapping[str, int]
        amounts = {name: sign * amount for name, amount in demand_of((pod,)).items()}
        if pod.spec.resource_claims:
            amounts = self._claims.counted(number, amounts)
        self._count(number, amounts)

    def _count(self, number: int, amounts: Mapping[str, int]) -> None:
        self.changes += 1
        used = self._used[number]
        for resource, amount in amounts.items():
            add_count(used, resource, amount)
        if (state := self._by_number.get(number)) is not None:
            state.charge(amounts)

    def changed(self, kind: Kind, key: str, before: object, after: object) -> None:
        """Record a changed Queue, namespace or node for `settle`; count a changed claim now."""
        if before == after and getattr(before, "uid", "") == getattr(after, "uid", ""):
            return
        if kind in (Kind.QUEUE, Kind.ELASTIC_QUOTA):
            self._queues_changed = True
        elif kind is Kind.NODE:
            self._nodes_changed |= bool(self._below_root)
        elif kind is Kind.NAMESPACE and (self._in_force or self._not_ready):
            self._memberships.clear()
            self._changed_namespaces.add(key)
        elif kind is Kind.RESOURCE_CLAIM and (numbers := self._claims.queues_of(key)):
            self._claim_changed(numbers, devices_of(before), devices_of(after))

    def _claim_changed(
        self, numbers: Iterable[int], before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        if before != after:
            self.decreases += 1
            for number in numbers:
                self._count(number, {name: -count for name, count in before.items()})
                self._count(number, after)

    def names_changed(self) -> None:
        """Record for `settle` that the Queue names of pod groups may have changed."""
        self._names_changed = bool(self._in_force or self._names_changed)

    @property
    def is_settled(self) -> bool:
        """Whether `settle` and `settled` have handled every change."""
        changed = self._queues_changed or self._nodes_changed or self._names_changed
        return not (changed or self._changed_namespaces)

    def written(self) -> Mapping[str, Queue]:
        """Return the newest version of each Queue by name; call this only if `is_settled`.

        If a Queue and an ElasticQuota have the same name, return the Queue. The quotas of
        ElasticQuotas include the quotas below them.
        """
        queues: Mapping[str, Queue] = self._objects.of(Kind.QUEUE)
        return {**self._elastic, **queues} if self._elastic else queues

    def settle(self) -> Collection[str] | None:
        """Apply the recorded changes; return the namespaces whose pods may be in another Queue.

        None means all namespaces. The caller must set the Queue of each pod in these namespaces
        again, and then call `settled`.
        """
        if not self._queues_changed:
            self._share_nodes()
            return None if self._names_changed else tuple(self._changed_namespaces)
        elastic, queues = self._objects.of(Kind.ELASTIC_QUOTA), self._objects.of(Kind.QUEUE)
        self._elastic = queues_of(elastic, queues) if elastic else {}
        written = self.written()
        in_force, problems = _resolved(written, self._in_force)
        # Only now, because a former version in force has other quotas, and perhaps another parent.
        inclusive = {name: queue for name, queue in in_force.items() if queue.is_inclusive}
        own, self._below_root = with_own_quotas(inclusive, self._nodes.total)
        own, states = in_force | own, dict[str, QueueState]()
        for queue in own.values():
            self._make(queue, own, states)
            pause()
        for state in states.values():
            if state.parent is None:
                state.add_up({r: None for each in below(state) for r in each.queue.quotas})
                state.note_guaranteed(lends_all=True)
            pause()
        return self._replace(written, in_force, problems, states, _drawing(in_force))

    def _replace(
        self,
        written: Mapping[str, Queue],
        in_force: dict[str, Queue],
        problems: dict[str, str],
        states: dict[str, QueueState],
        drawing: SelectionIndex[str],
    ) -> Collection[str] | None:
        # This is one step: with several steps, a cancelled task could leave half a tree.
        before = {name: queue.namespaces for name, queue in self._in_force.items()}
        self.resources = frozenset(r for queue in in_force.values() for r in queue.quotas)
        self._in_force, self._problems, self._states = in_force, problems, states
        self._by_number = {state.number: state for state in states.values()}
        for number, state in self._by_number.items():
            state.charge(self._used.setdefault(number, {}))
        self._drawing = drawing
        selectors = ((name, written[name].namespaces) for name in sorted(problems))
        self._not_ready = [(name, each) for name, each in selectors if each and not each.empty]
        self._memberships.clear()
        self.changes += 1
        self.decreases += 1
        after = {name: queue.namespaces for name, queue in in_force.items()}
        self._names_changed |= after != before  # until `settled`, also if the caller is cancelled
        return None if self._names_changed else tuple(self._changed_namespaces)

    def _share_nodes(self) -> None:
        root = self._states.get(ROOT_OF_KOORDINATOR) if self._nodes_changed else None
        if root is not None:
            # The tree is not made again, because nodes may change every second.
            for resource in root.nominal.keys() & self._below_root:
                own = self._nodes.total(resource) - self._below_root[resource]
                root.set_quota(resource, max(0, own))
            self.changes += 1
            self.decreases += 1

    def settled(self) -> None:
        """Forget the recorded changes; the caller has set the Queue of each pod again."""
        self._queues_changed = self._nodes_changed = False
        self._changed_namespaces = set()
        self._names_changed = False

    def _make(
        self, queue: Queue, in_force: Mapping[str, Queue], states: dict[str, QueueState]
    ) -> QueueState:
        if (known := states.get(queue.name)) is not None:
            return known
        parent = self._make(in_force[queue.parent], in_force, states) if queue.parent else None
        number = self._numbers.setdefault(queue.name, len(self._numbers))
        state = states[queue.name] = QueueState(queue, number, parent)
        return state

    def membership(self, pod: Pod) -> Membership:
        """Return the pod's Queue, or None, and why the pod must wait, or None.

        If the pod names an invalid Queue, return a Queue of its namespace, if there is one, and the
        reason.
        """
        # Pods on nodes use the quota of this Queue: otherwise, a changed label would free quota.
        key = pod.namespace, self.name_in(pod)
        found = self._memberships.get(key)
        if found is None:
            found = self._found(*key)
            self._memberships.put(key, found)
        return found

    def name_in(self, pod: Pod) -> str:
        """Return the name of the Queue that the pod or its group names; "" without a name.

        The name is in a label or annotation of Mooring or another scheduler.
        """
        if name := pod.labels.get(QUEUE_LABEL):
            return name
        name = self._queue_of(pod) if self._states or self._problems else ""
        exists = name not in _DEFAULTS or name in self._in_force or name in self._problems
        return name if exists else ""

    def _found(self, namespace: str, name: str) -> Membership:
        labels = self._objects.namespace_labels(namespace)
        names = sorted(self._drawing.selecting("", None, labels))
        default = self._states[names[0]] if names else None
        if not names and not name:
            waiting = [each for each, selects in self._not_ready if selects.matches(labels)]
            why = (
                f"queue {waiting[0]} is not ready: {self._problems[waiting[0]]}"
                if waiting
                else None
            )
            return None, why
        if name:
            if (why := self._why_not_named(name, namespace)) is not None:
                return default, why
            state: QueueState | None = self._states[name]
            return state, _why_inner(state)
        if len(names) > 1:
            queues = listed(names, _MOST_NAMED)
            why = f"namespace {namespace} has several queues ({queues})"
            return default, f"{why}: name one in the pod's label {QUEUE_LABEL}"
        return default, _why_inner(default)

    def _why_not_named(self, name: str, namespace: str) -> str | None:
        state = self._states.get(name)
        if state is None:
            why = self._problems.get(name)
            return f"queue {name} {f'is not ready: {why}' if why else 'does not exist'}"
        selector = state.queue.namespaces
        if selector is None or not selector.matches(self._objects.namespace_labels(namespace)):
            return f"queue {name} does not take pods of namespace {namespace}"
        return None


def _drawing(in_force: Mapping[str, Queue]) -> SelectionIndex[str]:
    """Return an index that finds the names of Queues by the namespace labels that they select."""
    found = SelectionIndex[str]()
    for name, queue in in_force.items():
        if queue.namespaces is not None and not queue.namespaces.empty:
            by_labels = PodSelector(queue.namespaces, frozenset(("",)))
            found.add(name, selection((by_labels,), terminating=True))
        pause()
    return found


def _why_inner(state: QueueState | None) -> str | None:
    if state is None or not state.children:
        return None
    names = listed([child.name for child in state.children], _MOST_NAMED)
    return f"queue {state.name} has queues below it ({names}): name one of these"


def demand_of(pods: Collection[Pod]) -> Mapping[str, int]:
    """Return the pods' requests by resource, their number (PODS), and the users of each claim."""
    if len(pods) == 1:
        (pod,) = pods
        if not pod.spec.resource_claims:
            return {PODS: 1, **pod.spec.demand.resources}
    amounts = {PODS: len(pods)}
    for pod in pods:
        for claim in named_claims(pod):
            amounts[claim] = amounts.get(claim, 0) + 1
        for resource, amount in pod.spec.demand.resources.items():
            amounts[resource] = amounts.get(resource, 0) + amount
    return amounts


def below(state: QueueState) -> Iterator[QueueState]:
    """Yield the Queue and all Queues below it."""
    yield state
    for child in state.children:
        yield from below(child)


def _resolved(
    written: Mapping[str, Queue], former: Mapping[str, Queue]
) -> tuple[dict[str, Queue], dict[str, str]]:
    """Return, by name, the Queues in force, and the mistakes in the newest versions of Queues."""
    problems = {name: why for name in written if (why := _problem(name, written)) is not None}
    in_force = {name: queue for name, queue in written.items() if name not in problems}
    # The former version of a Queue with a mistake stays in force, with its parents.
    known = ((former.get(name), written[name].uid) for name in problems)
    kept = [queue for queue, uid in known if queue is not None and queue.uid == uid]
    while kept:
        queue = kept.pop()
        if queue.name not in in_force:
            in_force[queue.name] = queue
            kept += [former[queue.parent]] if queue.parent else []
    return in_force, problems


def _problem(name: str, written: Mapping[str, Queue]) -> str | None:
    path, queue = [name], written[name]
    pause()
    while True:
        if queue.invalid is not None:
            return queue.invalid if len(path) == 1 else f"its parent {queue.name} is not ready"
        if not queue.parent:
            return None
        way = " -> ".join((*path, queue.parent))
        if queue.parent in path:
            return f"spec.parent: the parents form a circle: {way}"
        if len(path) == DEEPEST:
            return f"spec.parent: the tree is deeper than {DEEPEST} queues: {way}"
        if queue.parent not in written:
            return f"spec.parent: queue {queue.parent} does not exist ({way})"
        path.append(queue.parent)
        queue = written[queue.parent]


def _why_not(state: QueueState, resource: str, amount: int) -> str:
    def text(value: int) -> str:
        return amount_text(resource, value)

    used, nominal = state.used[resource], state.nominal[resource]
    head = f"queue {state.name}: {text(used)} of {text(nominal)} {resource} used"
    asked = f"{head}, {text(amount)} asked"
    for limited in state.path:
        quota = limited.queue.quotas.get(resource)
        limit = quota.borrowing_limit if quota is not None else None
        if (
            limit is not None
            and limited.used[resource] + amount > limited.nominal[resource] + limit
        ):
            whose = "it" if limited is state else f"its parent {limited.name}"
            return f"{asked}, and {whose} may borrow only {text(limit)}"
    if state.parent is None:
        return f"{asked}, and it has no parent to borrow from"
    others = [
        f"{other.name} uses {text(other.used[resource])} of {text(other.nominal[resource])}"
        for ancestor in state.path
        for other in (ancestor.parent.children if ancestor.parent is not None else ())
        if other is not ancestor and other.used[resource] > other.guaranteed[resource]
    ]
    left = max(0, state.available(resource))
    borrow = f"only {text(left)} left" if left else "nothing left to borrow"
    return f"{asked}, {borrow}" + (f": {listed(others, _MOST_NAMED)}" if others else "")
