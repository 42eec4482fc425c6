"""The shipped CRDs on a real API server: which objects `kubectl apply` accepts or rejects."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import replica
from controlplane import ControlPlane, ControlPlaneError
from controlplane.client import ApiError
from e2e.replicas import eventually

CRD = Path(__file__).parents[2] / "crds" / "schedulingprofiles.yaml"
PATH = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"


def profile(spec: dict[str, Any], name: str = "tested") -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "scheduling.mooring.dev/v1alpha1",
            "kind": "SchedulingProfile",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the shared server with the CRDs."""
    control_plane.access.kubectl("apply", "-f", str(CRD))
    replica.wait_until_established(control_plane.access)
    yield control_plane
    control_plane.access.kubectl("delete", "sprof", "tested", "shown", "--ignore-not-found")


def said(cluster: ControlPlane, *words: str) -> str:
    """Return the output of kubectl; "" while kubectl does not know the new kind."""
    try:
        return cluster.access.kubectl(*words)
    except ControlPlaneError:
        return ""


def test_kubectl_explains_every_field_of_a_spec(cluster: ControlPlane) -> None:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    for path, fields in (
        ("sprof.spec", spec),
        ("sprof.spec.rules", spec["rules"]["items"]["properties"]),
        ("sprof.spec.extenders", spec["extenders"]["items"]["properties"]),
    ):
        text = eventually(partial(said, cluster, "explain", path), bool, path)
        words = " ".join(text.split())
        for name, field in fields.items():
            assert f"\n  {name}\t<" in text
            assert " ".join(field["description"].split()) in words


def test_profiles_are_in_the_category_mooring(cluster: ControlPlane) -> None:
    cluster.access.kubectl("apply", "-f", "-", stdin=profile({}, "shown"))
    shown = "schedulingprofile.scheduling.mooring.dev/shown"
    asked = partial(said, cluster, "get", "mooring", "-o", "name")
    eventually(asked, lambda text: shown in text.split(), "the category")


RICH = {
    "match": {
        "schedulerNames": ["default-scheduler", "batch"],
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "podSelector": {
            "matchExpressions": [
                {"key": "example.com/tier", "operator": "In", "values": ["web", ""]},
                {"key": "gpu", "operator": "Exists"},
            ]
        },
        "precedence": -5,
    },
    "percentageOfNodesToScore": 0,
    "alwaysCheckAllFilters": True,
    "plugins": {
        "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 9}]},
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]},
    },
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourcesFitArgs",
                "scoringStrategy": {"type": "MostAllocated"},
            },
        }
    ],
    "extenders": [
        {
            "urlPrefix": "https://gpu.example.com/share",
            "prioritizeVerb": "score",
            "weight": 2,
            "bindVerb": "bind",
            "enableHTTPS": True,
            "tlsConfig": {"caData": "Y2E="},
            "httpTimeout": "1m0.5s",
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
        }
    ],
    "preemption": {
        "disruptionBudgets": "Strict",
        "maxVictims": 3,
        "minRuntimeSeconds": 60,
        "delaySeconds": 30,
    },
    "rules": [
        {"name": "ssd", "filter": "node.labels.disk == 'ssd'", "message": "no ssd"},
        {"name": "cheap", "score": "node.allocatable.cpu", "normalize": "Reversed", "weight": 3},
    ],
}


@pytest.mark.parametrize("spec", [{}, RICH], ids=["empty", "rich"])
def test_a_good_profile_is_stored_as_it_was_written(
    cluster: ControlPlane, spec: dict[str, Any]
) -> None:
    cluster.access.kubectl("apply", "-f", "-", stdin=profile(spec))
    with cluster.access.client() as client:
        stored = client.get(f"{PATH}/tested")
    assert stored["spec"] == spec


