"""Plugins are merged and expanded over extension points as by the real kube-scheduler."""

import json
import random
from collections.abc import Callable
from typing import Any

from controlplane import ControlPlane
from controlplane.releases import chosen_release
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.policy.defaults import DEFAULT_WEIGHTS, OWN_DEFAULTS
from mooring.policy.imports.left_out import WithLeftOut
from mooring.policy.merge import plugins_by_point
from mooring.policy.points import Point
from mooring.policy.profile import Plugins
from mooring.policy.reading import read
from policies import KUBE_SCHEDULER_ARGS

PROFILES = 60
CHANGED = ["multiPoint", "preFilter", "filter", "preScore", "score", "preBind"]

Uses = list[tuple[str, int]]


class RecordedCatalog:
    """A catalog of plugins, each at the points where kube-scheduler's default profile runs it."""

    def __init__(self, defaults: dict[str, Uses]) -> None:
        self._points = {
            name: frozenset(p for p in Point if name in dict(defaults.get(p, ())))
            for name in DEFAULT_WEIGHTS
        }

    def names(self) -> list[str]:
        return [*self._points]

    def points(self, name: str) -> frozenset[Point] | None:
        return self._points.get(name)

    def args_model(self, name: str) -> Any:
        return KUBE_SCHEDULER_ARGS.get(name)


def random_plugins(dice: random.Random) -> dict[str, Any]:
    """Return random changes of plugins that kube-scheduler accepts."""
    by_point = {
        "preFilter": ["NodeAffinity", "NodePorts", "VolumeZone", "InterPodAffinity"],
        "filter": ["NodeName", "NodePorts", "NodeAffinity", "VolumeZone", "TaintToleration"],
        "preScore": ["TaintToleration", "NodeAffinity", "VolumeBinding"],
        "score": ["TaintToleration", "NodeAffinity", "ImageLocality", "PodTopologySpread"],
        "preBind": ["VolumeBinding"],
    }
    movable = sorted({name for names in by_point.values() for name in names})

    def one_set(names: list[str]) -> dict[str, Any]:
        enabled = dice.sample(names, dice.randint(0, min(3, len(names))))
        disabled = dice.sample([*names, "*"], dice.randint(0, 2))
        return {
            "enabled": [
                {"name": n, **dice.choice([{}, {"weight": dice.randint(0, 9)}])} for n in enabled
            ],
            "disabled": [{"name": n} for n in disabled],
        }

    changed = dice.sample(CHANGED, dice.randint(1, 4))
    plugins = {point: one_set(by_point.get(point, movable)) for point in changed}
    multi = plugins.get("multiPoint", {"enabled": [], "disabled": []})
    if {"name": "*"} in multi["disabled"]:
        multi["enabled"] += [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]
    return plugins


def reported(log: str) -> list[dict[str, Uses]]:
    """Return for each profile the plugins by point that kube-scheduler's log reports."""
    marker = '"the scheduler starts to work with those plugins" Plugins='
    lines = [line.partition(marker)[2] for line in log.splitlines() if marker in line]
    return [
        {
            point[0].lower() + point[1:]: [
                (plugin["Name"], plugin["Weight"]) for plugin in plugins["Enabled"] or ()
            ]
            for point, plugins in json.loads(line).items()
        }
        for line in lines
    ]


def test_kube_scheduler_runs_the_same_plugins_with_the_same_weights(
    fresh_control_plane: Callable[..., ControlPlane],
) -> None:
    dice = random.Random(20260301)  # noqa: S311 - reproducible, not secret
    changes = [{}, *(random_plugins(dice) for _ in range(PROFILES))]
    profiles = [{"schedulerName": f"p{n}", "plugins": c} for n, c in enumerate(changes)]
    cluster = fresh_control_plane(
        components={"kube-scheduler"},
        flags={"kube-scheduler": ["--v=2"]},
        scheduler_config={"profiles": profiles},
    )
    theirs = reported(cluster.logs["kube-scheduler"].read_text())
    assert len(theirs) == len(changes)
    release = chosen_release()
    assert set(Point) - theirs[0].keys() == release.absent_points
    catalog = WithLeftOut(RecordedCatalog(theirs[0]))
    rules = KUBERNETES_RULES[release.minor]
    for change, expected in zip(changes, theirs, strict=True):
        ours = plugins_by_point(read(Plugins, change, ""), catalog, kubernetes=rules)
        for point in Point:
            uses = [(u.name, u.weight) for u in ours[point] if u.name not in OWN_DEFAULTS]
            assert uses == expected.get(point, []), change
