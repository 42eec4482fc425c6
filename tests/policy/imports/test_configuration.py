from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.framework.registry import Registry
from mooring.model.kubernetes_rules import rules_of_server
from mooring.plugins import SHIPPED
from mooring.policy.imports.configuration import ProcessSettings, import_configuration
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.resolve import resolve
from policies import kube_configuration


def profiles(*entries: dict[str, Any]) -> dict[str, Any]:
    return kube_configuration(profiles=list(entries))


def test_an_empty_file_gives_the_default_scheduler_and_kube_schedulers_settings(
    catalog: Catalog,
) -> None:
    imported = import_configuration(kube_configuration(), catalog)
    (profile,) = imported.profiles
    assert (profile.name, profile.spec) == ("default-scheduler", SchedulingProfileSpec())
    assert imported.notes == ()
    assert imported.settings == ProcessSettings(
        kubeconfig="",
        qps=50.0,
        burst=100,
        leader_elect=True,
        lease_namespace="",
        lease_name="",
        lease_duration=timedelta(seconds=15),
        renew_deadline=timedelta(seconds=10),
        retry_period=timedelta(seconds=2),
        initial_backoff=timedelta(seconds=1),
        max_backoff=timedelta(seconds=10),
    )


def test_settings_are_read_and_zero_means_the_default(catalog: Catalog) -> None:
    document = kube_configuration(
        clientConnection={"qps": 5000, "burst": 0, "kubeconfig": "/etc/kubeconfig"},
        leaderElection={"leaderElect": False, "leaseDuration": "0s", "resourceName": "mine"},
        podInitialBackoffSeconds=2,
        podMaxBackoffSeconds=2,
    )
    settings = import_configuration(document, catalog).settings
    assert (settings.qps, settings.burst) == (5000.0, 100)
    assert settings.kubeconfig == "/etc/kubeconfig"
    assert not settings.leader_elect
    assert settings.lease_duration == timedelta(seconds=15)
    assert (settings.lease_namespace, settings.lease_name) == ("", "mine")
    assert settings.initial_backoff == settings.max_backoff == timedelta(seconds=2)


def test_a_profile_keeps_its_fields(catalog: Catalog) -> None:
    entry = {
        "percentageOfNodesToScore": 7,
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity"}]}},
        "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 3}}],
    }
    imported = import_configuration(profiles({"schedulerName": "web", **entry}), catalog)
    (profile,) = imported.profiles
    assert profile.name == "web"
    assert profile.manifest()["spec"] == entry


def weights(document: dict[str, Any]) -> dict[str, int]:
    """Return the weight of each score plugin in the document's only profile."""
    registry = Registry(SHIPPED, {})
    (profile,) = import_configuration(document, registry).profiles
    found = resolve(profile.spec, registry).plugins[Point.SCORE]
    return {use.name: use.weight for use in found}


def test_v1beta3_is_read_as_v1_and_v1beta2_has_its_own_default_weights() -> None:
    def of(version: str, **plugins: Any) -> dict[str, int]:
        api_version = f"kubescheduler.config.k8s.io/{version}"
        args = {"apiVersion": api_version, "kind": "NodeResourcesFitArgs"}
        entry = {
            "plugins": plugins,
            "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
        }
        return weights(kube_configuration(apiVersion=api_version, profiles=[entry]))

    raised = {"NodeAffinity": 2, "InterPodAffinity": 2, "TaintToleration": 3}
    assert of("v1").items() >= raised.items()
    assert of("v1beta3") == of("v1")
    assert of("v1beta2") == of("v1") | dict.fromkeys(raised, 1)
    given = {
        "enabled": [{"name": "NodeAffinity", "weight": 7}],
        "disabled": [{"name": "InterPodAffinity"}],
    }
    kept = of("v1beta2", score=given)
    assert (kept["NodeAffinity"], kept["TaintToleration"]) == (7, 1)
    assert "InterPodAffinity" not in kept
    alone = {"enabled": [{"name": "NodeAffinity"}], "disabled": [{"name": "*"}]}
    assert of("v1beta2", score=alone) == {"NodeAffinity": 1}


def test_v1beta2_without_profiles_has_its_own_default_weights() -> None:
    document = kube_configuration(apiVersion="kubescheduler.config.k8s.io/v1beta2")
    assert weights(document)["TaintToleration"] == 1


def test_fields_for_all_profiles_apply_to_each_profile(catalog: Catalog) -> None:
    document = kube_configuration(
        percentageOfNodesToScore=30,
        extenders=[{"urlPrefix": "http://a"}],
        profiles=[
            {"schedulerName": "a"},
            {"schedulerName": "b", "percentageOfNodesToScore": 0},
        ],
    )
    first, second = import_configuration(document, catalog).profiles
    assert first.spec.percentage_of_nodes_to_score == 30
    assert second.spec.percentage_of_nodes_to_score == 0
    assert first.spec.extenders == second.spec.extenders != ()


@pytest.mark.parametrize(
    ("scheduler_name", "name"), [("my.own", "my.own"), ("My_Own", "my-own"), ("___", "profile")]
)
def test_a_scheduler_name_that_is_no_object_name_is_kept_in_match(
    scheduler_name: str, name: str, catalog: Catalog
) -> None:
    (profile,) = import_configuration(profiles({"schedulerName": scheduler_name}), catalog).profiles
    assert profile.name == name
    assert profile.scheduler_names == (scheduler_name,)