REQUIREMENT = {"key": "a", "operator": "In"}
EXTENDER = {"urlPrefix": "http://example.com"}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"percentageOfNodeToScore": 5}, 'unknown field "spec.percentageOfNodeToScore"'),
        ({"percentageOfNodesToScore": 101}, "less than or equal to 100"),
        ({"match": {"schedulerNames": ["a", "a"]}}, "Duplicate value"),
        ({"match": {"namespaceSelector": {"matchExpressions": [REQUIREMENT]}}}, "need values"),
        ({"match": {"podSelector": {"matchLabels": {"a": "b c"}}}}, "should match"),
        ({"plugins": {"scores": {}}}, 'unknown field "spec.plugins.scores"'),
        ({"plugins": {"score": {"enabled": [{"name": "*"}]}}}, "should match"),
        ({"plugins": {"score": {"enabled": [{"name": "A", "weight": -1}]}}}, "greater than or"),
        ({"plugins": {"score": {"enabled": [{"name": "A"}, {"name": "A"}]}}}, "once only"),
        ({"plugins": {"score": {"enabled": [{"weight": 3}]}}}, "name: Required value"),
        ({"pluginConfig": [{"name": "A"}, {"name": "A"}]}, "Duplicate value"),
        ({"extenders": [{}]}, "urlPrefix: Required value"),
        ({"extenders": [{"urlPrefix": "example.com"}]}, "should match"),
        ({"extenders": [{**EXTENDER, "prioritizeVerb": "p"}]}, "weight must be at least 1"),
        ({"extenders": [{**EXTENDER, "bindVerb": "b"}] * 2}, "only one extender"),
        ({"extenders": [{**EXTENDER, "httpTimeout": "5"}]}, "should match"),
        ({"extenders": [{**EXTENDER, "managedResources": [{"name": "cpu"}]}]}, "should match"),
        ({"rules": [{"name": "a"}]}, "either filter or score"),
        ({"rules": [{"name": "a", "filter": "true", "score": "1"}]}, "either filter or score"),
        ({"rules": [{"name": "a", "score": "1", "message": "no"}]}, "message belongs to a filter"),
        ({"rules": [{"name": "a", "filter": "true", "weight": 2}]}, "belong to a score"),
        ({"rules": [{"name": "a", "filter": "true"}] * 2}, "Duplicate value"),
        ({"rules": [{"name": "A", "filter": "true"}]}, "should match"),
        ({"rules": [{"name": "a", "score": "1", "normalize": "max"}]}, "Unsupported value"),
        ({"preemption": {"disruptionBudgets": "strict"}}, "Unsupported value"),
        ({"preemption": {"maxVictims": 0}}, "greater than or equal to 1"),
    ],
)
def test_a_mistake_is_refused_by_the_api_server(
    cluster: ControlPlane, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ControlPlaneError) as rejection:
        cluster.access.kubectl("apply", "-f", "-", stdin=profile(spec, "rejected"))
    assert complaint in str(rejection.value)


def test_the_status_is_a_subresource_and_its_reason_shows_in_kubectl_get(
    cluster: ControlPlane,
) -> None:
    status = {
        "observedGeneration": 2,
        "inForceGeneration": 1,
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "observedGeneration": 2,
                "lastTransitionTime": "2026-01-02T03:04:05Z",
                "reason": "Invalid",
                "message": "spec.plugins.score.enabled[0].name: unknown plugin",
            }
        ],
        "effective": {
            "schedulerNames": ["batch"],
            "percentageOfNodesToScore": 100,
            "plugins": {"score": [{"name": "NodeResourcesFit", "weight": 3}]},
        },
    }
    spec = {"match": {"schedulerNames": ["batch"]}}
    cluster.access.kubectl("apply", "-f", "-", stdin=profile(spec, "shown"))
    with cluster.access.client() as client:
        client.patch(f"{PATH}/shown/status", {"status": status})
        assert client.get(f"{PATH}/shown")["status"] == status
    header, row = cluster.access.kubectl("get", "sprof", "shown").splitlines()
    columns = ["NAME", "READY", "REASON", "IN FORCE", "SCHEDULER NAMES", "CONFLICT", "AGE"]
    assert re.split("   +", header) == columns
    in_force = str(status["inForceGeneration"])
    assert row.split()[:5] == ["shown", "False", "Invalid", in_force, '["batch"]']


def test_a_status_is_refused_for_another_version_and_an_empty_patch_changes_nothing(
    cluster: ControlPlane,
) -> None:
    """`ProfileWriter` relies on both; the server does not compare a custom resource's uid."""
    path = f"{PATH}/tested/status"
    cluster.access.kubectl("apply", "-f", "-", stdin=profile({}))
    with cluster.access.client() as client:
        created = client.get(f"{PATH}/tested")["metadata"]
        other = {"metadata": {"uid": "another"}, "status": {"inForceGeneration": 1}}
        written = client.patch(path, other)["metadata"]
        assert written["uid"] == created["uid"]
        assert written["resourceVersion"] != created["resourceVersion"]
        assert client.patch(path, {})["metadata"] == written
        late = {"resourceVersion": created["resourceVersion"]}
        with pytest.raises(ApiError, match=r"409: .*the object has been modified"):
            client.patch(path, {"metadata": late, "status": {"inForceGeneration": 2}})
