"""Reads test cases and their workloads, and the obstacles to running each workload here."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from bench.scheduler_perf.configuration import profiles_of
from bench.scheduler_perf.templates import Template, UnknownConstructError
from mooring.policy.profile_errors import ProfileInvalid

Raw = dict[str, Any]

FILE: Final = "performance-config.yaml"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEMPLATES: Final = frozenset({"templateParams", "templatePath"})
_COUNT: Final = frozenset({"count", "countParam"})
_PODS: Final = _COUNT | {
    "collectMetrics",
    "countMultiplierParam",
    "duration",
    "durationParam",
    "namespace",
    "persistentVolumeClaimTemplatePath",
    "persistentVolumeTemplatePath",
    "podTemplatePath",
    "signatureBatchSize",
    "signatureBatchSizeParam",
    "skipWaitToCompletion",
    "steadyState",
    "steadyStateParam",
    "templateParams",
}
FIELDS: Final[Mapping[str, Collection[str]]] = {
    "allocResourceClaims": {"namespace"},
    "barrier": {"labelSelector", "namespaces", "stageRequirement"},
    "churn": {"intervalMilliseconds", "mode", "namespace", "number", "templatePaths"},
    "createAny": _COUNT | _TEMPLATES | {"namespace"},
    "createNamespaces": _COUNT | {"namespaceTemplatePath", "prefix"},
    "createNodes": _COUNT
    | {
        "labelNodePrepareStrategy",
        "nodeAllocatableStrategy",
        "nodeTemplatePath",
        "templateParams",
        "uniqueNodeLabelStrategy",
    },
    "createPodGroups": _COUNT | _TEMPLATES | {"namespace"},
    "createPodSets": _COUNT | {"createPodsOp", "namespacePrefix"},
    "createPods": _PODS,
    "createResourceClaims": _COUNT | {"namespace", "templatePath"},
    "deletePods": {"deletePodsPerSecond", "labelSelector", "namespace", "skipWaitToCompletion"},
    "sleep": {"duration", "durationParam"},
    "startCollectingMetrics": {"labelSelector", "name", "namespaces"},
    "stopCollectingMetrics": set(),
    "updateAny": _COUNT | _TEMPLATES | {"namespace", "subresources", "updatePerSecond"},
}
"""The operations that can run here, and the known fields of each."""

CASE_FIELDS: Final = {
    "defaultPodTemplatePath",
    "featureGates",
    "labels",
    "metricsCollectorConfig",
    "name",
    "schedulerConfigPath",
    "workloadTemplate",
    "workloads",
}
"""The known fields of a test case; metrics of kube-scheduler's own process are not read."""
WORKLOAD_FIELDS: Final = {"featureGates", "labels", "name", "params", "threshold"}

OWN_EMULATION: Final = {"NodeDeclaredFeatures": False}
"""Feature gates that upstream sets only in a process that emulates an older release."""

WITHOUT_COUNTERPART: Final = frozenset(
    (
        "CompositePodGroup",
        "DRADeviceCompatibilityGroups",
        "DRAListTypeAttributes",
        "DRAWorkloadResourceClaims",
    )
)
"""Features, off by default, that Mooring lacks or has in another form."""

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|ns|m|s)")


class _UnreadableError(Exception):
    """A workload has a field or a value that is not known here."""


@dataclass(frozen=True)
class Operation:
    """A step of a workload, with values instead of parameters."""

    opcode: str
    fields: Mapping[str, Any]
    """The fields of the file, except those that only name a parameter; durations are in seconds."""

    @property
    def count(self) -> int:
        """The number of objects that the operation makes; 1 by default."""
        return int(self.fields.get("count", 1))


@dataclass(frozen=True)
class Workload:
    """A workload of a test case, with its operations or the obstacles to running it."""

    name: str
    """The name of the test case and of the workload, with a slash between."""
    folder: Path
    """The folder to which the paths of its operations are relative."""
    labels: frozenset[str]
    gates: Mapping[str, bool]
    threshold: float
    """Upstream's threshold for the average throughput, in pods per second; 0 without one."""
    operations: Sequence[Operation]
    """The steps of the workload; empty if it cannot run here."""
    obstacles: tuple[str, ...] = ()
    """The reasons why the workload cannot run here."""
    default_pod: str | None = None
    """The path of the pod template for operations that name none."""
    configuration: Mapping[str, Any] | None = None
    """The KubeSchedulerConfiguration for both schedulers; None for the defaults."""

    @property
    def objects(self) -> int:
        """The number of objects that the operations make."""
        return sum(step.count for step in self.operations if step.opcode.startswith("create"))

    @property
    def has_claims(self) -> bool:
        """Whether the workload is about devices and needs the claim controller."""
        return "dra" in self.folder.parts


def read_workloads(folder: Path) -> list[Workload]:
    """Return the workloads of all test case files below the folder, in the order of paths."""
    return [
        workload
        for path in sorted(folder.rglob(FILE))
        for case in yaml.load(path.read_text(), _LOADER)  # noqa: S506 - one of the safe loaders
        for workload in _workloads(case, path.parent)
    ]


