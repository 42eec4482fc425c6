"""The generator and the experiment, in small."""

from collections import Counter
from itertools import islice
from xml.etree import ElementTree as ET

import pytest

from devices.alibaba import CLASSES, NODES, SHARES, cards_in, requests
from devices.experiment import POLICIES, Policy, drawn, run

SMALL = {(1, 8): 2, (4, 96): 2, (8, 96): 1}


def test_requests_are_those_of_the_table_and_repeatable() -> None:
    drawn_requests = list(islice(requests(7), 20_000))
    assert drawn_requests == list(islice(requests(7), 20_000))
    kinds = Counter("share" if r.share else r.cards for r in drawn_requests)
    for kind, percent in CLASSES.items():
        assert kinds[kind] / 200 == pytest.approx(percent, abs=1.0)
    shares = [r.share for r in drawn_requests if r.share]
    counted = sum(share * count for (share, _), count in SHARES.items()) / sum(SHARES.values())
    assert sum(shares) / len(shares) == pytest.approx(counted, rel=0.02)


def test_there_are_200_nodes() -> None:
    assert sum(NODES.values()) == 200
    assert cards_in(NODES) == 1080


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.title)
def test_no_policy_allocates_more_than_there_is_or_was_requested(policy: Policy) -> None:
    result = run(policy, 1, SMALL)
    assert all(allocated <= min(100, requested) for requested, allocated in result.points)
    assert result.at_first_rejection <= result.at_the_end
    assert len(ET.fromstring(drawn({policy.title: result}))) > 10  # noqa: S314 - our own picture


def test_regarding_fragmentation_allocates_more_than_every_other_policy() -> None:
    """On 20 nodes, of the kinds that the experiment of docs/gpus.md has 200 of."""
    counts = {(1, 8): 4, (4, 96): 4, (4, 32): 2, (8, 96): 10}
    *others, best = (run(policy, 1, counts) for policy in POLICIES)
    assert best.at_the_end > max(other.at_the_end for other in others)
    assert best.at_first_rejection > max(other.at_first_rejection for other in others)
