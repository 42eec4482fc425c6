"""Volcano's HyperNodes: sets of nodes that are near each other in the network."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import (
    integer,
    mapping,
    mappings,
    name_of,
    naming_the_object,
    optional_mapping,
    text,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.selectors import LabelSelector, parse_label_selector

HYPER_NODE_KEY: Final = "topology.volcano.sh/hypernode"
"""Stands for HyperNodes where the topology of a group names node labels."""


@dataclass(frozen=True, slots=True)
class HyperNode:
    """Nodes and HyperNodes of lower tiers, by name, by a pattern of names, or by labels.

    The nodes of a HyperNode of a lower `tier` are nearer to each other.
    """

    name: str
    tier: int
    tier_name: str
    nodes: frozenset[str]
    node_patterns: tuple[re.Pattern[str], ...]
    node_selectors: tuple[LabelSelector, ...]
    hyper_nodes: frozenset[str]
    hyper_node_patterns: tuple[re.Pattern[str], ...]


@naming_the_object("HyperNode")
def parse_hyper_node(raw: Mapping[str, Any]) -> HyperNode:
    """Parse a HyperNode of `topology.volcano.sh/v1alpha1`; ManifestError if it is malformed."""
    spec = mapping(raw, "spec")
    names: dict[str, set[str]] = {"Node": set(), "HyperNode": set()}
    patterns: dict[str, list[re.Pattern[str]]] = {"Node": [], "HyperNode": []}
    selectors = list[LabelSelector]()
    for index, member in enumerate(mappings(spec, "members", "spec")):
        where = f"spec.members[{index}]"
        if (kind := text(member, "type", where)) not in names:
            raise ManifestError(f"{where}.type", "must be Node or HyperNode")
        chosen, where = mapping(member, "selector", where), f"{where}.selector"
        if name := text(mapping(chosen, "exactMatch", where), "name", f"{where}.exactMatch"):
            names[kind].add(name)
        if pattern := text(mapping(chosen, "regexMatch", where), "pattern", f"{where}.regexMatch"):
            patterns[kind].append(_pattern(pattern, f"{where}.regexMatch.pattern"))
        labels = optional_mapping(chosen, "labelMatch", where) if kind == "Node" else None
        if (selector := parse_label_selector(labels, f"{where}.labelMatch")) is not None:
            selectors.append(selector)
    return HyperNode(
        name=name_of(raw),
        tier=integer(spec, "tier", "spec") or 0,
        tier_name=text(spec, "tierName", "spec"),
        nodes=frozenset(names["Node"]),
        node_patterns=tuple(patterns["Node"]),
        node_selectors=tuple(selectors),
        hyper_nodes=frozenset(names["HyperNode"]),
        hyper_node_patterns=tuple(patterns["HyperNode"]),
    )


def _pattern(written: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(written)
    except re.error as error:
        raise ManifestError(where, f"is no regular expression: {error}") from None
