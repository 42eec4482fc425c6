"""Tests that the reference agrees with the code."""

from pathlib import Path

import click

from mooring.__main__ import main
from website.reference import command_line, custom_resource, custom_resources

ROOT = Path(__file__).parents[3]


def test_every_command_has_a_heading_and_its_options() -> None:
    page = command_line()
    for name in main.list_commands(click.Context(main)):
        assert f"\n## mooring {name}\n" in page
    assert "\n### mooring profile check\n" in page
    assert "--bind-address" in page


def test_every_crd_has_a_page() -> None:
    pages = custom_resources(ROOT / "crds")
    profile = pages["schedulingprofiles.scheduling.mooring.dev"]
    assert profile.startswith("# SchedulingProfile\n\n## scheduling.mooring.dev/v1alpha1\n")
    assert "| `spec.match.schedulerNames` | list of string |" in profile
    assert "`Default`, `Strict`" in profile
    assert "PodGroup" in pages["podgroups.scheduling.x-k8s.io"]


def test_what_markdown_would_read_as_its_own_is_escaped() -> None:
    field = {"type": "string", "description": "a | b <c> [d] *e*", "default": "x"}
    definition = {
        "spec": {
            "group": "g",
            "names": {"kind": "K"},
            "scope": "Cluster",
            "versions": [
                {
                    "name": "v1",
                    "schema": {"openAPIV3Schema": {"properties": {"spec": field}}},
                }
            ],
        }
    }
    row = "| `spec` | string | a &#124; b &lt;c> &#91;d] &#42;e&#42; Default: `x`. |"
    assert row in custom_resource(definition)
