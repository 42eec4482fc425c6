"""The SchedulingProfile: upstream's KubeSchedulerProfile, whom it applies to, and its status."""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from mooring.policy.errors import FieldError
from mooring.policy.extender import Extenders
from mooring.policy.names import is_object_name
from mooring.policy.points import Point
from mooring.policy.reading import PolicyModel, read
from mooring.policy.selectors import LabelSelector

__all__ = [
    "API_VERSION",
    "DEFAULT_SCHEDULER",
    "KIND",
    "Disabled",
    "Enabled",
    "Match",
    "PluginConfig",
    "PluginSet",
    "Plugins",
    "Preemption",
    "SchedulingProfile",
    "SchedulingProfileSpec",
    "profile_for",
    "read_profile",
]

API_VERSION: Final = "scheduling.mooring.dev/v1alpha1"
KIND: Final = "SchedulingProfile"
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The scheduler of pods that name none."""

_INT32: Final = 2**31 - 1
_NAME_PATTERN: Final = "^[^*]+$"


def _plugin_name(name: str) -> str:
    if "*" in name:
        raise ValueError('"*" can only be disabled; enable plugins by name')
    return name


PluginName = Annotated[
    str,
    Field(min_length=1, max_length=253, json_schema_extra={"pattern": _NAME_PATTERN}),
    AfterValidator(_plugin_name),
]


class Match(PolicyModel):
    """The pods a profile applies to: all of the conditions that are given hold."""

    scheduler_names: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        (), max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Values of the pod's `schedulerName`; without any, the profile's own name."""
    namespace_selector: LabelSelector | None = None
    """Labels of the pod's namespace; absent or empty selects all."""
    pod_selector: LabelSelector | None = None
    """Labels of the pod; absent or empty selects all."""
    precedence: int = Field(0, ge=-_INT32, le=_INT32)
    """Where several profiles match, the highest wins, then the first by name."""


class Enabled(PolicyModel):
    """A plugin to run."""

    name: PluginName
    """The plugin's name."""
    weight: int = Field(0, ge=0, le=_INT32)
    """Multiplies the plugin's scores, at score and multiPoint; 0 means 1."""


class Disabled(PolicyModel):
    """A plugin not to run."""

    name: str = Field(min_length=1, max_length=253)
    """The plugin's name, or `*` for all."""


class PluginSet(PolicyModel):
    """Changes to the plugins of one extension point."""

    enabled: tuple[Enabled, ...] = Field(
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(p, self.exists_one(q, q.name == p.name))",
                    "message": "a plugin can be enabled once only",
                }
            ]
        },
    )
    """Plugins to run, in this order. A default one keeps its place and takes this weight."""
    disabled: tuple[Disabled, ...] = Field((), max_length=64)
    """Default plugins not to run; `*` stands for all of them."""


