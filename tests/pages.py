"""The page over a scheduler's state, with objects of an API server."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

import served_endpoints
from mooring.handlers.profile_handler import ProfileHandler
from mooring.kube.api_resources import POD, ApiCall, Resource
from mooring.kube.client import Listing
from mooring.kube.errors import NotFoundError
from mooring.observe.http import Endpoints
from mooring.observe.records import DecisionLog
from mooring.page.nodes_view import Nodes
from mooring.page.pod_objects import PodObjects
from mooring.page.pod_search import PodSearch
from mooring.page.pods_view import Pods
from mooring.page.policy_view import PolicyView
from mooring.page.queue_view import Queue
from mooring.page.rebalancing_view import PlansView
from mooring.page.routes import Page
from mooring.page.trials import WhatIfRunner
from mooring.rebalancing.report import RebalancingReport
from mooring.scheduling.pod_report import PodReportBuilder
from mooring.scheduling.scheduler_state import SchedulerState
from scheduler_states import SHIPPED_ONLY, silent_pod_enqueuer
from served_endpoints import EVERYTHING, Rights, endpoints


class Stored:
    """Implements `mooring.page.pod_objects.ObjectClient` over pods and events."""

    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._objects = tuple(objects)

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return the pod of this name."""
        assert resource == POD
        for raw in self._objects:
            metadata = raw["metadata"]
            if raw["kind"] == "Pod" and (metadata["namespace"], metadata["name"]) == (
                namespace,
                name,
            ):
                return dict(raw)
        raise NotFoundError(ApiCall("get", "pods", "", namespace, name), "not found")

    async def list_pages(
        self,
        _resource: Resource,
        namespace: str | None = None,
        selectors: Mapping[str, str] | None = None,
        *,
        limit: int | None,
    ) -> AsyncGenerator[Listing, None]:
        """Yield the events about the pod whose uid is selected."""
        wanted = (selectors or {})["fieldSelector"].rpartition("=")[2]
        events = [raw for raw in self._objects if raw["kind"] == "Event"]
        found = [raw for raw in events if raw["involvedObject"]["uid"] == wanted]
        yield Listing(
            [dict(raw) for raw in found if raw["metadata"]["namespace"] == namespace][:limit], "1"
        )


def page(
    shared: SchedulerState,
    decisions: DecisionLog | None = None,
    *,
    groups: Callable[[str, str], list[dict[str, Any]]] = lambda _namespace, _name: [],
    leading: bool = True,
    queue: Queue | None = None,
    objects: Iterable[Mapping[str, Any]] = (),
    plans: Iterable[RebalancingReport] = (),
    now: float = 0.0,
) -> Page:
    """Return the page over this state.

    `groups` returns descriptions of pod groups; `queue` is the view of the waiting pods. `objects`
    are the pods and events on the API server. `plans` are the reports of rebalancing; the page
    makes its own plans at the time `now`.
    """
    handler = ProfileHandler(shared.profiles, silent_pod_enqueuer(shared))
    log = decisions or DecisionLog()
    no_shadows: dict[str, Any] = {"profiles": {}, "pods": []}
    reports = PodReportBuilder(shared, groups=groups)
    trials = WhatIfRunner(shared, SHIPPED_ONLY, now=lambda: 0.0)
    return Page(
        nodes=Nodes(shared),
        queue=queue or Queue(shared, bound=lambda: 0, clock=lambda: 0.0, now=lambda: 0.0),
        pods=Pods(shared, log, reports.of, now=lambda: 0.0),
        pod_groups=reports.of_groups,
        policy=PolicyView(shared.profiles, handler, lambda _: no_shadows),
        trials=lambda: trials,
        plans=PlansView(shared, lambda: plans, now=lambda: now),
        search=PodSearch(shared),
        objects=PodObjects(Stored(objects), shared.uid_of),
        leading=lambda: leading,
        deciding=lambda: leading,
    )


def page_endpoints(shown: Page, rights: Rights | None = None) -> Endpoints:
    """Return endpoints that serve this page; their other answers are defaults."""
    return endpoints(page=shown, reviews=rights or Rights(admin=[EVERYTHING]))


def served(
    shown: Page, *, rights: Rights | None = None, user: str | None = "admin"
) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """Return a context whose value is a client of the page, logged in as this user."""
    return served_endpoints.served(page_endpoints(shown, rights), user=user)
