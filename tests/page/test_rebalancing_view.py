"""The view Rebalancing: the leader's last plans, and plans on request."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.kube.timestamps import rfc3339
from mooring.model.events import Kind
from mooring.model.node import HOSTNAME
from mooring.observe.documents import HIDDEN, plain
from mooring.page.rebalancing_view import PlanRequest, PlansView
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.report import RebalancingReport, plan_report
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.simulate.manifests import InputError
from mooring.testing.builders import node, uid_of
from pages import page, served
from planning import emptying, placed_pod, plan
from scheduler_states import put_profile, scheduler_state
from served_endpoints import Rights

SECTION: dict[str, Any] = {"goals": ["Pack"], "pods": {"minimumAgeSeconds": 0}}
LATER = 2e9
READ = 'get path "/ui/api/rebalancing"'
PODS_OF_SHOP = 'get resource "pods" in API group "" in the namespace "shop"'


def state(*, section: dict[str, Any] | None = SECTION) -> SchedulerState:
    """Return two nodes with one pod each, and a profile; the pod on n1 should move to n2."""
    nodes = (node(name, cpu="4", memory="8Gi") for name in ("n1", "n2"))
    pods = [placed_pod("a", "n1"), placed_pod("b", "n2", cpu="2")]
    pods[0]["spec"]["nodeSelector"] = {HOSTNAME: "n2"}
    shared = scheduler_state(*nodes, *pods)
    fields: dict[str, Any] = {"rebalancing": section} if section is not None else {}
    put_profile(shared, "default-scheduler", **fields)
    return shared


def report(message: str | TextAboutPods = "") -> RebalancingReport:
    step = replace(emptying("n1", "n2", "a"), group="shop/secret")
    section = Rebalancing(goals=(Goal.PACK,))
    shown = plan_report("default-scheduler", section, plan(step), rfc3339(0.0))
    return RebalancingReport("default-scheduler", "Plan", message, 3, 1, shown.steps, shown)


def test_each_profile_is_shown_with_its_mode_goals_and_last_plan() -> None:
    view = PlansView(state(), lambda: [report()])
    (profile,) = plain(view.document())["profiles"]
    assert (profile["mode"], profile["goals"], profile["done"]) == ("Plan", ["Pack"], 3)
    shown = profile["latest"]
    assert shown["time"] == "1970-01-01T00:00:00Z"
    assert shown["emptied"] == ["n1"]
    (step,) = shown["steps"]
    assert (step["goal"], step["gain"], step["group"]) == ("Pack", 1000, "shop/secret")
    assert step["moves"] == [{"pod": "shop/a", "owner": "ReplicaSet", "from": "n1", "to": "n2"}]
    assert [each["node"] for each in shown["nodes"]] == ["n1", "n2"]
    assert [each["after"]["pods"] for each in shown["nodes"]] == [0, 2]


def test_a_pod_that_has_moved_is_not_counted_twice() -> None:
    shared = state()
    (placed,) = shared.cluster.pods_of("n1")
    shared.state.put(Kind.POD, placed.pod.uid, replace(placed.pod, node_name="n2"))
    (profile,) = plain(PlansView(shared, lambda: [report()]).document())["profiles"]
    nodes = profile["latest"]["nodes"]
    assert [each["after"]["pods"] for each in nodes] == [0, 2]


def test_a_profile_without_a_section_has_no_mode_and_no_plan() -> None:
    (profile,) = plain(PlansView(state(section=None), tuple).document())["profiles"]
    assert (profile["mode"], profile["goals"], profile["latest"]) == (None, [], None)


async def test_names_of_pods_are_shown_to_users_who_may_get_them() -> None:
    message = TextAboutPods(
        "shop/a waits", (PodRef("shop", "a", uid_of("a", "shop")),), "one waits"
    )
    shown = page(state(), plans=[report(message)])
    rights = Rights(ann=[READ, PODS_OF_SHOP], bob=[READ])
    for user, pod, text in (("ann", "shop/a", "shop/a waits"), ("bob", HIDDEN, "one waits")):
        async with (
            served(shown, rights=rights, user=user) as client,
            client.get("/ui/api/rebalancing") as answer,
        ):
            (profile,) = (await answer.json())["profiles"]
        (step,) = profile["latest"]["steps"]
        assert [move["pod"] for move in step["moves"]] == [pod]
        assert ("shop/secret" in json.dumps(profile)) is (user == "ann")
        assert profile["message"] == text
        assert [move["pod"] for step in profile["underWay"] for move in step["moves"]] == [pod]


async def test_a_plan_is_made_on_the_live_state_for_the_goals_that_are_asked_for() -> None:
    view = PlansView(state(section=None), tuple, now=lambda: LATER)
    shown = plain(await view.planned(PlanRequest("default-scheduler", (Goal.VIOLATIONS,))))
    assert shown["time"] == "2033-05-18T03:33:20Z"
    (step,) = shown["steps"]
    assert (step["goal"], len(step["moves"])) == ("Violations", 1)


async def test_without_goals_those_of_the_profile_count() -> None:
    view = PlansView(state(), tuple, now=lambda: LATER)
    shown = plain(await view.planned(PlanRequest("default-scheduler")))
    assert shown["goals"] == ["Pack"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (PlanRequest("none"), 'there is no profile "none" in force'),
        (
            PlanRequest("default-scheduler", (Goal.PACK, Goal.SPREAD)),
            "Spread and Pack, which undo each other",
        ),
    ],
)
async def test_a_request_that_makes_no_sense_is_one_line(wanted: PlanRequest, words: str) -> None:
    with pytest.raises(InputError, match=words):
        await PlansView(state(), tuple).planned(wanted)


async def test_planning_needs_the_right_to_post_it() -> None:
    body = {"profile": "default-scheduler", "goals": ["Pack"]}
    rights = Rights(ann=['post path "/ui/api/plan"'], bob=[READ])
    shown = page(state(), now=LATER)
    for user, status in (("ann", 200), ("bob", 403)):
        async with (
            served(shown, rights=rights, user=user) as client,
            client.post("/ui/api/plan", json=body) as answer,
        ):
            assert answer.status == status
