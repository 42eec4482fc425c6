"""Stores the version of an API server as an additional object in a cluster dump.

No API server has such an object. `mooring simulate --save` writes it, so that later decisions
follow the rules of the cluster.
"""

from typing import Any, Final

from mooring.kube.api_resources import MOORING_GROUP
from mooring.model.fields import mapping, text
from mooring.model.kubernetes_rules import minor_version
from mooring.model.manifest_error import ManifestError
from mooring.simulate.manifests import Manifest

_KIND: Final = "APIServer"
_LONGEST: Final = 40
"""The most characters of a wrong version in an error message; the rest is cut off."""


def server_object(version: str) -> dict[str, Any]:
    """Return the object for an API server of this version (1.37)."""
    return {
        "apiVersion": f"{MOORING_GROUP}/v1alpha1",
        "kind": _KIND,
        "metadata": {"name": "server"},
        "status": {"version": version},
    }


def is_server(manifest: Manifest) -> bool:
    """Return whether the object stores the version of an API server."""
    return (manifest.group, manifest.kind) == (MOORING_GROUP, _KIND)


def version_of(manifest: Manifest) -> str:
    """Return the minor version in the object (1.37); raise ManifestError if there is none."""
    written = text(mapping(manifest.raw, "status"), "version", "status")
    version = minor_version(written)
    if version is None:
        shown = written[:_LONGEST]
        raise ManifestError("status.version", f'must be a version such as 1.37, got "{shown}"')
    major, minor = version
    return f"{major}.{minor}"
