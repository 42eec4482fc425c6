"""The cases come from the newest release for which a control plane can be built."""

from pathlib import Path

from controlplane.releases import NEWEST
from kubernetes_e2e.run import MODULE, VERSION


def _required(folder: Path) -> dict[str, str]:
    """Return the version of each module that the go.mod in the folder requires."""
    lines = (line.split() for line in (folder / "go.mod").read_text().splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1 and words[1].startswith("v")}


def test_the_cases_and_the_newest_control_plane_are_of_one_release() -> None:
    assert NEWEST.version == VERSION


def test_every_module_that_both_require_has_one_version() -> None:
    cases, plane = _required(MODULE.folder), _required(NEWEST.folder)
    assert "github.com/onsi/ginkgo/v2" in cases
    assert {name: (cases[name], plane[name]) for name in cases.keys() & plane.keys()} == {
        name: (version, version) for name, version in plane.items() if name in cases
    }


def test_the_cases_are_built_from_the_module_itself() -> None:
    """`go build` names a program after its package, and the package "." has no name."""
    (package,) = MODULE.programs.values()
    assert f"\nmodule {package}\n" in (MODULE.folder / "go.mod").read_text()
