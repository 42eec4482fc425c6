"""Converts queues of Volcano and KAI, whose quotas include the quotas of the queues below.

The nominalQuota of a Queue is its quota minus the quotas of the queues below. The Queue at the root
has and lends the rest of the nodes' resources.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

from mooring.policy.imports.written_queue import WrittenQueue
from mooring.quota.model.queue import NO_QUOTA, Quota, own_quotas


def converted(
    queues: list[WrittenQueue], root: WrittenQueue, notes: list[str], capacity: Mapping[str, int]
) -> Iterator[WrittenQueue]:
    """Yield the Queues for a tree of queues, parents first; add notes about them to `notes`.

    A queue without parent is below `root`. `capacity` has the amount of each resource on all nodes.
    """
    known = {root.name: root, **{queue.name: queue for queue in queues}}
    parents = {queue.name: queue.parent or root.name for queue in queues}
    quotas = {name: queue.quotas for name, queue in reversed(known.items())}
    named = dict.fromkeys(resource for each in quotas.values() for resource in each)
    quotas[root.name] = {resource: _shared(root, resource, capacity) for resource in named}
    for name, own, below in reversed([*own_quotas(quotas, parents)]):
        queue, parent = known[name], parents.get(name, "")
        if queue is not root:
            _note(queue, below, notes)
        if parent and parent not in known:
            notes.append(f"{queue.origin}: its parent {parent} is not in the file")
        selector = None if name in parents.values() else queue.selector
        yield replace(queue, parent=parent, quotas=own, selector=selector)


def _shared(root: WrittenQueue, resource: str, capacity: Mapping[str, int]) -> Quota:
    # All queues share the nodes' amount, up to the root's limit.
    quota = root.quotas.get(resource, NO_QUOTA)
    limit = None if quota.borrowing_limit is None else quota.nominal + quota.borrowing_limit
    shared = capacity.get(resource, quota.nominal or limit or 0)
    return Quota(shared if limit is None else min(shared, limit))


def _note(queue: WrittenQueue, below: Mapping[str, int], notes: list[str]) -> None:
    for resource, quota in queue.quotas.items():
        least, borrowing = below.get(resource, 0), quota.borrowing_limit
        limit = inf if borrowing is None else quota.nominal + borrowing
        if limit < max(quota.nominal, least):
            why = "the Queues below it may use more" if limit < least else "it is the quota"
            why = f"the limit of {resource} is below the quota: {why}"
        elif 0 < quota.nominal < least:
            why = f"the quota of {resource} is less than those of the queues below it, which count"
        else:
            continue
        notes.append(f"{queue.origin}: {why}")


def note_without_nodes(root: str, kind: str) -> str:
    """Return a note for a file without Nodes: the amount that the queues share is unknown."""
    how = f"give the Nodes too: kubectl get nodes,{kind} -o json | mooring convert -"
    return f"Queue {root} lends only what the others do not use; for what the nodes have, {how}"
