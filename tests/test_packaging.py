"""The files for packaging agree with the source and with each other."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring import __version__
from mooring.framework.registry import SHIPPED_WITH, Registry
from mooring.plugins import SHIPPED
from mooring.policy.resolve import load_profile
from mooring.run.settings import RunSettings

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGE_LOCKS = ("requirements-run.lock", "requirements-run-otlp.lock")
"""What an image may be built from, each a part of the next."""
LOCKS = ("requirements.lock", *IMAGE_LOCKS)


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        loaded: dict[str, Any] = tomllib.load(file)["project"]
    return loaded


def name_of(requirement: str) -> str:
    """Return the normalized name of the distribution; for `PyYAML>=6.0.2` this is pyyaml."""
    (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def pins(lock: str) -> dict[str, frozenset[str]]:
    """Return each pinned requirement with its marker, and the accepted hashes."""
    text = text_of(lock).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return {
        line.split(" --hash=")[0].strip(): frozenset(re.findall(r"--hash=(\S+)", line))
        for line in lines
    }


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / name).read_text()))


def shipped_profiles() -> list[dict[str, Any]]:
    files = [
        "profile.yaml",
        *(f"examples/{p.name}" for p in (ROOT / "manifests/examples").iterdir()),
    ]
    found = [item for name in files for item in manifests(name)]
    return [item for item in found if item["kind"] == "SchedulingProfile"]


def deployment() -> Any:
    (found,) = (item for item in manifests("deployment.yaml") if item["kind"] == "Deployment")
    return found["spec"]["template"]["spec"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_dependency_is_pinned_with_hashes_and_no_lock_names_a_server(lock: str) -> None:
    pinned = pins(lock)
    assert pinned
    for requirement, hashes in pinned.items():
        assert "==" in requirement
        assert hashes
    assert "://" not in (ROOT / lock).read_text()


@pytest.mark.parametrize("lock", IMAGE_LOCKS)
def test_the_image_gets_the_versions_that_were_tested_and_no_test_tools(lock: str) -> None:
    tested, run = pins(LOCKS[0]), pins(lock)
    assert run.items() <= tested.items()
    names = {name_of(requirement) for requirement in run}
    assert {name_of(requirement) for requirement in project()["dependencies"]} <= names
    extras = project()["optional-dependencies"]["test"]
    assert not {name_of(requirement) for requirement in extras} & names


def test_an_image_has_opentelemetry_only_if_it_is_built_from_the_lock_that_has_it() -> None:
    plain, with_otlp = (pins(lock) for lock in IMAGE_LOCKS)
    assert plain.items() <= with_otlp.items()
    wanted = {name_of(requirement) for requirement in project()["optional-dependencies"]["otlp"]}
    assert wanted <= {name_of(requirement) for requirement in with_otlp}
    assert not wanted & {name_of(requirement) for requirement in plain}
    (lock,) = re.findall(r"^ARG LOCK=(.+)$", DOCKERFILE, flags=re.MULTILINE)
    assert lock == IMAGE_LOCKS[0]


def test_everything_the_image_copies_is_there_and_reaches_the_build() -> None:
    let_through = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, flags=re.MULTILINE)
    assert copied
    for source in " ".join(copied).split():
        assert (ROOT / source).exists()
        assert f"!{source}" in let_through


def test_the_distribution_has_one_name_wherever_it_is_named() -> None:
    """The import name is `mooring`, but on public registries another project has this name."""
    name = project()["name"]
    assert name == SHIPPED_WITH == "mooring-scheduler"
    assert {*project()["scripts"]} == {"mooring", "kubectl-mooring", "kubectl_complete-mooring"}
    for lock in LOCKS:
        wanted = re.findall(
            r"^ +# +(?:via )?(\S+) \(pyproject\.toml\)$", text_of(lock), re.MULTILINE
        )
        assert {*wanted} == {name}


def test_nobody_is_told_to_install_somebody_elses_package() -> None:
    """`pip install` is followed by a clone or a local file."""
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("operator/**/*.py")]
    words = [
        (path.name, word)
        for path in texts
        for word in re.findall(
            r"pip install (?:-\S+ (?:/plugins )?|--\S+ )*(\S+)", path.read_text()
        )
    ]
    assert len(words) > 5
    assert not [found for found in words if not re.match(r"[\"']?[./{]", found[1])]


def test_every_file_of_the_package_that_is_no_python_is_in_the_wheel() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["mooring"]
    package = ROOT / "operator" / "mooring"
    others = {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert "page/bundle/index.html" in others
    assert others == {
        str(path.relative_to(package)) for pattern in patterns for path in package.glob(pattern)
    }


def test_image_and_deployment_run_as_the_same_unprivileged_user() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, flags=re.MULTILINE)
    assert deployment()["securityContext"]["runAsUser"] == int(user) > 0


def test_image_deployment_and_program_agree_on_the_port() -> None:
    (exposed,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, flags=re.MULTILINE)
    (container,) = deployment()["containers"]
    (port,) = container["ports"]
    assert int(exposed) == port["containerPort"] == RunSettings().secure_port
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_one_version_everywhere() -> None:
    (container,) = deployment()["containers"]
    assert container["image"] == f"mooring:{__version__}"
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    (base,) = manifests("kustomization.yaml")
    assert base["labels"][0]["pairs"]["app.kubernetes.io/version"] == __version__
    cut = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cut[0] == __version__
    assert f"### {__version__}\n" in (ROOT / "docs/upgrading.md").read_text()


def test_the_package_takes_its_version_from_the_source() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        loaded = tomllib.load(file)
    assert loaded["project"]["dynamic"] == ["version"]
    assert loaded["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mooring.__version__"}


def test_a_release_tag_of_this_commit_is_its_version() -> None:
    git = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "--list", "v*"]
    tags = subprocess.run(git, capture_output=True, text=True, check=False).stdout.split()
    assert set(tags) <= {f"v{__version__}"}


def test_the_bytecode_of_the_image_depends_on_the_source_alone(tmp_path: Path) -> None:
    (options,) = set(re.findall(r"-m compileall -q (--invalidation-mode \S+)", DOCKERFILE))
    assert "PYTHONHASHSEED=0" in DOCKERFILE
    assert "--no-compile" in DOCKERFILE

    def compiled(age: int) -> dict[str, bytes]:
        folder = tmp_path / "model"
        shutil.copytree(ROOT / "operator/mooring/model", folder, ignore=lambda *_: ["__pycache__"])
        for file in folder.rglob("*.py"):
            os.utime(file, (age, age))
        command = [sys.executable, "-m", "compileall", "-q", *options.split(), str(folder)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        found = {file.name: file.read_bytes() for file in folder.rglob("*.pyc")}
        shutil.rmtree(folder)
        return found

    assert compiled(1_000_000_000) == compiled(1_700_000_000) != {}


@pytest.mark.parametrize(
    "folder",
    [
        "manifests",
        "manifests/admission",
        "manifests/instead-of-default-scheduler",
        "manifests/monitoring",
    ],
)
def test_every_manifest_is_applied_by_its_kustomization(folder: str) -> None:
    files = {path.name for path in (ROOT / folder).glob("*.yaml")} - {"kustomization.yaml"}
    kustomization = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())
    assert set(kustomization["resources"]) == files


@pytest.mark.parametrize("document", shipped_profiles(), ids=lambda it: it["metadata"]["name"])
def test_every_shipped_profile_is_valid(document: dict[str, Any]) -> None:
    load_profile(document, Registry(SHIPPED, {}))


def test_the_licence_is_the_one_the_project_declares() -> None:
    assert project()["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
