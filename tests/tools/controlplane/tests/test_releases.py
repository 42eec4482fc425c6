import re

import pytest

from controlplane import ControlPlaneError
from controlplane.build import control_plane
from controlplane.releases import (
    NEWEST,
    RELEASES,
    VARIABLE,
    Release,
    chosen_release,
    required_kubernetes,
)

EACH = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.minor)


@EACH
def test_a_release_is_of_the_minor_version_that_its_module_requires(release: Release) -> None:
    assert release.version.startswith(f"v{release.minor}.")


def test_every_module_is_that_of_a_release_and_the_newest_comes_last() -> None:
    folders = {path.parent.name for path in NEWEST.folder.parent.glob("*/go.mod")}
    assert [release.minor for release in RELEASES] == sorted(folders, key=lambda name: name[2:])


@EACH
def test_the_tool_lines_of_its_module_are_the_programs(release: Release) -> None:
    module = (release.folder / "go.mod").read_text()
    tools = re.search(r"^tool \((.*?)^\)", module, re.MULTILINE | re.DOTALL)
    assert tools
    assert sorted(tools[1].split()) == sorted(control_plane(release).programs.values())


def test_a_release_whose_servers_cannot_be_built_has_those_of_another() -> None:
    beta = next(release for release in RELEASES if release.servers_of)
    module = control_plane(beta)
    assert [*module.programs] == ["kube-scheduler"]
    assert module.beside == control_plane(NEWEST)
    assert {*module.all_programs} == {*control_plane(NEWEST).all_programs}
    assert "kube-scheduler" not in module.linked_programs
    assert not NEWEST.servers_of


@EACH
def test_every_staging_module_is_replaced_by_the_release_of_the_same_kubernetes(
    release: Release,
) -> None:
    module = (release.folder / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", module, re.MULTILINE)
    version = release.version.replace("v1.", "v0.")
    assert len(replaced) > 30
    assert [line for line in replaced if line != (line[0], line[0], version)] == []
    required = re.findall(r"^\t(k8s\.io/\S+) v0\.(?:0\.0|3\d\.\d+) //", module, re.MULTILINE)
    assert set(required) <= {line[0] for line in replaced}


def test_the_newest_is_chosen_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen_release() is NEWEST
    monkeypatch.setenv(VARIABLE, "")
    assert chosen_release() is NEWEST
    for release in RELEASES:
        monkeypatch.setenv(VARIABLE, release.minor)
        assert chosen_release() is release


@pytest.mark.parametrize("wrong", ["1.33", "v1.36", "1.36.3", "newest"])
def test_another_name_is_refused_with_those_that_there_are(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, wrong)
    with pytest.raises(ControlPlaneError, match=r"choose one of 1\.34, ") as told:
        chosen_release()
    assert str(told.value).startswith(f"KUBERNETES={wrong}: ")


def test_a_module_without_kubernetes_is_an_error_with_its_path() -> None:
    module = NEWEST.folder.parents[1] / "go.mod"
    with pytest.raises(ControlPlaneError, match="no version of k8s") as told:
        required_kubernetes(module)
    assert str(module) in str(told.value)


def test_flags_name_the_gates_and_the_versions_that_the_release_has() -> None:
    release = Release("1.99", pod_group_versions=("v1", "v1beta1"), gang_gates=("Gangs",))
    flags = release.pod_group_flags("Jobs")
    gates = "--feature-gates=Gangs=true,Jobs=true"
    served = "--runtime-config=scheduling.k8s.io/v1=true,scheduling.k8s.io/v1beta1=true"
    assert flags["kube-apiserver"] == (gates, served)
    assert flags["kube-controller-manager"] == flags["kube-scheduler"] == (gates,)
    only = release.pod_group_flags(versions=("v1beta1",))["kube-apiserver"]
    assert only[1] == "--runtime-config=scheduling.k8s.io/v1beta1=true"


def test_a_release_without_pod_groups_has_no_flags_and_no_path_for_them() -> None:
    release = Release("1.1")
    assert set(release.pod_group_flags().values()) == {()}
    with pytest.raises(ControlPlaneError, match=r"Kubernetes 1\.1 has no PodGroups of its own"):
        release.pod_groups("default")


def test_admission_policies_need_flags_where_they_are_in_beta() -> None:
    flags = Release("1.1", mutating_admission_policy="v1beta1").admission_flags
    assert flags["kube-apiserver"] == (
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    )
    assert NEWEST.admission_flags == {}


def test_a_pod_group_gets_the_best_version_that_is_served() -> None:
    release = Release("1.99", pod_group_versions=("v1", "v1beta1"))
    raw = {"apiVersion": "scheduling.k8s.io/v1alpha2", "metadata": {"name": "g"}}
    assert release.versioned(raw) == {**raw, "apiVersion": "scheduling.k8s.io/v1"}
    assert release.pod_groups("n") == "/apis/scheduling.k8s.io/v1/namespaces/n/podgroups"
