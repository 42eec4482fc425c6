"""What must hold of every request that leaves a replica.

How to add one: see `simulation.invariants`.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulation.world import Sent, World

__all__ = ["no_token_is_used_long_after_it_was_refused"]

_RENEWED_SECONDS: Final = 10.0
"""So long after a refusal requests may leave that waited with the old token."""


def no_token_is_used_long_after_it_was_refused(world: "World", sent: "Sent") -> str | None:
    """Check that a replica that was refused for its token shows another one soon."""
    refused = world.server.refused.get((sent.identity, sent.authorization))
    to_the_server = sent.path.startswith("/api")
    if refused is None or not to_the_server or refused + _RENEWED_SECONDS > world.timeline.now:
        return None
    return f"{sent.identity} sends {sent.what} with a token that was refused at {refused:.3f}"
