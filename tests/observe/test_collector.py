from mooring.observe.collector import StateCollector, largest


def readings(*, leading: bool = True) -> StateCollector:
    return StateCollector(
        pending_pods=lambda: {"active": 3, "backoff": 0, "unschedulable": 1, "gated": 2},
        unschedulable_pods=lambda: {("NodeResourcesFit", "mooring"): 1},
        cache_size=lambda: {"nodes": 20, "pods": 30, "assumed_pods": 4},
        watch_lag_seconds=lambda: {"pods": 0.25},
        bindings_in_flight=lambda: 4,
        devices_known=lambda: True,
        devices=lambda: {"gpu.example.com": 12},
        devices_in_use=lambda: {"gpu.example.com": 13},
        events_dropped=lambda: 5,
        spans_dropped=lambda: 11,
        kopf_restarts=lambda: 6,
        gpu_mismatches=lambda: 7,
        pod_groups=lambda: {"Running": 8},
        reserved_nodes=lambda: 14,
        queue_nominal=lambda: {("team-a", "cpu"): 8.0},
        queue_used=lambda: {("team-a", "cpu"): 4.5},
        queue_waiting_pods=lambda: {"team-a": 15},
        rebalancing_planned=lambda: {"mooring": 3},
        queue_incoming_pods=lambda: {("active", "UnscheduledPodAdd"): 9},
        queued_entities=lambda: {("active", "pod", "pod"): 3},
        queue_incoming_entities=lambda: {("active", "UnscheduledPodAdd", "pod", "pod"): 9},
        inflight_events=lambda: {"NodeAdd": 10, "PodPopped": 2},
        profiles_ready=lambda: {"mooring": True, "batch": False},
        leading=lambda: leading,
    )


def shown(source: StateCollector) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in source.collect()
    }


def test_every_reading_is_shown_under_its_name_and_labels() -> None:
    assert shown(readings()) == {
        "scheduler_pending_pods": {
            ("active",): 3,
            ("backoff",): 0,
            ("unschedulable",): 1,
            ("gated",): 2,
        },
        "scheduler_unschedulable_pods": {("NodeResourcesFit", "mooring"): 1},
        "scheduler_queue_incoming_pods": {("active", "UnscheduledPodAdd"): 9},
        "scheduler_queued_entities": {("active", "pod", "pod"): 3},
        "scheduler_queue_incoming_entities": {("active", "UnscheduledPodAdd", "pod", "pod"): 9},
        "scheduler_inflight_events": {("NodeAdd",): 10, ("PodPopped",): 2},
        "mooring_profile_ready": {("mooring",): 1, ("batch",): 0},
        "scheduler_cache_size": {("nodes",): 20, ("pods",): 30, ("assumed_pods",): 4},
        "mooring_pod_groups": {("Running",): 8},
        "mooring_reserved_nodes": {(): 14},
        "mooring_queue_nominal": {("team-a", "cpu"): 8},
        "mooring_queue_used": {("team-a", "cpu"): 4.5},
        "mooring_queue_waiting_pods": {("team-a",): 15},
        "leader_election_master_status": {("mooring",): 1},
        "mooring_watch_lag_seconds": {("pods",): 0.25},
        "mooring_bindings_in_flight": {(): 4},
        "mooring_devices_known": {(): 1},
        "mooring_devices": {("gpu.example.com",): 12},
        "mooring_devices_in_use": {("gpu.example.com",): 13},
        "mooring_events_dropped": {(): 5},
        "mooring_spans_dropped": {(): 11},
        "mooring_kopf_restarts": {(): 6},
        "mooring_gpu_assignment_mismatches": {(): 7},
        "mooring_rebalancing_planned_moves": {("mooring",): 3},
    }


def test_a_standby_replica_says_that_it_does_not_lead() -> None:
    assert shown(readings(leading=False))["leader_election_master_status"] == {("mooring",): 0}


def test_of_many_values_that_users_choose_the_smallest_counts_share_one() -> None:
    counts = {f"d{number}": number for number in range(200)}
    found = largest(counts)
    assert len(found) == 101
    assert (found["d199"], found["other"]) == (199, sum(range(100)))
    assert largest({"d1": 1}) == {"d1": 1}
