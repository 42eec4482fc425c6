"""Converts a workload's configuration of kube-scheduler to Mooring's profiles."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.imports.configuration import import_configuration
from mooring.policy.profile_errors import FieldError

Raw = dict[str, Any]

BACKOFFS: Final = ("podInitialBackoffSeconds", "podMaxBackoffSeconds")


def profiles_of(
    configuration: Mapping[str, Any], scheduler: str
) -> tuple[Sequence[Raw], Sequence[FieldError]]:
    """Return the SchedulingProfiles for a KubeSchedulerConfiguration, and the fields they lack.

    The profiles are for pods of this scheduler, as `mooring convert` writes them.

    Raises:
        ProfileInvalid: the configuration has a mistake.
    """
    given = [
        {**profile, "schedulerName": scheduler} for profile in configuration.get("profiles", ())
    ]
    imported = import_configuration({**configuration, "profiles": given}, Registry(SHIPPED))
    of_process = [
        FieldError(name, "is an option of Mooring's process, which is not set here")
        for name in BACKOFFS
        if name in configuration
    ]
    return [profile.manifest() for profile in imported.profiles], [*imported.notes, *of_process]
