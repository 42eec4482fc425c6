"""Checks the profiles in files and folders, and finds the line of every mistake."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from mooring.framework.registry import Registry
from mooring.model.manifest_error import ManifestError
from mooring.model.node import Node, parse_node
from mooring.policy.match import conflict_text, may_share_pods
from mooring.policy.profile_errors import FieldError, join_path, split_path
from mooring.policy.rules.rule import missing_on_nodes
from mooring.simulate.load_profiles import (
    InvalidProfile,
    LoadedProfile,
    ProfileLoader,
    contains_profile,
)
from mooring.simulate.manifests import (
    STDIN,
    InputError,
    Manifest,
    NoObjectError,
    RepeatedKey,
    composed,
    display_name,
    manifests_in,
    read_text,
)

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class CheckedMistake:
    """A mistake in a file.

    Attributes:
        line: The line in the file, counted from 1; None if it is not known.
        path: The field, for example `spec.match.precedence`; "" if the file cannot be read.
    """

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(filter(None, (where, self.path, self.message)))


@dataclass(frozen=True, slots=True)
class CheckedProfile:
    """A valid profile, with its file and the line where its object begins."""

    file: str
    line: int | None
    loaded: LoadedProfile
    conflict: str = ""
    """The reason why another valid profile may match the same pods; "" if there is no such
    profile."""
    warnings: tuple[FieldError, ...] = ()
    """Warnings about labels and resources that the profile's rules read and no node in the files
    has."""

    @property
    def notes(self) -> tuple[FieldError, ...]:
        """The notes about the profile's import, conflict and extenders; without `warnings`."""
        name = self.loaded.profile.name
        conflicts = (FieldError(name, self.conflict),) if self.conflict else ()
        return (
            *self.loaded.notes,
            *conflicts,
            *self._groups_with_extenders(),
            *self._files_of_extenders(),
        )

    def _groups_with_extenders(self) -> Iterator[FieldError]:
        extenders = [e for e in self.loaded.profile.spec.extenders if e.preempt_verb]
        if extenders and "GangScheduling" in self.loaded.effective.args:
            everything = any(not extender.managed_resources for extender in extenders)
            which = "pod groups" if everything else "pod groups that request a managed resource"
            text = f"{which} do not preempt: a preemptVerb is called for single pods only"
            yield FieldError("spec.extenders", text)

    def _files_of_extenders(self) -> Iterator[FieldError]:
        for number, extender in enumerate(self.loaded.profile.spec.extenders):
            tls = extender.tls_config
            if tls is None or not tls.files or not extender.url_prefix.lower().startswith("https:"):
                continue
            *first, last = tls.files
            named = f"{', '.join(first)} and {last}" if first else last
            files, are, they = ("files", "are", "they") if first else ("file", "is", "it")
            text = (
                f"the {files} {named} {are} not looked at: {they} {are} in Mooring's container; if "
                f"{they} cannot be used there, the profile's status says so"
            )
            yield FieldError(f"spec.extenders[{number}].tlsConfig", text)


