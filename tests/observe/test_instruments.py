from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric

from mooring.observe.instruments import (
    CounterFamily,
    HistogramFamily,
    LabelValues,
    exponential_buckets,
)

BOUNDS = (0.5, 1.0, 2.0)


def values(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return each sample by name and labels; skip `_created` samples, which Mooring lacks."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["scheduled", "error"]),
            st.sampled_from([0.0, 0.5, 0.75, 1.0, 2.0, 3.0]) | st.floats(0, 10),
        )
    )
)
def test_a_histogram_counts_exactly_as_the_client_library_does(
    observations: list[tuple[str, float]],
) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("wait_seconds", "Waits.", ["result"], buckets=BOUNDS, registry=registry)
    ours = HistogramFamily("wait_seconds", "Waits.", BOUNDS, ["result"])
    for result, value in observations:
        theirs.labels(result).observe(value)
        ours.child(result).observe(value)
    assert values([ours.collect()]) == values(registry.collect())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9))))
def test_a_counter_counts_exactly_as_the_client_library_does(
    additions: list[tuple[str, int]],
) -> None:
    registry = CollectorRegistry()
    theirs = Counter("drops_total", "Drops.", ["kind"], registry=registry)
    ours = CounterFamily("drops_total", "Drops.", ["kind"])
    for kind, amount in additions:
        theirs.labels(kind).inc(amount)
        ours.child(kind).add(amount)
    assert values([ours.collect()]) == values(registry.collect())


def test_a_value_on_a_bound_belongs_to_the_bucket_below() -> None:
    family = HistogramFamily("wait_seconds", "Waits.", BOUNDS)
    family.child().observe(1.0)
    assert family.child().counts == [0, 1, 0, 0]


def test_the_same_labels_give_the_same_series() -> None:
    family = CounterFamily("drops_total", "Drops.", ["kind"])
    assert family.child("Pod") is family.child("Pod")
    assert family.child("Pod") is not family.child("Node")


def test_buckets_grow_by_repeated_multiplication() -> None:
    assert exponential_buckets(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential_buckets(1e-5, 1.5, 3) == (1e-5, 1e-5 * 1.5, 1e-5 * 1.5 * 1.5)


def test_the_values_of_a_label_are_the_first_ones_and_short() -> None:
    values = LabelValues(3)
    assert [values.of(name) for name in "abacda"] == ["a", "b", "a", "c", "other", "a"]
    long = LabelValues(3)
    assert long.of("x" * 10_000) == "other"
    assert (long.of("x"), long.bytes <= long.most_bytes) == ("x", True)


def test_series_of_other_values_of_a_label_are_removed() -> None:
    family = CounterFamily("a", "", ("profile", "result"))
    for profile in "abc":
        family.child(profile, "bound").add()
    family.keep("profile", {"a", "c"})
    family.keep("unknown", {"a"})
    assert [sample.labels["profile"] for sample in family.collect().samples] == ["a", "c"]
    assert family.child("a", "bound").value == 1
