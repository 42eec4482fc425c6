"""Turns JSON documents about decisions and pod groups into lines of text and tables."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from mooring.model.wording import listed, plural

_MOST_NODES: Final = 3
_FIRST_STEPS: Final = 4
"""A pod's long path is shown by this number of its first steps, a gap, and its last steps."""
_WORDS: Final = {
    "noProfile": "no profile takes it",
    "gated": "gated{by_plugin}",
    "unschedulable": "unschedulable: {cause}",
    "nominated": "nominated to {node}",
    "preemptionFailed": "preemption failed: {cause}",
    "assumed": "assumed on {node}",
    "waitingAtPermit": "waiting at Permit on {node} for {named}",
    "rejected": "rejected{by_plugin}: {cause}",
    "error": "error: {cause}",
    "bound": "bound to {node}",
    "gone": "left the queue: deleted, ended, or bound by another scheduler",
    "preempted": "preempted on {node} by {by}{why}",
}
"""The text for some kinds of steps of a pod's path; other kinds are shown by their name."""


def explanation(decision: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a decision: message, nomination, rejections, ties, and shortened tables.

    Nodes that a plugin rejected for the same reasons share a line.
    """
    if decision["message"]:
        yield decision["message"]
    if decision["nominatedNode"]:
        yield f"will fit on {decision['nominatedNode']} without {', '.join(decision['victims'])}"
    rejected: dict[tuple[str, str], list[str]] = {}
    for node, rejection in decision["rejections"].items():
        why = (rejection["plugin"], ", ".join(rejection["reasons"]))
        rejected.setdefault(why, []).append(node)
    for (plugin, reasons), nodes in sorted(rejected.items(), key=lambda each: -len(each[1])):
        yield f"{listed(nodes, _MOST_NODES)}: {plugin}: {reasons}"
    if tie := _tie(decision):
        yield tie
    for table, total in decision.get("truncated", {}).items():
        yield f"(of {total} {table} these are the ones kept)"


def _tie(decision: Mapping[str, Any]) -> str:
    scores, node = decision.get("scores") or {}, decision.get("node")
    if node not in scores:
        return ""
    equal = [name for name, each in scores.items() if each["total"] == scores[node]["total"]]
    if len(equal) == 1:
        return ""
    # The best nodes are kept: if all of these are equal, there may be more.
    more = len(equal) == len(scores) < decision.get("truncated", {}).get("scores", 0)
    return f"a tie of {'at least ' if more else ''}{len(equal)}: one of them is chosen at random"


def duration(seconds: float) -> str:
    """Return seconds as kubectl prints ages: `42s`, `3m12s`, `5h4m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes_left}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def time_lines(path: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the time in each state; leave out states of less than half a second."""
    times = [f"{state} {duration(s)}" for state, s in path["seconds"].items() if round(s)]
    if times:
        yield f"  in all: {', '.join(times)}"


def path_rows(path: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a row for each step of a pod's path: the time since the first step, and the step.

    The time is "" if the row before has the same time.
    """
    steps, before = path["steps"], ""
    for number, step in enumerate(steps):
        if number and path["leftOut"] and number == _FIRST_STEPS:
            yield "", f"... {path['leftOut']} steps are not kept"
        after = duration(_seconds(steps[0]["time"], step["time"]))
        yield after if after != before else "", _step(step)
        before = after


def _step(step: Mapping[str, Any]) -> str:
    name, plugins = step["step"], ", ".join(step.get("plugins", ()))
    why = f": {step['cause']}" if step.get("cause") else ""
    words = {"named": plugins, "by_plugin": f" by {plugins}" if plugins else "", "why": why}
    text: str = _WORDS.get(name, name).format(**step, **words)
    if name == "seen":
        text = f"seen at {step['time']}"
    if name == "nominated":
        more = step["victimsInAll"] - len(step["victims"])
        text += f" without {', '.join(step['victims'])}" if step["victims"] else ""
        text += f" and {more} more" if more else ""
    if step["count"] == 1:
        return text
    what = "attempts" if name == "unschedulable" else "times"
    took = duration(_seconds(step["time"], step["until"]))
    return f"{step['count']} {what}, {took}: {step['cause'] if what == 'attempts' else text}"


def _seconds(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def score_table(
    scores: Mapping[str, Any], most: int | None = None
) -> tuple[Sequence[str], list[Sequence[str]], Sequence[str]]:
    """Return a table of scores per node: its head, its rows, and the heads of numeric columns.

    The table has at most `most` rows, the best nodes first; None means all nodes.
    """
    shown = [*scores.items()][:most]
    plugins = sorted(
        {name for _, score in shown for name, given in score["plugins"].items() if given}
    )
    rows: list[Sequence[str]] = [
        (node, str(score["total"]), *(str(score["plugins"].get(name, "-")) for name in plugins))
        for node, score in shown
    ]
    numbers = ("TOTAL", *plugins)
    return ("NODE", *numbers), rows, numbers


def zero_scores(scores: Mapping[str, Any], most: int | None = None) -> Iterator[str]:
    """Yield a line with the plugins that `score_table` leaves out, if there are any."""
    shown = [score["plugins"] for score in [*scores.values()][:most]]
    names = {name for score in shown for name in score}
    zero = sorted(name for name in names if not any(score.get(name) for score in shown))
    if zero:
        yield f"0 for all of these nodes: {', '.join(zero)}"


def pod_group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the group: its phase, what would help, its members, its last decision."""
    yield f"pod group {group['podGroup']} ({group['source']}): {group['phase']}"
    if group["message"]:
        yield f"  {group['message']}"
    if group.get("reserved"):  # an older leader does not tell it
        yield f"  {group['reserved']}"
    if victims := group.get("victims"):
        yield f"  its members will be tried once {', '.join(victims)} {_have(victims)} left"
    yield from remedy_lines(group)
    members = ", ".join(f"{count} {state}" for state, count in group["members"].items() if count)
    minimum = "" if group["minimum"] is None else f", minimum {group['minimum']}"
    missing = f", {group['missing']} missing" if group["missing"] else ""
    yield f"  members: {members or 'none'}{minimum}{missing}; priority {group['priority']}"
    if group["topology"]:
        yield f"  topology: {' > '.join(group['topology']['keys'])} ({group['topology']['mode']})"
    decision = group["decision"]
    if decision is None:
        return
    where = f" in {'='.join(decision['domain'])}" if decision["domain"] else ""
    what = (
        f"{plural(decision['placed'], 'member')} placed{where}"
        if decision["placed"]
        else "not placed"
    )
    yield f"  {decision['time']}: {what}, {plural(decision['tries'], 'placement')} tried"
    if decision["message"] and decision["message"] not in (group["message"] or ""):
        yield f"  {decision['message']}"
    if decision["bounded"] and not decision["placed"]:
        yield "  Not all placements could be tried: one may exist that was not found."
    for tried in decision["tried"]:
        yield f"  - {tried['key']}={tried['value']}: {tried['message']}"
    if decision["triedInAll"] > len(decision["tried"]):
        yield f"  (of {decision['triedInAll']} domains these are the ones kept)"


def member_lines(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each different message once, with the names of its pods."""
    by_message = dict[str, list[str]]()
    for pod in pods:
        if pod["message"]:
            by_message.setdefault(pod["message"], []).append(pod["pod"].rpartition("/")[2])
    for message, names in by_message.items():
        yield f"  {listed(names, _MOST_NODES)}: {message}"


def remedy_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a pod or group does not fit, and the changes that would help."""
    remedy, suggestions = found.get("remedy"), found.get("suggestions")
    cause = found.get("cause") or "not known"
    if remedy:
        yield f"  What helps: {remedy}"
    elif suggestions:
        yield f"  The cause: {cause}. It would fit"
        for suggestion in suggestions:
            yield f"  - {' '.join(filter(None, (_place(suggestion), suggestion['change'])))}"
    elif suggestions is not None:
        yield f"  The cause: {cause}."
        yield "  None of the changes that were tried would make it fit."


def nomination_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nominated node of a pod, and the pods that must still leave it."""
    if node := report.get("nominatedNode"):
        victims = report.get("victims") or ()
        when = f"once {', '.join(victims)} {_have(victims)} left the node" if victims else "next"
        yield f"  nominated to {node}: it will be tried there {when}"


def _have(pods: Sequence[str]) -> str:
    return "has" if len(pods) == 1 else "have"


def _place(suggestion: Mapping[str, Any]) -> str:
    # The pod fits only after other pods end.
    if suggestion["ended"]:
        return ""
    number, names = suggestion["nodes"], ", ".join(suggestion["examples"])
    if number == 1:
        return f"on {names}"
    return f"on {number} nodes ({names}{', ...' if number > len(suggestion['examples']) else ''})"


def claim_lines(found: Mapping[str, Any], said: str | None) -> Iterator[str]:
    """Yield lines about a pod's claims: their error, states, and why requests get no devices.

    The error is left out if it equals `said`, an error that the user has read already.
    """
    if found.get("error") and found["error"] != said:
        yield f"  its claims: {found['error']}"
    for claim in found["claims"]:
        name = f" ({claim['claim']})" if claim["claim"] not in (None, claim["name"]) else ""
        yield f"  claim {claim['name']}{name}: {claim['state']}"
        for request in claim["requests"]:
            enough = f"enough on {request['enoughOn']} of {plural(found['nodes'], 'node')}"
            asked = plural(request["count"], "device")
            yield f"    request {request['request']}: {asked} requested, {enough}"
            for each in request["excluded"]:
                what = plural(each["devices"], "device") if each["devices"] else "none"
                yield f"      {what} on {plural(each['nodes'], 'node')}: {each['reason']}"
    if 0 < found["nodes"] < found["nodesInAll"]:
        yield f"  (looked at the devices of {found['nodes']} of {found['nodesInAll']} nodes)"
