"""The pods that the user of a request may see, and the names that answers hide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson
import pytest
from aiohttp import web

from mooring.framework.decision import ANY_POD, Decision, PodRef, TextAboutPods
from mooring.model.access import Attributes, NonResourceAttributes, User, pod_read
from mooring.observe.documents import plain
from mooring.observe.viewer import MOST_NAMESPACES, Viewer


class Granted:
    """An API server that grants these accesses; `reviewed` records the questions."""

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


VAULT, LOW = PodRef.of_key("bank/vault"), PodRef.of_key("shop/low")
FAILED = TextAboutPods('pods "vault" is forbidden', (VAULT,), "an eviction failed")
DOCUMENT: dict[str, Any] = {
    "pod": "shop/web",
    "path": {"steps": [{"victims": [VAULT]}, {"by": VAULT}, {"cause": FAILED}]},
    "decisions": [
        Decision(PodRef.of_key("shop/web"), "mooring", None, "n1", (VAULT, LOW), None, {}, None)
    ],
    "now": None,
}
HIDDEN_POD = "a pod that you may not get"


def ann(*namespaces: str) -> Viewer:
    """Return a user who may get the pods of these namespaces; "" means all namespaces."""
    return Viewer(Granted(*(pod_read(name) for name in namespaces)), User("ann"))


async def shown(viewer: Viewer, document: Any) -> Any:
    return orjson.loads(await viewer.shown(document))


async def test_pods_of_other_namespaces_lose_their_names() -> None:
    found = await shown(ann("shop"), DOCUMENT)
    assert "vault" not in str(found)
    nominated, preempted, failed = found["path"]["steps"]
    assert nominated["victims"] == [HIDDEN_POD]
    assert preempted["by"] == HIDDEN_POD
    assert failed["cause"] == "an eviction failed"
    assert found["decisions"][0]["pod"] == "shop/web"
    assert found["decisions"][0]["victims"] == [HIDDEN_POD, "shop/low"]


async def test_to_those_who_may_get_them_all_pods_are_named() -> None:
    whole = plain(DOCUMENT)
    assert whole["path"]["steps"][2]["cause"] == 'pods "vault" is forbidden'
    assert whole["decisions"][0]["victims"] == ["bank/vault", "shop/low"]
    assert await shown(ann("shop", "bank"), DOCUMENT) == whole
    assert await shown(ann(""), DOCUMENT) == whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Decision):
    """A decision with additional fields that name pods."""

    beside: PodRef
    why: Mapping[str, Sequence[TextAboutPods]]


@pytest.mark.parametrize("where", [lambda d: d, lambda d: [d], lambda d: {"new": {"field": d}}])
async def test_a_field_that_names_a_pod_is_redacted_whatever_it_is_called(
    where: Callable[[Longer], Any],
) -> None:
    decision = DOCUMENT["decisions"][0]
    known = {each.name: getattr(decision, each.name) for each in fields(Decision)}
    longer = where(Longer(**known, beside=VAULT, why={"new": [FAILED]}))
    assert "vault" not in str(await shown(ann("shop"), longer))
    assert "bank/vault" in str(await shown(ann("shop", "bank"), longer))


@pytest.mark.parametrize(("namespace", "named"), [("shop", False), ("", True)])
async def test_a_text_that_may_name_any_pod_is_for_those_who_may_get_all_pods(
    namespace: str, *, named: bool
) -> None:
    text = TextAboutPods("vault", (LOW, ANY_POD), "an eviction failed")
    assert ("vault" in str(await shown(ann(namespace), [text]))) == named


async def test_a_pod_that_the_user_is_known_to_may_get_needs_no_review() -> None:
    access = Granted()
    document = {"decisions": [DOCUMENT["decisions"][0].pod]}
    found = await Viewer(access, User("ann")).shown(document, lambda pod: pod.key == "shop/web")
    assert orjson.loads(found) == {"decisions": ["shop/web"]}
    assert access.reviewed == []


async def test_an_answer_that_names_no_pod_needs_no_review() -> None:
    access = Granted()
    document = {"pod": None, "decisions": [{"pod": "shop/web", "victims": []}]}
    assert orjson.loads(await Viewer(access, User("ann")).shown(document)) == document
    assert access.reviewed == []
