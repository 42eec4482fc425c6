"""One Queue in a tree of Queues, with the usage of its pods and of its child Queues.

The arithmetic is Kueue's (pkg/cache/scheduler/resource_node.go and fair_sharing.go). Amounts by
resource are millicores, bytes and counts.
"""

from collections.abc import Mapping
from math import inf

from mooring.pausing import pause
from mooring.quota.model.queue import NO_QUOTA, Queue


class QueueState:
    """A Queue in force; `number` stands for the Queue in the columns of pods.

    `nominal` is its quota plus the quota that its children lend. `guaranteed` is the part that it
    does not lend. `used` is the usage of its pods plus the usage of its children beyond their
    guaranteed parts. `path` leads from the Queue to the root.
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
        """Compute the quotas of the Queue and all Queues below it; set their usage to 0.

        `resources` must have every resource that a Queue of the tree names.
        """
        for child in self.children:
            child.add_up(resources)
        for resource in resources:
            pause()
            quota = self.queue.quotas.get(resource, NO_QUOTA)
            nominal = self.nominal[resource] = quota.nominal + self._lent_by_children(resource)
            kept = nominal - quota.lending_limit if quota.lending_limit is not None else 0
            self.guaranteed[resource] = max(0, kept)
            self.used[resource] = 0

    def set_quota(self, resource: str, amount: int) -> None:
        """Set this root's own quota of one resource; quota that its children lend is added."""
        self.nominal[resource] = amount + self._lent_by_children(resource)
        for child in self.children:
            child._share = None  # noqa: SLF001 - of this class

    def _lent_by_children(self, resource: str) -> int:
        return sum(c.nominal[resource] - c.guaranteed[resource] for c in self.children)

    def note_guaranteed(self, *, lends_all: bool) -> None:
        """Set `_lends_all` of the Queue and of all Queues below it.

        `lends_all` says whether all ancestors of this Queue lend their whole quota.
        """
        self._lends_all = lends_all and not any(self.guaranteed.values())
        for child in self.children:
            child.note_guaranteed(lends_all=self._lends_all)

    @property
    def name(self) -> str:
        """The name of the Queue; for an ElasticQuota of scheduler-plugins, its namespace."""
        return self.queue.name

    @property
    def root(self) -> "QueueState":
        """The topmost ancestor of this Queue; the Queue itself if it has no parent."""
        return self.path[-1]

    def borrowed(self, resource: str) -> int:
        """Return how much the Queue uses beyond its nominal quota."""
        return max(0, self.used[resource] - self.nominal[resource])

    def available(self, resource: str) -> int:
        """Return how much more the Queue may use now; negative if it uses too much."""
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
        """Return whether the Queue and its ancestors could use these amounts without borrowing."""
        for state in self.path:
            used, nominal = state.used, state.nominal
            for resource, amount in amounts.items():
                if resource in used and used[resource] + amount > nominal[resource]:
                    return False
        return True

    def charge(self, amounts: Mapping[str, int]) -> None:
        """Add amounts, which may be negative, to the usage of the Queue and its ancestors."""
        if self._lends_all:  # the usual case; this runs for each pod
            limited = [each for each in amounts.items() if each[0] in self.used]
            for state in self.path:
                used = state.used
                for resource, amount in limited:
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
        """Add the amount to the Queue's usage; return how much the usage of its parent grows."""
        before = self.used[resource]
        after = self.used[resource] = before + amount
        self._share = None
        if not (guaranteed := self.guaranteed[resource]):
            return amount
        return max(0, after - guaranteed) - max(0, before - guaranteed)

    @property
    def share(self) -> float:
        """The largest ratio of a borrowed amount to the parent's quota, divided by `queue.weight`.

        It is 0 for the root, and infinite for a Queue of weight 0 that has borrowed.
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
