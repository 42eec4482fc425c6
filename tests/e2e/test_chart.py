"""The Helm chart checks its values, and makes the same objects as kustomize."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.build import TOOLS_MODULE, programs_folder
from controlplane.releases import RELEASES
from mooring import __version__
from release.artifacts import SHARED, chart, manifests

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CHART = MANIFESTS / "chart"

OF_THE_TOOL = {"app.kubernetes.io/managed-by", "helm.sh/chart", "app.kubernetes.io/version"}
"""Labels that name the tool, or the version, which a component of kustomize does not know."""

SAME: list[tuple[str, list[str], dict[str, Any]]] = [
    ("the base", [], {}),
    ("admission", ["admission"], {"admission": {"enabled": True}}),
    ("monitoring", ["monitoring"], {"monitoring": {"enabled": True}}),
    ("highly available", ["highly-available"], {"highlyAvailable": True}),
    (
        "instead of the default scheduler",
        ["instead-of-default-scheduler"],
        {"insteadOfDefaultScheduler": True},
    ),
    (
        "everything",
        ["admission", "monitoring", "highly-available", "instead-of-default-scheduler"],
        {
            "admission": {"enabled": True},
            "monitoring": {"enabled": True},
            "highlyAvailable": True,
            "insteadOfDefaultScheduler": True,
        },
    ),
]
"""What is compared: components of an overlay, and values of the chart."""

SECRET = {"name": "otlp", "key": "headers"}

Object = dict[str, Any]


def helm(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    program = programs_folder(TOOLS_MODULE) / "helm"
    return subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


def template(
    namespace: str = "mooring-system",
    *,
    of: Path = CHART,
    server: Sequence[str] = (),
    **values: Any,
) -> list[Object]:
    """Return the chart's objects with these values; `server` are flags about the API server."""
    command = ["template", "mooring", str(of), "--namespace", namespace, "--include-crds", *server]
    rendered = helm(*command, "--values", "-", stdin=json.dumps(values))
    assert rendered.returncode == 0, rendered.stderr
    return [found for found in yaml.safe_load_all(rendered.stdout) if found]


