"""Converts a KubeSchedulerConfiguration to SchedulingProfiles.

The import reads version v1, and the versions v1beta3 and v1beta2 of Kubernetes 1.22 to 1.28.

Source: staging `kube-scheduler/config/v1/types.go`, `apis/config/v1/defaults.go`,
`apis/config/validation/validation.go` and component-base `config/validation` of v1.34.4 to v1.37.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_camel

from mooring.policy.defaults import KUBE_SCHEDULER_PLUGINS
from mooring.policy.durations import Duration
from mooring.policy.extender import Extenders
from mooring.policy.imports.left_out import (
    WithLeftOut,
    left_out_of,
    without_left_out,
    without_their_args,
)
from mooring.policy.merge import Catalog
from mooring.policy.profile import (
    DEFAULT_SCHEDULER,
    Enabled,
    PluginConfig,
    Plugins,
    PluginSet,
    SchedulingProfile,
    SchedulingProfileSpec,
    profile_for,
)
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.reading import PolicyModel, read
from mooring.policy.resolve import resolve

_V1BETA2: Final = "kubescheduler.config.k8s.io/v1beta2"
_V1BETA2_WEIGHTS: Final = {"NodeAffinity": 1, "InterPodAffinity": 1, "TaintToleration": 1}
"""The default weights in v1beta2; in v1beta3 and v1 they are higher (apis/config/v1beta2)."""
_JITTER: Final = 1.2
"""The factor by which client-go's leader election may lengthen the retry period."""


def _positive_or(default: timedelta) -> AfterValidator:
    def check(given: timedelta) -> timedelta:
        if given < timedelta(0):
            raise ValueError("must be more than 0s")
        # As in Go, 0 stands for the default.
        return given or default

    return AfterValidator(check)


