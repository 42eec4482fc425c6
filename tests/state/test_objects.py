from mooring.model.events import Kind
from mooring.model.workloads import Namespace, Service, parse_namespace, parse_service
from mooring.state.objects import Objects
from mooring.testing.builders import namespace, service


def front(name: str = "front", namespace: str = "default", app: str = "web") -> Service:
    return parse_service(service(name, {"app": app}, namespace=namespace))


def put(objects: Objects, value: Service) -> Service | None:
    before: Service | None = objects.put(Kind.SERVICE, value.key, value)
    return before


def team(**labels: str) -> Namespace:
    return parse_namespace(namespace("team-a", labels))


def test_an_object_is_found_until_it_is_removed() -> None:
    objects, first, second = Objects(), front(app="web"), front(app="db")
    assert put(objects, first) is None
    assert put(objects, second) is first
    assert objects.of(Kind.SERVICE) == {"default/front": second}
    assert objects.pop(Kind.SERVICE, "default/front") is second
    assert objects.pop(Kind.SERVICE, "default/front") is None
    assert objects.of(Kind.SERVICE) == {}


def test_objects_of_different_kinds_may_have_the_same_key() -> None:
    objects = Objects()
    put(objects, front())
    assert objects.of(Kind.STATEFUL_SET) == {}


def test_services_are_found_by_namespace() -> None:
    objects, here, too, there = Objects(), front("a"), front("b"), front("a", "team-b")
    for each in (here, too, there):
        put(objects, each)
    assert set(objects.services("default")) == {here, too}
    assert objects.services("team-b") == (there,)
    assert objects.services("elsewhere") == ()
    objects.pop(Kind.SERVICE, "default/a")
    objects.pop(Kind.SERVICE, "team-b/a")
    assert objects.services("default") == (too,)
    assert objects.services("team-b") == ()


def test_services_of_a_namespace_are_one_tuple_until_one_of_them_changes() -> None:
    objects = Objects()
    put(objects, front(app="web"))
    before = objects.services("default")
    put(objects, front(app="web"))
    put(objects, front("other", "team-b"))
    assert objects.services("default") is before
    put(objects, front(app="db"))
    assert objects.services("default") == (front(app="db"),)


def test_an_unknown_namespace_has_no_labels_and_says_that_it_is_unknown() -> None:
    objects = Objects()
    assert objects.namespace_labels("team-a") == {}
    assert objects.known_namespace_labels("team-a") is None
    objects.put(Kind.NAMESPACE, "team-a", team(env="prod"))
    assert objects.namespace_labels("team-a")["env"] == "prod"
    assert objects.known_namespace_labels("team-a") == objects.namespace_labels("team-a")
