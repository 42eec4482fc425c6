"""Runs the cases of policy tests, and compares the decisions with their expectations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse
from pathlib import Path
from typing import Any

from mooring.framework.decision import Decision
from mooring.framework.registry import PluginLoadError, Registry
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.selectors import parse_label_selector
from mooring.model.wording import listed, plural
from mooring.policy.profile_errors import did_you_mean
from mooring.simulate.controllers import CONTROLLERS, is_new
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.load_profiles import contains_profile, load_profiles
from mooring.simulate.manifests import InputError, Manifest, objects_in, read_manifests
from mooring.simulate.policy_tests import (
    Expectation,
    PodSelection,
    PolicyTestFile,
    UnschedulableExpectation,
)
from mooring.simulate.simulation import simulate

_MOST_EXPLAINED = 3
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class FailedExpectation:
    """An expectation that failed: its path in the case, and the actual result.

    `decisions` are the decisions about the pods, at most three.
    """

    path: str
    message: str
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of a case: the failed expectations, or the mistake that prevented the run.

    `ignored` counts the objects that no decision reads, by `Kind` or `Kind.group`. `Inputs`
    explains `notes`.
    """

    name: str
    line: int
    failures: tuple[FailedExpectation, ...] = ()
    error: str | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether the case ran and met all its expectations."""
        return not self.failures and self.error is None


def run_case(
    file: PolicyTestFile, number: int, registry: Registry, kubernetes: str | None = None
) -> CaseResult:
    """Schedule the pods of the case with index `number`, and check the decisions.

    `kubernetes` replaces the version of the API server. A mistake in the case is the result's
    `error`.
    """
    case, line = file.test.cases[number], file.lines[number]
    ignored: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
    try:
        inputs = inputs_of_case(file, number, registry, kubernetes)
        ignored, notes = inputs.ignored, inputs.notes
        decided = _Decided(inputs, registry, case.seed)
        failures = tuple(
            failure
            for index, expectation in enumerate(case.expect)
            for failure in _Check(decided, expectation, f"expect[{index}]").failures()
        )
    except (InputError, PluginLoadError) as error:
        return CaseResult(case.name, line, error=str(error), ignored=ignored, notes=notes)
    return CaseResult(case.name, line, failures, ignored=ignored, notes=notes)


def inputs_of_case(
    file: PolicyTestFile, number: int, registry: Registry, kubernetes: str | None = None
) -> Inputs:
    """Return the cluster, pods and profiles of the case with index `number`.

    Raises InputError if a file, an object or a profile has a mistake.
    """
    test, case = file.test, file.test.cases[number]
    folder = Path(file.path).parent
    profile_files = [str(folder / path) for path in case.profiles or test.profiles]
    beside = [*read_manifests(profile_files)]
    profiles = load_profiles(filter(contains_profile, beside), registry)
    if profile_files and not profiles:
        raise InputError(f"{', '.join(profile_files)}: contains no scheduling profile")
    where = f"{file.path}, cases[{number}]"
    cluster = [
        *filterfalse(contains_profile, beside),
        *read_manifests([str(folder / path) for path in (*test.files, *case.files)]),
        *_inline(test.objects, f"{file.path}, objects"),
        *_inline(case.objects, f"{where}.objects"),
    ]
    version = kubernetes or case.kubernetes_version or test.kubernetes_version
    if not case.pods:
        return inputs_of(cluster, registry, profiles, kubernetes=version)
    pods = [*_inline(case.pods, f"{where}.pods")]
    # Only the pods of the case are placed.
    others = [manifest for manifest in cluster if not _makes_pending_pods(manifest)]
    return inputs_of([*others, *pods], registry, profiles, kubernetes=version)


def _inline(objects: Sequence[dict[str, Any]], where: str) -> Iterator[Manifest]:
    for number, raw in enumerate(objects):
        yield from objects_in(Manifest(f"{where}[{number}]", raw))


def _makes_pending_pods(manifest: Manifest) -> bool:
    group_and_kind = (manifest.group, manifest.kind)
    if group_and_kind == ("", "Pod"):
        spec = manifest.raw.get("spec")
        return not (isinstance(spec, dict) and spec.get("nodeName"))
    return group_and_kind in CONTROLLERS and is_new(manifest.raw)


class _Decided:
    """The decisions about a case's pods, and the resulting cluster."""

    def __init__(self, inputs: Inputs, registry: Registry, seed: int) -> None:
        attempts = [*simulate(inputs, registry, seed=seed)]
        self.decisions = {attempt.decision.pod.key: attempt.decision for attempt in attempts}
        self.plugins = {attempt.decision.pod.key: attempt.plugins for attempt in attempts}
        self._state = inputs.state
        self._pods = {pod.key: pod for pod in inputs.pending}
        self._pods |= {placed.pod.key: placed.pod for placed in inputs.state.pods}

    def pod(self, name: str, path: str) -> str:
        """Return the key of the pod NAME or NAMESPACE/NAME; raise InputError if it is missing."""
        key = _key(name)
        known = {*self._pods, *self.decisions}
        if key not in known:
            raise InputError(f"{path}.pod: there is no pod {key}{did_you_mean(key, sorted(known))}")
        return key

    def select(self, selection: PodSelection, path: str) -> list[str]:
        """Return the keys of the selected pods; raise InputError if there are none."""
        raw = selection.label_selector.model_dump(mode="json", by_alias=True)
        labels = parse_label_selector(raw)
        found = [
            pod.key
            for pod in self._pods.values()
            if selection.namespace in (None, pod.namespace)
            and (labels is None or labels.matches(pod.labels))
            and selection.pod_group in (None, self._group_of(pod))
        ]
        if not found:
            raise InputError(f"{path}.pods: selects no pod")
        return found

    def _group_of(self, pod: Pod) -> str:
        key = self._state.pod_groups.key_of(pod)
        return key.name if key is not None else ""

    def node_of(self, pod: str) -> Node | None:
        """Return the pod's node; None if it has none, or if the node is not in the input."""
        placed = self._state.pods.named(pod)
        return self._state.nodes.nodes[placed.row] if placed is not None else None

    def nodes(self) -> list[Node]:
        return [node for node in self._state.nodes.nodes if node is not None]


