"""The SchedulingProfile: the fields of a KubeSchedulerProfile, and the pods it applies to."""

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from mooring.policy.extender import Extenders
from mooring.policy.label_selectors import LabelSelector
from mooring.policy.name_syntax import is_object_name
from mooring.policy.points import Point
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.reading import PolicyModel, read
from mooring.policy.rebalancing import Rebalancing
from mooring.policy.rules.rule import Rules

API_VERSION: Final = "scheduling.mooring.dev/v1alpha1"
KIND: Final = "SchedulingProfile"
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The `schedulerName` of pods that set none."""

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


KubernetesVersion = Literal["1.34", "1.35", "1.36", "1.37", "1.38"]
"""The minor versions whose rules Mooring knows; the keys of `KUBERNETES_RULES`."""


class Match(PolicyModel):
    """The pods that a profile applies to; all given conditions must hold."""

    scheduler_names: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        (), max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Values of the pod's `schedulerName`; without any, the profile's own name."""
    namespace_selector: LabelSelector | None = None
    """Labels of the pod's namespace; an absent or empty selector matches all namespaces."""
    pod_selector: LabelSelector | None = None
    """Labels of the pod; an absent or empty selector matches all pods."""
    precedence: int = Field(0, ge=-_INT32, le=_INT32)
    """If several profiles match, the highest precedence wins, then the first by name."""


class Enabled(PolicyModel):
    """A plugin that runs at an extension point, with its weight."""

    name: PluginName
    """The name of the plugin, such as NodeResourcesFit."""
    weight: int = Field(0, ge=0, le=_INT32)
    """The factor of the plugin's scores, at score and multiPoint; 0 means 1."""


class Disabled(PolicyModel):
    """A default plugin that does not run at an extension point."""

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
    """Plugins to run, in this order. A default plugin keeps its position and gets this weight."""
    disabled: tuple[Disabled, ...] = Field((), max_length=64)
    """Default plugins not to run; `*` means all of them."""


class Plugins(PolicyModel):
    """Changes to kube-scheduler's default plugins, for all extension points or one by one."""

    multi_point: PluginSet = PluginSet()
    """Plugins for every extension point they implement."""
    pre_enqueue: PluginSet = PluginSet()
    """Plugins that decide whether a pod may enter the queue."""
    queue_sort: PluginSet = PluginSet()
    """The plugin that orders the queue: exactly one."""
    placement_generate: PluginSet = PluginSet()
    """Plugins that say on which nodes a pod group may be placed together."""
    pre_filter: PluginSet = PluginSet()
    """Plugins that prepare the filters, once per pod."""
    filter: PluginSet = PluginSet()
    """Plugins that reject nodes."""
    post_filter: PluginSet = PluginSet()
    """Plugins that run if no node is feasible, such as preemption."""
    pre_score: PluginSet = PluginSet()
    """Plugins that prepare the scores, once per pod."""
    score: PluginSet = PluginSet()
    """Plugins that score the feasible nodes."""
    placement_score: PluginSet = PluginSet()
    """Plugins that score the placements in which a pod group fits."""
    reserve: PluginSet = PluginSet()
    """Plugins that reserve resources on the chosen node, and undo this if binding fails."""
    permit: PluginSet = PluginSet()
    """Plugins that approve, reject or delay the binding."""
    pre_bind: PluginSet = PluginSet()
    """Plugins that work before binding, for example provision volumes."""
    bind: PluginSet = PluginSet()
    """Plugins that bind, at least one; the first plugin that handles the pod binds it."""
    post_bind: PluginSet = PluginSet()
    """Plugins that are informed after binding."""

    def at(self, point: Point) -> PluginSet:
        """Return the plugin set of one extension point."""
        plugins: PluginSet = getattr(self, point.name.lower())
        return plugins


