"""Describes pending pods in text and tables: all pods by cause, or the pods of a workload."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.cli.console import table_lines, terminal_width
from mooring.cli.explanation_text import duration
from mooring.model.wording import plural

_MOST_ROWS: Final = 15
"""The most rows of a table, because a terminal has 24 lines; the other pods are only counted."""
_MOST_CAUSES: Final = 3
"""The most causes, the most frequent first, for which one pod each is shown as an example."""


def pending_lines(found: Mapping[str, Any], namespace: str) -> Iterator[str]:
    """Yield lines with the number of pending pods, by cause and by owner.

    `found` is the answer of /debug/pending for `namespace`; "" means all namespaces.
    """
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    total = found["total"]
    if not total:
        yield f"no pod is pending {where}"
        return
    states = ", ".join(f"{count} {state}" for state, count in found["states"].items() if count)
    yield f"{plural(total, 'pod')} pending {where}: {states}"
    yield ""
    rows = [[str(c["pods"]), duration(c["oldestSeconds"]), c["cause"]] for c in found["causes"]]
    yield from _table(("PODS", "OLDEST", "WAIT FOR"), rows, found["otherCauses"])
    owners = [[str(o["pods"]), duration(o["oldestSeconds"]), _owner(o)] for o in found["owners"]]
    if owners:
        yield ""
        yield from _table(("PODS", "OLDEST", "OF"), owners, found["otherPods"])
    yield ""
    yield "mooring explain TYPE/NAME -n NAMESPACE says what would make them fit"


def workload_lines(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many pods of a workload have a node, and how many are pending for each cause."""
    placed, total = found["placed"], found["total"]
    yield f"{name}: {plural(placed, 'pod')} on nodes, {total} pending"
    if not found["pods"]:
        return
    yield ""
    rows = [
        [str(len(pods)), duration(pods[0]["pendingSeconds"]), cause]
        for cause, pods in _by_cause(found)
    ]
    yield from _table(("PODS", "OLDEST", "WAIT FOR"), rows, total - len(found["pods"]))
    yield ""


def examples_by_cause(found: Mapping[str, Any]) -> list[str]:
    """Return, for each frequent cause, the pod that has been pending longest (namespace/name)."""
    return [pods[0]["pod"] for _, pods in _by_cause(found)[:_MOST_CAUSES]]


def _by_cause(found: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    by_cause = dict[str, list[Mapping[str, Any]]]()
    for pod in found["pods"]:
        by_cause.setdefault(pod["cause"], []).append(pod)
    return sorted(by_cause.items(), key=lambda item: -len(item[1]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], others: int) -> Iterator[str]:
    prose = head[-1:]
    yield from table_lines(head, rows[:_MOST_ROWS], head[:1], prose, terminal_width())
    # The first column has the number of pods.
    left_out = sum(int(row[0]) for row in rows[_MOST_ROWS:]) + others
    if left_out:
        yield f"and {left_out} more"


def _owner(owner: Mapping[str, Any]) -> str:
    return f"{owner['kind'].lower()}/{owner['name']} -n {owner['namespace']}"
