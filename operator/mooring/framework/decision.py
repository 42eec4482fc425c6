"""What one scheduling attempt decided about one pod, in the words users know from upstream."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Decision", "NodeScore", "Rejection"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one node cannot take the pod: the first filter that rejected it.

    `resolvable` says whether evicting pods from the node could help (upstream's code
    Unschedulable) or not (UnschedulableAndUnresolvable).
    """

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A feasible node's score: each plugin's share, normalised and weighted, and their sum.

    A plugin that skipped the pod has no share.
    """

    plugins: Mapping[str, int]
    total: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one attempt.

    `pod` and `victims` are "namespace/name". `profile` is None when no profile takes the pod.
    `node` is None when the pod was not placed; then `message` says why, as the PodScheduled
    condition does, and `nominated_node` and `victims` hold what preemption chose.
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
