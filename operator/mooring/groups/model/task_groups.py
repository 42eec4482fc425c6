"""YuniKorn's task groups: annotations by which the pods of an application form a gang.

Each pod names its application and its task group. At least one pod lists all task groups of the
application with their minimums, as JSON.
"""

from typing import Any, Final, NamedTuple

import orjson

from mooring.model.bounded_cache import cached
from mooring.model.fields import MAX_INT32, at_most, integer, mapping, mappings, text
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import Pod
from mooring.model.resources import parse_amounts

TASK_GROUP_NAME: Final = "yunikorn.apache.org/task-group-name"
"""Annotation of a pod: the name of its task group."""
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"
"""Annotation of a pod: the task groups of its application."""
APPLICATION_KEYS: Final = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
"""Labels or annotations that may name a pod's application; the first one found is used."""
_SPARK_ROLE: Final = "spark-role"
_WHERE: Final = f"metadata.annotations.{TASK_GROUPS}"
_LONGEST: Final = 32 * 1024
MOST_ROLES: Final = 200
MOST_RESOURCES: Final = 200
"""A group, like a pod, may request at most this number of resources; more are a mistake."""

Numbers = tuple[tuple[str, int], ...]
"""Pairs of a task group and its minimum, or of a resource and its amount, sorted by name."""


class TaskGroups(NamedTuple):
    """The minimum of each task group, and the total requests of all members."""

    minimums: Numbers
    resources: Numbers


def in_task_group(pod: Pod) -> bool:
    """Return whether the pod is a member of a gang of YuniKorn."""
    return TASK_GROUP_NAME in pod.annotations or TASK_GROUPS in pod.annotations


def task_groups_of(pod: Pod) -> TaskGroups | None:
    """Return the task groups that the pod declares; None if it declares none.

    Raises ManifestError if the annotation is malformed.
    """
    if not (written := pod.annotations.get(TASK_GROUPS)):
        return None
    found = _parsed(written)
    if pod.labels.get(_SPARK_ROLE) == "driver":
        # The driver of Spark creates the other pods only after it has started.
        own = pod.annotations.get(TASK_GROUP_NAME)
        return found._replace(minimums=tuple(each for each in found.minimums if each[0] == own))
    return found


@cached(2**20)
def _parsed(written: str) -> TaskGroups:
    at_most(len(written), _LONGEST, _WHERE, "characters")
    try:
        raw = {TASK_GROUPS: orjson.loads(written)}
    except ValueError as error:
        raise ManifestError(_WHERE, f"is no JSON: {error}") from None
    groups = mappings(raw, TASK_GROUPS, "metadata.annotations")
    if not 0 < len(groups) <= MOST_ROLES:
        raise ManifestError(_WHERE, f"has {len(groups)} groups; it must have 1 to {MOST_ROLES}")
    minimums, resources = dict[str, int](), dict[str, int]()
    for index, group in enumerate(groups):
        where = f"{_WHERE}[{index}]"
        name, least = text(group, "name", where), integer(group, "minMember", where)
        if not name or name in minimums:
            what = "is the name of two groups" if name else "is missing"
            raise ManifestError(f"{where}.name", what)
        if least is None or not 0 < least <= MAX_INT32:
            raise ManifestError(f"{where}.minMember", f"must be 1 to {MAX_INT32}")
        minimums[name] = least
        for resource, amount in _requested(group, where).items():
            resources[resource] = resources.get(resource, 0) + amount * least
    return TaskGroups(tuple(sorted(minimums.items())), tuple(sorted(resources.items())))


def _requested(group: Any, where: str) -> dict[str, int]:
    resources = dict(mapping(group, "minResource", where))
    at_most(len(resources), MOST_RESOURCES, f"{where}.minResource", "resources")
    resources.pop("pods", None)  # the members themselves
    return parse_amounts(resources, f"{where}.minResource")