class Plugins(PolicyModel):
    """Changes to upstream's default plugins, for all extension points or one by one."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("placementGenerate", "placementScore"),
        "must not be set: it belongs to the feature TopologyAwareWorkloadScheduling, "
        "which is off in Kubernetes 1.36",
    )

    multi_point: PluginSet = PluginSet()
    """Plugins for every extension point they implement."""
    pre_enqueue: PluginSet = PluginSet()
    """Gates before the queue."""
    queue_sort: PluginSet = PluginSet()
    """The order of the queue: exactly one plugin."""
    pre_filter: PluginSet = PluginSet()
    """Preparation of filters, once for each pod."""
    filter: PluginSet = PluginSet()
    """Which nodes can take the pod."""
    post_filter: PluginSet = PluginSet()
    """What to do when no node can, such as preemption."""
    pre_score: PluginSet = PluginSet()
    """Preparation of scores, once for each pod."""
    score: PluginSet = PluginSet()
    """Which nodes are better."""
    reserve: PluginSet = PluginSet()
    """Bookkeeping once a node is chosen, undone if binding fails."""
    permit: PluginSet = PluginSet()
    """Approval, refusal or delay before binding."""
    pre_bind: PluginSet = PluginSet()
    """What must be done before binding, such as provisioning volumes."""
    bind: PluginSet = PluginSet()
    """Binding itself: at least one plugin, the first that takes the pod binds it."""
    post_bind: PluginSet = PluginSet()
    """Information after binding."""

    def at(self, point: Point) -> PluginSet:
        """The changes at one extension point."""
        plugins: PluginSet = getattr(self, point.name.lower())
        return plugins


class PluginConfig(PolicyModel):
    """Arguments of one plugin."""

    name: PluginName
    """The plugin's name."""
    args: dict[str, Any] = Field(
        {},
        json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    """The plugin's arguments; upstream's `apiVersion` and `kind` may stand in it."""


class Preemption(PolicyModel):
    """Limits to what this profile's pods may displace."""

    disruption_budgets: Literal["Default", "Strict"] = "Default"
    """Default: budgets are broken as a last resort, as upstream does. Strict: never."""
    max_victims: int | None = Field(None, ge=1, le=_INT32)
    """The most pods one preemption may displace; without it there is no limit."""
    min_runtime_seconds: int = Field(0, ge=0, le=_INT32)
    """Pods that have run for less than this are spared."""


class SchedulingProfileSpec(PolicyModel):
    """How the pods of this profile are scheduled, in the words of KubeSchedulerConfiguration."""

    match: Match = Match()
    """The pods this profile applies to."""
    percentage_of_nodes_to_score: int | None = Field(None, ge=0, le=100)
    """Stop looking after this share of the nodes was found to fit. Absent: 100, all of them; 0:
    upstream's rule, which is less the larger the cluster."""
    always_check_all_filters: bool = False
    """Run every filter on a node even after one refused it, so that a message names all reasons."""
    plugins: Plugins = Plugins()
    """Changes to upstream's default plugins."""
    plugin_config: tuple[PluginConfig, ...] = Field(
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """Arguments of plugins; those not named run with their defaults."""
    extenders: Extenders = ()
    """HTTP services to ask beside the plugins."""
    preemption: Preemption = Preemption()
    """Limits to what this profile's pods may displace."""


@dataclass(frozen=True, slots=True)
class SchedulingProfile:
    """A named profile; `generation` is that of the object it was read from, 0 for a file."""

    name: str
    spec: SchedulingProfileSpec
    generation: int = 0

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The values of a pod's `schedulerName` this profile answers to."""
        return self.spec.match.scheduler_names or (self.name,)

    def manifest(self) -> dict[str, Any]:
        """The object to apply; fields nobody set are left out."""
        spec = self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name},
            "spec": spec,
        }


def profile_for(
    scheduler_name: str, spec: SchedulingProfileSpec, taken: Container[str] = ()
) -> SchedulingProfile:
    """The profile of a scheduler, under an object name as near to its name as may be.

    Args:
        scheduler_name: What pods say in `schedulerName`: any text.
        spec: The spec, without a match of its own.
        taken: Names that other profiles have already.
    """
    name = scheduler_name
    if not is_object_name(name):
        name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:253] or "profile"
    while name in taken:
        name = f"{name}-x"
    if name != scheduler_name:
        spec = spec.model_copy(update={"match": Match(scheduler_names=(scheduler_name,))})
    return SchedulingProfile(name, spec)


class _Document(PolicyModel):
    """A SchedulingProfile as the API server or a file holds it."""

    api_version: Literal["scheduling.mooring.dev/v1alpha1"]
    kind: Literal["SchedulingProfile"]
    metadata: dict[str, Any]
    spec: SchedulingProfileSpec = SchedulingProfileSpec()
    status: dict[str, Any] = Field({})

    def mistakes(self) -> Iterator[FieldError]:
        """A profile has a name."""
        name = self.metadata.get("name")
        if not isinstance(name, str) or not name:
            yield FieldError("metadata.name", "is required")


def read_profile(document: object) -> SchedulingProfile:
    """The profile an API object holds.

    Raises:
        ProfileInvalid: With every mistake in it; names of plugins and their arguments are
            `mooring.policy.resolve`'s to check.
    """
    whole = read(_Document, document, "")
    return SchedulingProfile(
        whole.metadata["name"], whole.spec, whole.metadata.get("generation", 0)
    )
