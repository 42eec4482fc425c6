"""One queue in force, in its tree, with what its pods and those of its children use.

The arithmetic is Kueue's (pkg/cache/scheduler/resource_node.go and fair_sharing.go). What a queue
does not lend is guaranteed to it, and is no part of what its parent has. Amounts are millicores,
bytes and counts, by resource.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

from mooring.quota.model.queue import NO_QUOTA, Queue


class QueueState:
    """A queue in force; `number` is its code in the pod columns.

    `nominal` is its quota with what its children lend, `used` what it uses of that: all its pods
    use, and what its children use beyond what is guaranteed to them. `resources` are those that any
    queue of its tree names; of others there is no limit.
    """

    __slots__ = ("_share", "children", "nominal", "number", "parent", "queue", "resources", "used")

    def __init__(self, queue: Queue, number: int, parent: "QueueState | None") -> None:
        self.queue = queue
        self.number = number
        self.parent = parent
        self.children = list[QueueState]()
        self.nominal = Counter[str]()
        self.used = Counter[str]()
        self.resources: set[str] = parent.resources if parent is not None else set()
        self._share: float | None = None
        if parent is not None:
            parent.children.append(self)
        self._add_quotas()

    def _add_quotas(self) -> None:
        for resource, quota in self.queue.quotas.items():
            self.resources.add(resource)
            lent, state = quota.nominal, self
            while True:
                before = state.nominal[resource] - state.guaranteed(resource)
                state.nominal[resource] += lent
                lent = state.nominal[resource] - state.guaranteed(resource) - before
                if state.parent is None or not lent:
                    break
                state = state.parent

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue.name

    @property
    def root(self) -> "QueueState":
        """The queue at the root of the tree."""
        state = self
        while state.parent is not None:
            state = state.parent
        return state

    def path(self) -> Iterator["QueueState"]:
        """Yield the queue, its parent, and so on to the root."""
        state: QueueState | None = self
        while state is not None:
            yield state
            state = state.parent

    def guaranteed(self, resource: str) -> int:
        """Return how much of its quota the queue does not lend."""
        limit = self.queue.quotas.get(resource, NO_QUOTA).lending_limit
        return 0 if limit is None else max(0, self.nominal[resource] - limit)

    def borrowed(self, resource: str) -> int:
        """Return how much the queue uses beyond its nominal quota."""
        return max(0, self.used[resource] - self.nominal[resource])

    def lent(self, resource: str) -> int:
        """Return how much of its nominal quota others may use and could be using."""
        if self.parent is None:
            return 0
        unused = self.nominal[resource] - max(self.used[resource], self.guaranteed(resource))
        siblings = sum(state.borrowed(resource) for state in self.parent.children)
        return max(0, min(unused, siblings))

    def available(self, resource: str) -> int:
        """Return how much more the queue may use now; negative if it uses too much."""
        nominal, used = self.nominal[resource], self.used[resource]
        if self.parent is None:
            return nominal - used
        guaranteed = self.guaranteed(resource)
        from_parent = self.parent.available(resource)
        limit = self.queue.quotas.get(resource, NO_QUOTA).borrowing_limit
        if limit is not None:
            stored = nominal - guaranteed - max(0, used - guaranteed)
            from_parent = min(from_parent, stored + limit)
        return max(0, guaranteed - used) + from_parent

    def charge(self, amounts: Mapping[str, int]) -> None:
        """Count these amounts as used by a pod of the queue; negative amounts end their use."""
        for resource, amount in amounts.items():
            if resource not in self.resources:
                continue
            left = amount
            for state in self.path():
                left = state.use(resource, left)
                if not left:
                    break

    def use(self, resource: str, amount: int) -> int:
        """Count the amount as used here; return how much of it counts at the parent."""
        guaranteed = self.guaranteed(resource)
        before = max(0, self.used[resource] - guaranteed)
        self.used[resource] += amount
        self._share = None
        return max(0, self.used[resource] - guaranteed) - before

    @property
    def share(self) -> float:
        """The dominant share of what the parent has that the queue has borrowed, over its weight.

        It is 0 for a queue that has borrowed nothing.
        """
        if self._share is None:
            self._share = self._computed_share()
        return self._share

    def _computed_share(self) -> float:
        if self.parent is None:
            return 0.0
        of = self.parent.nominal
        shares = (self.borrowed(resource) / max(of[resource], 1) for resource in self.resources)
        share = max(shares, default=0.0)
        if not share:
            return 0.0
        return share / self.queue.weight if self.queue.weight else inf
