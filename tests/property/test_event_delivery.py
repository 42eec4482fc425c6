"""Cluster events come in the order of the writes, and never while others are being delivered."""

from collections.abc import Callable
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, node, pod, pod_group

PODS: Final = [parse_pod(pod(f"g-{i}", group="g")) for i in range(3)]

Write = Callable[[ClusterState], None]


def shown(member: Pod) -> Write:
    """Return a write that shows a member without a node."""
    return lambda state: state.put_unscheduled(member)


def gone(member: Pod) -> Write:
    return lambda state: state.delete_unscheduled(member.uid)


def assumed(member: Pod) -> Write:
    """Return a write that assumes a member on node a, and announces it."""

    def write(state: ClusterState) -> None:
        state.assume(member, state.nodes.row_of["a"])
        state.announce(member)

    return write


def forgotten(member: Pod) -> Write:
    """Return a write that undoes the assumption of a member."""
    return lambda state: state.forget(member)


def nominated(member: Pod) -> Write:
    """Return a write that nominates a member to node a, or from there to none."""

    def write(state: ClusterState) -> None:
        known = state.nominations.get(member.uid) is not None
        state.withdraw(member.uid) if known else state.nominate(member, "a")

    return write


WRITES = st.builds(
    lambda make, member: make(member),
    st.sampled_from([shown, gone, assumed, forgotten, nominated]),
    st.sampled_from(PODS),
)


def about(value: object) -> tuple[str, str | None, str | None] | None:
    """Return what differs between versions of a pod."""
    return (value.uid, value.node_name, value.nominated_node) if isinstance(value, Pod) else None


class Listener:
    """The sink of a state, which writes itself while it is told of events.

    `answers` are what it writes at each delivery. It notes every event, and fails if a delivery
    begins inside another one, or while `closed`.
    """

    def __init__(self, state: ClusterState, answers: list[list[Write]]) -> None:
        self.state = state
        self.closed = False
        self.heard: list[tuple[Kind, Action, Any, Any]] = []
        self._answers = answers
        self._is_told = False
        state.on_events(self)

    def __call__(self, events: tuple[ClusterEvent, ...]) -> None:
        assert not self._is_told
        assert not self.closed
        self._is_told = True
        self.heard += [(e.kind, e.action, about(e.before), about(e.after)) for e in events]
        for write in self._answers.pop() if self._answers else ():
            write(self.state)
        self._is_told = False


def group() -> ClusterState:
    """Return a cluster of one node, with a group that has no members yet."""
    return cluster(node("a"), pod_group("g", 2))


@given(
    writes=st.lists(st.tuples(st.sampled_from(["alone", "held", "trial"]), WRITES), max_size=12),
    answers=st.lists(st.lists(WRITES, max_size=3), max_size=6),
)
def test_no_event_is_delivered_inside_a_delivery_a_trial_or_a_held_write(
    writes: list[tuple[str, Write]], answers: list[list[Write]]
) -> None:
    state = group()
    listener = Listener(state, answers)
    for how, write in writes:
        match how:
            case "alone":
                write(state)
            case "held":
                with state.delivered_after():
                    listener.closed = True
                    write(state)
                    listener.closed = False
            case _:
                with state.trial():
                    listener.closed = True
                    write(state)
                    listener.closed = False


@given(writes=st.lists(WRITES, max_size=12))
def test_events_come_in_the_order_of_the_writes(writes: list[Write]) -> None:
    """A listener that writes nothing hears of the same events, held or not."""
    alone, together = group(), group()
    expected, heard = Listener(alone, []), Listener(together, [])
    for write in writes:
        write(alone)
    with together.delivered_after():
        for write in writes:
            write(together)
        assert heard.heard == []
    assert heard.heard == expected.heard


@given(first=WRITES, answers=st.lists(st.lists(WRITES, max_size=3), max_size=6))
def test_what_a_listener_writes_is_delivered_after_what_it_is_told(
    first: Write, answers: list[list[Write]]
) -> None:
    """So writing the same, one after the other, delivers the same."""
    answering, plain = group(), group()
    written: list[Write] = [first]

    def noted(write: Write) -> Write:
        def write_and_note(state: ClusterState) -> None:
            written.append(write)
            write(state)

        return write_and_note

    heard = Listener(answering, [[noted(write) for write in each] for each in answers])
    first(answering)
    expected = Listener(plain, [])
    for write in written:
        write(plain)
    assert heard.heard == expected.heard