@dataclass(slots=True)
class NodesInFiles:
    """The number of nodes in the files, and the labels and resources that the nodes have."""

    count: int = 0
    labels: set[str] = field(default_factory=set)
    resources: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Count a node, and add its labels and resources."""
        self.count += 1
        self.labels |= node.labels.keys()
        self.resources |= {name for name, amount in node.allocatable.items() if amount}


@dataclass(slots=True)
class Report:
    """The contents of the files.

    Attributes:
        profiles: The valid profiles.
        mistakes: Every mistake in the invalid profiles.
        unreadable: Files that cannot be read as Kubernetes objects, one mistake each.
        skipped: The number of objects of other kinds, by kind.
        nodes: The nodes in the files.
    """

    profiles: list[CheckedProfile] = field(default_factory=list)
    mistakes: list[CheckedMistake] = field(default_factory=list)
    unreadable: list[CheckedMistake] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    nodes: NodesInFiles = field(default_factory=NodesInFiles)

    def pass_over(self, manifest: Manifest) -> None:
        """Add a Node to `nodes`; count any other object that is not a profile in `skipped`."""
        try:
            if (manifest.group, manifest.kind) == ("", "Node"):
                self.nodes.add(parse_node(manifest.raw))
                return
        except ManifestError:
            pass  # only profiles are checked here
        self.skipped[manifest.kind] += 1


def check_files(paths: Iterable[str], registry: Registry) -> Report:
    """Check the profiles in files, in folders with subfolders, and in standard input (-).

    A file in a folder is ignored if it has no Kubernetes object.
    """
    report, loader = Report(), ProfileLoader(registry)
    for path in paths:
        is_folder = path != STDIN and Path(path).is_dir()
        for file in _files_in(path) if is_folder else (path,):
            try:
                _check_file(file, loader, report)
            except InputError as error:
                if is_folder and isinstance(error, NoObjectError):
                    continue
                name = display_name(file)
                message = str(error).removeprefix(name).lstrip(":, ")
                report.unreadable.append(CheckedMistake(name, error.line, "", message))
    report.profiles = [_with_conflict(checked, report.profiles) for checked in report.profiles]
    report.profiles = [_with_warnings(checked, report.nodes) for checked in report.profiles]
    return report


def _with_warnings(checked: CheckedProfile, nodes: NodesInFiles) -> CheckedProfile:
    rules = checked.loaded.profile.spec.rules
    if not nodes.count:
        return checked
    found = missing_on_nodes(rules, nodes.labels, nodes.resources)
    return replace(checked, warnings=tuple(warning.under("spec") for warning in found))


def _with_conflict(checked: CheckedProfile, valid: Sequence[CheckedProfile]) -> CheckedProfile:
    own = checked.loaded.profile
    others = [other.loaded.profile for other in valid if other is not checked]
    names = [other.name for other in others if may_share_pods(own, other)]
    return replace(checked, conflict=conflict_text(own.name, names)) if names else checked


def _files_in(folder: str) -> Iterator[str]:
    for path in sorted(Path(folder).rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        # Templates of Helm charts are not valid YAML.
        if path.suffix in _SUFFIXES and not hidden and path.is_file() and not _is_template(path):
            yield str(path)


def _is_template(path: Path) -> bool:
    return any(
        parent.name == "templates" and (parent.parent / "Chart.yaml").is_file()
        for parent in path.parents
    )


def _check_file(path: str, loader: ProfileLoader, report: Report) -> None:
    text, name = read_text(path), display_name(path)
    lines, repeated = _Lines(text), list[RepeatedKey]()
    found = list(manifests_in(text, name, repeated))
    if not any(contains_profile(manifest) for manifest in found):
        for manifest in found:
            report.pass_over(manifest)
        return
    for key in repeated:
        message = f'the key "{key.key}" is there twice'
        report.mistakes.append(CheckedMistake(name, key.line, "", message))
    for manifest in found:
        if not contains_profile(manifest):
            report.pass_over(manifest)
            continue
        try:
            for loaded in loader.load(manifest):
                line = lines.of(manifest, "")
                report.profiles.append(CheckedProfile(name, line, loaded))
        except InvalidProfile as invalid:
            report.mistakes += (_located(error, manifest, name, lines) for error in invalid.errors)


def _located(error: FieldError, manifest: Manifest, file: str, lines: "_Lines") -> CheckedMistake:
    return CheckedMistake(file, lines.of(manifest, error.path), error.path, error.message)


class _Lines:
    """Finds the lines of fields in a YAML text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._documents: list[yaml.Node] | None = None

    def of(self, manifest: Manifest, path: str) -> int | None:
        """Return the line of the field `path`, or of the field around it; None if not YAML."""
        if self._documents is None:
            try:
                self._documents = [*composed(self._text)]
            except yaml.YAMLError:
                self._documents = []
        if manifest.document >= len(self._documents):
            return None
        node = self._documents[manifest.document]
        line: int = node.start_mark.line + 1
        for step in split_path(join_path(manifest.path, path)):
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line


def _child(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    """Return the line number and the value at a mapping key or list index; None if absent."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item.start_mark.line + 1, item
    return None
