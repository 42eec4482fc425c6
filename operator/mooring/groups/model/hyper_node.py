"""Volcano's HyperNodes: sets of nodes that are near each other in the network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import (
    at_most,
    integer,
    mapping,
    mappings,
    name_of,
    naming_the_object,
    optional_mapping,
    text,
)
from mooring.model.linear_patterns import LinearPatternError, compile_linear
from mooring.model.manifest_error import ManifestError
from mooring.model.paused_reading import ITEMS_PER_STEP
from mooring.model.selectors import LabelSelector, parse_label_selector
from mooring.pausing import pause

HYPER_NODE_KEY: Final = "topology.volcano.sh/hypernode"
"""The topology key of a group that is placed in a HyperNode, not in a domain of node labels."""
_MOST_MEMBERS: Final = 10_000
_MOST_PATTERNS: Final = 100
_LONGEST_PATTERN: Final = 1000
_MOST_MEMORY: Final = 64 * 1024
"""The most bytes of a compiled pattern. A larger pattern is a mistake in the HyperNode, because a
search with it takes over 10 ms."""


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A set of nodes and of HyperNodes of lower tiers.

    Its members are given by names, name patterns (compiled by `re2`) or labels. The lower the tier,
    the nearer are the nodes to each other.
    """

    name: str
    tier: int
    tier_name: str
    nodes: frozenset[str]
    node_patterns: tuple[Any, ...]
    node_selectors: tuple[LabelSelector, ...]
    hyper_nodes: frozenset[str]
    hyper_node_patterns: tuple[Any, ...]


@naming_the_object("HyperNode")
def parse_hyper_node(raw: Mapping[str, Any]) -> HyperNode:
    """Parse a HyperNode of `topology.volcano.sh/v1alpha1`; raise ManifestError for a mistake."""
    spec = mapping(raw, "spec")
    names: dict[str, set[str]] = {"Node": set(), "HyperNode": set()}
    patterns: dict[str, list[Any]] = {"Node": [], "HyperNode": []}
    selectors = list[LabelSelector]()
    members = mappings(spec, "members", "spec")
    at_most(len(members), _MOST_MEMBERS, "spec.members", "members")
    for index, member in enumerate(members):
        if index % ITEMS_PER_STEP == 0:
            pause()
        where = f"spec.members[{index}]"
        if (kind := text(member, "type", where)) not in names:
            raise ManifestError(f"{where}.type", "must be Node or HyperNode")
        chosen, where = mapping(member, "selector", where), f"{where}.selector"
        if name := text(mapping(chosen, "exactMatch", where), "name", f"{where}.exactMatch"):
            names[kind].add(name)
        if pattern := text(mapping(chosen, "regexMatch", where), "pattern", f"{where}.regexMatch"):
            pause()
            patterns[kind].append(_pattern(pattern, f"{where}.regexMatch.pattern"))
            if sum(map(len, patterns.values())) > _MOST_PATTERNS:
                what = f"is one of more than {_MOST_PATTERNS} patterns, which Mooring does not read"
                raise ManifestError(f"{where}.regexMatch.pattern", what)
        labels = optional_mapping(chosen, "labelMatch", where) if kind == "Node" else None
        if (selector := parse_label_selector(labels, f"{where}.labelMatch")) is not None:
            selectors.append(selector)
    if (tier := integer(spec, "tier", "spec") or 0) < 0:
        raise ManifestError("spec.tier", "must not be negative")
    return HyperNode(
        name=name_of(raw),
        tier=tier,
        tier_name=text(spec, "tierName", "spec"),
        nodes=frozenset(names["Node"]),
        node_patterns=tuple(patterns["Node"]),
        node_selectors=tuple(selectors),
        hyper_nodes=frozenset(names["HyperNode"]),
        hyper_node_patterns=tuple(patterns["HyperNode"]),
    )


def _pattern(written: str, where: str) -> Any:
    if len(written.encode(errors="replace")) > _LONGEST_PATTERN:
        raise ManifestError(where, f"is longer than {_LONGEST_PATTERN} bytes")
    try:
        return compile_linear(written, _MOST_MEMORY)
    except UnicodeEncodeError:
        raise ManifestError(where, "is no Unicode") from None
    except LinearPatternError as error:
        raise ManifestError(where, f"is no regular expression: {error.what}") from None
