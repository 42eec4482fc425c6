"""A group in flight is changed exactly when a look at all of its members has shown a change."""

from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from mooring.engine.groups.members import is_unchanged, take_members
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.queued_pod import GroupInFlight, QueuedPod
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, pod_group, uid_of
from scheduler_states import put_profile, scheduler_state, silent_pod_enqueuer

GATED = {"schedulingGates": [{"name": "closed"}]}
VERSIONS: Mapping[str, Mapping[str, Any]] = {
    "as it was": {},
    "with other labels": {"labels": {"a": "b"}},
    "gated": {"spec": GATED},
    "in another group": {"group": "h"},
    "of another scheduler": {"spec": {"schedulerName": "other"}},
}
MEMBERS = ("g0", "g1", "g2")

changes = st.tuples(
    st.sampled_from((*VERSIONS, "bound", "deleted", "unbound")),
    st.sampled_from((*MEMBERS, "late", "alone")),
)


def is_as_it_was(members: list[QueuedPod], scheduler: SchedulerState) -> bool:
    """Look at all members."""
    return all(
        scheduler.queue.get(member.pod.uid) is member
        and not member.outdated
        and not member.gated
        and scheduler.state.pods.get(member.pod.uid) is None
        for member in members
    )


@given(st.lists(changes, max_size=4), st.lists(changes, max_size=8))
@example([("gated", "g1"), ("gated", "g2")], [("bound", "g0")])
@example([("gated", "g1"), ("gated", "g2")], [("gated", "g0"), ("as it was", "g0")])
@example([("gated", "g1"), ("gated", "g2")], [("deleted", "g0")])
@example([("bound", "g0")], [])
def test_a_change_of_a_member_is_a_change_of_its_group(
    before: list[tuple[str, str]], during: list[tuple[str, str]]
) -> None:
    scheduler = scheduler_state(node("n"), pod_group("g", 2), pod_group("h", 1))
    put_profile(scheduler)
    pod_enqueuer = silent_pod_enqueuer(scheduler)
    scheduler.state.on_events(pod_enqueuer.on_events)

    def make(change: str, name: str) -> None:
        uid, group = uid_of(name), None if name == "alone" else "g"
        if change == "deleted":
            pod_enqueuer.gone(uid)
        elif change == "unbound":
            scheduler.state.delete(Kind.POD, uid)
        elif change == "bound":
            scheduler.state.put(Kind.POD, uid, parse_pod(pod(name, node="n", group=group)))
        else:
            fields: dict[str, Any] = {"group": group, **VERSIONS[change]}
            pod_enqueuer.pending(parse_pod(pod(name, **fields)))

    for name in MEMBERS:
        make("as it was", name)
    for change in before:
        make(*change)
    first = scheduler.queue.pop(0.0)
    group = scheduler.cluster.pod_groups.of(first.pod) if first is not None else None
    if first is None or group is None:
        return
    in_flight, definition = GroupInFlight(), group.definition
    members = take_members(group, first, scheduler, 0.0, in_flight)
    unchanged = is_as_it_was(members, scheduler)
    assert in_flight.changed is not unchanged
    for change in during:
        make(*change)
        unchanged = unchanged and is_as_it_was(members, scheduler)
        assert in_flight.changed is not unchanged
        expected = unchanged and group.incomplete is None
        assert is_unchanged(group, definition, in_flight) is expected
