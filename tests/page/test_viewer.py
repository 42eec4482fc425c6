"""What the user of a request may see."""

import pytest
from aiohttp import web

from mooring.model.access import Attributes, NonResourceAttributes, User, pod_read
from mooring.page.viewer import MOST_NAMESPACES, Viewer


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
