"""Jobs with quotas: Kueue says when they start, Mooring where."""

import json

import yaml

from e2e.replicas import eventually, pods
from kueue.controller import sources
from kueue.team import GANG, HELD, MINIMUM, Team


def test_a_job_starts_when_its_quota_is_free_on_the_nodes_of_its_flavor(team: Team) -> None:
    nodes = team.add_nodes(2)
    team.add_flavor()
    team.add_queue("main", "2")
    team.add_job("first", "main", 2)
    assert set(team.wait_until_placed("first", 2)) <= set(nodes)
    team.add_job("second", "main", 2)
    waits = team.wait_for_condition("job-second", "QuotaReserved", bool)
    assert waits["status"] == "False"
    assert team.job("second")["spec"]["suspend"]
    assert len(team.bound()) == 2
    team.finish("first")
    assert set(team.wait_until_placed("second", 2)) <= set(nodes)
    team.finish("second")


def test_a_job_that_borrowed_gives_its_nodes_back_to_the_queue_whose_quota_it_used(
    team: Team,
) -> None:
    """The nodes have room for the quota of both queues and no more."""
    team.add_nodes(2)
    team.add_flavor()
    reclaims = {"reclaimWithinCohort": "Any"}
    team.add_queue("lends", "2", cohortName=team.name, preemption=reclaims)
    team.add_queue("borrows", "2", cohortName=team.name)
    team.add_job("large", "borrows", 4)
    team.wait_until_placed("large", 4)
    team.add_job("entitled", "lends", 2)
    evicted = team.wait_for_condition("job-large", "Evicted", bool)
    assert evicted["reason"] == "Preempted"
    team.wait_until_suspended("large")
    team.wait_until_placed("entitled", 2)
    team.finish("entitled")
    team.wait_until_placed("large", 4)
    team.finish("large")


def states(team: Team) -> list[str]:
    """Return where the members of the gang are, as Mooring says."""
    _, page = team.cluster.scheduler.get(f"/debug/decisions?podgroup={team.name}/train")
    groups = json.loads(page)["podGroups"] if page.startswith("{") else []
    return [member["state"] for group in groups for member in group["pods"]]


def test_a_job_that_is_suspended_while_its_gang_waits_at_permit_leaves_no_trace(
    team: Team,
) -> None:
    """The gang holds all nodes without being bound; another Job fits only once it has gone."""
    team.add_nodes(2)
    team.add_flavor()
    team.add_queue("main", "4")
    gang = {"labels": {GANG: "train"}, "annotations": {MINIMUM: "4"}}
    team.add_job("train", "main", 4, metadata=gang, pods={"schedulerName": HELD})
    waiting = ["assumed"] * 4
    eventually(lambda: states(team), lambda found: found == waiting, "the gang at Permit")
    team.set_active("job-train", active=False)
    assert team.wait_for_condition("job-train", "Evicted", bool)["reason"] == "Deactivated"
    team.wait_until_suspended("train")
    eventually(lambda: pods(team.client, team.name), lambda left: not left, "no pods")
    team.add_job("next", "main", 4)
    team.wait_until_placed("next", 4)
    assert states(team) == []
    team.set_active("job-train", active=True)
    team.finish("next")
    eventually(lambda: states(team), lambda found: found == waiting, "the gang at Permit again")


def test_kueues_own_sample_jobs_run_through(team: Team) -> None:
    """Those of its Go module: three queues of a cohort, whose Jobs use all of the quota."""
    team.add_nodes(1)
    created = list[str]()
    for path in sorted((sources() / "cmd" / "kueueviz" / "examples").glob("*.yaml")):
        for raw in yaml.safe_load_all(path.read_text()):
            made = team.create(raw)
            if raw["kind"] == "Job":
                created.append(made["metadata"]["name"])
    assert len(created) == 3
    for name in created:
        team.wait_until_placed(name, 3)
    for name in created:
        team.finish(name)
