"""DeviceClass objects of resource.k8s.io."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.claims.model.resource_claims import OpaqueConfig, parse_opaque_config, parse_selectors
from mooring.model.fields import (
    mapping,
    mappings,
    name_of,
    naming_the_object,
    text,
    timestamp,
)

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of an implicit extended resource; the DeviceClass's name follows."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices: the devices that all its selectors match.

    In `selectors`, None is a selector of an unknown type. In `config`, None is an entry that is not
    opaque. `extended_resource` may be "". `created` is in seconds since the epoch.
    """

    name: str
    uid: str
    created: float
    selectors: tuple[str | None, ...]
    config: tuple[OpaqueConfig | None, ...]
    extended_resource: str


@naming_the_object("DeviceClass")
def parse_device_class(raw: Mapping[str, Any]) -> DeviceClass:
    """Parse a DeviceClass; ManifestError names the object and the wrong field."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    return DeviceClass(
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        created=timestamp(metadata, "creationTimestamp", "metadata") or 0.0,
        selectors=parse_selectors(spec, "spec"),
        config=tuple(
            parse_opaque_config(config, f"spec.config[{index}]")
            for index, config in enumerate(mappings(spec, "config", "spec"))
        ),
        extended_resource=text(spec, "extendedResourceName", "spec"),
    )
