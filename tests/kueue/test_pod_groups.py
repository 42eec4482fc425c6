"""Native PodGroups: the Job controller makes them for Jobs that Kueue has admitted.

Kueue 0.17 itself neither makes nor reads PodGroups of scheduling.k8s.io.
"""

from collections.abc import Iterator

import pytest

from controlplane.releases import chosen_release
from e2e.replicas import eventually, messages_of
from kueue.team import Cluster, Team, running

RELEASE = chosen_release()

pytestmark = pytest.mark.pod_groups


READY_SECONDS = 10
"""After so long Kueue suspends a job that it has admitted and whose pods do not run."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = RELEASE.pod_group_flags("WorkloadWithJob")
    requeues = {"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    waits = {"timeout": f"{READY_SECONDS}s", "requeuingStrategy": requeues}
    folder = tmp_path_factory.mktemp("groups")
    with running(folder, flags, waitForPodsReady=waits) as cluster:
        yield cluster


def groups(team: Team) -> list[int]:
    """Return the minimums of the team's PodGroups."""
    items = team.client.get(RELEASE.pod_groups(team.name))["items"]
    return [item["spec"]["schedulingPolicy"]["gang"]["minCount"] for item in items]


def test_an_admitted_job_with_a_gang_policy_is_placed_whole_by_its_pod_group(team: Team) -> None:
    """The quota is for four, the nodes for two: Kueue takes the Job back and admits it again."""
    team.add_nodes(1)
    team.add_flavor()
    team.add_queue("main", "4")
    team.add_job("train", "main", 4, **RELEASE.gang_job)
    eventually(lambda: groups(team), lambda found: found == [4], "the group")
    status = team.wait_for_condition("job-train", "Admitted", bool)
    assert status["status"] == "True"
    eventually(
        lambda: messages_of(team.client, team.name),
        lambda said: any("the group of 4 does not fit" in text for text in said),
        "four members that wait",
    )
    assert team.bound() == {}
    evicted = team.wait_for_condition("job-train", "Evicted", bool)
    assert evicted["reason"] == "PodsReadyTimeout"
    team.add_nodes(1, rack="more")
    team.wait_until_placed("train", 4)
    team.finish("train")


def test_a_gang_that_is_preempted_within_its_cohort_is_placed_whole_again(team: Team) -> None:
    team.add_nodes(2)
    team.add_flavor()
    reclaims = {"reclaimWithinCohort": "Any"}
    team.add_queue("lends", "2", cohortName=team.name, preemption=reclaims)
    team.add_queue("borrows", "2", cohortName=team.name)
    team.add_job("large", "borrows", 4, **RELEASE.gang_job)
    team.wait_until_placed("large", 4)
    team.add_job("entitled", "lends", 2, **RELEASE.gang_job)
    team.wait_until_suspended("large")
    team.wait_until_placed("entitled", 2)
    team.finish("entitled")
    team.wait_until_placed("large", 4)
    team.finish("large")
