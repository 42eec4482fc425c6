"""The metrics that Mooring exports: kube-scheduler's metrics, and its own as `mooring_*`.

Names, labels and buckets are those of kube-scheduler's pkg/scheduler/metrics/metrics.go, so that
existing dashboards and alerts work unchanged. All durations are in seconds.
"""

from collections.abc import Callable, Container, Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mooring import __version__
from mooring.framework.handle import DeviceMetrics
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.observe.collector import StateCollector
from mooring.observe.instruments import (
    Count,
    CounterFamily,
    HistogramFamily,
    LabelValues,
    exponential_buckets,
)
from mooring.runtime.plugin_metrics import Status

RESULTS = ("scheduled", "unschedulable", "error")
"""The possible results of an attempt, as in kube-scheduler's label `result`."""

_MOST_EXTENDERS = 100
"""The maximum number of different values of the label `extender`. Profiles choose these values
freely; values beyond the limit are counted as "other"."""

_MOST_DRIVERS = 100
"""The maximum number of different values of the label `driver`. Publishers of devices choose these
values freely; values beyond the limit are counted as "other"."""

_MOST_PLUGINS = 500
"""The maximum number of different values of the label `plugin`, which names plugins and rules.
Values beyond the limit are counted as "other"."""

ATTEMPTS_LABEL_LIMIT = 15
"""The number of attempts from which on the label `attempts` is "15+", to limit the series."""

_POD, _POD_GROUP = "pod", "podgroup"
"""kube-scheduler's values of the labels `entity`, `preemptor` and `victim`."""
_FROM_A_MILLISECOND = exponential_buckets(0.001, 2, 15)
_FROM_TEN_MILLISECONDS = exponential_buckets(0.01, 2, 20)
_FROM_A_TENTH_OF_A_MILLISECOND = exponential_buckets(0.0001, 2, 12)
_OF_HOLDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OF_CALLS = exponential_buckets(0.00001, 1.5, 20)
"""The upper bounds in seconds of the buckets for durations of calls: kube-scheduler's, from 10 us
on."""


class ProfileMetrics:
    """The series of one profile, which are looked up only once."""

    def __init__(
        self,
        profile: str,
        *,
        attempts: CounterFamily,
        attempt_duration: HistogramFamily,
        algorithm_duration: HistogramFamily,
    ) -> None:
        self._attempts = {
            result: (attempts.child(result, profile), attempt_duration.child(result, profile))
            for result in RESULTS
        }
        self._algorithm = algorithm_duration.child()

    def attempt(self, result: str, algorithm_seconds: float, attempt_seconds: float) -> None:
        """Count an attempt that has ended with one of `RESULTS`.

        `algorithm_seconds` is the time of the decision alone. `attempt_seconds` is the time from
        the queue to the outcome, including the binding.
        """
        count, duration = self._attempts[result]
        count.add()
        duration.observe(attempt_seconds)
        self._algorithm.observe(algorithm_seconds)


