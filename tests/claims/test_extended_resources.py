from dataclasses import replace

from device_builders import device_class
from mooring.claims.extended_resources import ClassesOfResources
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.pod import parse_pod
from mooring.testing.builders import cluster, pod
from mooring.testing.fakes import handle

GPU = "example.com/gpu"
STATE = cluster(device_class("gpu", extendedResourceName=GPU))


def test_classes_stand_for_resources_with_a_domain() -> None:
    classes = ClassesOfResources(handle(STATE))
    found = classes.of(GPU)
    assert found is not None
    assert (found.name, classes.has("example.com/other"), classes.has("cpu")) == (
        "gpu",
        False,
        False,
    )


def test_before_1_36_they_do_not() -> None:
    older = replace(handle(STATE), kubernetes=KUBERNETES_RULES["1.35"])
    assert not ClassesOfResources(older).has(GPU)


def test_the_resources_of_a_pod_are_those_with_a_class() -> None:
    classes = ClassesOfResources(handle(STATE))
    assert classes.of_pod(parse_pod(pod(requests={GPU: 1, "x.com/y": 1}))) == (GPU,)
    assert classes.of_pod(parse_pod(pod(requests={"x.com/y": 1}))) == ()
    assert classes.of_pod(parse_pod(pod(cpu="1"))) is None
