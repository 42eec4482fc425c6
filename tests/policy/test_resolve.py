import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.plugins.inter_pod_affinity import InterPodAffinityArgs
from mooring.plugins.node_resources_fit import NodeResourcesFitArgs
from mooring.policy.merge import Catalog
from mooring.policy.points import Point
from mooring.policy.profile import SchedulingProfileSpec, read_profile
from mooring.policy.profile_errors import PluginLoadError, ProfileInvalid
from mooring.policy.reading import read
from mooring.policy.resolve import ResolvedProfile, load_profile, resolve

Steps = Callable[[Callable[[], object]], int]
Mistakes = Callable[[Callable[[], object]], dict[str, str]]
Manifest = Callable[..., Mapping[str, Any]]


def resolved(catalog: Catalog, **spec: object) -> ResolvedProfile:
    return resolve(read(SchedulingProfileSpec, spec, "spec"), catalog)


def config(name: str, **args: object) -> dict[str, object]:
    return {"pluginConfig": [{"name": name, "args": args}]}


def enabled(point: str, *names: str) -> dict[str, object]:
    return {"plugins": {point: {"enabled": [{"name": name} for name in names]}}}


def disabled(point: str, *names: str) -> dict[str, object]:
    return {"plugins": {point: {"disabled": [{"name": name} for name in names]}}}


def test_every_plugin_that_runs_has_its_arguments(catalog: Catalog) -> None:
    effective = resolved(catalog, **config("InterPodAffinity", hardPodAffinityWeight=30))
    assert effective.args["InterPodAffinity"] == InterPodAffinityArgs(hard_pod_affinity_weight=30)
    assert effective.args["NodeResourcesFit"] == NodeResourcesFitArgs()
    assert "NodeName" not in effective.args


def test_a_profile_has_the_rules_of_the_server_unless_it_names_a_version(catalog: Catalog) -> None:
    spec, server = SchedulingProfileSpec(), KUBERNETES_RULES["1.35"]
    assert resolve(spec, catalog).kubernetes is NEWEST
    assert resolve(spec, catalog, server).kubernetes is server
    pinned = read(SchedulingProfileSpec, {"kubernetesVersion": "1.36"}, "spec")
    assert resolve(pinned, catalog, server).kubernetes.version == "1.36"


@pytest.mark.parametrize(
    ("version", "mistake"),
    [
        ("1.39", 'must be one of 1.34, 1.35, 1.36, 1.37, 1.38, got "1.39"'),
        ("1.33", 'must be one of 1.34, 1.35, 1.36, 1.37, 1.38, got "1.33"'),
        (1.36, "must be one of 1.34, 1.35, 1.36, 1.37, 1.38 in quotes, got 1.36"),
        (1.4, "must be one of 1.34, 1.35, 1.36, 1.37, 1.38 in quotes, got 1.4"),
        (["1.36"], "must be one of 1.34, 1.35, 1.36, 1.37, 1.38 in quotes, got a list"),
    ],
)
def test_a_version_without_rules_is_a_mistake(
    mistakes: Mistakes, version: object, mistake: str
) -> None:
    found = mistakes(lambda: read(SchedulingProfileSpec, {"kubernetesVersion": version}, "spec"))
    assert set(found) == {"spec.kubernetesVersion"}
    assert found["spec.kubernetesVersion"] == mistake


def test_a_plugin_that_does_not_run_has_no_arguments(catalog: Catalog) -> None:
    spec = {**disabled("multiPoint", "InterPodAffinity"), **config("InterPodAffinity")}
    assert "InterPodAffinity" not in resolved(catalog, **spec).args


def test_arguments_may_contain_their_type(catalog: Catalog) -> None:
    typed = config(
        "InterPodAffinity",
        apiVersion="kubescheduler.config.k8s.io/v1",
        kind="InterPodAffinityArgs",
        hardPodAffinityWeight=5,
    )
    args = resolved(catalog, **typed).args["InterPodAffinity"]
    assert args == InterPodAffinityArgs(hard_pod_affinity_weight=5)


def test_resources_that_extenders_manage_replace_ignored_resources(
    catalog: Catalog,
) -> None:
    managed = [
        {"name": "a.com/gpu", "ignoredByScheduler": True},
        {"name": "a.com/nic", "ignoredByScheduler": False},
    ]
    effective = resolved(
        catalog,
        extenders=[{"urlPrefix": "http://a", "managedResources": managed}],
        **config("NodeResourcesFit", ignoredResources=["b.com/fpga"]),
    )
    args = effective.args["NodeResourcesFit"]
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.ignored_resources == ("a.com/gpu",)


