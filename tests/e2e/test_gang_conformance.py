"""Mooring places every random gang that kube-scheduler (with its gates on) places."""

import pytest

from conformance.gangs.__main__ import summary
from conformance.gangs.comparing import both_schedulers, verdicts

CASES = 10
"""`python -m conformance.gangs` runs 200 of them, or as many as it is told."""


@pytest.mark.pod_groups
def test_mooring_places_the_gangs_that_kube_scheduler_places() -> None:
    with both_schedulers() as access:
        found = list(verdicts(access, 7, range(CASES)))
    assert any(verdict.kube_scheduler for verdict in found)
    assert not any(verdict.wrong for verdict in found), summary(found)
    assert all(v.mooring for v in found if v.kube_scheduler), summary(found)
