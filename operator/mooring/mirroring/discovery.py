"""Finds the kinds that the API server serves, and its version of Kubernetes.

Servers differ by version and flags, and are upgraded and downgraded while a replica runs. So the
server is asked at intervals (`mooring.mirroring.reflectors`). A replica restarts if a kind has
another version than before, or if the server's new version has other rules.

During an upgrade, servers with different answers may take turns. So an answer that a kind is
served, or is no longer served, is used only after two equal answers in a row. A new version, of the
server or of a kind, is used only after ten.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from mooring.kube.api_resources import Resource
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, ForbiddenError, UnreachableError, explain
from mooring.mirroring.mirror import MIRRORED, MIRRORED_IF_SERVED
from mooring.model.events import Kind

logger = logging.getLogger(__name__)

EXPECTED: Final[Mapping[Kind, Resource]] = {
    kind: resource for resource, kind in MIRRORED.items() if resource.group
}
"""Kinds that every API server serves, unless a flag forbids it; the core group is left out."""
_LOOKS: Final = 2
_LOOKS_AT_VERSION: Final = 10
"""The number of equal answers in a row after which a new version is used. During an upgrade, old
and new servers answer in turn, and each change of the version may restart the replica."""
_VERSIONS: Final[Mapping[Kind, tuple[Resource, ...]]] = {
    **{kind: (resource,) for kind, resource in EXPECTED.items()},
    **{
        kind: tuple(resource for resource, of in MIRRORED_IF_SERVED.items() if of is kind)
        for kind in MIRRORED_IF_SERVED.values()
    },
}
"""By kind, its API versions, the preferred version first; the first served version is used."""
_WITHOUT: Final[Mapping[Kind, str]] = {
    Kind.POD_GROUP: "pods that name one in spec.schedulingGroup wait (docs/gangs.md)",
    Kind.COSCHEDULING_POD_GROUP: "pods that name one by its label wait (docs/gangs.md)",
    Kind.VOLCANO_POD_GROUP: "pods that name one by Volcano's annotation wait (docs/gangs.md)",
    Kind.HYPER_NODE: "groups that must be placed in one wait (docs/gangs.md)",
    Kind.QUEUE: "no quotas of queues apply (docs/queues.md)",
    Kind.ELASTIC_QUOTA: "no quotas of ElasticQuotas apply (docs/queues.md)",
    Kind.POD_GANG: "pods that name one by Grove's label wait (docs/gangs.md)",
    Kind.KAI_POD_GROUP: "pods that name one by KAI's annotation wait (docs/gangs.md)",
    Kind.POD_DISRUPTION_BUDGET: "preemption respects no budgets",
    Kind.STORAGE_CLASS: "pods whose claims are not bound wait",
    Kind.CSI_NODE: "limits of volumes per node are not known",
    Kind.RESOURCE_CLAIM: "pods with claims for devices wait",
    Kind.RESOURCE_SLICE: "no devices are known",
    Kind.DEVICE_TAINT_RULE: "taints of devices are those of their slices",
    Kind.DEVICE_CLASS: "pods with claims for devices wait",
}
"""By kind, the effect that users notice if the API server does not serve the kind."""


class Discovery:
    """Asks the API server for its version and its kinds, and keeps the answers.

    `versioned` is called with the server's version, for example 1.37, when it becomes known and
    whenever it changes.
    """

    def __init__(
        self, client: ApiClient, *, versioned: Callable[[str], None] = lambda _version: None
    ) -> None:
        self._client = client
        self._versioned = versioned
        self._version: str | None = None
        self._served: dict[Kind, Resource | None] = {}
        self._changes: dict[Kind | None, tuple[object, int]] = {}
        """By kind (None: the server's version), the newest answer that differs from the known one,
        and the number of times that it came in a row."""
        self._troubles: dict[str, str] = {}

    @property
    def served(self) -> Mapping[Kind, Resource | None]:
        """By kind, the resource that the server serves; None if it does not serve the kind."""
        return self._served

    def unserved(self) -> Mapping[Kind, Resource]:
        """Return, by kind, a resource that Mooring could read but the server does not serve."""
        return {kind: _VERSIONS[kind][0] for kind, found in self._served.items() if found is None}

    async def look(self) -> None:
        """Ask for the version, and for each kind whether it is served; update `served`."""
        try:
            # What does not state its version may be a load balancer without a server: then no kind
            # is missing.
            is_server = await self._look_at_version()
        except UnreachableError as error:
            text = f"the API server does not say what it serves: {explain(error)}"
            self._tell_once("version", text)
            return
        answers = dict[str, frozenset[str] | None]()
        for kind, versions in _VERSIONS.items():
            is_known, found = await self._find(versions, answers)
            if not is_known or (found is None and not is_server):
                continue
            if self._counts(kind, found, self._served.get(kind, found)):
                self._note(kind, found)

    async def _find(
        self, versions: tuple[Resource, ...], answers: dict[str, frozenset[str] | None]
    ) -> tuple[bool, Resource | None]:
        """Return whether the server answered, and the first of `versions` that it serves."""
        for resource in versions:
            if resource.api_version not in answers:
                answers[resource.api_version] = await self._plurals(resource)
            plurals = answers[resource.api_version]
            if plurals is None:
                return False, None
            if resource.plural in plurals:
                return True, resource
        return True, None

    async def _plurals(self, resource: Resource) -> frozenset[str] | None:
        version = resource.api_version
        try:
            plurals = await self._client.served_in(resource.group, resource.version)
        except ApiError as error:
            self._tell_once(version, f"what is served of {version} is not known: {explain(error)}")
            return None
        self._troubles.pop(version, None)
        return plurals

    async def _look_at_version(self) -> bool:
        """Ask for the API server's version; return whether an API server answered."""
        try:
            found = await self._client.server_version()
        except UnreachableError:
            raise
        except ApiError as error:
            self._tell_once(
                "version",
                f"the API server's version is not known, the rules stay: {explain(error)}",
            )
            # Only an API server rejects the user's right.
            return isinstance(error, ForbiddenError)
        self._troubles.pop("version", None)
        if self._counts(None, found, self._version or found) and found != self._version:
            self._version = found
            self._versioned(found)
        return True

    def _counts(self, about: Kind | None, found: object, known: object) -> bool:
        before, times = self._changes.pop(about, (found, 0))
        times = times + 1 if before == found else 1
        is_version = found is not None and known is not None
        if found == known or times >= (_LOOKS_AT_VERSION if is_version else _LOOKS):
            return True
        self._changes[about] = found, times
        return False

    def _note(self, kind: Kind, found: Resource | None) -> None:
        is_new, before = kind not in self._served, self._served.get(kind)
        self._served[kind] = found
        if found is None and (is_new or before is not None):
            resource, any_more = before or _VERSIONS[kind][0], "" if is_new else " any more"
            follows = f": {_WITHOUT[kind]}" if kind in _WITHOUT else ""
            level = logging.WARNING if kind in EXPECTED or not is_new else logging.INFO
            known = (before,) if before else _VERSIONS[kind]
            versions = ", ".join(each.version for each in known if each.group == resource.group)
            text = "%s (%s) is not served%s%s"
            logger.log(level, text, resource, versions, any_more, follows)
        elif found is not None and before is None and not (is_new and kind in EXPECTED):
            logger.info("%s (%s) is served", found, found.version)

    def _tell_once(self, about: str, text: str) -> None:
        if self._troubles.get(about) != text:
            logger.warning("%s", text)
        self._troubles[about] = text
