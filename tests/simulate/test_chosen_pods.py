from typing import Any

import pytest

from device_builders import allocated, device_claim, group_consumer
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.chosen_pods import ChosenPods, TypeAndName, take_off, type_and_name
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.manifests import InputError, Manifest
from mooring.testing.builders import api_object, node, pod, pod_group, uid_of


def inputs(*objects: dict[str, Any]) -> Inputs:
    return inputs_of([Manifest("file", raw) for raw in objects], Registry(SHIPPED, {}))


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("pod/web", TypeAndName("Pod", "web")),
        ("po/web", TypeAndName("Pod", "web")),
        ("deploy/web", TypeAndName("Deployment", "web")),
        ("deployment.apps/web", TypeAndName("Deployment", "web")),
        ("STS/db", TypeAndName("StatefulSet", "db")),
        ("cj/night", TypeAndName("CronJob", "night")),
        ("team-a/web", None),
        ("pod/a/b", None),
        ("pod/", None),
        ("pod", None),
        ("cluster.json", None),
    ],
)
def test_a_type_and_a_name_are_written_as_for_kubectl(word: str, found: TypeAndName | None) -> None:
    assert type_and_name(word) == found


def test_forbidden_pods_are_selected_by_their_controller_too() -> None:
    labels = {"app": "web"}
    spec = {"containers": [{"name": "c", "image": "a"}], "priorityClassName": "gone"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    found = inputs(deployment, pod("web"))
    chosen = ChosenPods(targets=(TypeAndName("Deployment", "web"),)).applied(found)
    assert (len(chosen.rejected), len(chosen.pending)) == (1, 0)
    assert ChosenPods(namespace="other").applied(found).rejected == ()


def test_an_object_that_is_no_pod_and_has_none_is_a_mistake_with_a_similar_name() -> None:
    job = {"kind": "Job", "name": "night", "uid": "u"}
    found = inputs(node("n1"), pod("web"), pod("a", owner=job, node="n1"))
    ChosenPods(targets=(TypeAndName("Pod", "web"), TypeAndName("Job", "night"))).checked(found)
    for kind, name, problem in (
        ("Pod", "wbe", "there is no pod/wbe among .*, did you mean pod/web?"),
        ("Job", "light", "there is no pod of job/light among .*, did you mean job/night?"),
    ):
        named = (TypeAndName("Pod", "web"), TypeAndName(kind, name))
        with pytest.raises(InputError, match=problem):
            ChosenPods(targets=named).checked(found)
    with pytest.raises(InputError, match="there is no pod/web in namespace shop among"):
        ChosenPods("shop", (TypeAndName("Pod", "web"),)).checked(found)


def test_a_controller_of_which_no_pod_was_made_is_no_misspelt_one() -> None:
    spec = {"replicas": 0, "selector": {"app": "web"}, "template": {"spec": pod()["spec"]}}
    controller = api_object("ReplicationController", "web", namespace="shop", spec=spec)
    controller["metadata"].pop("uid")
    ChosenPods("shop", (TypeAndName("ReplicationController", "web"),)).checked(inputs(controller))


def test_pods_that_are_taken_off_leave_their_node() -> None:
    found = inputs(node("n1"), pod("a", node="n1"), pod("b", node="n1"), pod("c"))
    taken = take_off(found, lambda each: each.name == "a")
    assert [each.key for each in taken.pending] == ["default/a", "default/c"]
    assert taken.pending[0].node_name is None
    assert [placed.pod.key for placed in taken.state.pods] == ["default/b"]


def test_claims_of_pods_that_are_taken_off_are_free_unless_others_use_them() -> None:
    own = device_claim("own", allocation=allocated("d0", node="n1"), reserved_for=["a"])
    shared = device_claim("shared", allocation=allocated("d1", node="n1"), reserved_for=["a", "b"])
    found = inputs(node("n1"), pod("a", node="n1"), pod("b", node="n1"), own, shared)
    claims = take_off(found, lambda each: each.name == "a").state.dynamic_resources.claims
    assert [device.device for device in claims.allocated.dedicated] == ["d1"]
    (left,) = claims.reserved_for(uid_of("b"))
    assert [consumer.name for consumer in left.reserved_for] == ["b"]
    free = claims.get("default/own")
    assert free is not None
    assert (free.allocation, free.reserved_for) == (None, ())


def test_the_claim_of_a_group_is_free_when_all_its_pods_are_taken_off() -> None:
    own = [{"name": "gpu", "resourceClaimName": "claim"}]
    status = {
        "allocation": allocated("d0", node="n1"),
        "reservedFor": [group_consumer("g")],
    }
    members = [pod(name, node="n1", group="g") for name in ("a", "b")]
    objects = node("n1"), pod_group("g", 2, claims=own), device_claim(status=status)
    for taken, in_use in (({"a"}, 1), ({"a", "b"}, 0)):
        found = take_off(inputs(*objects, *members), lambda each: each.name in taken)  # noqa: B023 - called at once
        assert len({*found.state.dynamic_resources.claims.allocated.dedicated}) == in_use


def test_the_claim_for_the_extended_resources_of_a_pod_that_is_taken_off_is_gone() -> None:
    raw = device_claim(owner="a", allocation=allocated("d0", node="n1"), reserved_for=["a"])
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    found = inputs(node("n1"), pod("a", node="n1"), raw)
    claims = take_off(found, lambda each: each.name == "a").state.dynamic_resources.claims
    assert (claims.get("default/claim"), {*claims.allocated.dedicated}) == (None, set())