def chosen(
    workloads: Sequence[Workload], names: Collection[str], labels: str = ""
) -> list[Workload]:
    """Return the workloads with one of the names, if there are names, and with these labels.

    The name of a test case stands for all its workloads. Commas separate labels; a label with a
    minus in front must be absent.
    """
    wanted = [label.strip() for label in labels.split(",") if label.strip()]
    return [
        workload
        for workload in workloads
        if (not names or workload.name in names or workload.name.partition("/")[0] in names)
        and all((word.lstrip("+-") in workload.labels) != (word[0] == "-") for word in wanted)
    ]


@cache
def read_template(path: Path) -> Template:
    """Return the template in a file; the file is read once."""
    try:
        return Template(path.read_text())
    except OSError as error:
        raise UnknownConstructError(str(error)) from error


def _workloads(case: Raw, folder: Path) -> Iterator[Workload]:
    path = case.get("schedulerConfigPath")
    configuration = yaml.load((folder / path).read_text(), _LOADER) if path else None  # noqa: S506 - one of the safe loaders
    for workload in case["workloads"]:
        gates = {**case.get("featureGates", {}), **workload.get("featureGates", {})}
        obstacles = [*_case_obstacles(case, workload, gates)]
        operations: list[Operation] = []
        for step in case["workloadTemplate"]:
            try:
                operations += _operations(step, workload.get("params") or {})
            except _UnreadableError as error:
                obstacles.append(f"{step['opcode']}: {error}")
        if not obstacles and all(step.opcode != "createPods" for step in operations):
            obstacles.append("no pods are created")
        default: str | None = case.get("defaultPodTemplatePath")
        paths = {path for step in operations for path in _paths(step)}
        obstacles += _template_obstacles(folder, paths | ({default} if default else set()))
        obstacles += _configuration_obstacles(configuration)
        yield Workload(
            name=f"{case['name']}/{workload['name']}",
            folder=folder,
            labels=frozenset((*case.get("labels", ()), *workload.get("labels", ()))),
            gates=gates,
            threshold=_threshold(workload.get("threshold", 0), folder.name),
            operations=() if obstacles else tuple(operations),
            obstacles=tuple(dict.fromkeys(obstacles)),
            default_pod=default,
            configuration=configuration,
        )


def _case_obstacles(case: Raw, workload: Raw, gates: Mapping[str, bool]) -> Iterator[str]:
    yield from sorted(case.keys() - CASE_FIELDS | workload.keys() - WORKLOAD_FIELDS)
    for gate, value in gates.items():
        if OWN_EMULATION.get(gate) == value:
            yield f"{gate}={str(value).lower()} in this release"
        if value and gate in WITHOUT_COUNTERPART:
            yield f"{gate}: Mooring does not have this feature, or not all of it"


def _template_obstacles(folder: Path, paths: Collection[str]) -> Iterator[str]:
    for path in sorted(paths):
        try:
            read_template(folder / path)
        except UnknownConstructError as error:
            yield f"{path}: {error}"


def _configuration_obstacles(configuration: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the parts of the configuration that Mooring cannot follow."""
    if configuration is None:
        return
    try:
        _, notes = profiles_of(configuration, "mooring")
    except ProfileInvalid as invalid:
        notes = [*invalid.errors]
    yield from (f"configuration: {note.path}: {note.message}" for note in notes)


def _threshold(value: float | Mapping[str, float], topic: str) -> float:
    return float(value.get(topic, 0) if isinstance(value, Mapping) else value)


def _operations(step: Raw, params: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the operations of a step with values instead of parameters, each set of pods alone."""
    opcode = step["opcode"]
    if opcode not in FIELDS:
        raise _UnreadableError("unknown operation")
    if unknown := step.keys() - FIELDS[opcode] - {"opcode"}:
        raise _UnreadableError(f"unknown fields {', '.join(sorted(unknown))}")
    fields = _resolved(step, params)
    if opcode != "createPodSets":
        yield Operation(opcode, fields)
        return
    for number in range(fields["count"]):
        inner = {**step["createPodsOp"], "namespace": f"{step['namespacePrefix']}-{number}"}
        yield from _operations(inner, params)


def _resolved(step: Raw, params: Mapping[str, Any]) -> Raw:
    fields = {key: value for key, value in step.items() if key != "opcode"}
    multiplier = fields.pop("countMultiplierParam", None)
    for key in [key for key in fields if key.endswith("Param")]:
        fields[key.removesuffix("Param")] = _value(fields.pop(key), params)
    if multiplier:
        fields["count"] *= _value(multiplier, params)
    if "templateParams" in fields:
        fields["templateParams"] = {
            key: _value(value, params) if str(value).startswith("$") else value
            for key, value in fields["templateParams"].items()
        }
    if "duration" in fields:
        fields["duration"] = _seconds(str(fields["duration"]))
    return fields


def _value(reference: str, params: Mapping[str, Any]) -> Any:
    """Return the value of `$name`, or of `$name|default` with a default in YAML."""
    name, has_default, default = reference.removeprefix("$").partition("|")
    if name in params:
        return params[name]
    if not has_default:
        raise _UnreadableError(f"the parameter {name} has no value")
    return yaml.load(default, _LOADER)  # noqa: S506 - one of the safe loaders


def _seconds(duration: str) -> float:
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", duration):
        raise _UnreadableError(f"the duration {duration}")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(duration))


def _paths(operation: Operation) -> Iterator[str]:
    for key, value in operation.fields.items():
        if key.endswith("TemplatePath") or key == "templatePath":
            yield value
    yield from operation.fields.get("templatePaths", ())
