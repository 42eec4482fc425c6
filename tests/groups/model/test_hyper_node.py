"""What is read of Volcano's HyperNodes."""

from typing import Any

import pytest

from mooring.groups.model.hyper_node import parse_hyper_node
from mooring.model.manifest_error import ManifestError
from mooring.testing.builders import hyper_node


def test_members_are_named_or_selected() -> None:
    read = parse_hyper_node(
        hyper_node(
            "spine",
            2,
            {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
            {"type": "HyperNode", "selector": {"exactMatch": {"name": "leaf-1"}}},
            {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^leaf-[23]$"}}},
            {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r"}}}},
            tierName="spines",
        )
    )
    assert (read.name, read.tier, read.tier_name) == ("spine", 2, "spines")
    assert (*read.nodes, *read.hyper_nodes) == ("n1", "leaf-1")
    (pattern,), (selector,) = read.hyper_node_patterns, read.node_selectors
    assert pattern.search("leaf-3")
    assert selector.matches({"rack": "r"})
    assert read.node_patterns == ()


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ({"type": "Rack"}, r"spec.members\[0\].type: must be Node or HyperNode"),
        ({"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}, "no regular expression"),
        ({"type": "Node", "selector": {"exactMatch": 3}}, "exactMatch: must be an object"),
    ],
)
def test_a_malformed_hyper_node_says_where(member: dict[str, Any], why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        parse_hyper_node(hyper_node("s", 1, member))
