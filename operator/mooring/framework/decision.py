"""The record of one scheduling attempt for one pod, with kube-scheduler's terms.

A record refers to pods by `PodRef` only. Code that shows a record can leave out the names of pods
that the user may not get (`mooring.observe.documents`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mooring.model.pod import Pod, Uid

__all__ = ["ANY_POD", "Decision", "NodeScore", "PodRef", "Rejection", "TextAboutPods"]

_NOT_CREATED: Final = Uid("")


class PodRef(NamedTuple):
    """A pod that a record refers to; `uid` is "" for a pod that was never created."""

    namespace: str
    name: str
    uid: Uid

    @classmethod
    def of(cls, pod: Pod) -> "PodRef":
        """Return a reference to the pod, with its namespace, name and uid."""
        return cls(pod.namespace, pod.name, pod.uid)

    @classmethod
    def of_key(cls, key: str, uid: Uid = _NOT_CREATED) -> "PodRef":
        """Return the reference to the pod of this "namespace/name" and uid."""
        namespace, _, name = key.partition("/")
        return cls(namespace, name, uid)

    @property
    def key(self) -> str:
        """Return "namespace/name". It does not identify the pod, because names are reused."""
        return f"{self.namespace}/{self.name}"


ANY_POD: Final = PodRef("", "", _NOT_CREATED)
"""Stands for any pod in a text about unknown pods; only users who may get all pods see such a
text."""


@dataclass(frozen=True, slots=True)
class TextAboutPods:
    """A text that names `pods`. A user who may not get all these pods reads `otherwise` instead."""

    text: str
    pods: tuple[PodRef, ...]
    otherwise: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """The first plugin that rejected a node, and the reasons of all plugins that rejected it.

    `resolvable` says whether evicting pods from the node could help (kube-scheduler's code
    Unschedulable) or not (UnschedulableAndUnresolvable).
    """

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool


class NodeScore(NamedTuple):
    """A feasible node's score: each plugin's score, normalized and weighted, and their sum.

    A plugin that skipped the pod is not listed.
    """

    plugins: Mapping[str, int]
    total: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of one attempt.

    Attributes:
        profile: None if no profile applies to the pod.
        profile_generation: The generation of the profile's API object; 0 if it is from a file.
        kubernetes_version: The version of Kubernetes whose rules the decision followed.
        node: The chosen node; None if no node fits.
        nominated_node, victims: The result of preemption if no node fits.
        scores: The feasible nodes' scores by name; None if there was at most one feasible node.
        rejections: Why nodes reject the pod, by the node's name.
        message: Why no node fits, as in the PodScheduled condition.
    """

    pod: PodRef
    profile: str | None
    profile_generation: int = field(default=0, kw_only=True)
    kubernetes_version: str | None = field(default=None, kw_only=True)
    node: str | None
    nominated_node: str | None
    victims: tuple[PodRef, ...]
    scores: Mapping[str, NodeScore] | None
    rejections: Mapping[str, Rejection]
    message: str | None
