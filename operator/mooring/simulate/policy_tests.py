"""Reads policy tests: YAML files with the expected decisions of profiles."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import Field

from mooring.policy.label_selectors import LabelSelector
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile import KubernetesVersion
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.reading import PolicyModel, read
from mooring.simulate.manifests import InputError, Manifest, composed, manifests_in, read_text

API_VERSION: Final = "test.mooring.dev/v1alpha1"
KIND: Final = "PolicyTest"
_GROUP: Final = API_VERSION.partition("/")[0]
_SUFFIXES: Final = (".yaml", ".yml", ".json")

_OF_ONE_POD: Final = ("nominated_node", "victims")
_OF_PODS: Final = ("max_skew", "max_nodes", "whole")


class PodSelection(PolicyModel):
    """Selects pods by namespace, labels and pod group, including pods that already have a node."""

    namespace: str | None = None
    """The namespace of the pods; if absent, pods of all namespaces."""
    label_selector: LabelSelector = LabelSelector()
    """The labels of the pods; if absent, all pods."""
    pod_group: str | None = None
    """The name of the pod group; if absent, pods with and without a group."""


class UnschedulableExpectation(PolicyModel):
    """The expectation that a pod gets no node, and the reason."""

    plugin: str | None = None
    """A plugin that rejects the pod on at least one node, or for all nodes at once."""
    reason: str | None = None
    """A part of the plugin's reason on such a node; otherwise a part of the pod's message."""
    node: str | None = None
    """A node that the plugin rejects; if absent, any node."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if a node is named without the plugin that rejects it."""
        if self.node is not None and self.plugin is None:
            yield FieldError("plugin", "is required where node is set")


class Expectation(PolicyModel):
    """The expected result for one pod, or for each of several pods, after all decisions."""

    pod: str | None = Field(None, pattern="^([^/]+/)?[^/]+$")
    """NAME (in namespace default) or NAMESPACE/NAME."""
    pods: PodSelection | None = None
    """Several pods; the selection must find at least one pod."""
    profile: str | None = None
    """The name of the profile that decided about the pod."""
    scheduled: bool | None = None
    """Whether the pod has a node."""
    node: str | None = None
    """The name of the node that the pod gets."""
    node_selector: dict[QualifiedName, str] = Field({}, max_length=64)
    """Labels that the pod's node has, with their values."""
    unschedulable: UnschedulableExpectation | None = None
    """The pod has no node, for this reason."""
    nominated_node: str | None = None
    """The node on which preemption makes space for the pod."""
    victims: tuple[str, ...] | None = None
    """The pods that are evicted for this pod, all of them, as NAME or NAMESPACE/NAME."""
    max_victims: int | None = Field(None, ge=0)
    """The most pods that are evicted for all selected pods together; 0 means none."""
    max_skew: int | None = Field(None, ge=0)
    """The largest allowed difference between the numbers of selected pods for two values of
    `topologyKey`."""
    topology_key: QualifiedName | None = None
    """The node label for `maxSkew`; a value without a selected pod counts too."""
    max_nodes: int | None = Field(None, ge=1)
    """The most nodes that the selected pods may use."""
    whole: bool | None = None
    """Whether all these pods have a node, or none of them has a node."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for each field that is missing or contradicts another field."""
        if (self.pod is None) == (self.pods is None):
            yield FieldError("", "needs either pod or pods")
        if not self.model_fields_set - {"pod", "pods", "topology_key"}:
            yield FieldError("", "expects nothing: add node, unschedulable, maxVictims or another")
        if (self.max_skew is None) != (self.topology_key is None):
            yield FieldError("", "needs both of maxSkew and topologyKey, or none")
        wrong = _OF_PODS if self.pod is not None else _OF_ONE_POD
        for field in sorted(self.model_fields_set & set(wrong)):
            other = "pods" if self.pod is not None else "pod"
            alias = type(self).model_fields[field].alias or field
            yield FieldError(alias, f"goes with {other} only")
        placed = self.scheduled or self.node is not None or bool(self.node_selector)
        if placed and self.unschedulable is not None:
            yield FieldError("unschedulable", "contradicts the node that is expected")
        if self.scheduled is False and (self.node is not None or self.node_selector):
            yield FieldError("scheduled", "contradicts the node that is expected")


class Case(PolicyModel):
    """A case of a test: a cluster, pods, and the expected decisions about the pods."""

    name: str = Field(min_length=1)
    """A sentence that states the rule; each case of a test has a different name."""
    profiles: tuple[str, ...] = ()
    """Files of profiles, which replace the profiles of the test."""
    files: tuple[str, ...] = ()
    """Files of objects, or a cluster dump; the files of the test are used too."""
    objects: tuple[dict[str, Any], ...] = ()
    """Objects of the cluster; the objects of the test are used too."""
    pods: tuple[dict[str, Any], ...] = ()
    """The pods to schedule; if absent, all pods without a node in the files and objects."""
    seed: int = 0
    """Chooses among nodes of equal score, as `mooring simulate --seed` does."""
    kubernetes_version: KubernetesVersion | None = None
    """The version of the API server, which replaces the version of the test."""
    expect: tuple[Expectation, ...] = Field(min_length=1)
    """The expected decisions about the pods."""


