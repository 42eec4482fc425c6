"""`mooring profile check`, `mooring simulate` and the operator say the same about any profile."""

from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.cli.checking import check_files
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Unschedulable
from mooring.handlers.profile_handler import ProfileHandler
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile
from mooring.policy.resolve import ResolvedProfile
from mooring.simulate.inputs import inputs_of
from mooring.simulate.load_profiles import InvalidProfile
from mooring.simulate.manifests import Manifest
from mooring.simulate.simulation import simulate
from policies import profile
from scheduler_states import scheduler_state, silent_pod_enqueuer

Verdict = str | dict[str, Any]
"""All mistakes as one text, or the effective policy."""


class NeverBuilt:
    """Its constructor fails."""

    name = "NeverBuilt"
    depends_on_node_only = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        raise RuntimeError("no licence")

    def pre_enqueue(self, _pod: Pod) -> Unschedulable | None:
        return None


REGISTRY: Final = Registry((*SHIPPED, NeverBuilt), {})
NAMES: Final = st.sampled_from(
    ("NodeName", "ImageLocality", "NodeLabel", "PrioritySort", "NeverBuilt", "NodNam", "*", "")
)
POINTS: Final = st.sampled_from(("multiPoint", "filter", "score", "queueSort", "bind", "permitt"))
ARGS: Final = st.sampled_from(
    (
        ("InterPodAffinity", {"hardPodAffinityWeight": 7}),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}),
        ("NodeAffinity", {"addedAffinity": {"preferred": []}}),
        ("NodeLabel", {"presentLabels": ["a"], "absentLabels": ["a"]}),
        ("DefaultPreemption", dict.fromkeys(
            ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"), 0
        )),
        ("VolumeBinding", {"bindTimeoutSeconds": -1}),
        ("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}}),
        ("NodNam", {}),
    )
)  # fmt: skip


def plugin_sets() -> st.SearchStrategy[dict[str, Any]]:
    enabled = st.fixed_dictionaries(
        {"name": NAMES}, optional={"weight": st.sampled_from((0, 3, -1, "3"))}
    )
    disabled = st.fixed_dictionaries({"name": NAMES})
    return st.fixed_dictionaries(
        {},
        optional={
            "enabled": st.lists(enabled, max_size=2),
            "disabled": st.lists(disabled, max_size=2),
        },
    )


def specs() -> st.SearchStrategy[dict[str, Any]]:
    config = ARGS.map(lambda entry: {"name": entry[0], "args": entry[1]})
    match = st.sampled_from(
        (
            {},
            {"schedulerNames": ["a", "b"], "precedence": 3},
            {"precedence": "high"},
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        )
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "match": match,
            "percentageOfNodesToScore": st.sampled_from((0, 100, 101, None)),
            "plugins": st.dictionaries(POINTS, plugin_sets(), max_size=2),
            "pluginConfig": st.lists(config, max_size=2),
            "preemption": st.sampled_from(({"maxVictims": 1}, {"maxVictims": 0})),
            "unknown": st.just(1),
        },
    )


PROFILES: Final = st.builds(
    lambda name, spec: profile(name, {"uid": "u1", "generation": 1}, **spec),
    st.sampled_from(("packed", "a.b", "Packed")),
    specs(),
)


def checked(raw: dict[str, Any], path: Path) -> Verdict:
    path.write_text(yaml.safe_dump(raw))
    report = check_files([str(path)], REGISTRY)
    assert not report.unreadable
    for valid in report.profiles:
        return shown(valid.loaded.profile, valid.loaded.effective)
    return "; ".join(f"{mistake.path}: {mistake.message}" for mistake in report.mistakes)


def simulated(raw: dict[str, Any]) -> Verdict:
    try:
        new = {**raw, "metadata": {**raw["metadata"], "uid": ""}}
        inputs = inputs_of([Manifest("p.yaml", new)], REGISTRY)
    except InvalidProfile as invalid:
        return "; ".join(map(str, invalid.errors))
    list(simulate(inputs, REGISTRY, seed=0, nodes=1))
    (loaded,) = inputs.profiles
    return shown(loaded.profile, loaded.effective)


def operated(raw: dict[str, Any]) -> Verdict:
    shared = scheduler_state(registry=REGISTRY)
    pod_enqueuer = silent_pod_enqueuer(shared)
    status = ProfileHandler(shared.profiles, pod_enqueuer).applied(raw)
    assert status is not None
    (ready,) = status["conditions"]
    for in_force in shared.profiles.in_force.values():
        assert ready["status"] == "True"
        return shown(in_force.profile, in_force.effective)
    assert ready["status"] == "False"
    return str(ready["message"])


def shown(profile: SchedulingProfile, effective: ResolvedProfile) -> Verdict:
    return effective.policy(profile).model_dump(mode="json")


@given(PROFILES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_check_simulate_and_the_operator_say_the_same_about_a_profile(
    tmp_path: Path, raw: dict[str, Any]
) -> None:
    verdict = operated(raw)
    assert checked(raw, tmp_path / "p.yaml") == verdict
    assert simulated(raw) == verdict
