"""ElasticQuotas are the Queues of their namespaces."""

from typing import Any

import pytest

from mooring.quota.model.elastic_quota import ROOT, parse_elastic_quota, queues_of
from mooring.quota.model.queue import Queue, parse_queue
from queue_files import elastic_quota, imported


@pytest.mark.parametrize(
    "spec",
    [
        {"min": {"cpu": 4, "memory": "8Gi"}, "max": {"cpu": "5500m"}},
        {"min": {"nvidia.com/gpu": 4}, "max": {"nvidia.com/gpu": 3, "pods": 9}},
        {"max": {"cpu": 0}},
        {},
    ],
)
def test_an_elastic_quota_is_the_queue_that_convert_makes_of_it(spec: dict[str, Any]) -> None:
    raw = elastic_quota("team", **spec)
    converted, _ = imported([raw])
    live = queues_of({"team/quota": parse_elastic_quota(raw)})
    assert list(live) == [ROOT, "team"] == list(converted)
    for name, queue in live.items():
        made = parse_queue({"metadata": {"name": name}, "spec": converted[name]})
        assert (queue.parent, queue.quotas) == (made.parent, made.quotas)
    selector = live["team"].namespaces
    assert selector is not None
    named = [selector.matches({"kubernetes.io/metadata.name": name}) for name in ("team", "other")]
    assert named == [True, False]


def test_a_malformed_elastic_quota_is_a_queue_that_is_not_ready() -> None:
    queue = parse_elastic_quota(elastic_quota("team", min={"cpu": -1}))
    why = "ElasticQuota team/quota: spec.min.cpu: -1 is negative; write zero or more"
    assert (queue.invalid, queue.quotas) == (why, {})


def test_of_two_elastic_quotas_in_a_namespace_the_first_by_name_counts() -> None:
    first, second = (Queue("team", uid=uid) for uid in ("first", "second"))
    found = queues_of({"team/b": second, "team/a": first})
    assert found["team"].uid == "first"


def test_an_elastic_quota_names_at_most_a_hundred_resources() -> None:
    many = {f"example.com/{number}": 1 for number in range(101)}
    queue = parse_elastic_quota(elastic_quota("team", max=many))
    assert queue.invalid == (
        "ElasticQuota team/quota: spec.max: has 101 resources; Mooring reads at most 100"
    )