class _LeaderElection(PolicyModel):
    leader_elect: bool = True
    lease_duration: Annotated[Duration, _positive_or(timedelta(seconds=15))] = timedelta(seconds=15)
    renew_deadline: Annotated[Duration, _positive_or(timedelta(seconds=10))] = timedelta(seconds=10)
    retry_period: Annotated[Duration, _positive_or(timedelta(seconds=2))] = timedelta(seconds=2)
    resource_lock: Literal["leases", ""] = "leases"
    resource_namespace: str = ""
    resource_name: str = ""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if leaseDuration, renewDeadline and retryPeriod do not fit together."""
        if not self.leader_elect:
            return
        if self.lease_duration <= self.renew_deadline:
            yield FieldError("leaseDuration", "must be longer than renewDeadline")
        if self.renew_deadline <= self.retry_period * _JITTER:
            yield FieldError("renewDeadline", f"must be longer than {_JITTER} times retryPeriod")


class _ClientConnection(PolicyModel):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = Field(0, ge=0, le=2**31 - 1)


class _Plugins(Plugins):
    """The plugins of a file, also at extension points that Mooring lacks."""

    pod_group_post_filter: PluginSet = PluginSet()
    placement_feasible: PluginSet = PluginSet()


_WITHOUT_POINT: Final = {
    "pod_group_post_filter": "pod groups preempt others where postFilter has DefaultPreemption",
    "placement_feasible": "a pod group takes a placement where its minimum of members fits",
}
"""Maps an extension point that Mooring lacks to the reason why its plugins are left out."""
_ALL_PLACEMENTS: Final = "Mooring scores all placements of a pod group"


class _Profile(PolicyModel):
    scheduler_name: str | None = Field(None, max_length=253)
    percentage_of_nodes_to_score: int | None = Field(None, ge=0, le=100)
    percentage_of_placements_to_score: int | None = Field(None, ge=0, le=100)
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class Configuration(PolicyModel):
    """A KubeSchedulerConfiguration, with the fields of all versions."""

    api_version: Literal[
        "kubescheduler.config.k8s.io/v1",
        "kubescheduler.config.k8s.io/v1beta3",
        "kubescheduler.config.k8s.io/v1beta2",
    ]
    kind: Literal["KubeSchedulerConfiguration"]
    parallelism: int = Field(16, ge=1, le=2**31 - 1)
    leader_election: _LeaderElection = _LeaderElection()
    client_connection: _ClientConnection = _ClientConnection()
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = Field(None, ge=0, le=100)
    percentage_of_placements_to_score: int | None = Field(None, ge=0, le=100)
    pod_initial_backoff_seconds: int = Field(1, ge=1)
    pod_max_backoff_seconds: int = 10
    profiles: tuple[_Profile, ...] = ()
    extenders: Extenders = ()
    delay_cache_until_active: bool = False

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if the longest backoff is shorter than the first."""
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            message = (
                f"must be at least podInitialBackoffSeconds, {self.pod_initial_backoff_seconds}"
            )
            yield FieldError("podMaxBackoffSeconds", message)


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of the scheduler's process in a KubeSchedulerConfiguration.

    `kubeconfig`, `lease_namespace` and `lease_name` are "" if the file does not set them. A
    negative `qps` means that requests are not limited.
    """

    kubeconfig: str
    qps: float
    burst: int
    leader_elect: bool
    lease_namespace: str
    lease_name: str
    lease_duration: timedelta
    renew_deadline: timedelta
    retry_period: timedelta
    initial_backoff: timedelta
    max_backoff: timedelta


@dataclass(frozen=True, slots=True)
class Imported:
    """Profiles and settings from a file; `notes` name the fields that are left out, and why."""

    profiles: tuple[SchedulingProfile, ...]
    settings: ProcessSettings
    notes: tuple[FieldError, ...]


def import_configuration(document: object, catalog: Catalog) -> Imported:
    """Convert a configuration to profiles and settings; raise ProfileInvalid for a mistake."""
    configuration = read(Configuration, _cleaned(document), "")
    given = configuration.profiles or (_Profile(),)
    specs = [_spec(profile, configuration) for profile in given]
    mistakes = [
        *_wrong_scheduler_names(given),
        *_different_queues(given),
        *_unresolvable(specs, catalog),
        *_unknown_without_point(given, catalog),
    ]
    if mistakes:
        raise ProfileInvalid(mistakes)
    notes = [*_without_counterpart(configuration)]
    profiles = list[SchedulingProfile]()
    for number, (profile, spec) in enumerate(zip(given, specs, strict=True)):
        notes += left_out_of(spec, catalog, f"profiles[{number}]")
        notes += _without_point(profile, f"profiles[{number}]")
        taken = {profile.name for profile in profiles}
        kept = without_left_out(spec, catalog)
        profiles.append(profile_for(profile.scheduler_name or DEFAULT_SCHEDULER, kept, taken))
    return Imported(tuple(profiles), _settings(configuration), tuple(notes))


def _cleaned(document: object) -> object:
    if not isinstance(document, Mapping) or not isinstance(document.get("profiles"), list):
        return document
    version = document.get("apiVersion")
    profiles = [_cleaned_profile(profile, version) for profile in document["profiles"]]
    return {**document, "profiles": profiles}


def _cleaned_profile(profile: object, version: object) -> object:
    if not isinstance(profile, Mapping):
        return profile
    cleaned = dict(profile)
    if isinstance(plugins := profile.get("plugins"), Mapping):
        cleaned["plugins"] = {point: _cleaned_set(each) for point, each in plugins.items()}
    if isinstance(entries := profile.get("pluginConfig"), list):
        cleaned["pluginConfig"] = [_cleaned_args(entry, version) for entry in entries]
    return cleaned


def _cleaned_args(entry: object, version: object) -> object:
    args = entry.get("args") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(args, Mapping):
        return entry
    kept = {name: value for name, value in args.items() if (name, value) != ("apiVersion", version)}
    return {**entry, "args": kept}


def _cleaned_set(plugins: object) -> object:
    # kube-scheduler writes the weight 0 into `disabled`.
    if not isinstance(plugins, Mapping) or not isinstance(plugins.get("disabled"), list):
        return plugins
    disabled = [
        {name: value for name, value in plugin.items() if (name, value) != ("weight", 0)}
        if isinstance(plugin, Mapping)
        else plugin
        for plugin in plugins["disabled"]
    ]
    return {**plugins, "disabled": disabled}


def _spec(profile: _Profile, configuration: Configuration) -> SchedulingProfileSpec:
    # Fields that are not in the file are not set in the spec.
    fields = {name: value for name, value in profile if name in profile.model_fields_set}
    fields.pop("scheduler_name", None)
    fields.pop("percentage_of_placements_to_score", None)
    if "plugins" in fields:
        points = profile.plugins.model_fields_set & Plugins.model_fields.keys()
        fields["plugins"] = Plugins(**{name: getattr(profile.plugins, name) for name in points})
    if configuration.api_version == _V1BETA2:
        fields["plugins"] = _with_former_weights(fields.get("plugins") or Plugins())
    if configuration.percentage_of_nodes_to_score is not None:
        fields.setdefault(
            "percentage_of_nodes_to_score", configuration.percentage_of_nodes_to_score
        )
    if configuration.extenders:
        fields["extenders"] = configuration.extenders
    return SchedulingProfileSpec(**fields)


def _with_former_weights(plugins: Plugins) -> Plugins:
    score = plugins.score
    named = {plugin.name for plugin in score.enabled} | {plugin.name for plugin in score.disabled}
    if "*" in named:
        return plugins
    added = (Enabled(name=n, weight=w) for n, w in _V1BETA2_WEIGHTS.items() if n not in named)
    sets = score.model_copy(update={"enabled": (*score.enabled, *added)})
    return plugins.model_copy(update={"score": sets})


def _unresolvable(specs: Iterable[SchedulingProfileSpec], catalog: Catalog) -> Iterator[FieldError]:
    lenient = WithLeftOut(catalog)
    for number, spec in enumerate(specs):
        try:
            resolve(without_their_args(spec, catalog), lenient, path=f"profiles[{number}]")
        except ProfileInvalid as invalid:
            yield from invalid.errors


def _unknown_without_point(profiles: Iterable[_Profile], catalog: Catalog) -> Iterator[FieldError]:
    """Yield a mistake for each unknown plugin at an extension point that Mooring does not have."""
    names = {*WithLeftOut(catalog).names(), *KUBE_SCHEDULER_PLUGINS, "*"}
    for (number, profile), point in product(enumerate(profiles), _WITHOUT_POINT):
        path = f"profiles[{number}].plugins.{to_camel(point)}"
        plugins: PluginSet = getattr(profile.plugins, point)
        named = {
            "enabled": [plugin.name for plugin in plugins.enabled],
            "disabled": [plugin.name for plugin in plugins.disabled],
        }
        for field, given in named.items():
            for place, name in enumerate(given):
                if name not in names:
                    message = f'unknown plugin "{name}"{did_you_mean(name, names)}'
                    yield FieldError(f"{path}.{field}[{place}].name", message)


def _without_point(profile: _Profile, path: str) -> Iterator[FieldError]:
    for point, reason in _WITHOUT_POINT.items():
        plugins: PluginSet = getattr(profile.plugins, point)
        if plugins.enabled or plugins.disabled:
            yield FieldError(f"{path}.plugins.{to_camel(point)}", f"is left out: {reason}")
    if profile.percentage_of_placements_to_score:
        where = f"{path}.percentageOfPlacementsToScore"
        yield FieldError(where, f"is left out: {_ALL_PLACEMENTS}")


def _wrong_scheduler_names(profiles: Sequence[_Profile]) -> Iterator[FieldError]:
    owners = dict[str, int]()
    for number, profile in enumerate(profiles):
        path, name = f"profiles[{number}].schedulerName", profile.scheduler_name
        if name == "" or (name is None and len(profiles) > 1):
            yield FieldError(path, "is required")
        elif name in owners:
            yield FieldError(path, f'"{name}" is the name of profiles[{owners[name]}] already')
        elif name is not None:
            owners[name] = number


def _different_queues(profiles: Sequence[_Profile]) -> Iterator[FieldError]:
    # All profiles of a file share one queue.
    first = profiles[0]
    sorters = {plugin.name for plugin in first.plugins.queue_sort.enabled}

    def arguments(profile: _Profile) -> dict[str, Any]:
        return {e.name: e.args for e in profile.plugin_config if e.name in sorters}

    for number, profile in enumerate(profiles[1:], start=1):
        if profile.plugins.queue_sort != first.plugins.queue_sort:
            path = f"profiles[{number}].plugins.queueSort"
            yield FieldError(path, "must be the same in all profiles, differs from profiles[0]")
        if arguments(profile) != arguments(first):
            path = f"profiles[{number}].pluginConfig"
            yield FieldError(path, "must give the queueSort plugin the args of profiles[0]")


def _without_counterpart(configuration: Configuration) -> Iterator[FieldError]:
    reasons = {
        "parallelism": "Mooring decides on all nodes at once",
        "enable_profiling": "Mooring has no profiling endpoint",
        "enable_contention_profiling": "Mooring has no profiling endpoint",
        "delay_cache_until_active": "a standby Mooring always keeps its cache warm",
        "healthz_bind_address": "mooring run has --bind-address and --port",
        "metrics_bind_address": "mooring run has --bind-address and --port",
    }
    for name, reason in reasons.items():
        if name in configuration.model_fields_set:
            yield FieldError(to_camel(name), f"is left out: {reason}")
    if configuration.percentage_of_placements_to_score:
        yield FieldError("percentageOfPlacementsToScore", f"is left out: {_ALL_PLACEMENTS}")
    connection = configuration.client_connection
    for name in ("accept_content_types", "content_type"):
        if getattr(connection, name):
            yield FieldError(
                f"clientConnection.{to_camel(name)}", "is left out: Mooring speaks JSON"
            )


def _settings(configuration: Configuration) -> ProcessSettings:
    connection, election = configuration.client_connection, configuration.leader_election
    return ProcessSettings(
        kubeconfig=connection.kubeconfig,
        qps=connection.qps or 50.0,
        burst=connection.burst or 100,
        leader_elect=election.leader_elect,
        lease_namespace=election.resource_namespace,
        lease_name=election.resource_name,
        lease_duration=election.lease_duration,
        renew_deadline=election.renew_deadline,
        retry_period=election.retry_period,
        initial_backoff=timedelta(seconds=configuration.pod_initial_backoff_seconds),
        max_backoff=timedelta(seconds=configuration.pod_max_backoff_seconds),
    )
