"""What the user of a request may see, and which names an answer loses for it."""

from typing import Any

import pytest
from aiohttp import web

from mooring.model.access import Attributes, NonResourceAttributes, User, pod_read
from mooring.observe.viewer import MOST_NAMESPACES, Viewer


class Granted:
    """An API server that grants these accesses and notes what it is asked."""

    def __init__(self, *granted: Attributes) -> None:
        self.granted = granted
        self.reviewed: list[Attributes] = []

    async def user_of(self, _request: web.Request) -> User:
        return User("ann")

    async def allows(self, _user: User, attributes: Attributes) -> bool:
        self.reviewed.append(attributes)
        return attributes in self.granted


async def test_namespaces_are_visible_whose_pods_the_user_may_get() -> None:
    viewer = Viewer(Granted(pod_read("shop")), User("ann"))
    assert await viewer.visible(["shop", "bank"]) == {"shop"}


async def test_a_user_who_may_get_all_pods_sees_every_namespace_with_one_review() -> None:
    access = Granted(pod_read())
    viewer = Viewer(access, User("ann"))
    names = [f"n{i}" for i in range(1000)]
    assert await viewer.visible(names) == set(names)
    assert access.reviewed == [pod_read()]


async def test_reviews_for_one_answer_are_bounded() -> None:
    access = Granted()
    await Viewer(access, User("ann")).visible(f"n{i}" for i in range(1000))
    assert len(access.reviewed) == MOST_NAMESPACES + 1


async def test_what_is_missing_is_named() -> None:
    viewer = Viewer(Granted(), User("ann"))
    with pytest.raises(web.HTTPForbidden) as forbidden:
        await viewer.require(NonResourceAttributes("get", "/ui/api/pod"))
    assert forbidden.value.text == 'forbidden: User "ann" cannot get path "/ui/api/pod"\n'


SUGGESTION = {
    "change": "when bank/vault on n1 ends",
    "cause": "pods that run",
    "nodes": 1,
    "examples": ["n1"],
    "ended": ["bank/vault"],
}
DOCUMENT: dict[str, Any] = {
    "pod": "shop/web",
    "path": {
        "state": "unschedulable",
        "steps": [
            {"step": "nominated", "node": "n1", "victims": ["bank/vault"]},
            {"step": "preempted", "node": "n1", "by": "bank/vault"},
            {
                "step": "preemptionFailed",
                "cause": 'pods "vault" is forbidden',
                "victims": ["bank/vault"],
                "victimsInAll": 1,
            },
        ],
    },
    "report": {"state": "unschedulable", "suggestions": [SUGGESTION]},
    "decisions": [{"pod": "shop/web", "victims": ["bank/vault", "shop/low"]}],
    "now": None,
}


def ann(*namespaces: str) -> Viewer:
    """Return a user who may get the pods of these namespaces; of all if one of them is ""."""
    return Viewer(Granted(*(pod_read(name) for name in namespaces)), User("ann"))


async def test_pods_of_other_namespaces_lose_their_names() -> None:
    shown = await ann("shop").redacted(DOCUMENT)
    assert "vault" not in str(shown)
    assert shown["report"]["suggestions"][0]["change"] == "when a pod on n1 ends"
    nominated, preempted, failed = shown["path"]["steps"]
    assert nominated["victims"] == ["a pod that you may not get"]
    assert preempted["by"] == "a pod that you may not get"
    assert failed["cause"] == "the eviction of a pod that you may not get failed"
    assert shown["decisions"][0]["victims"] == ["a pod that you may not get", "shop/low"]


async def test_to_those_who_may_get_them_all_pods_are_named() -> None:
    assert await ann("shop", "bank").redacted(DOCUMENT) == DOCUMENT
    assert await ann("").redacted(DOCUMENT) == DOCUMENT


@pytest.mark.parametrize(("namespace", "shown"), [("shop", False), ("", True)])
async def test_a_cause_that_may_name_a_victim_left_out_is_for_those_who_may_get_all_pods(
    namespace: str, *, shown: bool
) -> None:
    step = {
        "step": "preemptionFailed",
        "cause": "vault",
        "victims": ["shop/low"],
        "victimsInAll": 2,
    }
    found = await ann(namespace).redacted({"path": {"steps": [step]}})
    assert ("vault" in str(found)) == shown


async def test_an_answer_that_names_no_other_pod_needs_no_review() -> None:
    access = Granted()
    document = {"pod": None, "decisions": [{"pod": "shop/web", "victims": []}]}
    assert await Viewer(access, User("ann")).redacted(document) is document
    assert access.reviewed == []
