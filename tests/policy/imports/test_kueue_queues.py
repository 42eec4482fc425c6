"""Converts objects of Kueue to Queues."""

from typing import Any

import pytest

from mooring.model.manifest_error import ManifestError
from queue_files import imported, queue_object, quotas

QUEUE_NAME = "kueue.x-k8s.io/queue-name"


def cluster_queue(name: str, version: str = "v1beta2", **spec: Any) -> dict[str, Any]:
    return queue_object(
        f"kueue.x-k8s.io/{version} ClusterQueue", name, {"namespaceSelector": {}, **spec}
    )


def cohort(name: str, version: str = "v1beta2", **spec: Any) -> dict[str, Any]:
    return queue_object(f"kueue.x-k8s.io/{version} Cohort", name, spec)


def local_queue(name: str, namespace: str, queue: str, **spec: Any) -> dict[str, Any]:
    spec = {"clusterQueue": queue, **spec}
    return queue_object("kueue.x-k8s.io/v1beta2 LocalQueue", name, spec, namespace=namespace)


def groups(**flavors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return resourceGroups with one group that has these flavors."""
    resources = [{"name": name, "resources": each} for name, each in flavors.items()]
    return [{"coveredResources": [], "flavors": resources}]


CPU = {"name": "cpu", "nominalQuota": 9, "borrowingLimit": "1500m", "lendingLimit": 4}


def test_quota_weight_and_preemption_stay_as_they_are() -> None:
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority"}
    team = cluster_queue(
        "team",
        cohortName="all",
        resourceGroups=groups(default=[CPU, {"name": "pods", "nominalQuota": "5"}]),
        fairSharing={"weight": "500m"},
        preemption=preemption,
    )
    found, _ = imported([cohort("all"), team])
    assert found["all"] == {}
    assert quotas(found["team"]) == {"cpu": ("9", "1500m", "4"), "pods": ("5", None, None)}
    assert found["team"]["parent"] == "all"
    assert found["team"]["fairSharing"] == {"weight": "500m"}
    assert found["team"]["preemption"] == {"reclaimWithinCohort": "Any", "withinQueue": "Any"}


def test_what_kueue_does_by_default_is_written_because_it_is_not_moorings_default() -> None:
    found, _ = imported([cluster_queue("team")])
    assert found["team"]["preemption"] == {"reclaimWithinCohort": "Never", "withinQueue": "Never"}


@pytest.mark.parametrize(
    ("version", "above", "parent"),
    [("v1beta1", "cohort", "parent"), ("v1beta2", "cohortName", "parentName")],
)
def test_the_parent_is_found_under_its_name_in_each_version(
    version: str, above: str, parent: str
) -> None:
    objects = [
        cluster_queue("team", version, **{above: "department"}),
        cohort("department", version, **{parent: "company"}),
        cohort("company", version, resourceGroups=groups(any=[{**CPU, **NO_LIMITS}])),
    ]
    found, _ = imported(objects)
    assert found["team"]["parent"] == "department"
    assert found["department"] == {"parent": "company"}
    assert quotas(found["company"]) == {"cpu": ("9", None, None)}


NO_LIMITS = {"borrowingLimit": None, "lendingLimit": None}


def test_flavors_are_added_up_with_a_note() -> None:
    limited = {**CPU, "borrowingLimit": 2, "lendingLimit": None}
    team = cluster_queue("team", cohortName="all", resourceGroups=groups(spot=[CPU], own=[limited]))
    found, notes = imported([cohort("all"), team])
    # The flavor that has no lendingLimit lends all of its 9.
    assert quotas(found["team"]) == {"cpu": ("18", "3500m", "13")}
    note = "the quotas of cpu in the flavors spot, own are added up: Queues have no flavors"
    assert f"ClusterQueue team: {note}" in notes


def test_without_a_borrowing_limit_in_one_flavor_there_is_none() -> None:
    flavors = groups(spot=[{**CPU, "lendingLimit": None}], own=[{**CPU, **NO_LIMITS}])
    found, _ = imported([cluster_queue("team", cohortName="all", resourceGroups=flavors)])
    assert quotas(found["team"]) == {"cpu": ("18", None, None)}


def test_a_cohort_without_an_object_becomes_a_queue() -> None:
    found, notes = imported([cluster_queue("team", cohortName="all")])
    assert list(found) == ["all", "team"]
    assert "Cohort all is not in the file: it becomes a Queue without quotas" in notes


def test_a_cohort_with_the_name_of_a_cluster_queue_gets_another() -> None:
    found, notes = imported([cluster_queue("all", cohortName="all"), cohort("all")])
    assert found["all"]["parent"] == "all-cohort"
    assert "Cohort all becomes Queue all-cohort, because a ClusterQueue has the same name" in notes


def test_a_local_queue_restricts_its_cluster_queue_to_its_namespace() -> None:
    team = cluster_queue("team", namespaceSelector={"matchLabels": {"batch": "yes"}})
    found, notes = imported([team, local_queue("q", "b", "team"), local_queue("q", "a", "team")])
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert found["team"]["namespaceSelector"] == {
        "matchLabels": {"batch": "yes"},
        "matchExpressions": [named],
    }
    how = f"all pods of the namespace without the label {QUEUE_NAME} are in Queue team"
    assert notes == [f"LocalQueue b/q: {how}", f"LocalQueue a/q: {how}"]


def test_where_a_namespace_has_several_queues_its_pods_need_a_label() -> None:
    queues = [cluster_queue("x"), cluster_queue("y")]
    _, notes = imported([*queues, local_queue("p", "a", "x"), local_queue("q", "a", "y")])
    label = "its pods need the label scheduling.mooring.dev/queue"
    assert notes == [
        f"LocalQueue a/p: {label}: x instead of {QUEUE_NAME}",
        f"LocalQueue a/q: {label}: y instead of {QUEUE_NAME}",
    ]


def test_a_local_queue_leads_only_to_a_cluster_queue_of_the_file() -> None:
    none = cluster_queue("none", namespaceSelector=None)
    _, notes = imported([none, local_queue("p", "a", "none"), local_queue("q", "b", "gone")])
    assert notes == [
        "LocalQueue b/q: its ClusterQueue gone is not in the file",
        "ClusterQueue none has no namespaceSelector, so no pods may be in it, as in Kueue",
    ]


def test_who_may_be_in_a_queue_is_said_also_without_local_queues() -> None:
    found, notes = imported([cluster_queue("any"), cluster_queue("no", namespaceSelector=None)])
    assert found["any"]["namespaceSelector"] == {}
    assert "namespaceSelector" not in found["no"]
    label = "its pods need the label scheduling.mooring.dev/queue"
    assert notes == [
        f"ClusterQueue any has no LocalQueue in the file: {label}: any",
        "ClusterQueue no has no namespaceSelector, so no pods may be in it, as in Kueue",
    ]


def test_each_field_without_counterpart_has_a_note_and_defaults_have_none() -> None:
    defaults = {"queueingStrategy": "BestEffortFIFO", "stopPolicy": "None"}
    borrowing = {"borrowWithinCohort": {"policy": "Never"}}
    quiet = cluster_queue("quiet", **defaults, preemption=borrowing)
    loud = cluster_queue(
        "loud",
        queueingStrategy="StrictFIFO",
        stopPolicy="Hold",
        flavorFungibility={"whenCanBorrow": "TryNextFlavor"},
        admissionChecks=["dws"],
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        preemption={"borrowWithinCohort": {"policy": "LowerPriority"}},
    )
    flavor = queue_object(
        "kueue.x-k8s.io/v1beta2 ResourceFlavor", "a100", {"nodeLabels": {"a": "b"}}
    )
    local = local_queue("q", "a", "loud", fairSharing={"weight": 2})
    _, notes = imported([quiet, loud, flavor, local])
    left_out = [note.partition(" is left out")[0] for note in notes if "is left out" in note]
    assert left_out == [
        "ClusterQueue loud: spec.queueingStrategy",
        "ClusterQueue loud: spec.stopPolicy",
        "ClusterQueue loud: spec.flavorFungibility",
        "ClusterQueue loud: spec.admissionChecks",
        "ClusterQueue loud: spec.admissionScope",
        "ClusterQueue loud: spec.preemption.borrowWithinCohort",
        "ResourceFlavor a100",
        "LocalQueue a/q: spec.fairSharing",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"resourceGroups": {}}, "ClusterQueue team spec.resourceGroups: must be a list, not {}"),
        (
            {"resourceGroups": groups(any=[{"name": "cpu", "nominalQuota": "many"}])},
            "ClusterQueue team spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: 'many'",
        ),
        (
            {"resourceGroups": groups(any=[CPU])},
            "the Queue of ClusterQueue team: spec.resources[0].borrowingLimit: needs a parent",
        ),
        (
            {"preemption": {"reclaimWithinCohort": "Sometimes"}},
            "the Queue of ClusterQueue team: spec.preemption.reclaimWithinCohort: must be one of",
        ),
    ],
)
def test_a_malformed_object_is_one_clear_line(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        imported([cluster_queue("team", **spec)])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
