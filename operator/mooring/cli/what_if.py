"""`mooring simulate --server`: the running scheduler decides about the pods of files."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from mooring.cli.console import note, note_ignored, print_json, print_prose, print_yaml, printable
from mooring.cli.decision_tables import Summary, print_attempts
from mooring.cli.explanation_text import remedy_lines
from mooring.cli.leader import Leader, answer_of
from mooring.framework.decision import Decision, PodRef
from mooring.groups.state.pod_groups import GROUP_KINDS
from mooring.model.events import Kind
from mooring.model.wording import plural
from mooring.simulate.kinds import KINDS
from mooring.simulate.manifests import InputError, read_manifests
from mooring.simulate.new_objects import makes_pods
from mooring.simulate.simulation import WITH_GROUP, SimulatedAttempt

_WHAT_IF: Final = "/api/v1/what-if"
_BESIDE_PODS: Final = {*GROUP_KINDS, Kind.SERVICE}
"""The kinds that are sent in addition to kinds that make pods; Secrets, for example, are not
sent."""


def ask_what_if(leader: Leader, files: Sequence[str], profile: str | None, output: str) -> Summary:
    """Print the leading replica's decisions about the objects of the files; return the summary.

    Raises InputError if no object makes pods, or if the leader refuses to answer.
    """
    objects, ignored = list[dict[str, Any]](), Counter[str]()
    for each in read_manifests(files):
        if makes_pods(each) or KINDS.get((each.group, each.kind)) in _BESIDE_PODS:
            objects.append(each.raw)
        else:
            ignored[each.kind] += 1
    note_ignored(ignored)
    if not objects:
        raise InputError(f"there is no object that makes pods in {', '.join(files)}")
    query = f"?{urlencode({'profile': profile})}" if profile is not None else ""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    answer = answer_of(leader, f"{_WHAT_IF}{query}", "decisions", body=body) or {}
    attempts = [each for tried in answer["decisions"] for each in _attempts(tried)]
    for text in answer["notes"]:
        note(text)
    if answer["more"]:
        note(f"the objects make more pods: the scheduler decided about {len(attempts)}")
    if output in ("json", "yaml"):
        summary = Summary()
        for attempt in attempts:
            summary.count(attempt)
        (print_json if output == "json" else print_yaml)(answer)
        return summary
    summary = print_attempts(attempts, output)
    for tried in filter(lambda tried: tried.get("suggestions"), answer["decisions"]):
        name = tried.get("podGroup") or tried["pods"][0]["pod"]
        for line in (f"{name}:", *remedy_lines(tried)):
            print_prose(printable(line))
    return summary


def _attempts(tried: Mapping[str, Any]) -> Iterator[SimulatedAttempt]:
    feasible, in_group = tried.get("feasible") or 0, "podGroup" in tried
    fits = WITH_GROUP if in_group else f"one of {plural(feasible, 'node')} that fit"
    for number, pod in enumerate(tried["pods"]):
        node = pod["node"]
        decision = Decision(
            pod=PodRef.of_key(pod["pod"]),
            profile=tried["profile"],
            node=node,
            nominated_node=pod.get("nominatedNode"),
            victims=() if number else tuple(map(PodRef.of_key, tried["victims"])),
            scores=None,
            rejections={},
            message=tried["message"] if node is None else None,
        )
        reason = (tried["cause"] if node is None else fits if feasible != 1 else "") or ""
        yield SimulatedAttempt(decision, feasible, tried.get("podGroup") or "", reason)
