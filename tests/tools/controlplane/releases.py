"""Lists the releases of Kubernetes that are built and tested, with their differences for tests.

Each has a Go module, `versions/<minor>/go.mod`. KUBERNETES in the environment chooses one by its
minor version, such as 1.35; the newest is the default.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from controlplane.errors import ControlPlaneError

VARIABLE: Final = "KUBERNETES"
_VERSIONS: Final = Path(__file__).with_name("versions")
_SCHEDULING: Final = "scheduling.k8s.io"


def required_kubernetes(module: Path) -> str:
    """Return the release of Kubernetes that a go.mod requires, such as v1.37.2."""
    pattern = r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)"
    match = re.search(pattern, module.read_text(), re.MULTILINE)
    if not match:
        raise ControlPlaneError(f"{module}: no version of k8s.io/kubernetes is required there")
    return match[1]


@dataclass(frozen=True)
class Release:
    """A minor version of Kubernetes, and its features that are off or absent without flags."""

    minor: str
    pod_group_versions: Sequence[str] = ()
    """The versions of scheduling.k8s.io that have PodGroups, the best first."""
    gang_gates: Sequence[str] = ()
    """The feature gates for serving PodGroups, and for placing gangs in kube-scheduler."""
    pod_group_condition: str = ""
    """The type of the condition of a PodGroup that says whether its members were placed."""
    gang_job: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a Job's spec that make it a gang, under the gate WorkloadWithJob."""
    absent_points: frozenset[str] = frozenset()
    """Mooring's extension points that kube-scheduler of this release does not have."""
    nomination_gate: str = ""
    """The gate for nominating a pod that waits at PreBind, if it is off by default; else ""."""
    racing_preemption_gate: str = ""
    """The gate with a race in kube-scheduler: it may retry a preemptor before the last victim is
    evicted, and then let the pod wait for ever or evict twice."""
    mutating_admission_policy: str = "v1"
    """The version of MutatingAdmissionPolicy; a beta version is served only with flags."""
    servers_of: str = ""
    """The minor version of the other programs, if only kube-scheduler of this one can be built."""
    go: str = "local"
    """The Go version for GOTOOLCHAIN; `local` means the Go that was found."""

    @property
    def folder(self) -> Path:
        """The folder of the release's Go module."""
        return _VERSIONS / self.minor

    @property
    def version(self) -> str:
        """The patch release of the build, such as v1.37.2."""
        return required_kubernetes(self.folder / "go.mod")

    @property
    def _pod_group_version(self) -> str:
        if not self.pod_group_versions:
            raise ControlPlaneError(f"Kubernetes {self.minor} has no PodGroups of its own")
        return f"{_SCHEDULING}/{self.pod_group_versions[0]}"

    @property
    def backs_resources_by_devices(self) -> bool:
        """Whether classes of devices may stand for extended resources."""
        return self.minor not in ("1.34", "1.35")

    @property
    def has_pod_groups(self) -> bool:
        """Whether the release has PodGroups of its own."""
        return bool(self.pod_group_versions)

    @property
    def admission_flags(self) -> Mapping[str, Sequence[str]]:
        """By program, the flags for serving MutatingAdmissionPolicies, if they need any."""
        version = self.mutating_admission_policy
        if version == "v1":
            return {}
        served = f"--runtime-config=admissionregistration.k8s.io/{version}=true"
        return {"kube-apiserver": ("--feature-gates=MutatingAdmissionPolicy=true", served)}

    def pod_groups(self, namespace: str) -> str:
        """Return the path of a namespace's PodGroups."""
        return f"/apis/{self._pod_group_version}/namespaces/{namespace}/podgroups"

    def versioned(self, pod_group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the PodGroup with the version that is served."""
        return {**pod_group, "apiVersion": self._pod_group_version}

    def pod_group_flags(
        self, *gates: str, versions: Sequence[str] | None = None
    ) -> Mapping[str, tuple[str, ...]]:
        """Return, by program, the flags for serving PodGroups and scheduling gangs.

        Further `gates` are turned on, too. If `versions` are given, only these are served.
        """
        on = ",".join(f"{gate}=true" for gate in (*self.gang_gates, *gates))
        names = self.pod_group_versions if versions is None else versions
        served = ",".join(f"{_SCHEDULING}/{name}=true" for name in names)
        gate_flags = (f"--feature-gates={on}",) if on else ()
        return {
            "kube-apiserver": (*gate_flags, *((f"--runtime-config={served}",) if served else ())),
            "kube-controller-manager": gate_flags,
            "kube-scheduler": gate_flags,
        }


_1_37: Final = Release(
    "1.37",
    pod_group_versions=("v1beta1", "v1alpha3"),
    gang_gates=("GenericWorkload", "TopologyAwareWorkloadScheduling"),
    pod_group_condition="PodGroupInitiallyScheduled",
    gang_job={"scheduling": {"schedulingPolicy": {"gang": {}}}},
)
_PLACEMENT_POINTS: Final = frozenset(("placementGenerate", "placementScore"))

RELEASES: Final[Sequence[Release]] = (
    Release(
        "1.34",
        absent_points=_PLACEMENT_POINTS,
        nomination_gate="NominatedNodeNameForExpectation",
        racing_preemption_gate="SchedulerAsyncPreemption",
        mutating_admission_policy="v1beta1",
    ),
    Release("1.35", absent_points=_PLACEMENT_POINTS, mutating_admission_policy="v1beta1"),
    Release(
        "1.36",
        pod_group_versions=("v1alpha2",),
        gang_gates=("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
        pod_group_condition="PodGroupScheduled",
        gang_job={"completionMode": "Indexed"},
    ),
    _1_37,
    replace(_1_37, minor="1.38", servers_of=_1_37.minor, go="go1.27.3"),
)
"""The releases, from the oldest to the newest."""

NEWEST: Final = next(release for release in reversed(RELEASES) if not release.servers_of)


def chosen_release() -> Release:
    """Return the release that the variable KUBERNETES names, else the newest.

    Raises:
        ControlPlaneError: There is no release of that name.
    """
    minor = os.environ.get(VARIABLE) or NEWEST.minor
    if release := next((release for release in RELEASES if release.minor == minor), None):
        return release
    known = ", ".join(release.minor for release in RELEASES)
    raise ControlPlaneError(f"{VARIABLE}={minor}: no such release is tested; choose one of {known}")