class _Metadata(PolicyModel):
    """The metadata of a policy test."""

    name: str = Field(min_length=1)
    """The test's name in reports."""
    labels: dict[str, str] = Field({})
    """Labels for other programs, which Mooring does not read."""
    annotations: dict[str, str] = Field({})
    """Annotations for other programs, which Mooring does not read."""


class PolicyTest(PolicyModel):
    """A policy test: cases, and their common part; paths are relative to the file."""

    api_version: Literal["test.mooring.dev/v1alpha1"]
    kind: Literal["PolicyTest"]
    metadata: _Metadata
    profiles: tuple[str, ...] = ()
    """Files of profiles: SchedulingProfiles, a KubeSchedulerConfiguration or a Policy.

    Without such files, SchedulingProfiles among the objects apply, or else kube-scheduler's
    defaults. Other objects in these files belong to the cluster.
    """
    files: tuple[str, ...] = ()
    """Files of objects, or a cluster dump."""
    objects: tuple[dict[str, Any], ...] = ()
    """Objects of the cluster."""
    kubernetes_version: KubernetesVersion | None = None
    """The version of the API server for profiles without kubernetesVersion.

    `--kubernetes` overrides this field. If the field is absent, the version is that of a cluster
    dump, or else the newest version.
    """
    cases: tuple[Case, ...] = Field(min_length=1)
    """The cases; each begins with the same cluster."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for each case with the name of an earlier case."""
        seen = dict[str, int]()
        for number, case in enumerate(self.cases):
            if case.name in seen:
                where = f"cases[{number}].name"
                yield FieldError(where, f"is the name of cases[{seen[case.name]}] already")
            seen[case.name] = number


@dataclass(frozen=True, slots=True)
class PolicyTestFile:
    """A policy test, its file, and the line of each of its cases, counted from 1."""

    path: str
    test: PolicyTest
    lines: tuple[int, ...]


def schema() -> dict[str, Any]:
    """Return the JSON schema of a policy test, for editors and other tools."""
    found = PolicyTest.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def read_policy_tests(paths: Sequence[str]) -> list[PolicyTestFile]:
    """Read the policy tests of files and folders, in order.

    Raises InputError with all mistakes. A file that cannot be read and a path without a test are
    mistakes, too.
    """
    found, mistakes = list[PolicyTestFile](), list[str]()
    for path in paths:
        files = sorted(_candidates(Path(path))) if Path(path).is_dir() else [path]
        tests = list[PolicyTestFile]()
        for file in files:
            try:
                tests += _tests_of(file)
            except InputError as error:
                mistakes.append(str(error))
        if not tests and not mistakes:
            mistakes.append(f"{path}: contains no {KIND}")
        found += tests
    if mistakes:
        raise InputError("\n".join(mistakes))
    return found


def _candidates(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*"):
        if file.suffix in _SUFFIXES and file.is_file():
            try:
                text = file.read_bytes()
                if any(mark.encode() in text for mark in (_GROUP, f"kind: {KIND}")):
                    yield str(file)
            except OSError as error:
                raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None


def _tests_of(path: str) -> Iterator[PolicyTestFile]:
    text = read_text(path)
    # One of the kind is meant to be a test, and has another apiVersion by mistake.
    tests = [m for m in manifests_in(text, path) if m.group == _GROUP or m.kind == KIND]
    documents = list[yaml.Node]()
    with suppress(yaml.YAMLError):  # JSON that is no YAML, as with an escaped emoji
        documents += composed(text) if tests else ()
    for manifest in tests:
        if manifest.kind != KIND:
            hint = did_you_mean(manifest.kind, [KIND]) or f"; the group has only {KIND}"
            raise manifest.error(f'kind: unknown kind "{manifest.kind}"{hint}')
        test = _read(manifest)
        lines = _lines_of_cases(documents[manifest.document]) if documents else ()
        # The items of a list have no lines of their own.
        yield PolicyTestFile(path, test, lines or (1,) * len(test.cases))


def _read(manifest: Manifest) -> PolicyTest:
    try:
        return read(PolicyTest, manifest.raw, "")
    except ProfileInvalid as invalid:
        text = "\n".join(f"{manifest.source}: {error}" for error in invalid.errors)
        raise InputError(text) from None


def _lines_of_cases(document: yaml.Node) -> tuple[int, ...]:
    fields = document.value if isinstance(document, yaml.MappingNode) else []
    for key, value in fields:
        if key.value == "cases" and isinstance(value, yaml.SequenceNode):
            return tuple(item.start_mark.line + 1 for item in value.value)
    return ()
