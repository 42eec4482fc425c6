"""Loads profiles from SchedulingProfiles, KubeSchedulerConfigurations and Policies."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mooring.extenders.extenders import tls_problem
from mooring.framework.registry import Registry
from mooring.framework.verdicts import shortened
from mooring.model.fields import mapping, name_of
from mooring.model.kubernetes_rules import NEWEST, KubernetesRules
from mooring.policy.imports.configuration import ProcessSettings, import_configuration
from mooring.policy.imports.old_policy import import_policy
from mooring.policy.profile import API_VERSION, DEFAULT_SCHEDULER, KIND, SchedulingProfile
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.resolve import ResolvedProfile, load_profile, resolve
from mooring.quota.model.queue import Queue, parse_queue
from mooring.scheduling.profiles_in_force import Profiles
from mooring.simulate.controllers import is_new
from mooring.simulate.manifests import (
    InputError,
    Limits,
    Manifest,
    display_name,
    manifests_in,
    read_manifests,
)
from mooring.simulate.object_fields import field_mistakes
from mooring.simulate.offline import offline_handle
from mooring.state.cluster import ClusterState

_PROFILE_GROUP: Final = API_VERSION.partition("/")[0]
_CONFIGURATION: Final = "KubeSchedulerConfiguration"
_POLICY: Final = "Policy"
_CONFIG_MAP: Final = ("", "ConfigMap")
_POLICY_KEY: Final = "policy.cfg"
"""The key for a Policy in a ConfigMap; a KubeSchedulerConfiguration may have any key."""
_IS_CONFIGURATION: Final = re.compile(rf"kind\"?:\s?\"?{_CONFIGURATION}").search
_NESTED: Final = Limits(depth=64, values=5_000, aliases=False)
"""The limits for a text in a ConfigMap, because it is parsed in one piece."""


class InvalidProfile(InputError):  # noqa: N818 - a verdict about the profile, with many errors
    """Raised for an invalid profile; `errors` has every mistake in the object at `source`."""

    def __init__(self, source: str, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{source}: {error}" for error in errors))
        self.source = source
        self.errors = errors


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A profile from a file, and the same profile with all defaults filled in.

    `notes` says which fields of a KubeSchedulerConfiguration have no counterpart in Mooring.
    `settings` has the file's settings for the scheduler's process.
    """

    profile: SchedulingProfile
    effective: ResolvedProfile
    notes: tuple[FieldError, ...] = ()
    settings: ProcessSettings | None = None

    def active(self) -> "LoadedProfile":
        """Return the same profile in mode Active."""
        spec = self.profile.spec.model_copy(update={"mode": "Active"})
        return replace(self, profile=replace(self.profile, spec=spec))


def is_profile(manifest: Manifest) -> bool:
    """Return whether the object is a SchedulingProfile."""
    return (manifest.group, manifest.kind) == (_PROFILE_GROUP, KIND)


def contains_profile(manifest: Manifest) -> bool:
    """Return whether the object contains profiles.

    A SchedulingProfile without an apiVersion counts too, so that its mistake is reported.
    """
    return (
        _is_meant_as_profile(manifest)
        or manifest.kind == _CONFIGURATION
        or (manifest.group, manifest.kind) == ("", _POLICY)
        or any(_texts(manifest))
    )


def _texts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    data = manifest.raw.get("data")
    if (manifest.group, manifest.kind) == _CONFIG_MAP and isinstance(data, Mapping):
        for key, text in data.items():
            if isinstance(text, str) and (key == _POLICY_KEY or _IS_CONFIGURATION(text)):
                yield key, text


def _is_meant_as_profile(manifest: Manifest) -> bool:
    return manifest.kind == KIND and manifest.group in ("", _PROFILE_GROUP)


class ProfileLoader:
    """Loads profiles from objects, with the error messages of a running scheduler.

    A Policy contains no scheduler name; its profile gets `scheduler_name`.
    """

    def __init__(self, registry: Registry, scheduler_name: str = DEFAULT_SCHEDULER) -> None:
        self._registry = registry
        self._scheduler_name = scheduler_name
        # Files are those of the operator's container, and are not here.
        self._profiles = Profiles(
            registry,
            offline_handle(ClusterState()),
            tls_problem=partial(tls_problem, files=False),
        )
        self._sources: dict[str, str] = {}

    def load(self, manifest: Manifest) -> list[LoadedProfile]:
        """Return the profiles that the object defines.

        Raises InvalidProfile if the object has mistakes, or if an earlier object has the same
        profile name. Raises InputError if the object defines no profile.
        """
        try:
            found = self._checked(manifest)
            for loaded in found:
                self._note_name(loaded.profile.name, manifest)
        except ProfileInvalid as invalid:
            raise InvalidProfile(manifest.source, invalid.errors) from None
        return found

    def _checked(self, manifest: Manifest) -> list[LoadedProfile]:
        if _is_meant_as_profile(manifest):
            checked = self._profiles.check(manifest.raw)
            return [LoadedProfile(checked.profile, checked.effective)]
        found = _imported(manifest, self._registry, self._scheduler_name)
        for loaded in found:
            self._profiles.build(loaded.profile, loaded.effective)
        return found

    def _note_name(self, name: str, manifest: Manifest) -> None:
        if name in self._sources:
            message = f'there is a profile "{name}" already, in {self._sources[name]}'
            raise ProfileInvalid([FieldError("metadata.name", message)])
        self._sources[name] = manifest.source


def profile_objects(path: str) -> Iterator[Manifest]:
    """Yield the objects of a profile file; raise InputError if it is empty or cannot be read."""
    found = 0
    for manifest in read_manifests([path]):
        found += 1
        yield manifest
    if not found:
        raise InputError(f"{display_name(path)}: contains no scheduling profile")


