"""The formats of gangs of other schedulers: their objects, and the labels of their members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mooring.groups.model.pod_group import GroupSource
from mooring.groups.model.task_groups import TASK_GROUP_NAME, TASK_GROUPS
from mooring.kube.api_resources import (
    KAI_POD_GROUP,
    POD_GANG,
    POD_GROUP,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.testing.builders import api_object, pod_group
from simulation.scenario import NAMESPACE

GANG: Final = "simulation/gang"
ROLE: Final = "simulation/role"
"""Labels that say of a member of such a gang what its group is, and its role."""
LEADER: Final = "leader"
WORKER: Final = "worker"


@dataclass(frozen=True)
class Format:
    """How members name their group and role; `resource` is None if no object defines the group."""

    source: GroupSource
    resource: Resource | None
    name_key: str = ""
    role_key: str = ""


KUBERNETES: Final = "kubernetes"
FORMATS: Final[Mapping[str, Format]] = {
    KUBERNETES: Format(GroupSource.KUBERNETES, POD_GROUP),
    "volcano": Format(
        GroupSource.VOLCANO,
        VOLCANO_POD_GROUP,
        "scheduling.k8s.io/group-name",
        "volcano.sh/task-spec",
    ),
    "kai": Format(GroupSource.KAI, KAI_POD_GROUP, "pod-group-name", "kai.scheduler/subgroup-name"),
    "grove": Format(GroupSource.GROVE, POD_GANG, "grove.io/podgang", "grove.io/podclique"),
    "yunikorn": Format(GroupSource.YUNIKORN, None, "applicationId", TASK_GROUP_NAME),
}
RESOURCES: Final = tuple(each.resource for each in FORMATS.values() if each.resource is not None)


def format_of(drawn: Mapping[str, Any]) -> Format:
    return FORMATS[drawn.get("format", KUBERNETES)]


def roles_of(drawn: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of needed members by role; {} if the gang has no roles."""
    if not drawn.get("roles"):
        return {}
    minimum = drawn["minimum"]
    return {LEADER: 1, WORKER: minimum - 1} if minimum > 1 else {WORKER: 1}


def definition_of(name: str, drawn: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object that defines the gang; None if its members define it."""
    form = format_of(drawn)
    if form.source is GroupSource.KUBERNETES:
        raw = pod_group(
            name,
            drawn["minimum"],
            namespace=NAMESPACE,
            topology=drawn["topology"],
            priority=drawn["priority"],
        )
    elif form.resource is None:
        return None
    else:
        raw = api_object(form.resource.kind, name, namespace=NAMESPACE)
    raw["spec"] = {**raw.get("spec", {}), **spec_of(drawn)}
    return raw


def spec_of(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the object's spec with the gang's requirements."""
    minimum, roles = drawn["minimum"], roles_of(drawn)
    match format_of(drawn).source:
        case GroupSource.KUBERNETES:
            return {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        case GroupSource.VOLCANO:
            near = {"mode": "hard", "highestTierAllowed": 1}
            network = {"networkTopology": near} if drawn.get("near") else {}
            return {"minMember": minimum, "minTaskMember": roles, **network}
        case GroupSource.KAI:
            groups = [{"name": role, "minMember": least} for role, least in roles.items()]
            return {"minMember": minimum, "subGroups": groups}
        case _:
            groups = [{"name": role, "minReplicas": least} for role, least in roles.items()]
            return {"podgroups": groups}


def marks_of(
    name: str, role: str, drawn: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that a controller gives to a member."""
    form = format_of(drawn)
    if form.source is GroupSource.KUBERNETES:
        return {}, {}
    labels, named = {GANG: name, ROLE: role}, {form.name_key: name}
    roles = {form.role_key: role} if role else {}
    match form.source:
        case GroupSource.KAI:  # its pod grouper writes the annotation
            return {**labels, **roles, "kai.scheduler/queue": "q"}, {}
        case GroupSource.GROVE:
            return {**labels, **roles, **named}, {}
        case GroupSource.YUNIKORN:
            groups = [
                {"name": each, "minMember": least, "minResource": {"cpu": drawn["cpu"]}}
                for each, least in roles_of(drawn).items()
            ]
            return {**labels, **named}, {**roles, TASK_GROUPS: orjson.dumps(groups).decode()}
        case _:
            return labels, {**named, **roles}
