"""The events of pods that bypass kopf, and the events that kopf must get."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.handlers.bursts import QUIET_SECONDS, PodEventFilter
from mooring.kube.response_checks import WatchEvent


class Told:
    """Records the events that bypass kopf; the test moves the clock."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.now = 100.0
        self.bursts = PodEventFilter(self, lambda: self.now)

    async def __call__(self, event: Mapping[str, Any]) -> None:
        self.events.append((event["type"], event["object"]["metadata"]["uid"]))

    async def takes(self, kind: WatchEvent, uid: str) -> bool:
        return await self.bursts.takes(kind, {"metadata": {"uid": uid}}, 100)


async def test_an_event_after_a_pause_goes_through_kopf_and_those_right_after_it_past_it() -> None:
    told = Told()
    assert not await told.takes("ADDED", "a")
    told.now += QUIET_SECONDS / 2
    assert await told.takes("ADDED", "b")
    told.now += 2 * QUIET_SECONDS
    assert not await told.takes("ADDED", "c")
    assert told.events == [("ADDED", "b")]


async def test_a_pod_that_kopf_was_shown_stays_with_it_until_it_has_gone() -> None:
    told = Told()
    assert not await told.takes("ADDED", "a")
    assert not await told.takes("MODIFIED", "a")
    assert not await told.takes("DELETED", "a")
    assert await told.takes("ADDED", "a")
    assert told.events == [("ADDED", "a")]


async def test_a_pod_that_was_listed_for_kopf_stays_with_it() -> None:
    told = Told()
    told.bursts.listed([{"metadata": {"uid": "a"}}])
    assert not await told.takes("ADDED", "first")
    assert not await told.takes("MODIFIED", "a")
    assert await told.takes("ADDED", "b")


async def test_pods_of_every_page_of_a_list_stay_with_kopf() -> None:
    told = Told()
    told.bursts.listed([{"metadata": {"uid": "former"}}])
    told.bursts.listed([{"metadata": {"uid": "a"}}])
    told.bursts.listed([{"metadata": {"uid": "b"}}], goes_on=True)
    assert not await told.takes("ADDED", "first")
    assert not await told.takes("MODIFIED", "a")
    assert not await told.takes("MODIFIED", "b")
    assert await told.takes("ADDED", "former")


async def test_pods_that_a_later_list_does_not_show_are_not_remembered() -> None:
    """After a gap of the watch, kopf reports no end of these pods, and there may be thousands."""
    told = Told()
    for uid in "ab":
        told.now += 2 * QUIET_SECONDS
        assert not await told.takes("ADDED", uid)
    told.bursts.listed([{"metadata": {"uid": "b"}}])
    assert await told.takes("ADDED", "a")
    assert not await told.takes("MODIFIED", "b")


@pytest.mark.parametrize("kind", ["BOOKMARK", "ERROR"])
async def test_what_is_no_event_of_a_pod_is_for_kopf(kind: WatchEvent) -> None:
    told = Told()
    await told.takes("ADDED", "first")
    assert not await told.bursts.takes(kind, {"metadata": {"resourceVersion": "7"}}, 100)
    assert told.events == []


_KINDS = st.sampled_from(["ADDED", "MODIFIED", "DELETED"])


@given(
    st.lists(st.tuples(_KINDS, st.sampled_from("abc"), st.sampled_from([0.0, 2 * QUIET_SECONDS])))
)
async def test_no_event_of_a_pod_overtakes_one_that_kopf_got(
    events: list[tuple[WatchEvent, str, float]],
) -> None:
    """After kopf has got an event of a pod, it gets all events until the pod's deletion."""
    told, with_kopf = Told(), dict[str, bool]()
    for kind, uid, pause in events:
        told.now += pause
        if await told.takes(kind, uid):
            assert not with_kopf.get(uid)
        else:
            with_kopf[uid] = kind != "DELETED"
