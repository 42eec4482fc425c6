"""The phase and the condition of a PodGroup, as its members determine both."""

from collections.abc import Mapping
from typing import Any

import pytest

from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.groups.state.pod_groups import PodGroupState
from mooring.groups.status.group_status import Finished, desired_status, view_of
from mooring.testing.builders import (
    cluster,
    coscheduling_pod_group,
    node,
    pod,
    pod_group,
    volcano_pod_group,
)

NOW = "2026-03-01T00:00:00Z"
LABEL = {COSCHEDULING_LABEL: "train"}
OWNER = {"kind": "Job", "name": "train-job", "uid": "1"}


def group(
    minimum: int,
    pending: int = 0,
    running: int = 0,
    starting: int = 0,
    status: Mapping[str, Any] | None = None,
) -> PodGroupState:
    """Return a coscheduling group with these numbers of pending, running and starting members."""
    state = cluster(
        node("n"),
        coscheduling_pod_group("train", minimum, status=status),
        *(pod(f"p{i}", labels=LABEL) for i in range(pending)),
        *(pod(f"r{i}", labels=LABEL, node="n", owner=OWNER) for i in range(running)),
        *(pod(f"s{i}", labels=LABEL, node="n", phase="Pending") for i in range(starting)),
    )
    (only,) = state.pod_groups
    return only


@pytest.mark.parametrize(
    ("made", "finished", "phase"),
    [
        (group(3, pending=2), Finished(), "Pending"),
        (group(3, pending=3), Finished(), "Scheduling"),
        (group(3, starting=3), Finished(), "Scheduling"),
        (group(3, running=2, pending=1), Finished(), "Scheduling"),
        (group(3, running=3), Finished(), "Running"),
        (group(3, running=2), Finished(succeeded=1), "Running"),
        (group(3, running=2), Finished(failed=1), "Failed"),
        (group(3), Finished(succeeded=3), "Finished"),
        (group(3, running=1, pending=1), Finished(failed=1), "Scheduling"),
        (group(0), Finished(), "Pending"),
        (group(0, running=1), Finished(), "Running"),
        (group(-1, running=1), Finished(), "Pending"),
        (group(3, pending=3, status={"phase": "Finished"}), Finished(), "Finished"),
    ],
)
def test_the_phase_is_that_of_the_coscheduling_controller(
    made: PodGroupState, finished: Finished, phase: str
) -> None:
    assert view_of(made, finished).phase == phase


def test_the_message_names_what_the_group_waits_for() -> None:
    short = view_of(group(3, pending=2), Finished(), failure="needs 12 CPUs more")
    assert (short.scheduled, short.message) == (False, "2 of 3 members exist")
    failing = view_of(group(3, pending=3), Finished(), failure="needs 12 CPUs more")
    assert (failing.reason, failing.message) == ("Unschedulable", "needs 12 CPUs more")
    broken = view_of(group(3, pending=3), Finished(), error="plugin Mine failed")
    assert (broken.reason, broken.message) == ("SchedulerError", "plugin Mine failed")
    assert view_of(group(3, pending=3), Finished()).message == "the group has not been tried yet"
    invalid = view_of(group(-1, pending=3), Finished())
    assert "spec.minMember: is -1" in invalid.message


def test_a_group_is_scheduled_when_its_minimum_is_bound_and_stays_so() -> None:
    bound = view_of(group(3, starting=3), Finished())
    assert (bound.scheduled, bound.reason, bound.message) == (True, "Scheduled", "")
    assert not view_of(group(3, starting=2, pending=1), Finished()).scheduled
    later = group(3, pending=3, status={"phase": "Running"})
    assert view_of(later, Finished(), failure="needs 12 CPUs more").scheduled


def test_the_status_is_written_only_if_it_differs() -> None:
    made = group(2, running=2)
    wanted = desired_status(made, view_of(made, Finished()), "PodGroupScheduled", now=NOW, tried="")
    assert wanted == {
        "phase": "Running",
        "running": 2,
        "occupiedBy": "default/train-job",
        "conditions": [
            {
                "type": "PodGroupScheduled",
                "status": "True",
                "reason": "Scheduled",
                "message": "",
                "observedGeneration": 0,
                "lastTransitionTime": NOW,
            }
        ],
    }
    written = group(2, running=2, status=wanted)
    view = view_of(written, Finished())
    assert desired_status(written, view, "PodGroupScheduled", now="later", tried="") is None


def test_another_message_keeps_the_time_of_the_transition() -> None:
    condition = {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "1 of 3 members exist",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    made = group(3, pending=2, status={"phase": "Pending", "conditions": [condition]})
    wanted = desired_status(made, view_of(made, Finished()), "PodGroupScheduled", now=NOW, tried="")
    assert wanted is not None
    (only,) = wanted["conditions"]
    assert only["message"] == "2 of 3 members exist"
    assert only["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_the_start_is_written_once() -> None:
    made = group(3, pending=3)
    first = desired_status(made, view_of(made, Finished()), "PodGroupScheduled", now=NOW, tried=NOW)
    assert first is not None
    assert first["scheduleStartTime"] == NOW
    again = group(3, pending=3, status=first)
    view = view_of(again, Finished())
    assert desired_status(again, view, "PodGroupScheduled", now=NOW, tried="later") is None


def test_a_group_of_kubernetes_has_the_condition_alone() -> None:
    state = cluster(pod_group("train", 3), pod("p", group="train"))
    (made,) = state.pod_groups
    wanted = desired_status(
        made, view_of(made, Finished()), "PodGroupScheduled", now=NOW, tried=NOW
    )
    assert wanted is not None
    assert wanted.keys() == {"conditions"}
    assert wanted["conditions"][0]["message"] == "1 of 3 members exist"


@pytest.mark.parametrize(
    ("running", "before", "written"),
    [
        (0, {}, {"phase": "Inqueue"}),
        (1, {"phase": "Inqueue"}, {"running": 1}),
        (3, {"phase": "Inqueue"}, {"phase": "Running", "running": 3}),
    ],
)
def test_a_group_of_volcano_has_its_phases_and_is_queued_before_it_has_pods(
    running: int, before: dict[str, Any], written: dict[str, Any]
) -> None:
    named = {"scheduling.k8s.io/group-name": "train"}
    raw = volcano_pod_group("train", 3) | {"status": before}
    raw["metadata"]["generation"] = 7
    pods = (pod(f"p{i}", annotations=named, node="n") for i in range(running))
    state = cluster(node("n"), raw, *pods)
    state.track_pod_groups(GangSchedulingArgs(pod_group_presets=("Volcano",)).formats)
    (only,) = state.pod_groups
    view = view_of(only, Finished())
    status = desired_status(only, view, "Scheduled", now=NOW, tried="") or {}
    (condition,) = status.pop("conditions")
    assert (condition["status"] == "True") == (running >= 3)
    assert "observedGeneration" not in condition
    assert status == written


def test_the_status_of_a_group_of_volcano_is_written_once() -> None:
    state = cluster(volcano_pod_group("train", 3))
    (only,) = state.pod_groups
    view = view_of(only, Finished())
    status = desired_status(only, view, "Scheduled", now=NOW, tried="")
    state = cluster(volcano_pod_group("train", 3) | {"status": status})
    (only,) = state.pod_groups
    assert desired_status(only, view_of(only, Finished()), "Scheduled", now=NOW, tried="") is None
