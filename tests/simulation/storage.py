"""The storage of the model API server: objects, their versions, and every change.

A write stores a new object and changes none. Watches read the history, and invariants are checked
against it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from mooring.kube import api_resources as resources
from mooring.kube.api_resources import Resource

Raw = dict[str, Any]
Key = tuple[str, str]
Matches = Callable[[Raw], bool]

KINDS: Final = tuple(
    value
    for name, value in sorted(vars(resources).items())
    if isinstance(value, Resource) and not name.startswith("POD_GROUP_V1")
)
"""All resources that are served: what Mooring's own client knows, in one version each."""

BY_PATH: Final[Mapping[tuple[str, str, str], Resource]] = {
    (kind.group, kind.version, kind.plural): kind for kind in KINDS
}


class Change(NamedTuple):
    """A write that the server has carried out."""

    version: int
    at: float
    verb: Literal["ADDED", "MODIFIED", "DELETED"]
    resource: Resource
    before: Raw | None
    after: Raw | None
    by: str
    """The identity of the replica; else who it was, such as an actor."""
    what: str
    """The request in one word, such as bind."""

    @property
    def object(self) -> Raw:
        """The new version of the object, or its last one if it was deleted."""
        found = self.after if self.after is not None else self.before
        assert found is not None
        return found

    @property
    def name(self) -> str:
        """The namespace (if any) and the name of the object."""
        metadata = self.object["metadata"]
        namespace = metadata.get("namespace")
        return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Storage:
    """Objects by resource, namespace and name.

    `changed` is called after each change, in order.
    """

    def __init__(self, now: Callable[[], float], changed: Callable[[Change], None]) -> None:
        self.version = 100
        self.history: list[Change] = []
        self._now = now
        self._changed = changed
        self._objects: dict[Resource, dict[Key, Raw]] = {kind: {} for kind in KINDS}
        self._uids = 0

    def all(self, resource: Resource) -> Iterator[Raw]:
        """Yield all objects of a resource in the order of their creation."""
        return iter(tuple(self._objects[resource].values()))

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Raw | None:
        """Return the object; None if it does not exist."""
        return self._objects[resource].get((namespace or "", name))

    def new_uid(self) -> str:
        """Return a uid that was never used before."""
        self._uids += 1
        return f"uid-{self._uids:04d}"

    def put(self, resource: Resource, raw: Raw, by: str, what: str) -> Raw:
        """Store a new object or version; a version without changes is not stored."""
        metadata = raw["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        before = self._objects[resource].get(key)
        if before is not None and _same(before, raw):
            return before
        self.version += 1
        after = {**raw, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        self._objects[resource][key] = after
        self._note("MODIFIED" if before is not None else "ADDED", resource, before, after, by, what)
        return after

    def remove(self, resource: Resource, raw: Raw, by: str, what: str) -> None:
        metadata = raw["metadata"]
        del self._objects[resource][metadata.get("namespace") or "", metadata["name"]]
        self.version += 1
        last = {**raw, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        self._note("DELETED", resource, last, None, by, what)

    def _note(
        self,
        verb: Literal["ADDED", "MODIFIED", "DELETED"],
        resource: Resource,
        before: Raw | None,
        after: Raw | None,
        by: str,
        what: str,
    ) -> None:
        change = Change(self.version, self._now(), verb, resource, before, after, by, what)
        self.history.append(change)
        self._changed(change)


def _same(before: Raw, after: Raw) -> bool:
    """Return whether only the resource versions differ."""
    old = {**before, "metadata": {**before["metadata"], "resourceVersion": ""}}
    return old == {**after, "metadata": {**after["metadata"], "resourceVersion": ""}}


def merged(target: Any, patch: Any, *, strategic: bool = False) -> Any:
    """Return the value after a merge patch; `strategic` merges conditions by their types."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        elif strategic and field == "conditions":
            result[field] = _merged_conditions(result.get(field) or [], value)
        else:
            result[field] = merged(result.get(field), value, strategic=strategic)
    return result


def _merged_conditions(old: list[Raw], new: list[Raw]) -> list[Raw]:
    by_type = {condition["type"]: condition for condition in old}
    for condition in new:
        by_type[condition["type"]] = {**by_type.get(condition["type"], {}), **condition}
    return list(by_type.values())


def selector(fields: str, labels: str = "") -> Matches:
    """Return a function that tells whether an object matches both selectors."""
    terms = [_term(text) for text in fields.split(",") if text]
    wanted = [_term(text) for text in labels.split(",") if text]

    def matches(raw: Raw) -> bool:
        own = raw["metadata"].get("labels") or {}
        return all((_field(raw, path) == value) is equal for path, equal, value in terms) and all(
            (own.get(name) == value) is equal for name, equal, value in wanted
        )

    return matches


def _term(text: str) -> tuple[str, bool, str]:
    name, operator, value = text.partition("!=")
    if operator:
        return name, False, value
    name, _, value = text.partition("=")
    return name, True, value.removeprefix("=")


def _field(raw: Raw, path: str) -> str:
    found: Any = raw
    for part in path.split("."):
        found = (found or {}).get(part)
    return found or ""
