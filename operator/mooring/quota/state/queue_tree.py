"""One queue in force, in its tree, with what its pods and those of its children use.

The arithmetic is Kueue's (pkg/cache/scheduler/resource_node.go and fair_sharing.go). What a queue
does not lend is guaranteed to it, and is no part of what its parent has. Amounts are millicores,
bytes and counts, by resource.
"""

from collections.abc import Mapping
from math import inf

from mooring.quota.model.queue import NO_QUOTA, Queue


class QueueState:
    """A queue in force; `number` is its code in the pod columns.

    `nominal` is its quota with what its children lend, `guaranteed` the part that it does not lend,
    `used` what its pods use and what its children use beyond what is guaranteed to them. Each has
    all resources that any queue of the tree names; of others there is no limit. `path` is the
    queue, its parent, and so on to the root.
    """

    __slots__ = (
        "_lends_all",
        "_limits",
        "_share",
        "children",
        "guaranteed",
        "nominal",
        "number",
        "parent",
        "path",
        "queue",
        "used",
    )

    def __init__(self, queue: Queue, number: int, parent: "QueueState | None") -> None:
        self.queue = queue
        self.number = number
        self.parent = parent
        self.path: tuple[QueueState, ...] = (self, *parent.path) if parent is not None else (self,)
        self.children = list[QueueState]()
        self.nominal: dict[str, int] = {}
        self.guaranteed: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self._limits = {
            resource: quota.borrowing_limit
            for resource, quota in queue.quotas.items()
            if quota.borrowing_limit is not None
        }
        self._lends_all = True
        self._share: float | None = None
        if parent is not None:
            parent.children.append(self)

    def add_up(self, resources: Mapping[str, object]) -> None:
        """Set the quotas of the queue and of all below it, which use nothing yet."""
        for child in self.children:
            child.add_up(resources)
        for resource in resources:
            quota = self.queue.quotas.get(resource, NO_QUOTA)
            lent = sum(c.nominal[resource] - c.guaranteed[resource] for c in self.children)
            nominal = self.nominal[resource] = quota.nominal + lent
            kept = nominal - quota.lending_limit if quota.lending_limit is not None else 0
            self.guaranteed[resource] = max(0, kept)
            self.used[resource] = 0

    def note_guaranteed(self, *, lends_all: bool) -> None:
        """Note whether the queue and all above it lend their whole quota."""
        self._lends_all = lends_all and not any(self.guaranteed.values())
        for child in self.children:
            child.note_guaranteed(lends_all=self._lends_all)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue.name

    @property
    def root(self) -> "QueueState":
        """The queue at the root of the tree."""
        return self.path[-1]

    def borrowed(self, resource: str) -> int:
        """Return how much the queue uses beyond its nominal quota."""
        return max(0, self.used[resource] - self.nominal[resource])

    def available(self, resource: str) -> int:
        """Return how much more the queue may use now; negative if it uses too much."""
        nominal, used = self.nominal[resource], self.used[resource]
        if self.parent is None:
            return nominal - used
        guaranteed = self.guaranteed[resource]
        from_parent = self.parent.available(resource)
        if (limit := self._limits.get(resource)) is not None:
            stored = nominal - guaranteed - max(0, used - guaranteed)
            from_parent = min(from_parent, stored + limit)
        return max(0, guaranteed - used) + from_parent

    def stays_nominal(self, amounts: Mapping[str, int]) -> bool:
        """Return whether nobody on the way to the root borrows for so much more."""
        for state in self.path:
            used, nominal = state.used, state.nominal
            for resource, amount in amounts.items():
                if resource in used and used[resource] + amount > nominal[resource]:
                    return False
        return True

    def charge(self, amounts: Mapping[str, int]) -> None:
        """Count these amounts as used by a pod of the queue; negative amounts end their use."""
        if self._lends_all:  # the usual case; this runs for each pod
            for state in self.path:
                used = state.used
                for resource, amount in amounts.items():
                    if resource in used:
                        used[resource] += amount
                state._share = None  # noqa: SLF001 - of this class
            return
        for resource, amount in amounts.items():
            if resource not in self.used:
                continue
            left = amount
            for state in self.path:
                left = state.use(resource, left)
                if not left:
                    break

    def use(self, resource: str, amount: int) -> int:
        """Count the amount as used here; return how much of it counts at the parent."""
        before = self.used[resource]
        after = self.used[resource] = before + amount
        self._share = None
        if not (guaranteed := self.guaranteed[resource]):
            return amount
        return max(0, after - guaranteed) - max(0, before - guaranteed)

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
        of, share = self.parent.nominal, 0.0
        for resource, used in self.used.items():
            if used > (nominal := self.nominal[resource]):
                share = max(share, (used - nominal) / max(of[resource], 1))
        if not share:
            return 0.0
        return share / self.queue.weight if self.queue.weight else inf
