"""Pods are found by a part of their names."""

from collections.abc import Iterable

from mooring.model.pod import parse_pod
from mooring.page.pod_search import MOST_FOUND, PodSearch
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod, uid_of
from scheduler_states import put_profile, scheduler_state


def state(*running: str, pending: Iterable[str] = ()) -> SchedulerState:
    """Return a state with these running and pending pods, each as "namespace/name"."""
    placed = [
        pod(name, namespace=namespace, node="a")
        for namespace, _, name in (key.partition("/") for key in running)
    ]
    shared = scheduler_state(node("a"), *placed)
    pipeline = put_profile(shared).pipeline
    for key in pending:
        namespace, _, name = key.partition("/")
        shared.queue.add(parse_pod(pod(name, namespace=namespace)), pipeline, 0.0)
    return shared


async def found(shared: SchedulerState, text: str, *visible: str) -> list[str]:
    async def may_see(namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(visible or namespaces) & frozenset(namespaces)

    answer = await PodSearch(shared).find(text, may_see)
    return [each["pod"] for each in answer["pods"]]


async def test_pods_that_wait_run_or_have_no_profile_are_found() -> None:
    shared = state("shop/web-1", pending=["shop/web-2"])
    shared.without_profile[uid_of("web-3", "shop")] = parse_pod(pod("web-3", namespace="shop"))

    async def all_of_them(namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces)

    answer = await PodSearch(shared).find("web", all_of_them)
    assert answer == {
        "pods": [
            {"pod": "shop/web-1", "node": "a"},
            {"pod": "shop/web-2", "node": None},
            {"pod": "shop/web-3", "node": None},
        ],
        "more": False,
    }


async def test_names_that_begin_with_the_text_come_first() -> None:
    shared = state("a/my-web", "b/web", "web/db", "c/other")
    assert await found(shared, "web") == ["b/web", "web/db", "a/my-web"]
    assert await found(shared, "b/w") == ["b/web"]
    assert await found(shared, "none") == []
    assert await found(shared, "") == []


async def test_pods_of_other_namespaces_are_neither_named_nor_counted() -> None:
    shared = state(*(f"bank/web-{number:02}" for number in range(20)), "shop/web")
    assert await found(shared, "web", "shop") == ["shop/web"]

    async def nothing(_: Iterable[str]) -> frozenset[str]:
        return frozenset()

    assert await PodSearch(shared).find("web", nothing) == {"pods": [], "more": False}


async def test_of_many_pods_the_first_are_found_and_that_there_are_more() -> None:
    shared = state(*(f"{'ab'[n % 2]}/web-{n:03}" for n in reversed(range(600))))

    async def all_of_them(namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces)

    answer = await PodSearch(shared).find("web", all_of_them)
    assert [each["pod"] for each in answer["pods"]] == [
        f"a/web-{number:03}" for number in range(0, 2 * MOST_FOUND, 2)
    ]
    assert answer["more"]
