"""A change of a pod, or of what its claims ask for, that is tried so as to suggest it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mooring.model.pod import Pod
from mooring.model.resource_claims import ClaimSpec

__all__ = ["Change", "conditions"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a pod: what completes "if it ..." or, with `once`, "once ...".

    `resource` is the one that is requested no more, if it is that; then `text` is empty. With `ask`
    the ResourceClaim of the uid `claim` asks for something else, and the pod stays as it is.
    """

    text: str
    cause: str
    cost: float
    apply: Callable[[Pod], Pod] = lambda pod: pod
    resource: str = ""
    once: bool = False
    claim: str = ""
    ask: Callable[[ClaimSpec], ClaimSpec] | None = None


def conditions(changes: Sequence[Change], texts: Sequence[str], subject: str = "it") -> str:
    """Return "if it ... and ..., once ..." of these changes, whose texts are given."""
    both = [*zip(changes, texts, strict=True)]
    ifs = " and ".join(text for change, text in both if not change.once)
    onces = " and ".join(text for change, text in both if change.once)
    parts = (f"if {subject} {ifs}" if ifs else "", f"once {onces}" if onces else "")
    return ", ".join(filter(None, parts))
