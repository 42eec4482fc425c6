"""The arguments and results of PostFilter plugins."""

import pytest

from deciding import Deciding
from mooring.framework.post_filter import DryRun, Nomination, NotEligible, PostFilterState
from mooring.policy.profile import Preemption
from mooring.scheduling.cycle import LiveDryRun
from mooring.testing.builders import node, pod


def test_an_attempt_carries_what_a_plugin_needs_and_cannot_be_changed() -> None:
    deciding = Deciding(node("a"))
    search, asked = deciding.search(pod("new"))
    dry_run: DryRun = LiveDryRun(search, asked, deciding.shared)
    attempt = PostFilterState(
        search.pod, search.diagnose(asked), deciding.cluster, dry_run, Preemption(), now=1.0
    )
    with pytest.raises(AttributeError):
        attempt.now = 2.0  # type: ignore[misc] # that it fails is what is tested


def test_evictions_respect_budgets_only_where_the_profile_says_so() -> None:
    assert not Nomination("a", ()).strict


def test_not_eligible_is_not_unschedulable() -> None:
    assert NotEligible("no").reason == "no"
