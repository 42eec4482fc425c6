"""Users of the endpoints, and the accesses that they need permission for.

See k8s.io/api, authentication/v1/types.go and authorization/v1/types.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


class ReviewError(Exception):
    """Raised if the API server does not say who a user is or which rights it has."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as the API server identifies it; hashable, so that caches can have it as a key."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "User":
        """Parse the `status.user` of a TokenReview."""
        return cls(
            raw.get("username") or "",
            tuple(raw.get("groups") or ()),
            raw.get("uid") or "",
            tuple((key, tuple(values)) for key, values in (raw.get("extra") or {}).items()),
        )

    @classmethod
    def of_certificate(cls, subject: tuple[tuple[tuple[str, str], ...], ...]) -> "User | None":
        """Return the user in a verified client certificate; None if it has no common name.

        `subject` is the subject that `ssl.SSLSocket.getpeercert` returns. Its organizations are the
        user's groups.
        """
        fields = [field for part in subject for field in part]
        names = [value for key, value in fields if key == "commonName"]
        if not names or not names[0]:
            return None
        groups = tuple(value for key, value in fields if key == "organizationName")
        return cls(names[0], (*groups, "system:authenticated"))

    def spec(self) -> dict[str, Any]:
        """Return the fields that name this user in the spec of a SubjectAccessReview."""
        return {
            "user": self.name,
            "groups": list(self.groups),
            "uid": self.uid,
            "extra": {key: list(values) for key, values in self.extra},
        }


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
"""The user of a request without credentials."""


@dataclass(frozen=True, slots=True)
class NonResourceAttributes:
    """Access to a path outside the resource API."""

    verb: str
    path: str

    def spec(self) -> dict[str, Any]:
        """Return the fields that describe this access in the spec of a SubjectAccessReview."""
        return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}

    def __str__(self) -> str:
        return f'{self.verb} path "{self.path}"'


@dataclass(frozen=True, slots=True)
class _ResourceAttributes:
    """Access to objects of the core group; an empty `namespace` means all namespaces."""

    verb: str
    resource: str
    namespace: str
    name: str = ""

    def spec(self) -> dict[str, Any]:
        what = {"verb": self.verb, "group": "", "version": "v1", "resource": self.resource}
        return {"resourceAttributes": {**what, "namespace": self.namespace, "name": self.name}}

    def __str__(self) -> str:
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        named = f' "{self.name}"' if self.name else ""
        return f'{self.verb} resource "{self.resource}"{named} in API group "" {where}'


Attributes = NonResourceAttributes | _ResourceAttributes
"""The access that a request needs."""


def pod_read(namespace: str = "", name: str = "") -> Attributes:
    """Return the access `get` to a pod; "" stands for all pods, or for all namespaces."""
    return _ResourceAttributes("get", "pods", namespace, name)


def events_list(namespace: str) -> Attributes:
    """Return the access `list` to the events of the namespace."""
    return _ResourceAttributes("list", "events", namespace)
