from dataclasses import fields
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mooring import __version__
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.observe.collector import StateCollector
from mooring.observe.metrics import Metrics
from mooring.runtime.plugin_metrics import PluginMetrics, Status

BUCKETS = {
    "scheduler_scheduling_attempt_duration_seconds": (0.001, 16.384, 15),
    "scheduler_scheduling_algorithm_duration_seconds": (0.001, 16.384, 15),
    "scheduler_permit_wait_duration_seconds": (0.001, 16.384, 15),
    "scheduler_pod_scheduling_sli_duration_seconds": (0.01, 5242.88, 20),
    "scheduler_pod_scheduling_attempts": (1, 16, 5),
    "scheduler_preemption_victims": (1, 64, 7),
    "scheduler_preemption_goroutines_duration_seconds": (0.01, 5242.88, 20),
    "scheduler_preemption_evaluation_duration_seconds": (0.001, 32.768, 16),
    "scheduler_dra_bindingconditions_wait_duration_seconds": (0.1, 819.2, 14),
    "scheduler_framework_extension_point_duration_seconds": (0.0001, 0.2048, 12),
    "scheduler_plugin_execution_duration_seconds": (0.00001, 0.00001 * 1.5**19, 20),
    "scheduler_queueing_hint_execution_duration_seconds": (0.00001, 0.00001 * 1.5**19, 20),
    "scheduler_event_handling_duration_seconds": (0.0001, 0.2048, 12),
    "scheduler_podgroup_scheduling_attempt_duration_seconds": (0.001, 16.384, 15),
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": (0.001, 16.384, 15),
    "scheduler_placement_evaluation_duration_seconds": (0.001, 16.384, 15),
    "scheduler_workload_preemption_victims": (1, 1024, 11),
    "scheduler_preemption_workload_disruptions": (1, 1024, 11),
}
"""kube-scheduler's first bound, last finite bound and number of bounds."""


