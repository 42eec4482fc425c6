import pytest

from bench.scheduler_perf.throughput import Throughput, rates


def test_bindings_are_counted_at_the_end_of_each_second_after_the_first_with_some() -> None:
    times = [10.2, 10.4, 11.1, 11.2, 11.9, 12.5]
    assert rates(times, began=10.0) == [1.0, 3.0]


def test_what_happened_before_the_first_tick_is_in_no_sample() -> None:
    assert rates([10.1, 10.2, 10.3], began=10.0) == []
    assert rates([], began=10.0) == []


def test_a_second_without_a_binding_has_the_rate_over_it_and_the_next_one_with_some() -> None:
    assert rates([0.5, 3.5, 3.6, 3.7], began=0.0) == [1.0, 1.0, 1.0]


def test_the_time_before_the_first_binding_does_not_count() -> None:
    assert rates([5.5, 6.5, 6.6], began=0.0) == [2.0]


def test_the_figures_are_named_as_upstream_names_them() -> None:
    samples = tuple(float(number) for number in range(1, 11))
    measured = Throughput(pods=100, samples=samples, whole_seconds=20.0, cpu_seconds=0.5)
    assert measured.average == 5.5
    assert measured.percentiles == {"Perc50": 5.0, "Perc90": 9.0, "Perc95": 10.0, "Perc99": 10.0}
    assert measured.whole == 5.0
    assert measured.cpu_ms_per_pod == 5.0


@pytest.mark.parametrize("pods", [0, 3])
def test_a_measurement_without_samples_has_no_average(pods: int) -> None:
    measured = Throughput(pods=pods, samples=(), whole_seconds=0.0, cpu_seconds=0.0)
    assert measured.average is None
    assert measured.percentiles == {}
    assert measured.whole == 0.0
