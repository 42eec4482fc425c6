from typing import Any

import pytest

from mooring.kube.api_resources import Resource
from mooring.simulate.kinds import READ
from mooring.simulate.object_fields import field_mistakes
from object_fields import TABLE, table


def mistakes(raw: dict[str, Any]) -> list[str]:
    return [str(mistake) for mistake in field_mistakes(raw)]


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    own = {"name": "c", "image": "app:1", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [own], **spec},
    }


def test_the_table_is_that_of_the_client_library() -> None:
    """If this fails, run `.venv/bin/python -m object_fields`."""
    assert TABLE.read_text() == table()


def test_a_pod_as_users_write_it_has_no_mistake() -> None:
    raw = pod(
        {
            "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
            "env": [{"name": "A", "value": "1"}],
            "livenessProbe": {"httpGet": {"port": 80, "path": "/"}},
        },
        nodeSelector={"disk": "ssd"},
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": 1}}],
    )
    raw["metadata"]["creationTimestamp"] = None
    assert mistakes(raw) == []


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (
            pod({"resurces": {}}),
            'spec.containers[0].resurces: unknown field "resurces", did you mean resources?',
        ),
        (pod(hostnetwork=True), 'spec.hostnetwork: unknown field "hostnetwork", did you mean host'),
        (pod(cpu=1), 'spec.cpu: unknown field "cpu"'),
        (pod(priority="7"), "spec.priority: must be an integer"),
        (pod(priority=True), "spec.priority: must be an integer"),
        (pod(hostNetwork="yes"), "spec.hostNetwork: must be true or false"),
        (pod(nodeSelector={"ssd": True}), "spec.nodeSelector.ssd: must be text (quote it)"),
        (pod(nodeSelector=["a"]), "spec.nodeSelector: must be an object"),
        (pod(tolerations={"key": "a"}), "spec.tolerations: must be a list"),
        (pod(affinity="node"), "spec.affinity: must be an object"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}, "spec: is required"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": None}, "spec: is required"),
        (pod(containers=[]), "spec.containers: is required"),
        (pod({"image": ""}), "spec.containers[0].image: is required"),
        (pod({"env": [{"name": "A", "value": 1}]}), "spec.containers[0].env[0].value: must be te"),
    ],
)
def test_a_mistake_is_told_with_its_path(raw: dict[str, Any], line: str) -> None:
    (found,) = mistakes(raw)
    assert found.startswith(line)


def test_every_mistake_is_told_also_in_a_template() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "a", "port": 1}]}, "label": {}}
    spec = {"selector": {}, "replicas": "3", "template": template}
    raw = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    assert mistakes(raw) == [
        "spec.replicas: must be an integer",
        'spec.template.spec.containers[0].port: unknown field "port", did you mean ports?',
        'spec.template.label: unknown field "label"',
        "spec.selector: is required",
    ]


@pytest.mark.parametrize("resource", READ, ids=lambda each: f"{each.api_version} {each.kind}")
def test_an_unknown_field_of_every_kind_that_is_read_is_told(resource: Resource) -> None:
    raw = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"label": {}}}
    found = mistakes({**raw, "spce": {}})
    assert 'metadata.label: unknown field "label", did you mean labels?' in found
    assert any(line.startswith("spce: unknown field") for line in found)


def test_an_unknown_field_of_a_status_is_told() -> None:
    """A Node's status has the amounts that the node offers."""
    raw = {"apiVersion": "v1", "kind": "Node", "status": {"alocatable": {"cpu": 4}}}
    (line,) = mistakes(raw)
    assert line.startswith("status.alocatable: unknown field")
    right = {"capacity": {"cpu": 4}, "allocatable": {"cpu": 3.5}}
    assert mistakes({**raw, "status": right}) == []


def test_the_fields_of_each_version_are_those_of_that_version() -> None:
    def of(version: str, device: dict[str, Any]) -> list[str]:
        raw = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice"}
        return mistakes({**raw, "spec": {"devices": [device]}})

    assert of("v1beta1", {"name": "a", "basic": {"capacity": {"memory": {"value": 1}}}}) == []
    (line,) = of("v1beta1", {"name": "a", "basic": {"atributes": {}}})
    assert line.startswith("spec.devices[0].basic.atributes: unknown field")
    (line,) = of("v1", {"name": "a", "basic": {}})
    assert line.startswith("spec.devices[0].basic: unknown field")


def test_objects_of_kinds_that_are_not_read_are_not_looked_at() -> None:
    assert mistakes({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}}) == []
    assert mistakes({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "tasks": 1}) == []
    assert mistakes({"kind": ["Pod"]}) == []


def test_fields_that_kubernetes_1_37_has_added_are_known() -> None:
    raw = pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]},
        evictionResponders=[{"name": "drain.example/web", "priority": 1}],
        volumes=[{"name": "v", "secret": {"secretName": "s", "defaultUser": 1000}}],
    )
    template = {"spec": {**raw["spec"], "restartPolicy": "Never"}}
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    job["spec"] = {"template": template, "scheduling": gang}
    assert mistakes(raw) == mistakes(job) == []