class Metrics(Collector, DeviceMetrics):
    """All metrics of this process; only the event loop's thread may change them."""

    def __init__(self) -> None:
        self.pods_bound = 0
        """The number of pods that have been bound since the start."""
        self._families: list[CounterFamily | HistogramFamily] = []
        self._readings: StateCollector | None = None
        self._build = GaugeMetricFamily(
            "mooring_build_info", "Mooring's version.", labels=["version"]
        )
        self._build.add_metric([__version__], 1)
        self._profiles: dict[str, ProfileMetrics] = {}
        self._define_attempts()
        self._define_plugins()
        self._define_pods()
        self._define_preemption()
        self._define_evictions()
        self._define_pod_groups()
        self._define_devices()
        self._define_own()
        self._define_shadow()
        self._rebalancing_moves = self._counter(
            "mooring_rebalancing_moves_total",
            "Moves of pods by rebalancing that have ended, by result.",
            ("profile", "result"),
        )
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _counter(
        self, name: str, documentation: str, labels: tuple[str, ...] = ()
    ) -> CounterFamily:
        family = CounterFamily(name, documentation, labels)
        self._families.append(family)
        return family

    def _histogram(
        self, name: str, documentation: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> HistogramFamily:
        family = HistogramFamily(name, documentation, bounds, labels)
        self._families.append(family)
        return family

    def _define_attempts(self) -> None:
        self._attempts = self._counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods, by result and profile.",
            ("result", "profile"),
        )
        self._attempt_duration = self._histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of a scheduling attempt (decision and binding).",
            _FROM_A_MILLISECOND,
            ("result", "profile"),
        )
        self._algorithm_duration = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time of a scheduling decision.",
            _FROM_A_MILLISECOND,
        )
        self._permit_wait = self._histogram(
            "scheduler_permit_wait_duration_seconds",
            "Time a pod waited at Permit.",
            _FROM_A_MILLISECOND,
            ("result",),
        )

    def _define_plugins(self) -> None:
        self._point_duration = self._histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time for running all plugins of an extension point.",
            _FROM_A_TENTH_OF_A_MILLISECOND,
            ("extension_point", "status", "profile"),
        )
        self._plugin_duration = self._histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Time of a call of a plugin, in one of ten attempts.",
            _OF_CALLS,
            ("plugin", "extension_point", "status"),
        )
        self._plugin_evaluations = self._counter(
            "scheduler_plugin_evaluation_total",
            "Decisions that used a plugin's result, which pods that are alike share.",
            ("plugin", "extension_point", "profile"),
        )
        self._hint_duration = self._histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time for running a queueing hint.",
            _OF_CALLS,
            ("plugin", "event", "hint"),
        )
        self._event_duration = self._histogram(
            "scheduler_event_handling_duration_seconds",
            "Time for handling an event of a watch.",
            _FROM_A_TENTH_OF_A_MILLISECOND,
            ("event",),
        )
        self._plugins = LabelValues(_MOST_PLUGINS)

    def _define_pods(self) -> None:
        self._sli_duration = self._histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's first entry into the queue, gated time left out, to its binding.",
            _FROM_TEN_MILLISECONDS,
            ("attempts",),
        )
        self._pod_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts it took to schedule a pod.",
            exponential_buckets(1, 2, 5),
        )
        self._after_flush = self._counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods bound after they were tried again only because five minutes were over.",
        )

    def _define_preemption(self) -> None:
        self._preemption_attempts = self._counter(
            "scheduler_preemption_attempts_total",
            "Attempts of single pods to preempt others.",
        )
        self._preemption_victims = self._histogram(
            "scheduler_preemption_victims",
            "Victims of a preemption by a single pod.",
            exponential_buckets(1, 2, 7),
        )
        self._violations = self._counter(
            "scheduler_preemption_pdb_violations_total",
            "Victims whose eviction violates a disruption budget, by who preempts.",
            ("preemptor",),
        )
        for preemptor in (_POD, _POD_GROUP):
            self._violations.child(preemptor)
        self._group_preemptions = self._counter(
            "scheduler_workload_preemption_attempts_total",
            "Attempts of pod groups to preempt pods, by result.",
            ("preemptor", "result"),
        )
        for status in (Status.SUCCESS, Status.UNSCHEDULABLE):
            self._group_preemptions.child(_POD_GROUP, status)
        self._group_victims = self._histogram(
            "scheduler_workload_preemption_victims",
            "Victims of a preemption by a pod group.",
            exponential_buckets(1, 2, 11),
            ("preemptor",),
        )
        self._group_victims.child(_POD_GROUP)
        self._disruptions = self._histogram(
            "scheduler_preemption_workload_disruptions",
            "Pods, and groups that are evicted as a whole, that a pod group preempts.",
            exponential_buckets(1, 2, 11),
            ("preemptor", "victim"),
        )

    def _define_evictions(self) -> None:
        self._evaluation_duration = self._histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Time for finding the victims of a preemption, by who preempts and result.",
            exponential_buckets(0.001, 2, 16),
            ("preemptor", "result"),
        )
        self._eviction_duration = self._histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time for evicting the victims of a preemption.",
            _FROM_TEN_MILLISECONDS,
            ("result",),
        )
        self._execution_duration = self._histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Time for evicting the victims of a preemption, by who preempts.",
            exponential_buckets(0.001, 2, 16),
            ("preemptor", "result"),
        )
        self._evictions = self._counter(
            "scheduler_preemption_goroutines_execution_total",
            "Preemptions whose victims were evicted, by result.",
            ("result",),
        )
        for result in ("success", "error"):
            self._evictions.child(result)

    def _define_pod_groups(self) -> None:
        self._group_attempts = self._counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Attempts to schedule pod groups, by result and profile.",
            ("result", "profile", "entity"),
        )
        self._group_attempt_duration = self._histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Time of an attempt to schedule a pod group, without its binding.",
            _FROM_A_MILLISECOND,
            ("result", "profile", "entity"),
        )
        self._group_algorithm_duration = self._histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time of a decision about a pod group.",
            _FROM_A_MILLISECOND,
            ("profile", "entity"),
        )
        self._placements = self._counter(
            "scheduler_generated_placements_total",
            "Placements that were found for pod groups.",
            ("profile", "entity"),
        )
        self._placements_tried = self._counter(
            "scheduler_placement_evaluations_total",
            "Placements that were tried for pod groups, by result.",
            ("result", "profile", "entity"),
        )
        self._placement_duration = self._histogram(
            "scheduler_placement_evaluation_duration_seconds",
            "Time for trying one placement for a pod group.",
            _FROM_A_MILLISECOND,
            ("result", "profile", "entity"),
        )
        self._pod_group_duration = self._histogram(
            "mooring_pod_group_scheduling_duration_seconds",
            "Time from the moment a pod group has enough members to the decision that places it.",
            _FROM_TEN_MILLISECONDS,
        )

    def _define_devices(self) -> None:
        labels = ("profile", "driver", "status")
        self._device_allocations = self._counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Allocated devices with binding conditions, by how waiting for these ended.",
            labels,
        )
        self._device_waits = self._histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time for which PreBind waited for binding conditions, of each device of the claims.",
            exponential_buckets(0.1, 2, 14),
            labels,
        )
        self._claims_created = self._counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Claims created for extended resources of pods.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )
        self._drivers = LabelValues(_MOST_DRIVERS)

    def _define_own(self) -> None:
        self._relists = self._counter(
            "mooring_reflector_relists_total",
            "Times a resource was listed again because its watch could not be resumed.",
            ("resource",),
        )
        self._plugin_failures = self._counter(
            "mooring_plugin_failures_total",
            "Calls of plugins that raised, returned a wrong result or took too long.",
            ("plugin", "extension_point", "kind"),
        )
        self._extender_calls = self._counter(
            "mooring_extender_calls_total",
            "Calls of extenders, by result: success, error, timeout, or invalid for an answer that "
            "cannot be used or that reports an error.",
            ("extender", "verb", "result"),
        )
        self._extender_duration = self._histogram(
            "mooring_extender_call_duration_seconds",
            "Time of a call of an extender.",
            _FROM_A_MILLISECOND,
            ("extender", "verb"),
        )
        self._extenders = LabelValues(_MOST_EXTENDERS)
        self._held = self._histogram(
            "mooring_event_loop_held_seconds",
            "How long steps of tasks held the event loop, those of a millisecond or longer.",
            _OF_HOLDS,
        ).child()

    def _define_shadow(self) -> None:
        self._shadow_pods = self._counter(
            "mooring_shadow_pods_total",
            "Pods that a profile in mode Shadow decided, by result.",
            ("profile", "result"),
        )
        tenths = tuple(number / 10 for number in range(1, 11))
        self._shadow_utilization = self._histogram(
            "mooring_shadow_node_utilization",
            "Requested share of the node with the pod, mean of cpu and memory, by who chose it.",
            tenths,
            ("profile", "choice"),
        )
        self._shadow_balance = self._histogram(
            "mooring_shadow_node_balance",
            "1 minus the standard deviation of the requested shares of cpu and memory of the node "
            "with the pod, by who chose it.",
            tenths,
            ("profile", "choice"),
        )

    def for_profile(self, profile: str) -> ProfileMetrics:
        """Return the series of this profile: the same object while the profile is in force."""
        recorder = self._profiles.get(profile)
        if recorder is None:
            recorder = self._profiles[profile] = ProfileMetrics(
                profile,
                attempts=self._attempts,
                attempt_duration=self._attempt_duration,
                algorithm_duration=self._algorithm_duration,
            )
        return recorder

    def keep_profiles(self, profiles: Container[str]) -> None:
        """Remove the series of all profiles that are not in `profiles`.

        Otherwise memory would grow with every new name of a profile.
        """
        for family in self._families:
            family.keep("profile", profiles)
        self._profiles = {
            name: recorder for name, recorder in self._profiles.items() if name in profiles
        }

    def pod_bound(self, attempts: int, seconds: float, *, flushed: bool = False) -> None:
        """Count a pod bound after `attempts` attempts, `seconds` after it entered the queue.

        `flushed` means that the pod was retried only because five minutes had passed.
        """
        if flushed:
            self._after_flush.child().add()
        label = str(attempts) if attempts < ATTEMPTS_LABEL_LIMIT else f"{ATTEMPTS_LABEL_LIMIT}+"
        self._sli_duration.child(label).observe(seconds)
        self._pod_attempts.child().observe(attempts)
        self.pods_bound += 1

    def permit_waited(self, result: str, seconds: float) -> None:
        """Count a wait of `seconds` at Permit; `result` is kube-scheduler's status code."""
        self._permit_wait.child(result).observe(seconds)

    def preemption_attempted(self) -> None:
        """Count a single pod that tries to preempt others."""
        self._preemption_attempts.child().add()

    def preempted(self, victims: int, violations: int) -> None:
        """Count a preemption by a single pod; pods that were already terminating are no victims.

        `violations` is the number of victims whose eviction violates a disruption budget.
        """
        self._preemption_victims.child().observe(victims)
        self._violations.child(_POD).add(violations)

    def pod_group_preempted(
        self, victims: int, violations: int, disruptions: tuple[int, int]
    ) -> None:
        """Count a preemption by a pod group; for `victims` and `violations` see `preempted`.

        `disruptions` has two numbers: the single pods among the victims, and the groups that are
        evicted as a whole.
        """
        self._group_preemptions.child(_POD_GROUP, Status.SUCCESS).add()
        self._group_victims.child(_POD_GROUP).observe(victims)
        self._violations.child(_POD_GROUP).add(violations)
        for victim, count in zip((_POD, _POD_GROUP), disruptions, strict=True):
            if count:
                self._disruptions.child(_POD_GROUP, victim).observe(count)

    def pod_group_cannot_preempt(self) -> None:
        """Count a pod group that cannot be placed by preemption."""
        self._group_preemptions.child(_POD_GROUP, Status.UNSCHEDULABLE).add()

    def pod_group_placed(self, seconds: float) -> None:
        """Count a pod group that a decision placed `seconds` after it had enough members."""
        self._pod_group_duration.child().observe(seconds)

    def preemption_ended(self, preemptor: str, result: str, seconds: float) -> None:
        """Count a preemption whose evictions have ended.

        `preemptor` is pod or podgroup; `result` is success if all victims are evicted, else error.
        """
        self._evictions.child(result).add()
        self._eviction_duration.child(result).observe(seconds)
        self._execution_duration.child(preemptor, result).observe(seconds)

    def pod_group_attempted(self, result: str, profile: str, seconds: float) -> None:
        """Count an attempt of a pod group; `result` is in `RESULTS` or waiting_on_preemption."""
        self._group_attempts.child(result, profile, _POD_GROUP).add()
        self._group_attempt_duration.child(result, profile, _POD_GROUP).observe(seconds)

    def pod_group_decided(self, profile: str, seconds: float) -> None:
        """Count a decision about a pod group, which took `seconds`."""
        self._group_algorithm_duration.child(profile, _POD_GROUP).observe(seconds)

    def placements_generated(self, profile: str, count: int) -> None:
        """Count the placements that plugins proposed for a pod group."""
        self._placements.child(profile, _POD_GROUP).add(count)

    def placement_evaluated(self, profile: str, *, feasible: bool, seconds: float) -> None:
        """Count a tried placement of a pod group; `feasible` says whether the group fits there."""
        labels = "feasible" if feasible else "infeasible", profile, _POD_GROUP
        self._placements_tried.child(*labels).add()
        self._placement_duration.child(*labels).observe(seconds)

    def extension_point(
        self, point: ExtensionPoint, status: Status, profile: str
    ) -> Callable[[float], None]:
        """Return a function that counts how long all plugins at this point took, in seconds."""
        return self._point_duration.child(point, status, profile).observe

    def preemption_evaluated(self, preemptor: str, status: Status, seconds: float) -> None:
        """Count a search for victims; `preemptor` is pod or podgroup."""
        self._evaluation_duration.child(preemptor, status).observe(seconds)

    def plugin_ran(
        self, plugin: str, point: ExtensionPoint, status: Status, seconds: float
    ) -> None:
        """Count one call of a plugin, which took `seconds`."""
        name = self._plugins.of(plugin)
        self._plugin_duration.child(name, point, status).observe(seconds)

    def queueing_hint_ran(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """Count a queueing hint that ran for this event; `hint` is Queue, QueueSkip or Error."""
        self._hint_duration.child(self._plugins.of(plugin), event, hint).observe(seconds)

    def evaluations(self, plugin: str, point: ExtensionPoint, profile: str) -> Count:
        """Return the counter of decisions that used a result of the plugin."""
        return self._plugin_evaluations.child(self._plugins.of(plugin), point, profile)

    def event_handled(self, event: str, seconds: float) -> None:
        """Count an event of a watch; the changes of state and queue took `seconds`."""
        self._event_duration.child(event).observe(seconds)

    def event_loop_held(self, seconds: float) -> None:
        """Count a step of a task that held the event loop for `seconds`."""
        self._held.observe(seconds)

    def relisted(self, resource: str) -> None:
        """Count that `resource` (pods, replicasets.apps) was listed again after a broken watch."""
        self._relists.child(resource).add()

    def plugin_failed(self, plugin: str, extension_point: str, kind: str) -> None:
        """Count a call of a plugin that failed; `kind` is error, invalid or slow."""
        self._plugin_failures.child(self._plugins.of(plugin), extension_point, kind).add()

    def shadow_decided(self, profile: str, result: str) -> None:
        """Count a pod that a profile in mode Shadow has decided about."""
        self._shadow_pods.child(profile, result).add()

    def shadow_node(self, profile: str, choice: str, utilization: float, balance: float) -> None:
        """Record how full the node is that was chosen for a pod.

        Args:
            profile: A profile in mode Shadow.
            choice: "bound" for the node to which the pod was bound, "shadow" for the node that the
                profile chose.
            utilization: The mean of the node's requested shares of cpu and memory.
            balance: 1 minus the standard deviation of these two shares.
        """
        self._shadow_utilization.child(profile, choice).observe(utilization)
        self._shadow_balance.child(profile, choice).observe(balance)

    def rebalanced(self, profile: str, result: str) -> None:
        """Count an ended move of a pod by its result."""
        self._rebalancing_moves.child(profile, result).add()

    def devices_bound(
        self,
        profile: str,
        drivers: Sequence[str],
        waited: Sequence[str],
        status: str,
        seconds: float,
    ) -> None:
        """Count the `seconds` that PreBind waited for the binding conditions of devices.

        `drivers` has the driver of each claimed device; `waited` has only the drivers of devices
        with binding conditions.
        """
        for driver in map(self._drivers.of, drivers):
            self._device_waits.child(profile, driver, status).observe(seconds)
        for driver in map(self._drivers.of, waited):
            self._device_allocations.child(profile, driver, status).add()

    def claim_created(self, status: str) -> None:
        """Count a claim for a pod's extended resources; `status` is success or failure."""
        self._claims_created.child(status, "false", "", "Pod").add()

    def extender_called(self, extender: str, verb: str, result: str, seconds: float) -> None:
        """Count a call of an extender, and record its duration unless `result` is "invalid".

        A successful call with an invalid answer is counted twice: as "success" and as "invalid".
        """
        extender = self._extenders.of(extender)
        self._extender_calls.child(extender, verb, result).add()
        if result != "invalid":
            self._extender_duration.child(extender, verb).observe(seconds)

    def read_from(self, readings: StateCollector) -> None:
        """Add the metrics of `readings` to each later scrape."""
        self._readings = readings

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that the `Accept` header wants, and the content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values; prometheus_client's registry calls this."""
        yield self._build
        for family in self._families:
            yield family.collect()
        if self._readings is not None:
            yield from self._readings.collect()