class PluginConfig(PolicyModel):
    """Arguments of one plugin."""

    name: PluginName
    """The name of the plugin, such as NodeResourcesFit."""
    args: dict[str, Any] = Field(
        {},
        json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    """The plugin's arguments; they may contain kube-scheduler's `apiVersion` and `kind`."""


class Preemption(PolicyModel):
    """Limits to preemption by this profile's pods."""

    disruption_budgets: Literal["Default", "Strict"] = "Default"
    """Default: preemption violates budgets only as a last resort, as in kube-scheduler. Strict:
    never."""
    max_victims: int | None = Field(None, ge=1, le=_INT32)
    """The most victims of one preemption; absent: no limit."""
    min_runtime_seconds: int = Field(0, ge=0, le=_INT32)
    """Pods that have run for fewer seconds than this are never victims."""
    delay_seconds: int = Field(0, ge=0, le=_INT32)
    """The seconds during which nothing is evicted for a pod or pod group after its first attempt
    that found no node, so that a cluster autoscaler can add a node first."""

    @property
    def strict(self) -> bool:
        """Whether victims are evicted through the Eviction API only."""
        return self.disruption_budgets == "Strict"


class SchedulingProfileSpec(PolicyModel):
    """Which pods the profile takes, and how they are scheduled."""

    match: Match = Match()
    """The pods that this profile applies to."""
    mode: Literal["Active", "Shadow"] = "Active"
    """Active: Mooring schedules the pods. Shadow: Mooring decides about pods that another scheduler
    binds, for comparison only; it does not bind, evict, nominate or change pods."""
    percentage_of_nodes_to_score: int | None = Field(None, ge=0, le=100)
    """The search stops when this percentage of all nodes is feasible. Absent: 100. 0:
    kube-scheduler's adaptive rule, a smaller percentage for a larger cluster."""
    always_check_all_filters: bool = False
    """Run every filter on a node even after one has rejected it, so that messages name all
    reasons."""
    kubernetes_version: KubernetesVersion | None = None
    """The minor version of Kubernetes, such as "1.37", whose kube-scheduler Mooring follows.
    Absent: the API server's version."""
    plugins: Plugins = Plugins()
    """Changes to kube-scheduler's default plugins."""
    plugin_config: tuple[PluginConfig, ...] = Field(
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """Arguments of plugins; other plugins run with their defaults."""
    rules: Rules = ()
    """Filters and scores as expressions in CEL, in addition to the plugins; docs/rules.md."""
    extenders: Extenders = ()
    """HTTP services that are called in addition to the plugins."""
    preemption: Preemption = Preemption()
    """Limits to preemption by this profile's pods."""
    rebalancing: Rebalancing | None = None
    """Moves of running pods to better nodes. Absent: Mooring plans no moves for this profile."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for each field that would evict pods or call extenders in mode Shadow."""
        if self.mode != "Shadow":
            return
        if self.extenders:
            yield FieldError("extenders", "are not called in mode Shadow: remove them")
        if self.rebalancing is not None and self.rebalancing.mode == "Apply":
            yield FieldError("rebalancing.mode", "must be Plan in mode Shadow, which evicts no pod")


@dataclass(frozen=True, slots=True)
class SchedulingProfile:
    """A profile with its name and the generation of its API object, 0 if it is from a file."""

    name: str
    spec: SchedulingProfileSpec
    generation: int = 0

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The values of a pod's `schedulerName` that this profile applies to."""
        return self.spec.match.scheduler_names or (self.name,)

    def manifest(self) -> dict[str, Any]:
        """Return the API object without the fields that were not set."""
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
    """Return a profile for a scheduler name, with a similar object name.

    Args:
        scheduler_name: The `schedulerName` of pods: any text.
        spec: The spec, without a `match`.
        taken: The object names of other profiles.
    """
    name = scheduler_name
    if not is_object_name(name):
        name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:253] or "profile"
    while name in taken:
        name = f"{name}-x"
    if name != scheduler_name:
        spec = spec.model_copy(update={"match": Match(scheduler_names=(scheduler_name,))})
    return SchedulingProfile(name, spec)


def _checked(metadata: dict[str, Any]) -> dict[str, Any]:
    name = metadata.get("name")
    mistakes = list[FieldError]()
    if name is None or name == "":
        mistakes.append(FieldError("name", "is required"))
    elif not isinstance(name, str):
        mistakes.append(FieldError("name", f"must be text (quote it), got {name}"))
    elif not is_object_name(name):
        problem = (
            'must be lower-case letters, digits, "-" and ".", at most 253, beginning and ending '
            f'with a letter or digit, got "{name}"'
        )
        mistakes.append(FieldError("name", problem))
    for field in ("labels", "annotations"):
        texts = metadata.get(field, {})
        if not isinstance(texts, dict):
            mistakes.append(FieldError(field, "must be an object"))
            continue
        wrong = (key for key, value in texts.items() if not isinstance(value, str))
        mistakes += (FieldError(f"{field}[{key}]", "must be text (quote it)") for key in wrong)
    if mistakes:
        raise ProfileInvalid(mistakes)
    return metadata


class _Document(PolicyModel):
    """A SchedulingProfile as it is in the API server or in a file."""

    api_version: Literal["scheduling.mooring.dev/v1alpha1"]
    kind: Literal["SchedulingProfile"]
    metadata: Annotated[dict[str, Any], AfterValidator(_checked)]
    spec: SchedulingProfileSpec = SchedulingProfileSpec()
    status: dict[str, Any] = Field({})


def read_profile(document: object) -> SchedulingProfile:
    """Read a profile, but check no plugins; raise ProfileInvalid as `reading.read` does."""
    whole = read(_Document, document, "")
    return SchedulingProfile(
        whole.metadata["name"], whole.spec, whole.metadata.get("generation", 0)
    )
