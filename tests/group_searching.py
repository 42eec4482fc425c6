"""Searches for nodes for the members of a group."""

from collections.abc import Callable
from typing import Any

from deciding import Deciding
from driving import driven
from extending import put
from mooring.extenders.verdicts import ExtenderResults, NodeFailure
from mooring.groups.search.group_search import Assignment, SearchedMembers
from mooring.groups.search.placement import GroupSearch
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.node import HOSTNAME
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod

Raw = dict[str, Any]


def search_for(
    deciding: Deciding,
    members: list[Raw],
    rejected: dict[str, list[str]] | None = None,
    budget: SearchBudget | None = None,
    answers: ExtenderResults | None = None,
) -> GroupSearch:
    """Return a search for nodes for these members."""
    searched = SearchedMembers(
        [parse_pod(raw) for raw in members],
        deciding.pipeline,
        deciding.shared,
        seed=0,
        rejected=rejected or {},
        budget=budget or SearchBudget(),
        extended=answers.on(deciding.cluster) if answers is not None else {},
    )
    return GroupSearch(searched)


def placed(
    deciding: Deciding,
    members: list[Raw],
    rejected: dict[str, list[str]] | None = None,
    answers: ExtenderResults | None = None,
) -> Assignment:
    """Return the assignment that the search for these members finds."""
    return search_for(deciding, members, rejected, answers=answers).place()


def answered(
    passed: dict[str, list[str]], scores: dict[str, list[int]] | None = None
) -> ExtenderResults:
    """Return extenders' answers about pods by name: the nodes that pass, and their scores."""
    answers = ExtenderResults()
    for name, nodes in passed.items():
        failed = {
            other: NodeFailure("busy", resolvable=False, extender="e")
            for other in "abc"
            if other not in nodes
        }
        put(answers, pod(name, cpu="1"), nodes, failed, **({"e": scores[name]} if scores else {}))
    return answers


def placed_in_slices(
    deciding: Deciding, members: list[Raw], in_pause: Callable[[], object] = lambda: None
) -> tuple[Assignment, int]:
    """Return the assignment of a search that pauses whenever possible, and the number of pauses."""
    return driven(search_for(deciding, members).place, in_pause)


def by_name(deciding: Deciding, assignment: Assignment) -> dict[str, str]:
    """Return the node of each placed member, by the member's name."""
    names = deciding.state.nodes.names
    return {uid.removeprefix("pod-default-"): names[row] for uid, row in assignment.rows.items()}


def apart(app: str) -> Raw:
    """Return an anti-affinity to pods with this label `app` on the same node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
