"""Keeps the profiles in force, and finds the profile of a pod."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mooring.framework.handle import Handle
from mooring.framework.plugin_failures import PluginFailures
from mooring.framework.registry import Registry
from mooring.groups.model.pod_group import GroupFormat
from mooring.model.bounded_cache import BoundedCache
from mooring.model.kubernetes_rules import unknown_server
from mooring.model.pod import Pod
from mooring.model.wording import listed
from mooring.policy.extender import Extender
from mooring.policy.match import ProfileMatcher, may_share_pods
from mooring.policy.profile import DEFAULT_SCHEDULER, SchedulingProfile
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.resolve import ResolvedProfile, load_profile
from mooring.policy.rules.rule import missing_on_nodes
from mooring.runtime.pipeline import Pipeline, build_pipeline
from mooring.runtime.plugin_metrics import PluginMetrics
from mooring.state.cluster_view import ClusterView

_MOST_NAMED: Final = 3
"""The most profiles that a message names; it counts the others."""
_MOST_BYTES: Final = 2**20
"""The maximum bytes of remembered scheduler names, enough for 1,000 names; the least recently used
are forgotten."""
_MOST_COMPARED: Final = 50
"""The most names of active profiles with which `did_you_mean` compares an unknown name."""
_LONGEST_NAME: Final = 253
"""The maximum number of characters of a profile's scheduler name; for a longer unknown name, no
similar name is searched."""


@dataclass(frozen=True, slots=True, eq=False)
class ActiveProfile:
    """A profile in force, with the pipeline that was built for it."""

    profile: SchedulingProfile
    effective: ResolvedProfile
    pipeline: Pipeline


class CertificatesInvalid(ProfileInvalid):
    """Raised if extenders' certificates, which may become valid, are a profile's only mistakes."""

    def __init__(self, extenders: Sequence[Extender], errors: Iterable[FieldError]) -> None:
        super().__init__(errors)
        self.extenders = extenders


@dataclass(eq=False, repr=False)
class Profiles:
    """The profiles in force, by name.

    Attributes:
        failures: Counts the failures of plugins; without it, they are only logged.
        metrics: Measures the plugins.
        most_per_attempt: The maximum evaluations of plugins in one attempt, see `Evaluations`.
        tls_problem: Returns why an extender's certificates cannot be used; by default None.
    """

    registry: Registry
    handle: Handle
    failures: PluginFailures | None = None
    metrics: PluginMetrics | None = None
    most_per_attempt: int | None = None
    tls_problem: Callable[[Extender], str | None] = lambda _extender: None

    def __post_init__(self) -> None:
        self._in_force: dict[str, ActiveProfile] = {}
        self._not_in_force: dict[str, frozenset[str]] = {}
        self._former: BoundedCache[str, str] = BoundedCache(_MOST_BYTES)
        self._meant: BoundedCache[str, str] = BoundedCache(_MOST_BYTES)
        self.version = 0
        """A number that grows when the answer of `of` or `why_none` about a pod may have
        changed."""
        self._matcher = ProfileMatcher(())
        self._shadow_matcher = ProfileMatcher(())
        self._outranked: Mapping[str, tuple[str, ...]] = {}
        self.has_shadows = False
        """Whether a profile in mode Shadow is in force."""

    @property
    def in_force(self) -> Mapping[str, ActiveProfile]:
        """The profiles in force, by name."""
        return self._in_force

    @property
    def pod_group_formats(self) -> tuple[GroupFormat, ...]:
        """The formats of pod groups of all profiles, sorted by the profiles' names."""
        pipelines = (entry.pipeline for _, entry in sorted(self._in_force.items()))
        return tuple(dict.fromkeys(form for p in pipelines for form in p.pod_group_formats))

    def missing_on_nodes(self, name: str) -> list[FieldError]:
        """Return warnings about labels and resources that the profile's rules read and no node has.

        There are no warnings as long as there is no node.
        """
        in_force, cluster = self._in_force.get(name), self.handle.cluster
        if in_force is None or not in_force.profile.spec.rules or not cluster.node_count:
            return []
        found = missing_on_nodes(
            in_force.profile.spec.rules, cluster.node_label_keys, cluster.node_resources
        )
        return [warning.under("spec") for warning in found]

    def unknown_server(self, name: str) -> str | None:
        """Return a warning if the profile follows an API server of unknown version; else None."""
        in_force = self._in_force.get(name)
        if in_force is None or in_force.profile.spec.kubernetes_version is not None:
            return None
        return unknown_server(self.handle.cluster.server_version)

    def check(self, document: object) -> ActiveProfile:
        """Load a SchedulingProfile and build its plugins, without putting the profile in force.

        Raises:
            ProfileInvalid: The document has mistakes, or plugins cannot be built.
            CertificatesInvalid: Extenders' certificates cannot be used.
        """
        return self.build(*load_profile(document, self.registry, self.handle.cluster.kubernetes))

    def build(self, profile: SchedulingProfile, effective: ResolvedProfile) -> ActiveProfile:
        """Build the plugins of a profile, without putting the profile in force.

        Raises:
            CertificatesInvalid: Extenders' certificates cannot be used.
            ProfileInvalid: Plugins cannot be built; the exception names all of them.
        """
        extenders = profile.spec.extenders
        if mistakes := self.certificate_mistakes(extenders):
            raise CertificatesInvalid(extenders, mistakes)
        pipeline = build_pipeline(
            profile,
            effective,
            self.registry,
            self.handle,
            self.failures,
            self.metrics,
            self.most_per_attempt,
        )
        return ActiveProfile(profile, effective, pipeline)

    def certificate_mistakes(self, extenders: Iterable[Extender]) -> tuple[FieldError, ...]:
        """Return why certificates of a profile's extenders cannot be used now."""
        return tuple(
            FieldError(f"spec.extenders[{number}].tlsConfig", problem)
            for number, extender in enumerate(extenders)
            if (problem := self.tls_problem(extender)) is not None
        )

    def apply(self, document: object) -> ActiveProfile:
        """Check the document as `check` does, put its profile in force, and return the profile.

        Raises what `check` raises. After an exception, the former version stays in force.
        """
        return self._put_in_force(self.check(document))

    def put(self, profile: SchedulingProfile, effective: ResolvedProfile) -> ActiveProfile:
        """Build the profile's plugins as `build` does, put the profile in force, and return it.

        Raises what `build` raises. After an exception, the former version stays in force.
        """
        return self._put_in_force(self.build(profile, effective))

    def remove(self, name: str) -> None:
        """Take the profile out of force; forget the names that `not_in_force` kept for it."""
        self._not_in_force.pop(name, None)
        entry = self._in_force.pop(name, None)
        if entry is not None:
            self._remember(entry.profile)
        self._rematch()

    def not_in_force(self, name: str, scheduler_names: Iterable[str]) -> None:
        """Keep, for `why_none`, the scheduler names of an invalid profile that is not in force."""
        self._not_in_force[name] = frozenset(scheduler_names)
        self.version += 1

    def conflicts(self, name: str) -> frozenset[str]:
        """Return the names of profiles with the same precedence that may match the same pods."""
        if (entry := self._in_force.get(name)) is None:
            return frozenset()
        others = (other.profile for other in self._in_force.values() if other is not entry)
        return frozenset(p.name for p in others if may_share_pods(entry.profile, p))

    def outranked_by(self, name: str) -> tuple[str, ...]:
        """Return the names of profiles that together outrank this profile for all pods, or ()."""
        return self._outranked.get(name, ())

    def why_none(self, pod: Pod) -> str | None:
        """Return why no profile takes the pod; None if the pod may belong to another scheduler."""
        scheduler_name = pod.spec.scheduler_name
        if scheduler_name == DEFAULT_SCHEDULER:
            return None
        claimants = self._matcher.claimants(scheduler_name)
        if claimants:
            named = listed(claimants, _MOST_NAMED)
            return (
                f'no SchedulingProfile takes the pod: those for schedulerName "{scheduler_name}" '
                f"({named}) select other namespaces or pods"
            )
        for name, scheduler_names in self._not_in_force.items():
            if scheduler_name in scheduler_names:
                return (
                    f'SchedulingProfile {name}, for schedulerName "{scheduler_name}", is not in '
                    f"force because it is invalid; see kubectl get sprof {name} -o wide"
                )
        former = self._former.get(scheduler_name)
        if former is not None:
            return (
                f"SchedulingProfile {former} was deleted or is no longer for "
                f'schedulerName "{scheduler_name}"; the pod waits until a profile takes it'
            )
        return None

    def did_you_mean(self, scheduler_name: str) -> str:
        """Return `, did you mean X?`, where X is a similar schedulerName of an active profile.

        Returns "" if no name is similar, or if `scheduler_name` is the default scheduler's name or
        belongs to a profile in mode Shadow.
        """
        if (
            scheduler_name == DEFAULT_SCHEDULER
            or len(scheduler_name) > _LONGEST_NAME
            or self._shadow_matcher.claimants(scheduler_name)
        ):
            return ""
        meant = self._meant.get(scheduler_name)
        if meant is None:
            names = islice(self._matcher.scheduler_names(), _MOST_COMPARED)
            meant = did_you_mean(scheduler_name, names)
            self._meant.put(scheduler_name, meant)
        return meant

    def awaits_namespace(self, pod: Pod, cluster: ClusterView) -> bool:
        """Return whether the choice of the pod's profile needs namespace labels not known yet."""
        # The watch of namespaces may be slower than the watch of pods.
        is_known = cluster.known_namespace_labels(pod.namespace) is not None
        return not is_known and self._matcher.reads_namespaces(pod.spec.scheduler_name)

    def of(self, pod: Pod, cluster: ClusterView) -> ActiveProfile | None:
        """Return the profile in mode Active that takes the pod; None if no profile does."""
        return self.in_namespace(pod, cluster.namespace_labels(pod.namespace))

    def in_namespace(self, pod: Pod, labels: Mapping[str, str]) -> ActiveProfile | None:
        """Return the result of `of` for a pod whose namespace has these labels.

        The caller need not have the turn (see `mooring.process.turn`).
        """
        name = self._matcher.find(pod, labels)
        return self._in_force[name] if name is not None else None

    def shadow_of(self, pod: Pod, cluster: ClusterView) -> ActiveProfile | None:
        """Return the profile in mode Shadow that decides about the pod for comparison.

        Returns None if no such profile matches, or if a profile in mode Active takes the pod.
        """
        if not self.has_shadows or self.of(pod, cluster) is not None:
            return None
        name = self._shadow_matcher.find(pod, cluster.namespace_labels(pod.namespace))
        return self._in_force[name] if name is not None else None

    def _put_in_force(self, entry: ActiveProfile) -> ActiveProfile:
        name = entry.profile.name
        before = self._in_force.get(name)
        if before is not None:
            self._remember(before.profile)
        if entry.profile.spec.mode == "Shadow":  # these pods are another scheduler's now
            for scheduler_name in entry.profile.scheduler_names:
                self._former.pop(scheduler_name)
        self._in_force[name] = entry
        self._not_in_force.pop(name, None)
        self._rematch()
        return entry

    def _remember(self, profile: SchedulingProfile) -> None:
        if profile.spec.mode == "Shadow":
            return
        for scheduler_name in profile.scheduler_names:
            self._former.put(scheduler_name, profile.name)

    def _rematch(self) -> None:
        self.version += 1
        self._meant = BoundedCache(_MOST_BYTES)
        if self.metrics is not None:
            self.metrics.keep_profiles(self._in_force.keys())
        profiles = [entry.profile for entry in self._in_force.values()]
        shadows = [profile for profile in profiles if profile.spec.mode == "Shadow"]
        self._matcher = ProfileMatcher(p for p in profiles if p.spec.mode == "Active")
        self._shadow_matcher = ProfileMatcher(shadows)
        self._outranked = {**self._matcher.outranked(), **self._shadow_matcher.outranked()}
        self.has_shadows = bool(shadows)
