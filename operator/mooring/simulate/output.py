"""Write the decisions of a simulation, as JSON or as rows of a table."""

from collections.abc import Iterable
from typing import BinaryIO, Final

import orjson

from mooring.observe.records import to_json
from mooring.simulate.simulation import Attempt

__all__ = ["TABLE_HEAD", "table_row", "write_json"]

TABLE_HEAD: Final = ("POD", "NODE", "SCORE", "WHY")
_MOST_VICTIMS: Final = 3


def write_json(attempts: Iterable[Attempt], out: BinaryIO) -> bool:
    """Write `{"decisions": [...]}`, one decision per line; return whether every pod has a node.

    Each decision is written as soon as it is made: for thousands of pods and nodes, all of them
    together would not fit into memory.
    """
    placed = True
    out.write(b'{"decisions": [')
    separator = b"\n"
    for attempt in attempts:
        out.write(separator + orjson.dumps(to_json(attempt.decision)))
        separator = b",\n"
        placed &= attempt.decision.node is not None
    out.write(b"\n]}\n")
    return placed


def table_row(attempt: Attempt) -> tuple[str, str, str, str]:
    """The cells of one row, for the columns in `TABLE_HEAD`."""
    decision = attempt.decision
    if decision.node is None:
        return decision.pod, "-", "-", f"{decision.message}{_nomination(attempt)}"
    if decision.scores is None:
        return decision.pod, decision.node, "-", "the only node that fits"
    score = max(node.total for node in decision.scores.values())
    return decision.pod, decision.node, str(score), f"best of {attempt.feasible} nodes that fit"


def _nomination(attempt: Attempt) -> str:
    decision = attempt.decision
    if decision.nominated_node is None:
        return ""
    victims = ", ".join(decision.victims[:_MOST_VICTIMS])
    more = len(decision.victims) - _MOST_VICTIMS
    others = f" and {more} more" if more > 0 else ""
    return f" It can run on {decision.nominated_node} once {victims}{others} are gone."