@pytest.mark.parametrize(
    "spec",
    [
        disabled("multiPoint", "DeferredPodScheduling", "EBSLimits", "GangScheduling"),
        disabled("score", "NodeName"),
        config("DeferredPodScheduling"),
        config("NodeName"),
    ],
    ids=["names of kube-scheduler", "a point it lacks", "absent plugin", "no arguments"],
)
def test_what_kube_scheduler_accepts_without_effect_is_accepted(
    spec: dict[str, object], catalog: Catalog
) -> None:
    assert resolved(catalog, **spec) == resolved(catalog)


def test_an_unknown_name_far_from_all_others_lists_none_of_them(
    catalog: Catalog, mistakes: Mistakes
) -> None:
    (message,) = mistakes(lambda: resolved(catalog, **enabled("filter", "Zebra"))).values()
    assert message == 'unknown plugin "Zebra"; no package that announces it is installed'


def test_every_mistake_is_reported_whatever_section_it_is_in(
    catalog: Catalog, mistakes: Mistakes, manifest: Manifest
) -> None:
    document = manifest(
        "a",
        percentageOfNodesToScore=101,
        pluggins={},
        match={"precedence": "high"},
        pluginConfig=[
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}},
            {"name": "Nothing"},
        ],
        **enabled("score", "NodeName"),
        extenders=[{"urlPrefix": "x"}],
    )
    assert {*mistakes(lambda: load_profile(document, catalog))} == {
        "spec.percentageOfNodesToScore",
        "spec.pluggins",
        "spec.match.precedence",
        "spec.pluginConfig[0].args.hardPodAffinityWeight",
        "spec.pluginConfig[1].name",
        "spec.plugins.score.enabled[0].name",
        "spec.extenders[0].urlPrefix",
    }


def test_a_schema_mistake_hides_no_wrong_plugin_name(
    catalog: Catalog, mistakes: Mistakes, manifest: Manifest
) -> None:
    document = manifest(
        "a",
        plugins={
            "filter": {
                "enabled": [{"weight": 3}, "NodeName", {"name": "*"}, {"name": "NodePort"}],
                "disabled": "NodeName",
            },
            "score": {"enabled": [{"name": "Zebra", "weight": -1}]},
            "permitt": {"enabled": [{"name": "NodeName"}]},
        },
        pluginConfig=[
            {"args": {}},
            {"name": "Nothing", "args": 3},
            {"name": "NodeName", "args": {"strict": True}},
        ],
    )
    assert [*mistakes(lambda: load_profile(document, catalog))] == [
        "spec.plugins.filter.enabled[0].name",
        "spec.plugins.filter.enabled[1]",
        "spec.plugins.filter.enabled[2].name",
        "spec.plugins.filter.disabled",
        "spec.plugins.score.enabled[0].weight",
        "spec.plugins.permitt",
        "spec.pluginConfig[0].name",
        "spec.pluginConfig[1].args",
        "spec.plugins.filter.enabled[3].name",
        "spec.plugins.score.enabled[0].name",
        "spec.pluginConfig[1].name",
        "spec.pluginConfig[2].args",
    ]


def test_a_plugin_that_cannot_be_imported_hides_no_other_mistake_and_is_named_once(
    catalog: Catalog,
) -> None:
    class WithBroken:
        def names(self) -> Iterable[str]:
            return (*catalog.names(), "Broken")

        def points(self, name: str) -> frozenset[Point] | None:
            if name == "Broken":
                raise PluginLoadError("plugin Broken cannot be imported")
            return catalog.points(name)

        def args_model(self, name: str) -> type[BaseModel] | None:
            return catalog.args_model(name)

    spec = read(
        SchedulingProfileSpec,
        {
            **enabled("multiPoint", "Broken", "NodeNam"),
            **config("Broken", rack="r"),
            "percentageOfNodesToScore": 5,
        },
        "spec",
    )
    with pytest.raises(ProfileInvalid) as caught:
        resolve(spec, WithBroken())
    assert [(error.path, error.plugin) for error in caught.value.errors] == [
        ("spec.plugins.multiPoint.enabled[0].name", "Broken"),
        ("spec.plugins.multiPoint.enabled[1].name", ""),
    ]


class Undefined(BaseModel):
    """Arguments with an annotation whose type is not imported."""

    racks: "list[Rack]" = []  # type: ignore[name-defined]  # noqa: F821 - that is the mistake


class Exiting(BaseModel):
    """Arguments whose validator calls `sys.exit`."""

    racks: dict[str, int] = {}

    @model_validator(mode="after")
    def _check(self) -> "Exiting":
        sys.exit(f"{self.racks} has no rack")


@pytest.mark.parametrize("model", [Undefined, Exiting])
@pytest.mark.parametrize(
    ("args", "path"),
    [(config("RackAware"), "spec.pluginConfig[0].args"), ({}, "spec.pluginConfig")],
)
def test_a_plugin_that_fails_to_read_its_arguments_is_a_mistake_of_the_profile(
    catalog: Catalog, model: type[BaseModel], args: dict[str, object], path: str
) -> None:
    class WithModel:
        names = staticmethod(catalog.names)
        points = staticmethod(catalog.points)

        def args_model(self, name: str) -> type[BaseModel] | None:
            return model if name == "RackAware" else catalog.args_model(name)

    with pytest.raises(ProfileInvalid) as caught:
        resolved(WithModel(), **enabled("filter", "RackAware"), **args)
    (mistake,) = caught.value.errors
    assert (mistake.path, mistake.plugin) == (path, "RackAware")
    assert mistake.message.startswith("plugin RackAware cannot read its arguments: ")


