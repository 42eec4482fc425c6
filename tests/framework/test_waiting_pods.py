from mooring.framework.verdicts import Unschedulable
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import pod


class Guest:
    """A pod that waits at Permit; `heard` records the calls of `decided`."""

    def __init__(self, room: WaitingPods, name: str, now: float = 0.0, **deadlines: float) -> None:
        self.pod: Pod = parse_pod(pod(name))
        self.heard: list[tuple[Unschedulable | None, str]] = []
        room.enter(self.pod, "n1", deadlines, now, lambda *said: self.heard.append(said))


def test_the_last_plugin_to_agree_lets_the_pod_go_on() -> None:
    room = WaitingPods()
    guest = Guest(room, "a", First=5.0, Second=5.0)
    room.allow(guest.pod.uid, "First")
    assert guest.heard == []
    room.allow(guest.pod.uid, "Second")
    assert guest.heard == [(None, "Second")]
    assert len(room) == 0


def test_one_refusal_is_enough_and_final() -> None:
    room = WaitingPods()
    guest = Guest(room, "a", First=5.0, Second=5.0)
    room.reject(guest.pod.uid, "First", "the gang is incomplete")
    room.allow(guest.pod.uid, "Second")
    room.reject(guest.pod.uid, "Second", "again")
    assert guest.heard == [(Unschedulable("the gang is incomplete", resolvable=True), "First")]


def test_whoever_waits_too_long_is_refused_by_the_plugin_that_was_late() -> None:
    room = WaitingPods()
    early, late = Guest(room, "early", now=1.0, Gang=4.0), Guest(room, "late", now=1.0, Gang=9.0)
    room.expire(4.0)
    reason = "rejected due to timeout after waiting 3s at plugin Gang"
    assert early.heard == [(Unschedulable(reason, resolvable=True), "Gang")]
    assert late.heard == []
    assert room.get(late.pod.uid) is not None


def test_waiting_pods_can_be_found_and_listed_while_they_are_told() -> None:
    room = WaitingPods()
    guests = [Guest(room, name, Gang=1.0) for name in "abc"]
    assert room.get(guests[0].pod.uid) is not None
    for waiting in room:
        room.allow(waiting.pod.uid, "Gang")
    assert all(guest.heard == [(None, "Gang")] for guest in guests)
    assert room.get(guests[0].pod.uid) is None


def test_a_pod_nobody_knows_is_nobodys_business() -> None:
    room = WaitingPods()
    room.allow("nobody", "Gang")
    room.reject("nobody", "Gang", "why")
    assert len(room) == 0


def test_a_pod_that_leaves_hears_nothing() -> None:
    room = WaitingPods()
    guest = Guest(room, "a", First=5.0)
    room.leave(guest.pod.uid)
    room.allow(guest.pod.uid, "First")
    assert guest.heard == []
    assert len(room) == 0