def scrape(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    page, _ = metrics.exposition("")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return scrape(metrics)[name, frozenset(labels.items())]


def test_an_attempt_is_counted_and_timed_under_its_result_and_profile() -> None:
    metrics = Metrics()
    metrics.for_profile("mooring").attempt("scheduled", 0.0005, 0.003)
    labels = {"result": "scheduled", "profile": "mooring"}
    duration = "scheduler_scheduling_attempt_duration_seconds"
    assert value(metrics, "scheduler_schedule_attempts_total", **labels) == 1
    assert value(metrics, f"{duration}_sum", **labels) == 0.003
    assert value(metrics, f"{duration}_bucket", **labels, le="0.002") == 0
    assert value(metrics, f"{duration}_bucket", **labels, le="0.004") == 1
    assert value(metrics, "scheduler_scheduling_algorithm_duration_seconds_sum") == 0.0005


def test_a_profile_shows_zeroes_before_its_first_attempt_so_that_rates_start_right() -> None:
    metrics = Metrics()
    metrics.for_profile("mooring")
    for result in ("scheduled", "unschedulable", "error"):
        labels = {"result": result, "profile": "mooring"}
        assert value(metrics, "scheduler_schedule_attempts_total", **labels) == 0


def test_two_profiles_share_the_algorithm_duration_and_nothing_else() -> None:
    metrics = Metrics()
    for profile in ("mooring", "batch"):
        metrics.for_profile(profile).attempt("scheduled", 0.001, 0.002)
    attempts = "scheduler_schedule_attempts_total"
    assert value(metrics, attempts, result="scheduled", profile="batch") == 1
    assert value(metrics, "scheduler_scheduling_algorithm_duration_seconds_count") == 2


def test_a_profile_keeps_its_recorder_when_its_policy_is_replaced() -> None:
    metrics = Metrics()
    assert metrics.for_profile("mooring") is metrics.for_profile("mooring")


def test_nothing_is_left_of_profiles_that_are_not_in_force_any_more() -> None:
    metrics = Metrics()
    recorded = PluginMetrics(metrics)
    for profile in ("stays", *(f"tenant-{number}" for number in range(100))):
        metrics.for_profile(profile).attempt("scheduled", 0.001, 0.002)
        recorded.ran(ExtensionPoint.BIND, Status.SUCCESS, profile, 0.5)
        metrics.evaluations("NodeName", ExtensionPoint.FILTER, profile).add()
        metrics.pod_group_attempted("scheduled", profile, 0.5)
        metrics.pod_group_decided(profile, 0.5)
        metrics.placement_evaluated(profile, feasible=True, seconds=0.5)
        metrics.shadow_decided(profile, "agreed")
        metrics.shadow_node(profile, "bound", 0.5, 0.5)
        recorded.keep_profiles({"stays", profile})
    recorded.keep_profiles({"stays"})
    page = metrics.exposition("")[0].decode()
    assert "tenant-" not in page
    assert value(metrics, "scheduler_schedule_attempts_total", result="scheduled", profile="stays")
    assert value(metrics, "mooring_shadow_node_balance_sum", profile="stays", choice="bound")
    recorded.ran(ExtensionPoint.BIND, Status.SUCCESS, "stays", 0.5)
    points = "scheduler_framework_extension_point_duration_seconds_count"
    labels = {"extension_point": "Bind", "status": "Success", "profile": "stays"}
    assert value(metrics, points, **labels) == 2


def test_failures_of_plugins_with_ever_new_names_share_a_label() -> None:
    metrics = Metrics()
    for number in range(600):
        metrics.plugin_failed(f"Rules/{number}", "Filter", "error")
    labels = {"extension_point": "Filter", "kind": "error"}
    assert value(metrics, "mooring_plugin_failures_total", plugin="Rules/7", **labels) == 1
    assert value(metrics, "mooring_plugin_failures_total", plugin="other", **labels) == 100


@pytest.mark.parametrize(("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (900, "15+")])
def test_the_attempts_label_is_bounded(attempts: int, label: str) -> None:
    metrics = Metrics()
    metrics.pod_bound(attempts, 0.5)
    name = "scheduler_pod_scheduling_sli_duration_seconds_count"
    assert value(metrics, name, attempts=label) == 1
    assert value(metrics, "scheduler_pod_scheduling_attempts_sum") == attempts


def everything_happened_once() -> Metrics:
    metrics = Metrics()
    metrics.for_profile("mooring").attempt("unschedulable", 0.001, 0.001)
    metrics.pod_bound(1, 0.1)
    metrics.permit_waited("Success", 2.0)
    metrics.preemption_attempted()
    metrics.preempted(victims=3, violations=2)
    metrics.relisted("nodes")
    metrics.preemption_evaluated("podgroup", Status.UNSCHEDULABLE, 0.125)
    metrics.preemption_ended("podgroup", "success", 0.5)
    metrics.pod_group_preempted(5, 4, (2, 0))
    metrics.pod_group_cannot_preempt()
    metrics.extension_point(ExtensionPoint.FILTER, Status.SUCCESS, "mooring")(0.25)
    metrics.plugin_ran("NodeName", ExtensionPoint.FILTER, Status.UNSCHEDULABLE, 0.125)
    metrics.evaluations("NodeName", ExtensionPoint.FILTER, "mooring").add()
    metrics.queueing_hint_ran("NodeName", "NodeAdd", "QueueSkip", 0.5)
    metrics.event_handled("AssignedPodAdd", 0.75)
    metrics.pod_group_attempted("waiting_on_preemption", "mooring", 0.5)
    metrics.pod_group_decided("mooring", 0.25)
    metrics.placements_generated("mooring", 3)
    metrics.placement_evaluated("mooring", feasible=True, seconds=0.5)
    metrics.placement_evaluated("mooring", feasible=False, seconds=0.25)
    metrics.event_loop_held(0.375)
    metrics.devices_bound("mooring", ["a", "b", "b"], ["b"], "timeout", 4.0)
    metrics.claim_created("failure")
    return metrics


FILTER = {"extension_point": "Filter"}
IN_FILTER = {"plugin": "NodeName", **FILTER}
WAITED_FOR = {"profile": "mooring", "driver": "b", "status": "timeout"}
OF_GROUP = {"profile": "mooring", "entity": "podgroup"}
WAITING = {"result": "waiting_on_preemption", **OF_GROUP}
PREEMPTS = {"preemptor": "podgroup"}


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("scheduler_permit_wait_duration_seconds_sum", {"result": "Success"}, 2),
        ("scheduler_preemption_attempts_total", {}, 1),
        ("scheduler_preemption_victims_sum", {}, 3),
        ("scheduler_preemption_pdb_violations_total", {"preemptor": "pod"}, 2),
        ("scheduler_preemption_pdb_violations_total", {"preemptor": "podgroup"}, 4),
        ("scheduler_workload_preemption_attempts_total", {"result": "Success", **PREEMPTS}, 1),
        (
            "scheduler_workload_preemption_attempts_total",
            {"result": "Unschedulable", **PREEMPTS},
            1,
        ),
        ("scheduler_workload_preemption_victims_sum", PREEMPTS, 5),
        ("scheduler_preemption_workload_disruptions_sum", {"victim": "pod", **PREEMPTS}, 2),
        (
            "scheduler_preemption_evaluation_duration_seconds_sum",
            {"preemptor": "podgroup", "result": "Unschedulable"},
            0.125,
        ),
        (
            "scheduler_preemption_execution_duration_seconds_sum",
            {"preemptor": "podgroup", "result": "success"},
            0.5,
        ),
        ("scheduler_preemption_goroutines_execution_total", {"result": "success"}, 1),
        ("scheduler_dra_bindingconditions_allocations_total", WAITED_FOR, 1),
        ("scheduler_dra_bindingconditions_wait_duration_seconds_sum", WAITED_FOR, 8),
        (
            "dynamic_resource_allocation_resourceclaim_creates_total",
            {
                "status": "failure",
                "admin_access": "false",
                "owner_api_group": "",
                "owner_api_kind": "Pod",
            },
            1,
        ),
        ("scheduler_preemption_goroutines_duration_seconds_sum", {"result": "success"}, 0.5),
        (
            "scheduler_framework_extension_point_duration_seconds_sum",
            {**FILTER, "status": "Success", "profile": "mooring"},
            0.25,
        ),
        (
            "scheduler_plugin_execution_duration_seconds_sum",
            {**IN_FILTER, "status": "Unschedulable"},
            0.125,
        ),
        ("scheduler_plugin_evaluation_total", {**IN_FILTER, "profile": "mooring"}, 1),
        (
            "scheduler_queueing_hint_execution_duration_seconds_sum",
            {"plugin": "NodeName", "event": "NodeAdd", "hint": "QueueSkip"},
            0.5,
        ),
        ("scheduler_event_handling_duration_seconds_sum", {"event": "AssignedPodAdd"}, 0.75),
        ("scheduler_podgroup_schedule_attempts_total", WAITING, 1),
        ("scheduler_podgroup_scheduling_attempt_duration_seconds_sum", WAITING, 0.5),
        ("scheduler_podgroup_scheduling_algorithm_duration_seconds_sum", OF_GROUP, 0.25),
        ("scheduler_generated_placements_total", OF_GROUP, 3),
        ("scheduler_placement_evaluations_total", {"result": "feasible", **OF_GROUP}, 1),
        (
            "scheduler_placement_evaluation_duration_seconds_sum",
            {"result": "infeasible", **OF_GROUP},
            0.25,
        ),
        ("mooring_reflector_relists_total", {"resource": "nodes"}, 1),
        ("mooring_event_loop_held_seconds_sum", {}, 0.375),
        ("mooring_event_loop_held_seconds_bucket", {"le": "0.5"}, 1),
        ("mooring_event_loop_held_seconds_bucket", {"le": "0.25"}, 0),
        ("mooring_build_info", {"version": __version__}, 1),
    ],
)
def test_metrics_have_kube_schedulers_names_and_labels(
    name: str, labels: dict[str, str], expected: float
) -> None:
    assert value(everything_happened_once(), name, **labels) == expected


@pytest.mark.parametrize("name", BUCKETS)
def test_buckets_are_those_of_kube_scheduler(name: str) -> None:
    bounds = {
        float(dict(labels)["le"])
        for sample, labels in scrape(everything_happened_once())
        if sample == f"{name}_bucket"
    }
    finite = sorted(bounds - {float("inf")})
    assert (finite[0], finite[-1], len(finite)) == pytest.approx(BUCKETS[name])


def test_readings_are_taken_at_the_scrape_and_not_before() -> None:
    metrics = Metrics()
    active = 1
    pending = ("scheduler_pending_pods", frozenset({("queue", "active")}))
    assert pending not in scrape(metrics)
    nothing: dict[str, Any] = {field.name: dict for field in fields(StateCollector)}
    metrics.read_from(StateCollector(**nothing | {"pending_pods": lambda: {"active": active}}))
    active = 7
    assert scrape(metrics)[pending] == 7


def test_the_process_shows_its_cpu_time_and_memory() -> None:
    shown = scrape(Metrics())
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
        assert shown[name, frozenset()] > 0


def test_the_page_is_in_the_format_the_scraper_asks_for() -> None:
    page, content_type = Metrics().exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")


def test_a_pod_that_no_event_had_moved_is_counted_when_it_is_bound() -> None:
    metrics = Metrics()
    metrics.pod_bound(2, 301.0, flushed=True)
    metrics.pod_bound(1, 0.1)
    assert value(metrics, "scheduler_pod_scheduled_after_flush_total") == 1


def test_plugins_beyond_the_first_five_hundred_share_one_label() -> None:
    metrics = Metrics()
    for number in range(600):
        metrics.plugin_ran(f"Rules/{number}", ExtensionPoint.FILTER, Status.SUCCESS, 1.0)
    name = "scheduler_plugin_execution_duration_seconds_count"
    found = {labels: count for (sample, labels), count in scrape(metrics).items() if sample == name}
    assert len(found) == 501
    other = {"plugin": "other", "extension_point": "Filter", "status": "Success"}
    assert found[frozenset(other.items())] == 100