def load_profiles(
    manifests: Iterable[Manifest], registry: Registry, scheduler_name: str = DEFAULT_SCHEDULER
) -> list[LoadedProfile]:
    """Load every profile that the objects define, in the order of the objects.

    The profile of a Policy gets `scheduler_name`. Raises InvalidProfile with all mistakes of the
    first invalid object, and InputError for an object that defines no profile.
    """
    loader = ProfileLoader(registry, scheduler_name)
    return [loaded for manifest in manifests for loaded in loader.load(manifest)]


def load_policy(path: str, registry: Registry) -> tuple[list[LoadedProfile], list[Queue]]:
    """Load the profiles and Queues of a file; raise InputError for mistakes and other objects."""
    loader, profiles, queues = ProfileLoader(registry), list[LoadedProfile](), list[Queue]()
    for manifest in profile_objects(path):
        if (manifest.group, manifest.kind) != (_PROFILE_GROUP, "Queue"):
            profiles += loader.load(manifest)
            continue
        with manifest.locating_errors():
            queue = parse_queue(manifest.raw)
        for mistake in (*field_mistakes(manifest.raw), *filter(None, [queue.invalid])):
            raise manifest.error(mistake)
        queues.append(queue)
    return profiles, queues


def stored_profiles(
    manifests: Iterable[Manifest], registry: Registry
) -> tuple[list[LoadedProfile], list[str]]:
    """Return the profiles among the objects of a cluster, and a note about each invalid profile.

    The last valid version, if known, replaces an invalid profile. Raises InvalidProfile for an
    invalid profile without a uid: no cluster has stored it.
    """
    loader, found, notes = ProfileLoader(registry), list[LoadedProfile](), list[str]()
    for manifest in manifests:
        try:
            found += loader.load(manifest)
        except InvalidProfile as invalid:
            if is_new(manifest.raw):
                raise
            with manifest.locating_errors():
                before, note = _in_force(manifest, loader, invalid)
            found += before
            notes.append(note)
    return found, notes


def _in_force(
    manifest: Manifest, loader: ProfileLoader, invalid: InvalidProfile
) -> tuple[list[LoadedProfile], str]:
    """Return the invalid profile with its last valid spec, if any, and a note for the user."""
    metadata, status = mapping(manifest.raw, "metadata"), mapping(manifest.raw, "status")
    more = f" and {len(invalid.errors) - 1} more" if len(invalid.errors) > 1 else ""
    why = f"profile {name_of(manifest.raw)} is invalid ({shortened(str(invalid.errors[0]))}{more})"
    generation, spec = status.get("inForceGeneration"), status.get("inForceSpec")
    if not generation:
        return [], f"{why}, and was never in force: it is left out"
    if spec is None:
        return [], f"{why}, and its status does not keep generation {generation}: it is left out"
    raw = {**manifest.raw, "metadata": {**metadata, "generation": generation}, "spec": spec}
    try:
        found = loader.load(replace(manifest, raw=raw))
    except InvalidProfile:
        return [], f"{why}, as is generation {generation}, the last in force: it is left out"
    return found, f"{why}: generation {generation}, which is in force, is used"


def read_profiles(
    manifests: Iterable[Manifest],
    registry: Registry,
    scheduler_name: str = DEFAULT_SCHEDULER,
    server: KubernetesRules = NEWEST,
) -> list[LoadedProfile]:
    """Read every profile as `load_profiles` does, without building its plugins.

    `server` has the rules for profiles that do not set a version of Kubernetes.
    """
    found = list[LoadedProfile]()
    for manifest in manifests:
        try:
            if _is_meant_as_profile(manifest):
                found.append(LoadedProfile(*load_profile(manifest.raw, registry, server)))
            else:
                found += _imported(manifest, registry, scheduler_name, server)
        except ProfileInvalid as invalid:
            raise InvalidProfile(manifest.source, invalid.errors) from None
    return found


def _imported(
    manifest: Manifest, registry: Registry, scheduler_name: str, server: KubernetesRules = NEWEST
) -> list[LoadedProfile]:
    """Return the profiles in an object of kube-scheduler; their plugins are not built."""
    if manifest.kind == _CONFIGURATION:
        imported = import_configuration(manifest.raw, registry)
        return [
            LoadedProfile(
                profile, resolve(profile.spec, registry, server), imported.notes, imported.settings
            )
            for profile in imported.profiles
        ]
    if (manifest.group, manifest.kind) == ("", _POLICY):
        profile = import_policy(manifest.raw, registry, scheduler_name)
        return [LoadedProfile(profile, resolve(profile.spec, registry, server))]
    if (manifest.group, manifest.kind) == _CONFIG_MAP:
        return [*_of_config_map(manifest, registry, scheduler_name, server)]
    raise manifest.error(
        f"kind: {manifest.kind} is no scheduling profile; "
        f"give a {KIND}, a {_CONFIGURATION} or a Policy"
    )


def _of_config_map(
    manifest: Manifest, registry: Registry, scheduler_name: str, server: KubernetesRules
) -> Iterator[LoadedProfile]:
    texts = dict(_texts(manifest))
    if not texts:
        raise manifest.error(
            f"data: has neither a {_CONFIGURATION} under any key nor a Policy under {_POLICY_KEY}"
        )
    for key, text in texts.items():
        path = f"data[{key}]"
        for inner in manifests_in(text, f"{manifest.source}, {path}", limits=_NESTED):
            try:
                yield from _imported(inner, registry, scheduler_name, server)
            except ProfileInvalid as invalid:
                raise ProfileInvalid(error.under(path) for error in invalid.errors) from None
