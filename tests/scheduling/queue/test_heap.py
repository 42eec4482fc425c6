"""A heap keeps the order of its keys, and drops the entries of moved pods."""

from itertools import count
from weakref import ref

from hypothesis import given
from hypothesis import strategies as st

from mooring.model.pod import parse_pod
from mooring.runtime.queued_pod import QueuedPod, StateTimes
from mooring.scheduling.queue.heap import PodHeap
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline

PIPELINE = pipeline()
TICKETS = count(1)


def queued(name: str = "web") -> QueuedPod:
    return QueuedPod(parse_pod(pod(name)), PIPELINE, 0.0, 0.0, times=StateTimes(0.0))


def move(entry: QueuedPod) -> QueuedPod:
    entry.ticket = next(TICKETS)
    return entry


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_pods_that_have_not_moved_come_off_in_the_order_of_their_keys(
    entries: list[tuple[int, bool]],
) -> None:
    heap = PodHeap[int]()
    pods = [(key, move(queued()), moved) for key, moved in entries]
    for key, entry, _ in pods:
        heap.push(key, entry)
    for _, entry, moved in pods:
        if moved:
            move(entry)
    expected = sorted((key, entry.ticket, entry) for key, entry, moved in pods if not moved)
    popped = [heap.pop() for _ in expected]
    assert popped == [entry for _, _, entry in expected]
    assert heap.first() is None
    assert heap.pop() is None


def test_a_pod_that_moves_again_and_again_behind_another_leaves_few_entries() -> None:
    heap = PodHeap[int]()
    staying, restless = queued("first"), queued("restless")
    heap.push(0, move(staying))
    for _ in range(10_000):
        heap.push(1, move(restless))
    assert len(heap) <= 64
    first = heap.first()
    assert first is not None
    assert first[1].pod.name == "first"


def test_no_push_looks_at_all_entries_and_the_order_stays_meanwhile() -> None:
    heap, pods = PodHeap[int](), [queued(str(number)) for number in range(64)]
    for key, each in enumerate(pods):
        heap.push(key, move(each))
    for each in pods[:32]:
        move(each)
    last = queued("64")
    heap.push(64, move(last))
    assert len(heap) >= 61, "four were looked at"
    popped = [heap.pop() for _ in range(33)]
    assert [each.pod.name for each in popped if each is not None] == [*map(str, range(32, 65))]
    assert heap.pop() is None


def test_where_many_pods_have_gone_all_their_entries_are_dropped_at_once() -> None:
    heap, pods = PodHeap[int](), [queued(str(number)) for number in range(2000)]
    for key, each in enumerate(pods):
        heap.push(key, move(each))
    for each in pods[:1000] + pods[1500:]:
        move(each)
    first = heap.first()
    assert first is not None
    assert first[1].pod.name == "1000"
    assert len(heap) == 500


def test_many_pods_that_stay_are_all_kept() -> None:
    heap, pods = PodHeap[int](), [queued() for _ in range(1000)]
    for key, each in enumerate(pods):
        heap.push(key, move(each))
    assert len(heap) == 1000


def test_a_pod_that_has_gone_is_not_kept() -> None:
    heap, staying, going = PodHeap[int](), queued("staying"), queued("going")
    heap.push(0, move(going))
    heap.push(1, move(staying))
    gone = ref(going)
    del going
    assert gone() is None
    assert heap.first() == (1, staying)


class Key:
    """A sort key that a weak reference can watch."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: "Key") -> bool:
        return self.number < other.number


def test_entries_that_are_dropped_at_once_are_freed_a_few_at_a_time() -> None:
    heap, pods = PodHeap[Key](), [queued(str(number)) for number in range(2001)]
    there = list[ref[Key]]()
    for number, each in enumerate(pods):
        key = Key(number)
        there.append(ref(key))
        heap.push(key, move(each))
    del key
    for each in pods[:2000]:
        move(each)

    def left() -> int:
        return sum(key() is not None for key in there[:2000])

    first = heap.first()
    assert first is not None
    assert first[1].pod.name == "2000"
    before = left()
    assert before == 1500, "as many as are dropped one by one are freed at once"
    heap.first()
    assert 0 < before - left() < 100
    for _ in range(100):
        heap.first()
    assert left() == 0