def kustomize(folder: Path) -> list[Object]:
    program = programs_folder() / "kubectl"
    rendered = subprocess.run(
        [program, "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr
    return [*yaml.safe_load_all(rendered.stdout)]


def overlay(folder: Path, components: list[str]) -> list[Object]:
    """Return the objects of an overlay beside a copy of manifests/, as a user has them."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(MANIFESTS, folder / "manifests", ignore=shutil.ignore_patterns("chart"))
    mine = folder / "deploy"
    mine.mkdir()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../manifests"],
        "components": [f"../manifests/{name}" for name in components],
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return kustomize(mine)


def labels_of(found: Object) -> list[dict[str, str]]:
    """Return the labels of the object, and of its pod template if it has one."""
    metadata = [found["metadata"]]
    if found["kind"] == "Deployment":
        metadata.append(found["spec"]["template"]["metadata"])
    return [entry.get("labels", {}) for entry in metadata]


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Return the objects by kind, namespace and name, without the labels that name the tool."""
    named: dict[tuple[str, str, str], Object] = {}
    for found in objects:
        for labels in labels_of(found):
            for label in OF_THE_TOOL:
                labels.pop(label, None)
        metadata = found["metadata"]
        key = (found["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in named
        named[key] = found
    return named


@pytest.mark.parametrize(("components", "values"), [s[1:] for s in SAME], ids=[s[0] for s in SAME])
def test_chart_and_kustomize_give_the_same_objects(
    tmp_path: Path, components: list[str], values: dict[str, Any]
) -> None:
    chart = by_name(template(createNamespace=True, **values))
    for name in ("queues", "schedulingprofiles"):
        crd = chart.pop(("CustomResourceDefinition", "", f"{name}.scheduling.mooring.dev"))
        assert crd == yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text())
    assert chart == by_name(overlay(tmp_path, components))


def test_the_chart_has_the_files_of_the_manifests_and_crds() -> None:
    for source, copy in SHARED.items():
        assert (CHART / copy).read_bytes() == (ROOT / source).read_bytes(), "run: make chart"
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


def test_helm_has_nothing_to_say_about_the_chart() -> None:
    assert helm("template", str(CHART)).stderr == ""


def test_the_chart_is_for_the_releases_of_kubernetes_that_it_is_tested_with() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["kubeVersion"] == f">={RELEASES[0].minor}.0-0"


BETA = "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
OLDER = "--kube-version=1.35.4"


@pytest.mark.parametrize(
    ("server", "versions"),
    [([], {"v1"}), ([BETA], {"v1"}), ([OLDER, BETA], {"v1beta1"}), ([OLDER], set[str]())],
)
def test_the_admission_policy_is_in_the_version_that_the_server_has(
    server: list[str], versions: set[str]
) -> None:
    objects = template(server=server, admission={"enabled": True})
    policies = [each for each in objects if each["kind"].startswith("MutatingAdmission")]
    assert {each["apiVersion"].rpartition("/")[2] for each in policies} == versions
    assert len(policies) == 2 * len(versions)


def test_an_admission_policy_for_older_servers_differs_in_its_version_only(tmp_path: Path) -> None:
    older = overlay(tmp_path / "older", ["admission-v1beta1"])
    newer = overlay(tmp_path / "newer", ["admission"])
    changed = [each for each, other in zip(older, newer, strict=True) if each != other]
    assert {each["apiVersion"] for each in changed} == {"admissionregistration.k8s.io/v1beta1"}
    assert len(changed) == 2
    for each in changed:
        each["apiVersion"] = "admissionregistration.k8s.io/v1"
    assert older == newer


def test_the_notes_say_where_the_admission_policy_has_no_effect(tmp_path: Path) -> None:
    """Only `helm template` can be told the server's version, but it leaves the notes out."""
    shutil.copytree(CHART, tmp_path / "chart")
    shutil.copy(CHART / "templates" / "NOTES.txt", tmp_path / "chart")
    shown = 'kind: Notes\ntext: {{ tpl (.Files.Get "NOTES.txt") . | quote }}\n'
    (tmp_path / "chart" / "templates" / "notes.yaml").write_text(shown)

    def text_of(*server: str) -> str:
        objects = template(of=tmp_path / "chart", server=server, admission={"enabled": True})
        (found,) = (each["text"] for each in objects if each["kind"] == "Notes")
        return str(found)

    text = text_of(OLDER)
    assert "WARNING: admission.enabled has no effect. Kubernetes v1.35.4 serves" in text
    assert "or set schedulerName in the pods" in text
    assert '"schedulerName": "mooring"' in text
    assert max(map(len, text.splitlines())) <= 80
    assert "no effect" not in text_of(OLDER, BETA)
    assert "no effect" not in text_of()


def test_the_crd_of_pod_groups_is_installed_where_it_is_asked_for_and_stays() -> None:
    def pod_groups(**values: Any) -> list[Object]:
        return [found for found in template(**values) if "podgroups" in found["metadata"]["name"]]

    assert pod_groups() == []
    (crd,) = pod_groups(podGroupCRD={"enabled": True})
    shipped = yaml.safe_load((ROOT / "crds" / "podgroups.yaml").read_text())
    assert crd["spec"] == shipped["spec"]
    annotations = crd["metadata"]["annotations"]
    assert annotations.pop("helm.sh/resource-policy") == "keep"
    assert annotations == shipped["metadata"].get("annotations", {})


def test_volumes_are_mounted_in_the_container() -> None:
    volume = {"name": "ca", "secret": {"secretName": "extender-ca"}}
    mount = {"name": "ca", "mountPath": "/etc/extender", "readOnly": True}
    objects = template(extraVolumes=[volume], extraVolumeMounts=[mount])
    (deployment,) = (found for found in objects if found["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["volumes"] == [volume]
    assert spec["containers"][0]["volumeMounts"] == [mount]


def notes(**values: Any) -> str:
    """Return the notes that the user reads after an installation."""
    command = ["install", "mooring", str(CHART), "--dry-run=client", "--namespace", "scheduling"]
    installed = helm(*command, "--values", "-", stdin=json.dumps(values))
    assert installed.returncode == 0, installed.stderr
    return installed.stdout.rpartition("NOTES:\n")[2]


def test_the_notes_say_what_comes_next_in_lines_of_80_columns() -> None:
    text = notes()
    assert "kubectl --namespace scheduling rollout status deployment/mooring" in text
    assert '"schedulerName": "mooring"' in text
    assert max(map(len, text.splitlines())) <= 80
    assert "WARNING" not in notes(image={"repository": "registry.example.com/mooring"})


def test_the_notes_warn_of_an_image_that_no_registry_has() -> None:
    assert f'WARNING: the image is "mooring:{__version__}", without a registry' in notes()


def test_the_notes_follow_how_pods_get_the_scheduler() -> None:
    assert "schedulerName" not in notes(insteadOfDefaultScheduler=True)
    assert "kubectl label namespace" in notes(admission={"enabled": True})


def test_everything_has_the_recommended_labels_and_the_version() -> None:
    recommended = {"name", "instance", "version", "component", "part-of", "managed-by"}
    for objects in (template(monitoring={"enabled": True}), kustomize(MANIFESTS)):
        for found in objects:
            if found["kind"] == "CustomResourceDefinition":
                continue
            for labels in labels_of(found):
                assert {f"app.kubernetes.io/{label}" for label in recommended} <= labels.keys()
                assert labels["app.kubernetes.io/version"] == __version__


def test_lint_finds_nothing_to_complain_about() -> None:
    linted = helm("lint", str(CHART), "--strict")
    assert linted.returncode == 0, linted.stdout
    assert "0 chart(s) failed" in linted.stdout


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 3},
        {"replicas": "three"},
        {"image": {"digest": "sha256:12"}},
        {"extraArgs": ["run"]},
        {"extraEnv": [{"value": "without a name"}]},
        {"profiles": {"Not A Name": {}}},
        {"monitoring": True},
        {"monitoring": {"enabled": True, "labels": {"release": 1}}},
        {"podLabels": {"app.kubernetes.io/name": "another"}},
        {"logLevel": "loud"},
        {"extraVolumes": [{"emptyDir": {}}]},
        {"extraVolumeMounts": [{"name": "ca", "mountPath": "etc/ca"}]},
    ],
    ids=json.dumps,
)
def test_a_wrong_value_is_rejected_by_the_schema(values: dict[str, Any]) -> None:
    rendered = helm("template", str(CHART), "--values", "-", stdin=json.dumps(values))
    assert rendered.returncode != 0
    assert "values don't meet the specifications of the schema" in rendered.stderr


def test_every_value_has_a_schema_and_every_schema_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema["properties"].keys() - {"global"} == values.keys()
    assert schema["properties"]["image"]["properties"].keys() == values["image"].keys()


def test_another_namespace_is_where_everything_goes_and_the_lease_is() -> None:
    objects = template(
        namespace="scheduling",
        image={"repository": "r.example/mooring", "digest": f"sha256:{'0' * 64}"},
        extraArgs=["--qps=100"],
        extraEnv=[{"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": SECRET}}],
        serviceAccountAnnotations={"team": "platform"},
        profiles={"mooring": None, "packed": {"percentageOfNodesToScore": 50}},
    )
    namespaces = {found["metadata"].get("namespace") for found in objects}
    assert namespaces == {None, "scheduling", "kube-system"}
    assert "mooring-system" not in yaml.safe_dump(objects[1:])
    (deployment,) = (found for found in objects if found["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    expected = ["run", "--log-format=json", "--lease-namespace=scheduling", "--qps=100"]
    assert container["args"] == expected
    assert container["image"] == f"r.example/mooring@sha256:{'0' * 64}"
    (variable,) = container["env"]
    assert variable["valueFrom"] == {"secretKeyRef": SECRET}
    (account,) = (found for found in objects if found["kind"] == "ServiceAccount")
    assert account["metadata"]["annotations"] == {"team": "platform"}
    (profile,) = (found for found in objects if found["kind"] == "SchedulingProfile")
    assert (profile["metadata"]["name"], profile["spec"]) == (
        "packed",
        {"percentageOfNodesToScore": 50},
    )


def of_kind(kind: str, **values: Any) -> list[Object]:
    return [found for found in template(**values) if found["kind"] == kind]


def test_prometheus_finds_its_objects_by_labels_and_alerts_link_to_a_page_of_the_user() -> None:
    monitoring = {
        "enabled": True,
        "labels": {"release": "kube-prometheus-stack"},
        "runbookURL": "https://docs.example.com/metrics.html",
    }
    for kind in ("PodMonitor", "PrometheusRule"):
        (found,) = of_kind(kind, monitoring=monitoring)
        assert found["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    rules = found["spec"]["groups"][0]["rules"]
    assert {rule["annotations"]["runbook_url"] for rule in rules} == {
        "https://docs.example.com/metrics.html#alerts"
    }


def test_the_network_policy_allows_what_profiles_and_options_connect_to() -> None:
    extender = {"to": [{"podSelector": {"matchLabels": {"app": "extender"}}}]}
    policy = {"enabled": True, "monitoringNamespace": "observe", "extraEgress": [extender]}
    (found,) = of_kind("NetworkPolicy", networkPolicy=policy)
    (plain,) = of_kind("NetworkPolicy")
    assert found["spec"]["egress"] == [*plain["spec"]["egress"], extender]
    (source,) = found["spec"]["ingress"][0]["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "observe"}


def test_pods_have_the_labels_and_logs_that_are_asked_for() -> None:
    (deployment,) = of_kind(
        "Deployment", podLabels={"team": "platform"}, logLevel="debug", logFormat="text"
    )
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "platform"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "mooring"
    (container,) = template["spec"]["containers"]
    assert container["args"] == ["run", "--log-format=text", "--log-level=debug"]


def test_a_disruption_budget_of_the_user_may_take_the_place_of_the_one_of_the_chart() -> None:
    assert len(of_kind("PodDisruptionBudget")) == 1
    assert of_kind("PodDisruptionBudget", podDisruptionBudget={"enabled": False}) == []


RELEASED = "registry.example.com/mooring"


def test_one_file_of_a_release_has_the_crds_and_all_manifests_with_its_image(
    tmp_path: Path,
) -> None:
    released = by_name([*yaml.safe_load_all(manifests(tmp_path, RELEASED).read_text())])
    deployment = released["Deployment", "mooring-system", "mooring"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{RELEASED}:{__version__}"
    container["image"] = f"mooring:{__version__}"
    crds = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").iterdir()]
    assert released == by_name([*crds, *kustomize(MANIFESTS)])


def test_the_chart_of_a_release_is_the_same_each_time_and_has_its_image(tmp_path: Path) -> None:
    file = chart(tmp_path, RELEASED, epoch="1700000000")
    first = file.read_bytes()
    assert chart(tmp_path, RELEASED, epoch="1700000000").read_bytes() == first
    rendered = helm("template", str(file))
    assert f"image: {RELEASED}:{__version__}" in rendered.stdout
    assert rendered.stderr == ""
