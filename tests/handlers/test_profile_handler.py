"""Handles SchedulingProfiles of the API server, and computes their statuses."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from background import in_background
from certificates import Authority
from handlers.small_api import SmallApi, status_writer
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.framework import evaluations
from mooring.handlers.profile_handler import (
    CONFLICT_SECONDS,
    MOST_CONFLICT_WAITS,
    MOST_KEPT_BYTES,
    REPEAT_SECONDS,
    STATUS_SECONDS,
    ProfileHandler,
    ProfileStatusWriter,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import EventRecorder
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod
from scheduler_states import scheduler_state, silent_pod_enqueuer

Raw = dict[str, Any]

BROKEN: Raw = {
    "percentageOfNodesToScore": 101,
    "plugins": {"filter": {"enabled": [{"name": "NodNam"}]}},
}


@pytest.fixture
def shared() -> SchedulerState:
    return scheduler_state()


@pytest.fixture
def profile_handler(shared: SchedulerState) -> ProfileHandler:
    pod_enqueuer = silent_pod_enqueuer(shared)
    return ProfileHandler(shared.profiles, pod_enqueuer)


def profile(
    generation: int = 1,
    *,
    name: str = "packed",
    uid: str = "u1",
    version: int = 1,
    status: Raw | None = None,
    **spec: Any,
) -> Raw:
    return {
        "apiVersion": "scheduling.mooring.dev/v1alpha1",
        "kind": "SchedulingProfile",
        "metadata": {
            "name": name,
            "uid": uid,
            "generation": generation,
            "resourceVersion": str(version),
        },
        "spec": spec,
        **({"status": status} if status else {}),
    }


def conditions(status: Raw | None) -> dict[str, Raw]:
    assert status is not None
    return {condition["type"]: condition for condition in status["conditions"]}


def ready(status: Raw | None) -> tuple[str, str, str]:
    condition = conditions(status)["Ready"]
    return condition["status"], condition["reason"], condition["message"]


def test_a_good_profile_is_in_force_and_its_status_says_what_that_means(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    status = profile_handler.applied(profile(3))
    assert status is not None
    assert ready(status) == ("True", "InForce", "in force for pods with schedulerName packed")
    assert (status["observedGeneration"], status["inForceGeneration"]) == (3, 3)
    assert {"name": "NodeResourcesFit", "weight": 1} in status["effective"]["plugins"]["score"]
    assert list(shared.profiles.in_force) == ["packed"]


def test_a_profile_whose_extender_has_no_url_never_replaces_a_valid_one(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    """The CRD's pattern accepts the URL, but no text that names the extender could be written."""
    profile_handler.applied(profile(1))
    status = profile_handler.applied(profile(2, extenders=[{"urlPrefix": "http://[::1:80/x"}]))
    mistake = 'spec.extenders[0].urlPrefix: is no URL: "http://[::1:80/x": Invalid IPv6 URL'
    message = f"generation 1 stays in force: {mistake}"
    assert ready(status) == ("False", "Invalid", message)
    assert shared.profiles.in_force["packed"].profile.generation == 1
    assert not profile_handler.settle_conflicts()
    assert profile_handler.settle_conflicts() == ["packed"]


def test_a_profile_whose_pods_others_take_says_so_and_who_they_are(
    profile_handler: ProfileHandler,
) -> None:
    def message() -> str | None:
        patch = profile_handler.patch("packed")
        return ready(patch)[2] if "conditions" in patch else None

    def settle() -> None:
        profile_handler.settle_conflicts()
        assert profile_handler.settle_conflicts()

    status = profile_handler.applied(profile())
    settle()
    assert message() == "in force for pods with schedulerName packed"
    names = {"schedulerNames": ["packed", "other"]}
    higher = profile(uid="u2", name="higher", match={**names, "precedence": 5})
    profile_handler.applied(higher)
    assert profile_handler.surroundings_changed()
    told = (
        "outranked by higher, and takes no pods: all with schedulerName packed that it selects go "
        "there"
    )
    settle()
    assert message() == told
    later = profile(status={**(status or {}), "conditions": [{"type": "Ready", "message": told}]})
    profile_handler.gone("packed", "u1")
    assert ready(profile_handler.applied(later))[2] == told, "others may come that it does not know"
    profile_handler.gone("higher", "u2")
    settle()
    assert message() == "in force for pods with schedulerName packed"


