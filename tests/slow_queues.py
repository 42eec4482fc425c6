"""A slow model of Queues, which computes each answer from the specs and the pods."""

from collections.abc import Iterable, Mapping

from mooring.model.pod import Pod
from mooring.quota.model.queue import QUEUE_LABEL, Queue


class SlowQueues:
    """The quotas of Queues for one resource, and the usage of their pods on nodes."""

    def __init__(self, queues: Mapping[str, Queue], pods: Iterable[Pod], resource: str) -> None:
        self.queues = dict(queues)
        self.pods = list(pods)
        self.resource = resource

    def children(self, name: str) -> list[str]:
        return [other for other, queue in self.queues.items() if queue.parent == name]

    def nominal(self, name: str) -> int:
        quota = self.queues[name].quotas.get(self.resource)
        own = quota.nominal if quota is not None else 0
        return own + sum(self.nominal(c) - self.guaranteed(c) for c in self.children(name))

    def guaranteed(self, name: str) -> int:
        quota = self.queues[name].quotas.get(self.resource)
        if quota is None or quota.lending_limit is None:
            return 0
        return max(0, self.nominal(name) - quota.lending_limit)

    def used(self, name: str) -> int:
        own = sum(
            each.spec.demand.resources.get(self.resource, 0)
            for each in self.pods
            if each.labels.get(QUEUE_LABEL) == name
        )
        children = self.children(name)
        return own + sum(max(0, self.used(c) - self.guaranteed(c)) for c in children)

    def available(self, name: str) -> int:
        queue, nominal, used = self.queues[name], self.nominal(name), self.used(name)
        if not queue.parent:
            return nominal - used
        guaranteed, above = self.guaranteed(name), self.available(queue.parent)
        quota = queue.quotas.get(self.resource)
        if quota is not None and quota.borrowing_limit is not None:
            most = nominal + quota.borrowing_limit - guaranteed - max(0, used - guaranteed)
            above = min(above, most)
        return max(0, guaranteed - used) + above

    def path(self, name: str) -> list[str]:
        parent = self.queues[name].parent
        return [name, *(self.path(parent) if parent else [])]
