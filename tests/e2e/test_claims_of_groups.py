"""ResourceClaims of PodGroups, on a real API server with the real claim controller.

PodGroups have claims only with the feature gate DRAWorkloadResourceClaims.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from device_builders import device_claim, device_class, resource_slice
from e2e.replicas import Replicas, bound, create_pods, delete_now, eventually
from mooring.testing import builders

pytestmark = pytest.mark.pod_groups

RELEASE: Final = chosen_release()
RESOURCES: Final = "/apis/resource.k8s.io/v1"
OWN: Final = {"name": "gpu", "resourceClaimTemplateName": "one"}
"""The entry of the group and of its members."""
MEMBERS: Final = ("g-0", "g-1")

Raw = dict[str, Any]


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    flags = RELEASE.pod_group_flags("DRAWorkloadResourceClaims")
    with ControlPlane(components={"kube-controller-manager", "kwok"}, flags=flags) as plane:
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, 2)
        yield plane


def post(client: Client, place: str, raw: Raw) -> None:
    metadata = {"name": raw["metadata"]["name"]}
    client.post(f"{RESOURCES}{place}", {**raw, "metadata": metadata})


def claims_of(client: Client, namespace: str) -> list[Raw]:
    items: list[Raw] = client.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")["items"]
    return items


def test_the_claim_of_a_groups_template_is_made_and_reserved_once_for_the_group(
    plane: ControlPlane, client: Client, tmp_path: Path
) -> None:
    namespace = create_namespace(plane.access)
    group = builders.pod_group("g", 2, namespace=namespace, claims=[OWN])
    del group["metadata"]["uid"]
    template = {"metadata": {"name": "one"}, "spec": {"spec": device_claim()["spec"]}}
    post(client, "/deviceclasses", device_class())
    for node in ("node-1", "node-2"):
        post(client, "/resourceslices", resource_slice(node, ["d0", "d1"], node=node))
    post(client, f"/namespaces/{namespace}/resourceclaimtemplates", template)
    client.post(RELEASE.pod_groups(namespace), RELEASE.versioned(group))
    spec = {"schedulerName": "mooring", "resourceClaims": [OWN]}
    members = [builders.pod(n, namespace=namespace, group="g", spec=spec) for n in MEMBERS]
    with Replicas.of(plane.access, tmp_path) as replicas:
        replicas.start().wait_until_leads()
        create_pods(client, namespace, *members)
        nodes = eventually(
            lambda: bound(client, namespace), lambda found: len(found) == 2, "both members bound"
        )
    assert len(set(nodes.values())) == 1
    (claim,) = claims_of(client, namespace)
    (owner,) = claim["metadata"]["ownerReferences"]
    (consumer,) = claim["status"]["reservedFor"]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "g")
    assert (consumer["resource"], consumer["name"]) == ("podgroups", "g")
    assert consumer["uid"] == owner["uid"]
    delete_now(client, namespace, MEMBERS[0])
    assert claims_of(client, namespace)[0]["status"]["reservedFor"] == [consumer]
