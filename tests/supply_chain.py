"""What an image holds, read from its lock: an SBOM, and known vulnerabilities.

    python -m supply_chain sbom [LOCK]   CycloneDX JSON on standard output
    python -m supply_chain audit         exit code 1 if an advisory concerns a pinned version

The lock is exact, so that writing it down anew needs no package, and asking about it one request.
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

from mooring import __version__
from mooring.framework.registry import SHIPPED_WITH

__all__ = ["Pin", "audit", "main", "pins", "sbom"]

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
    """One pinned package, where it is installed, and what wants it; empty: Mooring itself."""

    name: str
    version: str
    marker: str
    wanted_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL, by which databases know it."""
        return f"pkg:pypi/{self.name}@{self.version}"


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
        if word.startswith(f"{SHIPPED_WITH} "):
            yield ""
        elif not word.startswith(("-c ", "#")):
            yield word


def sbom(packages: Sequence[Pin], version: str) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document; the same for the same lock."""
    mooring = f"pkg:pypi/{SHIPPED_WITH}@{version}"
    purls = {"": mooring, **{pin.name: pin.purl for pin in packages}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": mooring,
                "name": SHIPPED_WITH,
                "version": version,
                "purl": mooring,
            }
        },
        "components": [_component(pin) for pin in packages],
        "dependencies": [
            {
                "ref": purl,
                "dependsOn": sorted(pin.purl for pin in packages if name in pin.wanted_by),
            }
            for name, purl in purls.items()
        ],
    }


def _component(pin: Pin) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
    }
    if pin.marker:
        component["properties"] = [{"name": "python:marker", "value": pin.marker}]
    return component


def audit(packages: Sequence[Pin], url: str) -> dict[str, list[str]] | None:
    """Return the advisories by package; None if the database cannot be asked."""
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
