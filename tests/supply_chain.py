"""Reads the contents of an image from its lock: makes an SBOM, and finds known vulnerabilities.

    python -m supply_chain sbom [LOCK]   CycloneDX JSON on standard output
    python -m supply_chain audit         exit code 1 if an advisory concerns a pinned version

The lock pins every version, so nothing has to be installed to know the contents of the image.
"""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.markers import Marker

from mooring import __version__

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "requirements-run.lock"
LARGEST_LOCK: Final = ROOT / "requirements-run-otlp.lock"
"""All that an image may hold."""
ADVISORIES: Final = "https://api.osv.dev/v1/querybatch"
"""The Open Source Vulnerabilities database; MOORING_ADVISORIES names a mirror of it."""
SECONDS: Final = 5.0

_PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?"
)


@dataclass(frozen=True)
class Pin:
    """A pinned package, its environment marker, and the packages that want it, if any."""

    name: str
    version: str
    marker: str
    wanted_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, by which databases identify the package."""
        return f"pkg:pypi/{self.name}@{self.version}"

    def is_installed(self, python: str) -> bool:
        """Return whether an image with this Python (for example 3.13) has the package."""
        linux = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux"}
        cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
        there = {**linux, **cpython, "python_version": python, "python_full_version": f"{python}.0"}
        return not self.marker or Marker(self.marker).evaluate(there)


def pins(lock: str) -> tuple[Pin, ...]:
    """Return the packages of a lock written by `uv pip compile`."""
    found: list[Pin] = []
    for block in re.split(r"\n(?=[a-z0-9])", lock):
        match = _PIN.match(block)
        if match is not None:
            marker = (match["marker"] or "").strip()
            found.append(Pin(match["name"], match["version"], marker, tuple(_wanted_by(block))))
    return tuple(found)


def _wanted_by(block: str) -> Iterator[str]:
    _, _, comments = block.partition("# via")
    for word in re.findall(r"^\s*(?:#\s+)?(\S+.*)$", comments, re.MULTILINE):
        if word.endswith("(pyproject.toml)"):
            yield ""
        elif not word.startswith(("-c ", "#")):
            yield word


def sbom(
    packages: Sequence[Pin], version: str, system: Sequence[tuple[str, str, str]] = ()
) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document; equal packages give an equal document.

    `system` has the name, version and package URL of each other package in the image.
    """
    mooring = _component("mooring", version, f"pkg:generic/mooring@{version}")
    mooring.type = ComponentType.APPLICATION
    components = {pin.name: _component(pin.name, pin.version, pin.purl) for pin in packages}
    for pin in packages:
        if pin.marker:
            components[pin.name].properties.add(Property(name="python:marker", value=pin.marker))
    others = [_component(*package) for package in system]
    bom = Bom(components=[*components.values(), *others])
    bom.metadata.component = mooring
    for name, component in (("", mooring), *components.items()):
        needed = [components[pin.name] for pin in packages if name in pin.wanted_by]
        bom.register_dependency(component, needed + (others if component is mooring else []))
    document: dict[str, Any] = json.loads(
        make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    )
    # Both say when it was written, and not what is in it.
    del document["serialNumber"], document["metadata"]["timestamp"]
    return document


def _component(name: str, version: str, purl: str) -> Component:
    url = PackageURL.from_string(purl)
    return Component(name=name, version=version, purl=url, bom_ref=purl)


def audit(packages: Sequence[Pin], url: str) -> dict[str, list[str]] | None:
    """Return the advisories by package; None if the database cannot be reached."""
    queries = {"queries": [{"package": {"purl": pin.purl}} for pin in packages]}
    request = urllib.request.Request(  # noqa: S310 - the caller's own address
        url, json.dumps(queries).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - as above
            results = json.load(answer)["results"]
        return {
            f"{pin.name} {pin.version}": [found["id"] for found in result["vulns"]]
            for pin, result in zip(packages, results, strict=True)
            if result.get("vulns")
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    if words and words[0] == "sbom" and len(words) <= 2:
        lock = ROOT / words[1] if len(words) == 2 else LOCK
        packages = pins(lock.read_text())
        sys.stdout.write(json.dumps(sbom(packages, __version__), indent=2) + "\n")
        return 0
    if list(words) != ["audit"]:
        sys.stderr.write("usage: python -m supply_chain sbom [LOCK]|audit\n")
        return 2
    packages = pins(LARGEST_LOCK.read_text())
    url = os.environ.get("MOORING_ADVISORIES", ADVISORIES)
    found = audit(packages, url)
    if found is None:
        sys.stdout.write(f"audit: skipped, {url} cannot be asked\n")
        return 0
    for package, identities in found.items():
        sys.stdout.write(f"audit: {package}: {', '.join(identities)}\n")
    sys.stdout.write(f"audit: {len(found)} of {len(packages)} packages have advisories\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
