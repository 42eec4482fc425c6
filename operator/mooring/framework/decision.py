"""The record of one scheduling attempt of one pod, in the words of kube-scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Decision", "NodeScore", "Rejection"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one node cannot take the pod: the first filter that rejected it.

    `resolvable` says whether evicting pods from the node could help (kube-scheduler's
    code Unschedulable) or not (UnschedulableAndUnresolvable).
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

    `pod` and `victims` are "namespace/name". `profile` is None when no profile is for the
    pod; `profile_generation` is the generation of the profile's API object that decided, 0 for a
    profile from a file. `node` is None when no node was found; then `message` says why, as the
    PodScheduled condition does, and `nominated_node` and `victims` hold what preemption chose.
    `scores` is None when at most one node was feasible, because then nothing is scored.
    """

    pod: str
    profile: str | None
    node: str | None
    nominated_node: str | None
    victims: tuple[str, ...]
    scores: Mapping[str, NodeScore] | None
    rejections: Mapping[str, Rejection]
    message: str | None
    profile_generation: int = 0