def test_a_profile_in_mode_shadow_says_so_and_keeps_what_its_comparisons_show(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    status = profile_handler.applied(profile(mode="Shadow"))
    message = "decides about pods with schedulerName packed for comparison, and binds none"
    assert ready(status) == ("True", "Shadow", message)
    compared = {**(status or {}), "shadow": {"compared": 7}}
    assert profile_handler.applied(profile(status=compared, mode="Shadow")) is None
    switched = profile_handler.applied(profile(2, status=compared))
    assert switched is not None
    assert switched["shadow"] is None
    assert shared.profiles.in_force["packed"].profile.spec.mode == "Active"


def test_what_rebalancing_has_written_stays_while_the_profile_has_a_section(
    profile_handler: ProfileHandler,
) -> None:
    status = profile_handler.applied(profile(rebalancing={}))
    moved = {**(status or {}), "rebalancing": {"done": 7}}
    assert profile_handler.applied(profile(status=moved, rebalancing={})) is None
    without = profile_handler.applied(profile(2, status=moved))
    assert without is not None
    assert without["rebalancing"] is None


def test_rebalancing_is_told_of_a_profile_before_its_spec_is_in_force(
    shared: SchedulerState,
) -> None:
    told: list[tuple[object, ...]] = []

    def found(*profile: object) -> None:
        told.append((*profile, list(shared.profiles.in_force)))

    handler = ProfileHandler(shared.profiles, silent_pod_enqueuer(shared), found=found)
    handler.applied(profile(uid="first", status={"rebalancing": {"done": 1}}))
    assert told == [("packed", "first", {"rebalancing": {"done": 1}}, [])]
    handler.applied(profile(uid="first", status={"rebalancing": {"done": 2}}))
    assert len(told) == 1
    handler.applied(profile(2, uid="first"))
    handler.applied(profile(uid="second", version=2))
    assert [uid for _, uid, *_ in told] == ["first", "first", "second"]


def test_a_status_that_is_right_already_is_not_written_again(
    profile_handler: ProfileHandler,
) -> None:
    status = profile_handler.applied(profile())
    assert profile_handler.applied(profile(status=status)) is None


def test_a_broken_profile_leaves_the_last_good_one_in_force(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    before = profile_handler.applied(profile(1))
    status = profile_handler.applied(profile(2, status=before, **BROKEN))
    holds, reason, message = ready(status)
    assert (holds, reason) == ("False", "Invalid")
    assert "spec.percentageOfNodesToScore: " in message
    assert "spec.plugins.filter.enabled[0].name: " in message
    assert status is not None
    assert status["observedGeneration"] == 2
    assert "inForceGeneration" not in status, "it is still 1, so the patch need not say it"
    assert shared.profiles.in_force["packed"].profile.generation == 1


def test_what_kopf_tells_late_of_a_former_profile_of_the_name_changes_nothing(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    profile_handler.applied(profile(uid="u1", version=9))
    profile_handler.applied(profile(uid="u2", version=11))
    assert profile_handler.applied(profile(uid="u1", version=10)) is None
    profile_handler.gone("packed", "u1")
    assert profile_handler.known() == {"u2": "packed"}
    assert list(shared.profiles.in_force) == ["packed"]


def test_a_profile_is_ready_while_its_newest_spec_is_in_force(
    profile_handler: ProfileHandler,
) -> None:
    profile_handler.applied(profile(1))
    profile_handler.applied(profile(1, name="other", uid="u2", **BROKEN))
    assert profile_handler.ready() == {"packed": True, "other": False}
    profile_handler.applied(profile(2, **BROKEN))
    assert not profile_handler.ready()["packed"]
    profile_handler.gone("packed", "u1")
    assert profile_handler.ready() == {"other": False}


def test_what_was_in_force_before_a_restart_is_so_again(
    profile_handler: ProfileHandler, shared: SchedulerState, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kept = {"inForceGeneration": 7, "inForceSpec": {"percentageOfNodesToScore": 42}}
    status = profile_handler.applied(profile(8, status=kept, **BROKEN))
    assert ready(status)[:2] == ("False", "Invalid")
    in_force = shared.profiles.in_force["packed"].profile
    assert (in_force.generation, in_force.spec.percentage_of_nodes_to_score) == (7, 42)
    words = "profile packed: generation 7 stays in force; correct generation 8, see its status"
    assert words in caplog.messages


def test_a_broken_profile_that_never_was_good_puts_nothing_in_force(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    status = profile_handler.applied(profile(1, **BROKEN))
    assert status is not None
    assert status["inForceGeneration"] == 0
    assert "effective" not in status
    assert not shared.profiles.in_force


def test_a_profile_with_extenders_takes_effect(profile_handler: ProfileHandler) -> None:
    status = profile_handler.applied(
        profile(extenders=[{"urlPrefix": "http://a", "filterVerb": "filter"}])
    )
    assert ready(status)[:2] == ("True", "InForce")


def test_pods_that_waited_for_the_profile_are_queued_when_it_comes(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    waiting = parse_pod(pod("early", spec={"schedulerName": "packed"}))
    shared.without_profile[waiting.uid] = waiting
    profile_handler.applied(profile())
    assert shared.queue.get(waiting.uid) is not None


def test_a_profile_that_goes_decides_no_more(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    profile_handler.applied(profile())
    profile_handler.gone("packed", "another uid")
    assert profile_handler.known() == {"u1": "packed"}
    profile_handler.gone("packed", "u1")
    assert not shared.profiles.in_force
    assert profile_handler.known() == {}


def test_a_successor_of_the_same_name_does_not_inherit_what_was_in_force(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    profile_handler.applied(profile(5))
    profile_handler.applied(profile(1, uid="u2", **BROKEN))
    assert not shared.profiles.in_force


def test_the_time_of_the_last_change_stays_while_nothing_changes(
    profile_handler: ProfileHandler,
) -> None:
    first = profile_handler.applied(profile(1))
    assert first is not None
    first["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    second = profile_handler.applied(profile(2, status=first, percentageOfNodesToScore=50))
    assert second is not None
    assert second["conditions"][0]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


def test_the_status_has_the_field_and_the_position_of_a_mistake_in_a_rule(
    profile_handler: ProfileHandler,
) -> None:
    rules = [{"name": "ssd", "filter": "true &&\n  node.lables.disk == 'ssd'"}]
    _, reason, message = ready(profile_handler.applied(profile(rules=rules)))
    assert reason == "Invalid"
    assert (
        'spec.rules[0].filter: line 2, column 3: unknown name "node.lables.disk", '
        "did you mean node.labels?"
    ) in message


def test_the_status_lists_the_rules_in_force_among_the_plugins(
    profile_handler: ProfileHandler,
) -> None:
    rules = [{"name": "ssd", "filter": "true"}, {"name": "cheap", "score": "1", "weight": 3}]
    status = profile_handler.applied(profile(rules=rules))
    assert status is not None
    plugins = status["effective"]["plugins"]
    assert {"name": "Rules/ssd"} in plugins["filter"]
    assert {"name": "Rules/cheap", "weight": 3} in plugins["score"]


SHARED: Raw = {"schedulerNames": ["shared"]}


def merged(before: Raw, patch: Raw) -> Raw:
    """Return the object after the API server has applied the merge patch."""
    after = dict(before)
    for field, value in patch.items():
        if value is None:
            after.pop(field, None)
        elif isinstance(value, dict):
            after[field] = merged(before.get(field, {}), value)
        else:
            after[field] = value
    return after


def outdated(handler: ProfileHandler) -> dict[str, Raw]:
    """Return the status patches of the outdated profiles, by name."""
    return {name: handler.patch(name) for name in handler.surroundings_changed()}


class Statuses:
    """Profiles with their statuses, as the API server would store them."""

    def __init__(self, handler: ProfileHandler) -> None:
        self.handler = handler
        self.raws: dict[str, Raw] = {}
        self.written = list[str]()
        """The profiles whose statuses were written, in their order."""
        self.warned = list[tuple[str, str, str]]()
        """Name, reason and note of each Event."""

    def apply(self, name: str, *, generation: int = 1, **spec: Any) -> None:
        """Store the profile and show it to the handler; by default with the match SHARED."""
        spec.setdefault("match", SHARED)
        before = self.raws.get(name, {}).get("status")
        self.raws[name] = profile(generation, name=name, uid=f"{name}1", status=before, **spec)
        self.show(name)

    def show(self, name: str) -> None:
        """Show the stored profile to the handler, and store its new status."""
        self._write(name, self.handler.applied(self.raws[name]))

    def settle(self, calls: int = 2) -> None:
        """Call `settle_conflicts` a few times, and store the statuses that are outdated."""
        for _ in range(calls):
            for name in self.handler.settle_conflicts():
                self._write(name, self.handler.patch(name))

    def delete(self, name: str) -> None:
        self.handler.gone(name, f"{name}1")
        del self.raws[name]

    def _write(self, name: str, patch: Raw | None) -> None:
        if patch:
            self.written.append(name)
            events = self.handler.warnings(name, patch)
            self.warned += [(about.name, reason, note) for about, reason, note in events]
            self.raws[name]["status"] = merged(self.raws[name].get("status", {}), patch)
            self.show(name)

    def conflicts(self) -> dict[str, str]:
        """Return the short texts about conflicts, by profile; check that the conditions agree."""
        statuses = {name: raw["status"] for name, raw in self.raws.items()}
        found = {name: s["conflict"] for name, s in statuses.items() if "conflict" in s}
        assert {*found} == {n for n, s in statuses.items() if "Conflicted" in conditions(s)}
        return found


@pytest.fixture
def statuses(profile_handler: ProfileHandler) -> Statuses:
    return Statuses(profile_handler)


def test_two_profiles_that_may_match_the_same_pods_say_so_in_both_statuses_and_in_events(
    statuses: Statuses,
) -> None:
    statuses.apply("dup")
    statuses.apply("mooring")
    assert statuses.conflicts() == {}, "others may come"
    statuses.settle()
    assert statuses.conflicts() == {"dup": "outranks mooring", "mooring": "outranked by dup"}
    conflict = conditions(statuses.raws["mooring"]["status"])["Conflicted"]
    assert (conflict["status"], conflict["reason"]) == ("True", "SamePods")
    assert conflict["message"].startswith("outranked by dup: both may match the same pods, ")
    assert [(name, reason) for name, reason, _ in statuses.warned] == [
        ("dup", "Conflicted"),
        ("mooring", "Conflicted"),
    ]
    assert statuses.warned[1][2] == conflict["message"]
    assert ready(statuses.raws["mooring"]["status"])[:2] == ("True", "InForce")


def test_a_conflict_ends_when_one_of_the_profiles_changes_or_goes(statuses: Statuses) -> None:
    statuses.apply("a")
    statuses.apply("b")
    statuses.settle()
    assert {*statuses.conflicts()} == {"a", "b"}
    statuses.apply("b", generation=2, match=SHARED | {"precedence": 1})
    statuses.settle()
    assert statuses.conflicts() == {}
    statuses.apply("c")
    statuses.settle()
    assert statuses.conflicts() == {"a": "outranks c", "c": "outranked by a"}
    statuses.delete("c")
    statuses.settle()
    assert statuses.conflicts() == {}


def test_a_replica_that_begins_to_lead_leaves_right_statuses_as_they_are(
    statuses: Statuses,
) -> None:
    for name in "abc":
        statuses.apply(name)
    statuses.settle()
    assert len(statuses.warned) == 3
    shared = scheduler_state()
    leader = Statuses(ProfileHandler(shared.profiles, silent_pod_enqueuer(shared)))
    leader.raws = statuses.raws
    for name in "cab":
        leader.show(name)
    leader.settle()
    assert (leader.written, leader.warned) == ([], [])


def test_profiles_that_are_edited_again_and_again_are_told_now_and_then(
    statuses: Statuses,
) -> None:
    statuses.apply("a")
    for generation in range(1, 2 * MOST_CONFLICT_WAITS + 1):
        match = SHARED | {"precedence": generation % 2}
        statuses.apply("b", generation=generation, match=match)
        statuses.settle(1)
        assert statuses.written.count("a") == (1 if generation < MOST_CONFLICT_WAITS else 2)
    assert [name for name, _, _ in statuses.warned] == ["a", "b"]
    assert statuses.conflicts() == {"a": "outranks b", "b": "outranked by a"}


def test_an_edit_that_changes_no_conflict_tells_none_again(statuses: Statuses) -> None:
    statuses.apply("a")
    statuses.apply("b")
    statuses.settle()
    told = len(statuses.warned)
    for generation in range(2, 6):
        statuses.apply("b", generation=generation, percentageOfNodesToScore=generation)
        statuses.settle()
    assert len(statuses.warned) == told
    assert {*statuses.conflicts()} == {"a", "b"}


def test_of_many_conflicts_few_statuses_change_with_one_more_profile(statuses: Statuses) -> None:
    names = [f"p{number:03}" for number in range(100)]
    for name in names:
        statuses.apply(name)
    statuses.settle()
    assert statuses.conflicts()["p000"] == "outranks p001 and others"
    assert statuses.conflicts()["p099"] == "outranked by p000 and others"
    written, told = len(statuses.written), len(statuses.warned)
    assert (written, told) == (200, 100), "one status when it came, and one of the conflict"
    statuses.apply("p050x")
    statuses.settle()
    assert len(statuses.warned) == told + 1
    assert len(statuses.written) - written <= 14


def test_each_invalid_generation_is_an_event_once(statuses: Statuses) -> None:
    statuses.apply("a")
    statuses.apply("a", generation=2, **BROKEN)
    statuses.show("a")
    statuses.settle()
    ((name, reason, note),) = statuses.warned
    assert (name, reason) == ("a", "Invalid")
    assert "spec.percentageOfNodesToScore" in note
    statuses.apply("a", generation=3, **BROKEN)
    statuses.apply("a", generation=4)
    assert [reason for _, reason, _ in statuses.warned] == ["Invalid", "Invalid"]


def test_the_pods_of_a_profile_that_never_was_valid_can_be_told(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    profile_handler.applied(profile(match={"schedulerNames": ["x", 3]}, **BROKEN))
    why = shared.profiles.why_none(parse_pod(pod(spec={"schedulerName": "x"})))
    assert why is not None
    assert why.startswith("SchedulingProfile packed")
    profile_handler.gone("packed", "u1")
    assert shared.profiles.why_none(parse_pod(pod(spec={"schedulerName": "x"}))) is None


def test_the_history_has_each_generation_with_the_spec_in_force_since_then(
    profile_handler: ProfileHandler,
) -> None:
    profile_handler.applied(profile(percentageOfNodesToScore=50))
    profile_handler.applied(profile(2, **BROKEN))
    profile_handler.gone("packed", "u1")
    deleted, broken, first = profile_handler.history()
    assert (first["generation"], first["ready"]) == (1, True)
    assert first["spec"] == broken["spec"] == {"percentageOfNodesToScore": 50}
    assert (broken["generation"], broken["reason"]) == (2, "Invalid")
    assert "NodNam" in broken["message"]
    assert (deleted["reason"], deleted["spec"]) == ("Deleted", None)


def test_the_history_is_bounded_and_leaves_large_specs_out(
    profile_handler: ProfileHandler,
) -> None:
    names = [f"name-{number}-{'x' * 200}" for number in range(100)]
    profile_handler.applied(profile(match={"schedulerNames": names}))
    assert profile_handler.history()[0]["spec"] is None
    for generation in range(2, 100):
        profile_handler.applied(profile(generation))
    assert len(profile_handler.history()) == 50
    assert profile_handler.history()[0]["generation"] == 99


def test_the_verdict_about_the_newest_spec_is_known_by_name(
    profile_handler: ProfileHandler,
) -> None:
    profile_handler.applied(profile())
    assert profile_handler.verdicts()["packed"] == {
        "observedGeneration": 1,
        "ready": True,
        "reason": "InForce",
        "message": "in force for pods with schedulerName packed",
    }


def test_whoever_reads_a_profile_is_told_that_it_goes_meanwhile(
    profile_handler: ProfileHandler,
) -> None:
    with profile_handler.departures.meanwhile() as gone:
        profile_handler.gone("packed", "never-seen")
        assert "never-seen" in gone


def over_budget(status: Raw | None) -> str:
    return str(conditions(status)["OverBudget"]["message"])


DEAR = [
    {"name": f"r{n}", "filter": f"!node.labels.serial.matches('^x{n}(abc){{60}}')"}
    for n in range(6)
]
"""Rules of about 1,000 units for each distinct value."""


def relabel(shared: SchedulerState, count: int) -> None:
    """Give 40 nodes a label with `count` different values."""
    for number in range(40):
        labels = {"serial": str(number % count)}
        parsed = parse_node(node(f"n{number}", labels=labels))
        shared.state.put(Kind.NODE, parsed.name, parsed)


def test_a_profile_whose_rules_are_too_expensive_for_the_nodes_is_told_when_it_is_applied(
    profile_handler: ProfileHandler, shared: SchedulerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "MOST_FOR_NODES", 100_000)
    relabel(shared, 40)
    status = profile_handler.applied(profile(rules=DEAR))
    assert ready(status)[:2] == ("True", "InForce"), "the profile is valid: nodes come and go"
    condition = conditions(status)["OverBudget"]
    assert (condition["status"], condition["reason"]) == ("True", "RulesTooExpensive")
    assert condition["message"].startswith(
        "rule r2, rule r3, rule r4 and 1 more fail for every pod: the rules of a profile may cost "
        "100,000 units for the values that nodes have now, and with this rule they cost about "
    )


def test_the_status_follows_the_nodes(
    profile_handler: ProfileHandler, shared: SchedulerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "MOST_FOR_NODES", 100_000)
    status = profile_handler.applied(profile(rules=DEAR))
    assert "OverBudget" not in conditions(status)
    assert profile_handler.applied(profile(rules=DEAR, status=status)) is None
    profile_handler.settle_conflicts()
    assert profile_handler.settle_conflicts() == ["packed"]
    assert outdated(profile_handler) == {}
    relabel(shared, 40)
    ((name, patch),) = outdated(profile_handler).items()
    assert name == "packed"
    assert "rule r2" in over_budget(patch)
    merged = {**(status or {}), **patch}
    assert profile_handler.applied(profile(rules=DEAR, status=merged)) is None
    relabel(shared, 2)
    ((_, patch),) = outdated(profile_handler).items()
    assert "OverBudget" not in conditions(patch)


def trusting(ca_file: Path) -> Raw:
    """Return an extender with this CA file, as a user writes it."""
    tls = {"caFile": str(ca_file)}
    return {"urlPrefix": "https://a", "filterVerb": "filter", "tlsConfig": tls}


def test_a_profile_comes_into_force_when_the_certificates_of_its_extender_are_mended(
    profile_handler: ProfileHandler, shared: SchedulerState, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    status = profile_handler.applied(profile(extenders=[trusting(ca_file)]))
    assert ready(status)[:2] == ("False", "Invalid")
    assert not profile_handler.surroundings_changed()
    ca_file.write_text("no certificate")
    ((_, patch),) = outdated(profile_handler).items()
    assert "No such file" not in ready(patch)[2]
    ca_file.write_bytes(Authority().certificate)
    ((_, patch),) = outdated(profile_handler).items()
    assert ready(patch)[:2] == ("True", "InForce")
    assert shared.profiles.in_force["packed"].profile.generation == 1
    assert not profile_handler.surroundings_changed()


def test_what_was_in_force_before_a_restart_is_so_again_when_certificates_are_mended(
    profile_handler: ProfileHandler, shared: SchedulerState, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    former = {"inForceSpec": {"extenders": [trusting(ca_file)]}, "inForceGeneration": 1}
    profile_handler.applied(profile(2, status=former, **BROKEN))
    assert not shared.profiles.in_force
    ca_file.write_bytes(Authority().certificate)
    ((_, patch),) = outdated(profile_handler).items()
    assert shared.profiles.in_force["packed"].profile.generation == 1
    assert ready(patch)[:2] == ("False", "Invalid")


def test_certificates_of_a_profile_that_was_edited_or_deleted_are_of_no_interest(
    profile_handler: ProfileHandler, shared: SchedulerState, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.crt"
    for name in ("edited", "deleted"):
        profile_handler.applied(profile(name=name, uid=name, extenders=[trusting(ca_file)]))
    profile_handler.applied(profile(2, name="edited", uid="edited", **BROKEN))
    profile_handler.gone("deleted", "deleted")
    ca_file.write_bytes(Authority().certificate)
    profile_handler.surroundings_changed()
    assert not shared.profiles.in_force


GPU = "example.com/gpu"
READS_WRONGLY = [
    {"name": "disk", "filter": "node.labels.disk == 'ssd'"},
    {"name": "room", "score": f"node.allocatable['{GPU}u'] + node.requested.pods"},
]


def test_a_spec_that_is_too_large_for_the_status_is_in_force_and_a_warning_says_what_that_means(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    """With a copy of this spec in its status, the profile would be too large for etcd."""
    small = profile_handler.applied(profile(1))
    assert small is not None
    assert "inForceSpec" in small
    names = [f"example.com/{number:050}" for number in range(MOST_KEPT_BYTES // 60)]
    args = {"name": "NodeResourcesFit", "args": {"ignoredResources": names}}
    patch = profile_handler.applied(profile(2, status=small, pluginConfig=[args]))
    assert patch is not None
    assert (patch["inForceGeneration"], patch["inForceSpec"]) == (2, None)
    assert ready(patch)[:2] == ("True", "InForce")
    warning = conditions(patch)["Warning"]
    assert warning["reason"] == "SpecNotKept"
    assert warning["message"].startswith(
        "the status does not keep the spec, because it has 554 KiB and not 512"
    )
    assert shared.profiles.in_force["packed"].profile.generation == 2


def test_labels_and_resources_that_no_node_has_are_a_warning_and_no_mistake(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    status = profile_handler.applied(profile(rules=READS_WRONGLY))
    assert "Warning" not in conditions(status), "without nodes nothing is known"
    with_gpu = parse_node(node("n1", labels={"dsk": "ssd"}, resources={GPU: 1}))
    shared.state.put(Kind.NODE, "n1", with_gpu)
    ((_, patch),) = outdated(profile_handler).items()
    assert conditions({**(status or {}), **patch})["Ready"]["status"] == "True"
    warning = conditions(patch)["Warning"]
    assert (warning["status"], warning["reason"]) == ("True", "NotOnAnyNode")
    assert warning["message"].split("; ") == [
        'spec.rules[0].filter: no node has the label "disk", did you mean dsk?',
        f'spec.rules[1].score: no node has the resource "{GPU}u", did you mean {GPU}?',
    ]
    shared.state.put(Kind.NODE, "n2", parse_node(node("n2", labels={"disk": "hdd"})))
    ((_, patch),) = outdated(profile_handler).items()
    assert conditions(patch)["Warning"]["message"].startswith("spec.rules[1].score: ")


def test_a_warning_names_three_labels_and_how_many_more(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    shared.state.put(Kind.NODE, "n1", parse_node(node("n1")))
    counts = [{"name": f"r{n}", "filter": f'domain("rack{n}").pods({{}}) == 0'} for n in range(5)]
    message = conditions(profile_handler.applied(profile(rules=counts)))["Warning"]["message"]
    assert message.endswith('spec.rules[2].filter: no node has the label "rack2"; and 2 more')


class Writing:
    """A ProfileStatusWriter, and the server that gets its statuses and Events."""

    def __init__(self, shared: SchedulerState | None = None) -> None:
        self.shared = shared or scheduler_state()
        self.api = SmallApi()
        self.clock = VirtualClock()
        self.held: list[Request] | None = None
        """What the server holds instead of answering it."""
        self.refuses = False

    def respond(self, request: Request) -> None:
        if self.held is not None:
            self.held.append(request)
        elif self.refuses:
            request.refuse(403, "Forbidden", "statuses are not for you")
        else:
            self.api.respond(request)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[ProfileStatusWriter]:
        async with (
            ApiServer(self.respond) as server,
            ApiClient(Connection(server.url)) as client,
        ):
            recorder = EventRecorder(client, "mooring", "test")
            pods, sleep = silent_pod_enqueuer(self.shared), self.clock.sleep
            writer = status_writer(self.shared, pods, client, sleep, recorder)
            async with in_background(writer.run(), recorder.run()):
                yield writer
                await self.after(0)
                await recorder.drain(10)

    async def after(self, seconds: float) -> None:
        """Advance the clock by this time, and wait for the writes that are due."""
        await self.clock.sleepers(4)
        for _ in range(round(seconds)):
            await self.clock.advance(1)
            await self.clock.sleepers(4)

    def written(self) -> list[str]:
        """Return the names of the profiles whose statuses were written."""
        return [request.path.split("/")[-2] for request in self.api.patched]

    def conditions(self) -> list[list[str]]:
        return [[c["type"] for c in r.body["status"]["conditions"]] for r in self.api.patched]


async def test_a_profile_that_the_comparison_found_is_in_force_and_its_status_written() -> None:
    writing = Writing()
    async with writing.run() as writer:
        await writer.found(profile(name="found"))
        assert list(writing.shared.profiles.in_force) == ["found"]
        await writing.after(1)
    [written] = writing.api.patched
    assert written.path.endswith("/schedulingprofiles/found/status")
    assert written.body["metadata"] == {"resourceVersion": "1"}
    assert written.body["status"]["conditions"][0]["reason"] == "InForce"


async def test_a_profile_that_was_read_is_in_force_unless_a_newer_version_was_shown_meanwhile() -> (
    None
):
    writing = Writing()
    async with writing.run() as writer:
        await writer.found(profile(2, name="shown", uid="u2"))
        for name, uid in (("shown", "u2"), ("read", "u1")):
            await writer.read(profile(1, name=name, uid=uid))
        in_force = writing.shared.profiles.in_force
        generations = {name: entry.profile.generation for name, entry in in_force.items()}
        assert generations == {"shown": 2, "read": 1}
        await writing.after(REPEAT_SECONDS)
    assert {*writing.written()} == {"shown", "read"}


async def test_profiles_in_conflict_get_their_statuses_written_and_an_event_each() -> None:
    writing = Writing()
    async with writing.run() as writer:
        for name in ("a", "b"):
            await writer.found(profile(name=name, uid=f"{name}1", match=SHARED))
        await writing.after(2 * CONFLICT_SECONDS)
    assert writing.written() == ["a", "b", "a", "b"]
    assert writing.conditions() == [["Ready"]] * 2 + [["Ready", "Conflicted"]] * 2
    events = {request.body["regarding"]["name"]: request.body for request in writing.api.posted}
    assert [*events] == ["a", "b"]
    assert events["b"]["regarding"] == {
        "apiVersion": "scheduling.mooring.dev/v1alpha1",
        "kind": "SchedulingProfile",
        "name": "b",
        "uid": "b1",
    }
    assert (events["b"]["type"], events["b"]["reason"]) == ("Warning", "Conflicted")
    assert events["b"]["note"].startswith("outranked by a: ")


async def test_an_invalid_profile_gets_an_event_when_its_status_is_written() -> None:
    writing = Writing()
    async with writing.run() as writer:
        await writer.found(profile(name="found", **BROKEN))
        await writing.after(1)
    (event,) = (request.body for request in writing.api.posted)
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Invalid", "Applying")
    assert "spec.percentageOfNodesToScore" in event["note"]


async def test_a_status_that_the_nodes_have_outdated_is_written_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluations, "MOST_FOR_NODES", 10_000)
    writing = Writing()
    dear = {"name": "dear", "filter": "!node.labels.serial.matches('^x(abc){60}')"}
    async with writing.run() as writer:
        await writer.found(profile(name="found", rules=[dear]))
        await writing.after(1)
        for number in range(20):
            found = parse_node(node(f"n{number}", labels={"serial": f"n{number}"}))
            writing.shared.state.put(Kind.NODE, found.name, found)
        await writing.after(STATUS_SECONDS)
    assert writing.conditions()[-1] == ["Ready", "OverBudget"]


async def test_a_status_that_was_refused_is_written_some_seconds_later() -> None:
    """No further event of the profile causes this write."""
    writing = Writing()
    async with writing.run() as writer:
        writing.refuses = True
        await writer.found(profile(name="found"))
        await writing.after(REPEAT_SECONDS)
        assert writing.written() == []
        writing.refuses = False
        await writing.after(REPEAT_SECONDS)
    assert writing.written() == ["found"]


async def test_a_status_is_written_after_the_one_before_has_arrived() -> None:
    """If two writes ran at the same time, the older one might arrive last."""
    writing = Writing()
    async with writing.run() as writer:
        held = writing.held = []
        await writer.found(profile(name="found", generation=1))
        while not held:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0)
        writing.held = None
        await writer.found(profile(name="found", generation=2))
        await writer.found(profile(name="other", match={"schedulerNames": ["other"]}))
        while not writing.api.patched:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0)
        assert writing.written() == ["other"]
        held[0].reply({"metadata": {"uid": "u1", "resourceVersion": "2"}})
        await writing.after(1)
    assert writing.api.patched[-1].body["status"]["observedGeneration"] == 2


def test_the_status_says_whose_rules_apply(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    shared.state.follow_server("1.36")
    pinned = profile_handler.applied(profile(name="pinned", uid="u2", kubernetesVersion="1.35"))
    status = profile_handler.applied(profile())
    assert status is not None
    assert pinned is not None
    assert status["effective"]["kubernetesVersion"] == "1.36"
    assert profile_handler.applied(profile(status=status)) is None
    again = profile(name="pinned", uid="u2", kubernetesVersion="1.35", status=pinned)
    assert profile_handler.applied(again) is None
    assert outdated(profile_handler) == {}


def test_the_status_says_that_a_server_is_too_new(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    shared.state.follow_server("1.39")
    status = profile_handler.applied(profile())
    assert status is not None
    assert status["effective"]["kubernetesVersion"] == "1.38"
    warning = conditions(status)["Warning"]
    assert warning["reason"] == "UnknownServer"
    assert warning["message"].startswith("the API server is 1.39, which is newer")


def test_what_an_old_crd_prunes_of_a_status_is_not_written_again_and_again(
    profile_handler: ProfileHandler, shared: SchedulerState
) -> None:
    shared.state.follow_server("1.36")
    status = profile_handler.applied(profile())
    assert status is not None
    assert status["effective"].pop("kubernetesVersion") == "1.36"
    profile_handler.applied(profile(status=status))
    assert not profile_handler.surroundings_changed()
