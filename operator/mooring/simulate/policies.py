"""Scheduling policies from files, whatever vocabulary they are written in."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mooring.framework.registry import PluginLoadError, Registry
from mooring.policy.errors import FieldError, ProfileInvalid
from mooring.policy.imports.kube_scheduler import Settings, import_configuration
from mooring.policy.imports.legacy import import_policy
from mooring.policy.profile import API_VERSION, DEFAULT_SCHEDULER, KIND, SchedulingProfile
from mooring.policy.resolve import Effective, load_profile, resolve
from mooring.simulate.manifests import InputError, Manifest

__all__ = ["InvalidPolicy", "Policy", "is_profile", "read_policies"]

_PROFILE_GROUP: Final = API_VERSION.partition("/")[0]
_CONFIGURATION: Final = "KubeSchedulerConfiguration"
_OLD_POLICIES: Final = ("Policy", "ConfigMap")


class InvalidPolicy(InputError):  # noqa: N818 - a verdict about the policy, with many errors
    """A policy that cannot be put in force; `errors` holds every mistake found in `source`."""

    def __init__(self, source: str, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{source}: {error}" for error in errors))
        self.source = source
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Policy:
    """A profile and what it means.

    From a KubeSchedulerConfiguration come `notes` on what has no counterpart here, and the
    `settings` of the process.
    """

    profile: SchedulingProfile
    effective: Effective
    notes: tuple[FieldError, ...] = ()
    settings: Settings | None = None


def is_profile(manifest: Manifest) -> bool:
    """Whether the object is a SchedulingProfile."""
    return (manifest.group, manifest.kind) == (_PROFILE_GROUP, KIND)


def read_policies(
    manifests: Iterable[Manifest], registry: Registry, scheduler_name: str = DEFAULT_SCHEDULER
) -> list[Policy]:
    """The profiles of SchedulingProfiles, KubeSchedulerConfigurations and old Policies.

    `scheduler_name` is that of old Policies, which do not say it.

    Raises:
        InvalidPolicy: with every mistake of the first object that has any.
        InputError: for an object that is no policy, and for a name that is there twice.
    """
    policies: dict[str, Policy] = {}
    for manifest in manifests:
        try:
            found = _policies(manifest, registry, scheduler_name)
        except ProfileInvalid as invalid:
            raise InvalidPolicy(manifest.source, invalid.errors) from None
        except PluginLoadError as error:
            raise manifest.error(error) from None
        for policy in found:
            name = policy.profile.name
            if name in policies:
                raise manifest.error(f'metadata.name: there is a profile "{name}" already')
            policies[name] = policy
    return list(policies.values())


def _policies(manifest: Manifest, registry: Registry, scheduler_name: str) -> list[Policy]:
    if is_profile(manifest):
        return [Policy(*load_profile(manifest.raw, registry))]
    if manifest.kind == _CONFIGURATION:
        imported = import_configuration(manifest.raw, registry)
        return [
            Policy(profile, resolve(profile.spec, registry), imported.notes, imported.settings)
            for profile in imported.profiles
        ]
    if manifest.kind in _OLD_POLICIES:
        profile = import_policy(manifest.raw, registry, scheduler_name)
        return [Policy(profile, resolve(profile.spec, registry))]
    raise manifest.error(
        f"kind: {manifest.kind} is no scheduling policy; "
        f"give a {KIND}, a {_CONFIGURATION} or an old Policy"
    )
