"""The API server is upgraded or downgraded under a running scheduler.

Its etcd and its address stay. The built releases with PodGroups serve different versions of
PodGroups: v1alpha2 in 1.36, v1beta1 in 1.37.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.build import SERVER_PROGRAMS, built_releases, control_plane, programs_folder
from controlplane.namespaces import create_namespace
from controlplane.releases import Release
from e2e.node_pool import NodePool
from e2e.replicas import PROFILES, Replicas, eventually
from mooring.testing.builders import pod_group

PATIENT: Final = ("--lease-duration=60", "--renew-deadline=50", "--retry-period=1")
"""The lease outlives a restart of the API server."""
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/mooring-system/leases/mooring"
CLAIMS: Final = "no new claims to deallocate"
"""What kube-scheduler says of every unschedulable pod up to 1.36."""
WITH_GROUPS: Final = [each for each in built_releases(SERVER_PROGRAMS) if each.has_pod_groups]
UPGRADES: Final = [*pairwise(WITH_GROUPS)]
BEFORE_1_36: Final = [
    each for each in built_releases(SERVER_PROGRAMS) if each.mutating_admission_policy == "v1beta1"
]
_NOTICED_SECONDS = 240.0
"""Ten looks at the API server, 15 seconds apart, and the end of the process."""


class Server:
    """An API server whose release changes, and one scheduler, which restarts after each change."""

    def __init__(self, plane: ControlPlane, replicas: Replicas) -> None:
        self.plane = plane
        self._replicas = replicas
        self.scheduler = replicas.start(*PATIENT)
        self.scheduler.wait_until_leads()

    def becomes(self, release: Release, *, groups: bool) -> None:
        """Replace the server, wait until the scheduler ends because of this, and start another."""
        flags = release.pod_group_flags()["kube-apiserver"] if groups else ()
        self.plane.replace_server(_programs(release), flags)
        assert self.scheduler.wait(_NOTICED_SECONDS) == 1
        assert self.scheduler.says(f"the API server is {release.minor}, and was ")
        with self.plane.access.client() as client:
            lease = client.get(LEASE)
            assert not lease["spec"].get("holderIdentity"), "it gives the lease back"
            self.scheduler = self._replicas.start(*PATIENT)
            self.scheduler.wait_until_leads()
            eventually(
                lambda: client.get(f"{PROFILES}/mooring")["status"]["effective"],
                lambda effective: effective["kubernetesVersion"] == release.minor,
                f"the profile with the rules of {release.minor}",
            )

    @contextmanager
    def pool(self, nodes: int) -> Iterator[NodePool]:
        with self.plane.access.client() as client:
            pool = NodePool(create_namespace(self.plane.access, "pool"), self.plane.access, client)
            pool.add_nodes(nodes, cpu="2")
            yield pool

    def places_a_gang(self, release: Release) -> None:
        """Check that a complete gang is placed, and delete its PodGroup.

        A later server cannot read an object of an alpha version. The test removes the finalizer,
        because no controller runs.
        """
        with self.pool(2) as pool:
            raw = release.versioned(pod_group("gang", 2, namespace=pool.name))
            pool.client.post(release.pod_groups(pool.name), raw)
            for name in ("gang-0", "gang-1"):
                pool.add_pod(name, cpu="1500m", schedulingGroup={"podGroupName": "gang"})
            pool.wait_until_bound("gang-0", "gang-1")
            path = f"{release.pod_groups(pool.name)}/gang"
            eventually(
                lambda: pool.client.get(path).get("status", {}).get("conditions", []),
                lambda found: release.pod_group_condition in {each["type"] for each in found},
                release.pod_group_condition,
            )
            pool.client.patch(path, {"metadata": {"finalizers": None}})
            pool.client.delete(path)

    def reason(self) -> str:
        """Return the reason why a pod fits nowhere."""
        with self.pool(1) as pool:
            pool.add_pod("large", cpu="3")
            return str(pool.wait_until_unschedulable("large")["message"])


def _programs(release: Release) -> Path:
    return programs_folder(control_plane(release), SERVER_PROGRAMS)


# Of a release that is not built there is no test, so that none is skipped.
if UPGRADES:

    @pytest.mark.timeout(900)  # it waits twice until another version has been seen ten times
    @pytest.mark.parametrize(("old", "new"), UPGRADES, ids=lambda release: release.minor)
    def test_an_upgrade_and_a_downgrade_are_followed_once_the_scheduler_is_started_again(
        old: Release, new: Release, tmp_path: Path
    ) -> None:
        with ControlPlane(programs=_programs(old), flags=old.pod_group_flags()) as plane:
            replica.apply_manifests(plane.access)
            with Replicas.of(plane.access, tmp_path) as replicas:
                server = Server(plane, replicas)
                server.places_a_gang(old)
                assert CLAIMS in server.reason()
                server.becomes(new, groups=True)
                server.places_a_gang(new)
                assert CLAIMS not in server.reason()
                server.becomes(old, groups=False)
                assert CLAIMS in server.reason()
                assert server.scheduler.terminate() == 0


if BEFORE_1_36:

    @pytest.mark.parametrize("release", BEFORE_1_36, ids=lambda release: release.minor)
    def test_the_label_of_a_namespace_sets_the_scheduler_before_1_36_too(release: Release) -> None:
        with ControlPlane(programs=_programs(release), flags=release.admission_flags) as plane:
            policy = Path(__file__).parents[2] / "manifests" / "admission-v1beta1"
            plane.access.kubectl("apply", "-k", str(policy))
            labels = {"scheduling.mooring.dev/default-scheduler": "mooring"}
            container = {"name": "c", "image": "registry.example/c:1"}
            raw = {"metadata": {"generateName": "web-"}, "spec": {"containers": [container]}}
            with plane.access.client() as client:
                client.post("/api/v1/namespaces", {"metadata": {"name": "shop", "labels": labels}})
                eventually(
                    lambda: client.post("/api/v1/namespaces/shop/pods", raw)["spec"][
                        "schedulerName"
                    ],
                    lambda name: name == "mooring",
                    "the policy in force",
                )