def _key(name: str) -> str:
    return name if "/" in name else f"default/{name}"


@dataclass(frozen=True, slots=True)
class _Check:
    """Compares one expectation with the decisions about its pods."""

    decided: _Decided
    expected: Expectation
    path: str

    def failures(self) -> Iterator[FailedExpectation]:
        """Yield a failure for each field of the expectation that the decisions do not meet.

        Raises InputError if a pod is missing.
        """
        if self.expected.pods is not None:
            pods = self.decided.select(self.expected.pods, self.path)
        else:
            pods = [self.decided.pod(str(self.expected.pod), self.path)]
        for pod in pods:
            for name, message in self._of_pod(pod):
                yield self._failure(name, message, [pod])
        for name, message in self._of_all(pods):
            yield self._failure(name, message, pods)

    def _failure(self, field: str, message: str, pods: Sequence[str]) -> FailedExpectation:
        known = (self.decided.decisions.get(pod) for pod in pods)
        decisions = [decision for decision in known if decision is not None]
        decisions.sort(key=lambda decision: decision.node is not None)
        return FailedExpectation(
            f"{self.path}.{field}", message, tuple(decisions[:_MOST_EXPLAINED])
        )

    def _of_pod(self, pod: str) -> Iterator[tuple[str, str]]:
        """Yield the name of each expected field that the pod does not meet, and why."""
        expected, decision = self.expected, self.decided.decisions.get(pod)
        node = self.decided.node_of(pod)
        where = f"is on {node.name}" if node is not None else "has no node"
        if expected.profile is not None:
            by = decision.profile if decision is not None else None
            if by != expected.profile:
                yield "profile", f"pod {pod} was decided by {_quoted(by)}"
        if expected.scheduled not in (None, node is not None):
            yield "scheduled", f"pod {pod} {where}"
        if expected.node is not None and (node is None or node.name != expected.node):
            yield "node", f"pod {pod} {where}, expected {expected.node}"
        if expected.node_selector:
            yield from self._labels(pod, node)
        if expected.unschedulable is not None:
            plugins = self.decided.plugins.get(pod, frozenset())
            problem = _not_unschedulable(expected.unschedulable, node, decision, plugins)
            if problem is not None:
                yield "unschedulable", f"pod {pod} {problem}"
        nominated = decision.nominated_node if decision is not None else None
        if expected.nominated_node not in (None, nominated):
            yield "nominatedNode", f"pod {pod} is nominated to {_quoted(nominated)}"
        victims = [victim.key for victim in decision.victims] if decision is not None else []
        if expected.victims is not None and {*map(_key, expected.victims)} != {*victims}:
            yield "victims", f"pod {pod} evicts {_listed(victims)}"

    def _labels(self, pod: str, node: Node | None) -> Iterator[tuple[str, str]]:
        if node is None:
            yield "nodeSelector", f"pod {pod} has no node"
            return
        for label, value in self.expected.node_selector.items():
            if node.labels.get(label) != value:
                has = f"{label}={node.labels[label]}" if label in node.labels else f"no {label}"
                yield "nodeSelector", f"pod {pod} is on {node.name}, which has {has}"

    def _of_all(self, pods: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the name of each expected field that the pods do not meet together, and why."""
        expected = self.expected
        if expected.max_victims is not None:
            decisions = (self.decided.decisions.get(pod) for pod in pods)
            victims = {victim.key for d in decisions if d is not None for victim in d.victims}
            if len(victims) > expected.max_victims:
                evicted = _listed(sorted(victims))
                yield "maxVictims", f"it evicts {plural(len(victims), 'pod')}: {evicted}"
        nodes = Counter(node.name for pod in pods if (node := self.decided.node_of(pod)))
        if expected.max_nodes is not None and len(nodes) > expected.max_nodes:
            yield "maxNodes", f"the pods are on {len(nodes)} nodes: {_listed(sorted(nodes))}"
        if expected.whole is not None:
            with_node = nodes.total()
            if (with_node in (0, len(pods))) != expected.whole:
                yield "whole", f"{with_node} of the {len(pods)} pods have a node"
        if expected.topology_key is not None and expected.max_skew is not None:
            yield from self._skew(pods, expected.topology_key, expected.max_skew)

    def _skew(self, pods: Sequence[str], topology_key: str, most: int) -> Iterator[tuple[str, str]]:
        key = topology_key
        values = {node.labels[key] for node in self.decided.nodes() if key in node.labels}
        if not values:
            raise InputError(f"{self.path}.topologyKey: no node has the label {key}")
        counts = Counter(dict.fromkeys(values, 0))
        placed = (node for pod in pods if (node := self.decided.node_of(pod)) is not None)
        counts.update(node.labels[key] for node in placed if key in node.labels)
        skew = max(counts.values()) - min(counts.values())
        if skew > most:
            shown = ", ".join(f"{value}: {count}" for value, count in sorted(counts.items()))
            yield "maxSkew", f"the pods differ by {skew} between {key}: {shown}"


def _not_unschedulable(
    expected: UnschedulableExpectation,
    node: Node | None,
    decision: Decision | None,
    plugins: frozenset[str],
) -> str | None:
    """Return why the pod is not unschedulable as expected; None if it is."""
    if node is not None or decision is None:
        return f"is on {node.name}" if node is not None else "was not decided"
    of_no_node = plugins if expected.node is None else frozenset[str]()
    if expected.plugin is None or expected.plugin in of_no_node:
        if expected.reason is None or expected.reason in (decision.message or ""):
            return None
        return f"is unschedulable for another reason: {decision.message}"
    found = {
        name: rejection
        for name, rejection in decision.rejections.items()
        if expected.node in (None, name) and rejection.plugin == expected.plugin
    }
    if not found:
        others = sorted({each.plugin for each in decision.rejections.values()} | of_no_node)
        on = f" on {expected.node}" if expected.node is not None else ""
        return f"is not rejected by {expected.plugin}{on}; rejecting plugins: {_listed(others)}"
    reasons = sorted({reason for rejection in found.values() for reason in rejection.reasons})
    if expected.reason is None or any(expected.reason in reason for reason in reasons):
        return None
    return f"is rejected by {expected.plugin} for another reason: {_listed(reasons)}"


def _quoted(name: str | None) -> str:
    return "nothing" if name is None else name


def _listed(names: Sequence[str]) -> str:
    return listed(names, _MOST_NAMED) or "none"
