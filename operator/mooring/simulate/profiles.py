"""Load profiles from SchedulingProfiles, KubeSchedulerConfigurations and Policies."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mooring.framework.registry import PluginLoadError, Registry
from mooring.policy.errors import FieldError, ProfileInvalid
from mooring.policy.imports.configuration import ProcessSettings, import_configuration
from mooring.policy.imports.policy import import_policy
from mooring.policy.profile import API_VERSION, DEFAULT_SCHEDULER, KIND, SchedulingProfile
from mooring.policy.resolve import Effective, load_profile, resolve
from mooring.simulate.manifests import InputError, Manifest

__all__ = ["InvalidProfile", "LoadedProfile", "contains_profile", "is_profile", "load_profiles"]

_PROFILE_GROUP: Final = API_VERSION.partition("/")[0]
_CONFIGURATION: Final = "KubeSchedulerConfiguration"
_POLICY_KINDS: Final = ("Policy", "ConfigMap")


class InvalidProfile(InputError):  # noqa: N818 - a verdict about the profile, with many errors
    """A profile with mistakes; `errors` holds every mistake found in the object at `source`."""

    def __init__(self, source: str, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{source}: {error}" for error in errors))
        self.source = source
        self.errors = errors


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A profile from a file, and the same profile with all defaults filled in.

    `notes` and `settings` come from a KubeSchedulerConfiguration: the fields that Mooring has no
    counterpart for, and the settings of the scheduler's process.
    """

    profile: SchedulingProfile
    effective: Effective
    notes: tuple[FieldError, ...] = ()
    settings: ProcessSettings | None = None


def is_profile(manifest: Manifest) -> bool:
    """Whether the object is a SchedulingProfile."""
    return (manifest.group, manifest.kind) == (_PROFILE_GROUP, KIND)


def contains_profile(manifest: Manifest) -> bool:
    """Whether `load_profiles` reads objects of this kind."""
    return is_profile(manifest) or manifest.kind in (_CONFIGURATION, *_POLICY_KINDS)


def load_profiles(
    manifests: Iterable[Manifest], registry: Registry, scheduler_name: str = DEFAULT_SCHEDULER
) -> list[LoadedProfile]:
    """Load every profile that the objects define, in the order of the objects.

    `scheduler_name` is given to profiles made from a Policy, which contains no scheduler name.

    Raises:
        InvalidProfile: with every mistake of the first object that has any.
        InputError: for an object of another kind, and for two profiles of one name.
    """
    profiles: dict[str, LoadedProfile] = {}
    for manifest in manifests:
        try:
            found = _loaded(manifest, registry, scheduler_name)
        except ProfileInvalid as invalid:
            raise InvalidProfile(manifest.source, invalid.errors) from None
        except PluginLoadError as error:
            raise manifest.error(error) from None
        for loaded in found:
            name = loaded.profile.name
            if name in profiles:
                raise manifest.error(f'metadata.name: there is a profile "{name}" already')
            profiles[name] = loaded
    return list(profiles.values())


def _loaded(manifest: Manifest, registry: Registry, scheduler_name: str) -> list[LoadedProfile]:
    if is_profile(manifest):
        return [LoadedProfile(*load_profile(manifest.raw, registry))]
    if manifest.kind == _CONFIGURATION:
        imported = import_configuration(manifest.raw, registry)
        return [
            LoadedProfile(
                profile, resolve(profile.spec, registry), imported.notes, imported.settings
            )
            for profile in imported.profiles
        ]
    if manifest.kind in _POLICY_KINDS:
        profile = import_policy(manifest.raw, registry, scheduler_name)
        return [LoadedProfile(profile, resolve(profile.spec, registry))]
    raise manifest.error(
        f"kind: {manifest.kind} is no scheduling profile; "
        f"give a {KIND}, a {_CONFIGURATION} or a Policy"
    )
