"""Converts Volcano's queues; pods may use, lend and borrow the same amounts as before."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from queue_files import imported, node, queue_object, quotas


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return queue_object("scheduling.volcano.sh/v1beta1 Queue", name, spec)


NODES = [node("a", cpu="60", memory="100Gi"), node("b", cpu="40", gpu="8")]


def test_deserved_guarantee_and_capability_become_quota_lending_and_borrowing() -> None:
    team = queue(
        "team",
        weight=3,
        deserved={"cpu": "20", "memory": "8Gi"},
        guarantee={"resource": {"cpu": "5", "pods": 3}},
        capability={"cpu": 30, "nvidia.com/gpu": "4"},
    )
    found, _ = imported([*NODES, team])
    assert quotas(found["team"]) == {
        "cpu": ("20", "10", "15"),
        "pods": ("3", None, "0"),
        "memory": ("8Gi", None, None),
        "nvidia.com/gpu": ("0", "4", None),
    }
    assert found["team"]["fairSharing"] == {"weight": 3}
    assert found["team"]["namespaceSelector"] == {}
    assert "preemption" not in found["team"]  # Mooring's default is what Volcano's actions do


def test_all_queues_share_what_the_nodes_have() -> None:
    found, notes = imported([*NODES, queue("root", weight=1), queue("a", deserved={"cpu": "30"})])
    assert found["a"]["parent"] == "root"
    assert found["root"] == {"resources": [{"name": "cpu", "nominalQuota": "70"}]}
    assert not any("Nodes" in note for note in notes)


def test_without_nodes_the_root_has_what_it_deserves_itself_or_nothing_with_a_note() -> None:
    team = queue("a", deserved={"cpu": "30"})
    found, notes = imported([team])
    assert found["root"] == {}
    assert "kubectl get nodes,queues.scheduling.volcano.sh -o json" in "".join(notes)
    found, _ = imported([team, queue("root", capability={"cpu": "50"})])
    assert quotas(found["root"]) == {"cpu": ("20", None, None)}


def test_a_parent_has_what_its_queues_do_not_deserve() -> None:
    department = queue("department", parent="root", deserved={"cpu": 50}, capability={"cpu": 80})
    teams = [queue(name, parent="department", deserved={"cpu": 20}) for name in "ab"]
    found, _ = imported([*NODES, department, *teams])
    assert list(found) == ["root", "department", "a", "b"]
    assert quotas(found["department"]) == {"cpu": ("10", "30", None)}
    assert "namespaceSelector" not in found["department"]
    assert found["a"]["parent"] == "department"


def test_each_field_without_counterpart_has_a_note_and_defaults_have_none() -> None:
    usual = {
        "reclaimable": True,
        "priority": 0,
        "dequeueStrategy": "traverse",
        "deserved": {"cpu": 1},
    }
    unusual = {
        "reclaimable": False,
        "priority": 5,
        "dequeueStrategy": "fifo",
        "affinity": {"nodeGroupAffinity": {}},
        "extendClusters": [{"name": "other"}],
        "dra": {"capability": {}},
    }
    closed = {**queue("closed"), "status": {"state": "Closed"}}
    _, notes = imported([*NODES, queue("usual", **usual), queue("unusual", **unusual), closed])
    assert [note.partition(" is left out")[0] for note in notes if "is left out" in note] == [
        f"Queue unusual: spec.{field}" for field in unusual
    ]
    assert "Queue closed: is closed in Volcano; Queues are always open" in notes


def test_weights_alone_divide_nothing_which_is_noted() -> None:
    _, notes = imported([*NODES, queue("a", weight=1), queue("b", weight=2)])
    assert any(note.startswith("no queue has deserved or guarantee: weights ") for note in notes)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"deserved": ["cpu"]}, "Queue a spec.deserved: must be an object, not ['cpu']"),
        ({"capability": {"cpu": True}}, "Queue a spec.capability.cpu: must be a quantity"),
        ({"deserved": {"cpu": "-1"}}, "Queue a spec.deserved.cpu: -1 is negative; "),
        ({"deserved": {"gpus": "1"}}, "the Queue of Queue a: spec.resources[0].name"),
        ({"parent": "a"}, "the parents form a circle: a -> a"),
    ],
)
def test_a_malformed_queue_is_one_clear_line(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        imported([queue("a", **spec)])
    assert str(error.value).startswith(message)
