"""The pods of the benchmark are scheduled, so what it measures is what a tenant can do."""

from bench.hostile import hostile_pods, longest_decisions


def test_no_hostile_pod_exceeds_a_limit() -> None:
    exceeded = {what: hostile.limit_exceeded for what, hostile in hostile_pods().items()}
    assert set(exceeded.values()) == {None}


def test_every_pod_is_decided_about_twice() -> None:
    assert longest_decisions(nodes=3).keys() == hostile_pods().keys()
