"""How an attempt can end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mooring.framework.attempt import Nomination
from mooring.framework.decision import NodeScore
from mooring.framework.diagnosis import Diagnosis

__all__ = ["Outcome", "Placement", "Unschedulable"]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The pod goes to a row.

    `visited` says how many nodes the search looked at. `scores` gives the scores of the feasible
    nodes by name, of all or of the best few; it is None where only one node was feasible.
    `diagnosis` says why the other nodes were not. Both work on live columns: to be called before
    anything changes.
    """

    row: int
    node: str
    feasible: int
    visited: int
    scores: Callable[[int | None], Mapping[str, NodeScore]] | None
    diagnosis: Callable[[], Diagnosis]


@dataclass(frozen=True, slots=True, eq=False)
class Unschedulable:
    """No node can take the pod now; `message` is the whole sentence, post-filters included.

    `keeps_nomination` says that a nomination the pod already has is to stay.
    """

    diagnosis: Diagnosis
    message: str
    nomination: Nomination | None = None
    keeps_nomination: bool = False


Outcome = Placement | Unschedulable
