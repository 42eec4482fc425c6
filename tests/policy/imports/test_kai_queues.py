"""Converts KAI's queues; pods may use, lend and borrow the same amounts as before."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from queue_files import imported, node, queue_object, quotas

NODES = [node("a", cpu="60", memory="100Gi"), node("b", cpu="40", gpu="8")]
UNLIMITED = {"quota": -1, "limit": -1}


def queue(name: str, parent: str = "", *, other: Any = None, **resources: Any) -> dict[str, Any]:
    spec = {"parentQueue": parent, "resources": resources, **(other or {})}
    return queue_object("scheduling.run.ai/v2 Queue", name, spec)


def test_numbers_are_millicores_megabytes_and_gpus() -> None:
    team = queue(
        "team",
        cpu={"quota": 1500, "limit": 2500},
        memory={"quota": 1024, "limit": -1},
        gpu={"quota": 0.5, "limit": 4, "overQuotaWeight": 2},
    )
    found, _ = imported([*NODES, team])
    assert quotas(found["team"]) == {
        "cpu": ("1500m", "1", None),
        "memory": ("1000000Ki", None, None),
        "nvidia.com/gpu": ("1", "3", None),
    }
    assert found["team"]["fairSharing"] == {"weight": "2"}
    assert (found["team"]["parent"], found["team"]["namespaceSelector"]) == ("kai-root", {})


def test_without_a_limit_a_queue_gets_its_quota_only() -> None:
    found, _ = imported([*NODES, queue("team", gpu={"quota": 2}, cpu={"quota": 0, "limit": 0})])
    assert quotas(found["team"]) == {"nvidia.com/gpu": ("2", "0", None), "cpu": ("0", "0", None)}


def test_an_unlimited_quota_is_the_limit_or_what_the_nodes_have() -> None:
    team = queue("team", cpu=UNLIMITED, gpu={"quota": -1, "limit": 2}, memory={"quota": -1})
    found, _ = imported([*NODES, team])
    assert quotas(found["team"]) == {
        "cpu": ("100", None, None),
        "nvidia.com/gpu": ("2", "0", None),
        "memory": ("100Gi", None, None),
    }
    found, notes = imported([team])
    assert quotas(found["team"]) == {"nvidia.com/gpu": ("2", "0", None)}
    left_out = [note for note in notes if "unlimited" in note]
    assert left_out == [
        f"Queue team: the unlimited quota of {resource} is left out: the file has no Nodes"
        for resource in ("cpu", "memory")
    ]


def test_what_is_not_lent_is_kept() -> None:
    gpu = {"quota": 8, "limit": -1, "lendingLimit": 2}
    found, _ = imported([*NODES, queue("team", gpu=gpu)])
    assert quotas(found["team"]) == {"nvidia.com/gpu": ("8", None, "2")}


def test_a_parent_has_what_its_queues_have_no_quota_for() -> None:
    department = queue("department", gpu={"quota": 6, "limit": 8})
    teams = [queue(name, "department", gpu={"quota": 2, "limit": -1}) for name in "ab"]
    found, _ = imported([*NODES, *teams, department])
    assert list(found) == ["kai-root", "department", "a", "b"]
    assert quotas(found["kai-root"]) == {"nvidia.com/gpu": ("2", None, None)}
    assert quotas(found["department"]) == {"nvidia.com/gpu": ("2", "2", None)}
    assert "namespaceSelector" not in found["department"]


def test_each_field_without_counterpart_has_a_note_and_defaults_have_none() -> None:
    fields = {
        "displayName": "A",
        "priority": 200,
        "reclaimMinRuntime": "1m",
        "preemptMinRuntime": "1m",
    }
    usual = queue("usual", gpu=UNLIMITED, cpu=UNLIMITED, memory=UNLIMITED, other={"priority": 100})
    unusual = queue("unusual", gpu={"overQuotaWeight": 2}, cpu={"overQuotaWeight": 1}, other=fields)
    _, notes = imported([*NODES, usual, unusual])
    assert [note.partition(" is left out")[0] for note in notes if "is left out" in note] == [
        f"Queue unusual: spec.{field}" for field in fields
    ]
    assert (
        "Queue unusual: spec.resources has no memory: KAI gives it none, a Queue may borrow it"
        in (notes)
    )
    weight = "a Queue has one weight: 2, the first of gpu, cpu and memory"
    assert f"Queue unusual: overQuotaWeight differs by resource: {weight}" in notes
    assert not any("Queue usual" in note for note in notes)


def test_without_nodes_a_note_says_how_to_give_them() -> None:
    found, notes = imported([queue("kai-root", gpu={"quota": 1})])
    assert found["kai-root"]["parent"] == "kai-root-root"
    how = (
        "give the Nodes too: kubectl get nodes,queues.scheduling.run.ai -o json | mooring convert -"
    )
    assert any(note.startswith("Queue kai-root-root ") and note.endswith(how) for note in notes)


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ({"quota": "8"}, "spec.resources.gpu.quota: must be a number"),
        ({"limit": -2}, "spec.resources.gpu.limit: -2 is negative; only -1, unlimited, is allowed"),
        ({"overQuotaWeight": True}, "spec.resources.gpu.overQuotaWeight: must be a number"),
        ([], "spec.resources.gpu: must be an object, not []"),
    ],
)
def test_a_malformed_queue_is_one_clear_line(gpu: Any, message: str) -> None:
    with pytest.raises(ManifestError) as error:
        imported([queue("a", gpu=gpu)])
    assert str(error.value) == f"Queue a {message}"
