"""The invariants of all requests that leave a replica.

How to add one: see `simulation.invariants`.
"""

from typing import TYPE_CHECKING, Final

import orjson

from mooring.kube.api_resources import POD

if TYPE_CHECKING:
    from simulation.world import Sent, World


_RENEWED_SECONDS: Final = 10.0
"""So long after a process heard of a refusal requests may leave that waited with the old token."""
_TAKEN_IN_SECONDS: Final = 1.0
"""What a watch has told is in the replica's books so many seconds later at most."""
_ENDED: Final = frozenset(("Succeeded", "Failed"))


def no_token_is_used_long_after_it_was_refused(world: "World", sent: "Sent") -> str | None:
    """Check that a replica uses another token soon after it heard that its token was rejected."""
    refused = world.network.refused.get((sent.identity, sent.authorization))
    to_the_server = sent.path.startswith("/api")
    if refused is None or not to_the_server or refused + _RENEWED_SECONDS > world.timeline.now:
        return None
    return f"{sent.identity} sends {sent.what} with a token that was refused at {refused:.3f}"


def no_pod_is_bound_that_was_seen_to_end(world: "World", sent: "Sent") -> str | None:
    """Check that a replica does not bind a pod that it saw on a node and then saw end.

    Only events before its decision count. Another watch may later show the pod without a node.
    """
    if sent.what != "bind":
        return None
    uid = orjson.loads(sent.body)["metadata"]["uid"]
    known = world.books.pods.get(uid)
    if known is not None and not known.finished:
        return None
    versions = [
        (change.version, change.after)
        for change in world.server.storage.history
        if change.resource is POD and change.object["metadata"]["uid"] == uid
    ]
    on_node = (v for v, raw in versions if raw is not None and raw["spec"].get("nodeName"))
    bound = next(on_node, None)
    ended = next(v for v, raw in versions if raw is None or raw["status"].get("phase") in _ENDED)
    decided_at = world.decisions.decided_at(sent.identity, uid, world.timeline.now)
    told = world.server.watches.told_between
    before = decided_at - _TAKEN_IN_SECONDS
    if bound is None or not told(sent.identity, POD, bound, ended, before):
        return None
    return f"{sent.path}, and the pod has ended"
