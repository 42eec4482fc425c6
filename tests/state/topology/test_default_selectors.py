import gc
from typing import Any

from memory import traced_memory
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.topology.default_selectors import DefaultSelectors
from mooring.state.topology.pod_selection import Selection
from mooring.testing.builders import api_object, cluster, pod, service

WEB = {"app": "web"}
FULL = {"app": "web", "tier": "front", "hash": "1"}


def owner(kind: str, api_version: str = "") -> dict[str, str]:
    version = api_version or ("v1" if kind == "ReplicationController" else "apps/v1")
    return {"kind": kind, "name": "web", "uid": "1", "apiVersion": version}


def controller(kind: str, labels: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return api_object(kind, "web", namespace=namespace, spec={"selector": selector})


def web(**fields: Any) -> Pod:
    return parse_pod(pod(**{"labels": FULL} | fields))


def asked(pods: Selection | None) -> dict[str, tuple[str, ...]]:
    assert pods is not None
    (part,) = pods.parts
    assert part.namespaces == {"default"}
    assert part.selector is not None
    return {r.key: r.values for r in part.selector.requirements}


def put(state: ClusterState, raw: dict[str, Any]) -> None:
    kind = Kind(raw["kind"])
    state.put(kind, object_key(kind, raw), parse_object(kind, raw))


def test_a_pod_without_service_and_owner_has_no_default_selector() -> None:
    assert cluster().default_selector.of(web()) is None


def test_the_selectors_of_all_matching_services_are_merged() -> None:
    state = cluster(
        service("a", WEB),
        service("b", {"tier": "front"}),
        service("c", {"app": "db"}),
        service("d", {"hash": "1"}, namespace="team-a"),
        service("e", {}),
    )
    assert asked(state.default_selector.of(web())) == {"app": ("web",), "tier": ("front",)}


def test_what_is_known_of_pods_that_differ_takes_a_bounded_number_of_bytes() -> None:
    state = cluster(service("large", WEB))
    selectors = DefaultSelectors(state.objects, most_bytes=500_000)
    pods = [web(labels={**FULL, f"unique-{number}": "x"}) for number in range(1500)]
    with traced_memory() as taken_so_far:
        for number, each in enumerate(pods):
            put(state, service("large", {**WEB, f"unique-{number}": "x"}))
            assert selectors.of(each) is not None
        gc.collect()
        taken = taken_so_far()
        del selectors
        gc.collect()
        freed = taken - taken_so_far()
    assert 100_000 <= freed <= 500_000


def test_the_services_of_a_namespace_may_come_and_go() -> None:
    state = cluster()
    for _ in range(2):
        assert state.default_selector.of(web()) is None
        put(state, service("a", WEB))
        assert asked(state.default_selector.of(web())) == {"app": ("web",)}
        state.delete(Kind.SERVICE, "default/a")


def test_the_controller_adds_its_selector() -> None:
    for kind in ("ReplicaSet", "ReplicationController", "StatefulSet"):
        state = cluster(service("a", WEB), controller(kind, {"hash": "1"}))
        found = asked(state.default_selector.of(web(owner=owner(kind))))
        assert found == {"app": ("web",), "hash": ("1",)}


def test_a_controller_of_another_kind_or_namespace_is_not_the_owner() -> None:
    state = cluster(
        controller("ReplicaSet", {"hash": "1"}), controller("StatefulSet", {"hash": "1"}, "team-a")
    )
    for kind in ("StatefulSet", "Job"):
        assert state.default_selector.of(web(owner=owner(kind))) is None


def test_a_controller_of_another_api_is_not_the_owner_though_it_has_its_kind_and_name() -> None:
    state = cluster(controller("StatefulSet", {"hash": "1"}))
    of_another_api = owner("StatefulSet", "apps.kruise.io/v1beta1")
    assert state.default_selector.of(web(owner=of_another_api)) is None
    without_api = owner("StatefulSet") | {"apiVersion": ""}
    assert asked(state.default_selector.of(web(owner=without_api))) == {"hash": ("1",)}


def test_terminating_pods_do_not_count() -> None:
    pods = cluster(service("a", WEB)).default_selector.of(web())
    assert pods is not None
    assert not pods.terminating


def test_pods_of_one_set_share_one_selection() -> None:
    default_selector = cluster(service("a", WEB)).default_selector
    assert default_selector.of(web(name="x")) is default_selector.of(web(name="y", labels=WEB))


def test_the_default_selector_follows_services_and_controllers() -> None:
    state = cluster()
    incoming = web(owner=owner("ReplicaSet"))
    assert state.default_selector.of(incoming) is None
    put(state, service("a", WEB))
    assert asked(state.default_selector.of(incoming)) == {"app": ("web",)}
    put(state, controller("ReplicaSet", {"hash": "1"}))
    assert asked(state.default_selector.of(incoming)) == {"app": ("web",), "hash": ("1",)}
    state.delete(Kind.SERVICE, "default/a")
    assert asked(state.default_selector.of(incoming)) == {"hash": ("1",)}


def test_owners_do_not_count_among_those_behind_the_services() -> None:
    state = cluster(service("a", WEB), controller("ReplicaSet", {"hash": "1"}))
    incoming = web(owner=owner("ReplicaSet"))
    assert asked(state.default_selector.behind_services(incoming)) == {"app": ("web",)}
    assert [found.name for found in state.default_selector.services(incoming)] == ["a"]