def test_profiles_never_share_an_object_name(catalog: Catalog) -> None:
    document = profiles({"schedulerName": "a"}, {"schedulerName": "A"}, {"schedulerName": "_a"})
    imported = import_configuration(document, catalog)
    assert [profile.name for profile in imported.profiles] == ["a", "a-x", "a-x-x"]


def test_a_file_written_by_kube_scheduler_is_imported_with_notes(catalog: Catalog) -> None:
    """`--write-config-to` writes defaults, empty sets, and the weight 0 of disabled plugins."""
    plugins = {
        "multiPoint": {
            "enabled": [
                {"name": "NodeName", "weight": 0},
                {"name": "DeferredPodScheduling", "weight": 0},
            ]
        },
        "placementGenerate": {},
        "placementScore": {},
        "score": {"disabled": [{"name": "*", "weight": 0}]},
    }
    written = kube_configuration(
        parallelism=16,
        enableProfiling=True,
        clientConnection={"acceptContentTypes": "", "contentType": "application/x"},
        leaderElection={"resourceLock": "leases"},
        profiles=[{"schedulerName": "a", "plugins": plugins}],
    )
    imported = import_configuration(written, catalog)
    (profile,) = imported.profiles
    assert profile.manifest()["spec"] == {
        "plugins": {
            "multiPoint": {"enabled": [{"name": "NodeName", "weight": 0}]},
            "placementGenerate": {},
            "placementScore": {},
            "score": {"disabled": [{"name": "*"}]},
        }
    }
    assert {note.path: note.message for note in imported.notes} == {
        "parallelism": "is left out: Mooring decides on all nodes at once",
        "enableProfiling": "is left out: Mooring has no profiling endpoint",
        "clientConnection.contentType": "is left out: Mooring speaks JSON",
        "profiles[0]": "DeferredPodScheduling is left out of multiPoint: Mooring does not have "
        "this plugin",
    }


WRITTEN = Path(__file__).parent / "written"
"""What `--write-config-to` of each version writes; `alpha` with the feature gates GenericWorkload,
TopologyAwareWorkloadScheduling and InPlacePodVerticalScalingSchedulerPreemption."""
DEFERRED = "profiles[0]: DeferredPodScheduling is left out of multiPoint: Mooring does not have "


@pytest.mark.parametrize(
    ("version", "left_out"),
    [
        ("1.34", []),
        ("1.35", []),
        ("1.36", []),
        ("1.37", []),
        ("1.37-alpha", [f"{DEFERRED}this plugin"]),
        ("1.38", []),
        ("1.38-alpha", [f"{DEFERRED}this plugin"]),
    ],
)
def test_a_file_that_each_version_writes_gives_its_defaults_and_says_what_is_left_out(
    version: str, left_out: list[str]
) -> None:
    rules = rules_of_server(version)
    document = yaml.safe_load((WRITTEN / f"{version}.yaml").read_text("utf-8"))
    registry = Registry(SHIPPED, {})
    imported = import_configuration(document, registry)
    (profile,) = imported.profiles
    found = resolve(profile.spec, registry, rules)
    usual = resolve(SchedulingProfileSpec(), registry, rules)
    assert found.plugins == usual.plugins
    assert found.args == usual.args
    assert [str(note) for note in imported.notes if note.path.startswith("profiles")] == left_out
    assert [note.path for note in imported.notes[:4]] == [
        "parallelism",
        "enableProfiling",
        "enableContentionProfiling",
        "clientConnection.contentType",
    ]


def test_settings_of_1_38_for_placements_are_left_out_with_notes(catalog: Catalog) -> None:
    plugins = {"placementFeasible": {"enabled": [{"name": "NodeName"}]}}
    entry = {"plugins": plugins, "percentageOfPlacementsToScore": 30}
    document = {**profiles(entry), "percentageOfPlacementsToScore": 20}
    imported = import_configuration(document, catalog)
    assert {note.path: note.message for note in imported.notes} == {
        "percentageOfPlacementsToScore": "is left out: Mooring scores all placements of a pod "
        "group",
        "profiles[0].plugins.placementFeasible": "is left out: a pod group takes a placement "
        "where its minimum of members fits",
        "profiles[0].percentageOfPlacementsToScore": "is left out: Mooring scores all placements "
        "of a pod group",
    }
    assert imported.profiles[0].manifest()["spec"] == {"plugins": {}}


def test_what_runs_for_pod_groups_alone_is_left_out_with_a_note(catalog: Catalog) -> None:
    plugins = {"podGroupPostFilter": {"disabled": [{"name": "*", "weight": 0}]}}
    imported = import_configuration(profiles({"plugins": plugins}), catalog)
    (note,) = imported.notes
    assert str(note) == (
        "profiles[0].plugins.podGroupPostFilter: is left out: pod groups preempt others where "
        "postFilter has DefaultPreemption"
    )
    assert imported.profiles[0].manifest()["spec"] == {"plugins": {}}
