"""Parses Volcano's HyperNodes."""

from typing import Any

import pytest

from driving import driven
from mooring.groups.model.hyper_node import parse_hyper_node
from mooring.model.manifest_error import ManifestError
from mooring.testing.builders import hyper_node


def matching(pattern: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


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
        *(
            (matching(pattern), f"^HyperNode s spec.members\\[0\\].+pattern: {why}$")
            for pattern, why in (
                ("(", r"is no regular expression: missing \)"),
                ("(" * 1000, r"is no regular expression: missing \)"),
                ("(\n", r"is no regular expression: missing \)"),
                ("a{1001}", "is no regular expression: invalid repetition size"),
                (r"\pL{90}", "is no regular expression: pattern too large - compile failed"),
                ("\ud800", "is no Unicode"),
                ("é" * 501, "is longer than 1000 bytes"),
            )
        ),
        ({"type": "Node", "selector": {"exactMatch": 3}}, "exactMatch: must be an object"),
    ],
)
def test_a_malformed_hyper_node_says_where(member: dict[str, Any], why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        parse_hyper_node(hyper_node("s", 1, member))


@pytest.mark.parametrize(
    ("tier", "members", "why"),
    [
        (-1, [], "spec.tier: must not be negative"),
        (1, [{"type": "Node"}] * 10_001, "has 10001 members; Mooring reads at most 10000"),
        (1, [matching("a")] * 101, r"\[100\].+ is one of more than 100 patterns"),
    ],
)
def test_a_hyper_node_has_bounds(tier: int, members: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ManifestError, match=why):
        parse_hyper_node(hyper_node("s", tier, *members))


def test_a_search_takes_no_exponential_time() -> None:
    (pattern,) = parse_hyper_node(hyper_node("s", 1, matching("(a+)+$"))).node_patterns
    assert pattern.search("a" * 60 + "b") is None


def test_many_members_are_read_with_pauses() -> None:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": f"n{n}"}}} for n in range(2000)]
    _, pauses = driven(lambda: parse_hyper_node(hyper_node("s", 1, *members)))
    assert pauses == 4
    _, pauses = driven(lambda: parse_hyper_node(hyper_node("s", 1, *[matching("a")] * 9)))
    assert pauses == 1 + 9