@pytest.mark.parametrize(
    "spec",
    [
        {"plugins": {"multiPoint": {"disabled": ["PrioritySort"], "enabled": []}}},
        {"plugins": {"queueSort": {"enabled": [{"name": "PrioritySort", "weight": "1"}]}}},
        {**enabled("filter", "RackAware"), "pluginConfig": [{"nam": "RackAware"}]},
        {**enabled("filter", "RackAware"), "pluginConfig": [{"name": "RackAware", "args": 1}]},
        {**enabled("filter", "RackAware"), "pluginConfig": {"name": "RackAware"}},
        {"pluginConfig": [{"name": "NodeName", "args": [1]}]},
    ],
)
def test_what_only_follows_from_a_schema_mistake_is_not_reported(
    spec: dict[str, object], catalog: Catalog, mistakes: Mistakes, manifest: Manifest
) -> None:
    with pytest.raises(ProfileInvalid) as unreadable:
        read_profile(manifest("a", **spec))
    found = mistakes(lambda: load_profile(manifest("a", **spec), catalog))
    assert [*found] == [error.path for error in unreadable.value.errors]


@pytest.mark.parametrize("spec", [3, [], "text"])
def test_a_spec_that_is_no_object_is_one_mistake(
    spec: object, catalog: Catalog, mistakes: Mistakes, manifest: Manifest
) -> None:
    document = {**manifest("a"), "spec": spec}
    assert [*mistakes(lambda: load_profile(document, catalog))] == ["spec"]


def test_ten_times_as_many_schema_mistakes_take_ten_times_as_many_steps(
    steps: Steps, mistakes: Mistakes, catalog: Catalog, manifest: Manifest
) -> None:
    """Each entry has two mistakes: the unknown field `wight`, and a plugin that cannot score."""

    def loading(number: int) -> int:
        given = [{"name": "NodeName", "wight": 1}] * number
        document = manifest(plugins={"score": {"enabled": given}})
        return steps(lambda: mistakes(lambda: load_profile(document, catalog)))

    assert loading(500) < 11 * loading(50)


def test_a_loaded_profile_has_its_effective_plugins(catalog: Catalog, manifest: Manifest) -> None:
    profile, effective = load_profile(manifest("web", percentageOfNodesToScore=0), catalog)
    policy = effective.policy(profile)
    assert policy.scheduler_names == ("web",)
    assert policy.percentage_of_nodes_to_score == 0
    assert Point.PERMIT not in policy.plugins
    (sorter,) = policy.plugins[Point.QUEUE_SORT]
    assert (sorter.name, sorter.weight) == ("PrioritySort", None)
    assert policy.plugins[Point.SCORE][0].weight == 3


def test_a_loaded_profile_has_its_extenders_in_the_order_of_calls_without_secrets(
    catalog: Catalog, manifest: Manifest
) -> None:
    first = {
        "urlPrefix": "https://me:secret@a.example/x?token=secret",
        "filterVerb": "f",
        "prioritizeVerb": "p",
        "weight": 2,
        "ignorable": True,
        "tlsConfig": {"certData": "c2VjcmV0", "keyData": "c2VjcmV0"},
        "managedResources": [{"name": "a.com/x", "ignoredByScheduler": True}],
    }
    second = {"urlPrefix": "http://b", "bindVerb": "b", "weight": 3, "httpTimeout": "90s"}
    profile, effective = load_profile(manifest("web", extenders=[first, second]), catalog)
    shown = effective.policy(profile).model_dump(mode="json", by_alias=True, exclude_none=True)
    no = {"nodeCacheCapable": False, "ignorable": False, "managedResources": []}
    assert shown["extenders"] == [
        {"urlPrefix": "http://b", "bindVerb": "b", "httpTimeout": "1m30s", **no},
        {
            **no,
            "urlPrefix": "https://a.example/x",
            "filterVerb": "f",
            "prioritizeVerb": "p",
            "weight": 2,
            "httpTimeout": "5s",
            "ignorable": True,
            "managedResources": ["a.com/x"],
        },
    ]
    plain, effective = load_profile(manifest("web"), catalog)
    assert effective.policy(plain).extenders is None


def test_the_default_percentage_is_all_nodes(catalog: Catalog, manifest: Manifest) -> None:
    profile, effective = load_profile(manifest("web"), catalog)
    assert effective.policy(profile).percentage_of_nodes_to_score == 100
