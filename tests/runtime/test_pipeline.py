"""A profile's plugins, built and sorted by extension point."""

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import Registry
from mooring.framework.verdicts import SKIP, Skip, Unschedulable
from mooring.groups.model.pod_group import GroupFormat
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.pod import Pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import read_profile
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.resolve import resolve
from mooring.runtime.pipeline import Pipeline, build_pipeline
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView
from mooring.testing.builders import api_object, cluster
from mooring.testing.fakes import handle


class Racks(BaseModel):
    """The arguments of RackAware."""

    most: int = 1


class RackAware:
    """A plugin at two extension points that keeps its constructor's arguments."""

    name: ClassVar[str] = "RackAware"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.MAX
    Args = Racks

    def __init__(self, args: Racks, handle: Handle) -> None:
        if args.most < 1:
            raise ValueError("most must be positive")
        self.args = args
        self.handle = handle

    def pre_score(self, _pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> None: ...

    def score(self, _pod: Pod, nodes: NodeView, _state: None) -> IntArray:
        """Return higher scores for later rows."""
        return nodes.rows


def built(**spec: Any) -> Pipeline:
    """Return the pipeline of a profile with this spec; it may name the plugins of this module."""
    registry = Registry((*SHIPPED, RackAware, Licences), {})
    profile = read_profile(api_object("SchedulingProfile", "batch", spec=spec))
    return build_pipeline(profile, resolve(profile.spec, registry), registry, handle(cluster()))


def with_racks(weight: int = 0, **args: Any) -> Pipeline:
    return built(
        plugins={"multiPoint": {"enabled": [{"name": "RackAware", "weight": weight}]}},
        pluginConfig=[{"name": "RackAware", "args": args}],
    )


def test_filters_run_in_kube_schedulers_order() -> None:
    assert [plugin.name for plugin in built().filters] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ]


def test_a_plugin_named_at_a_point_runs_there_before_the_others() -> None:
    pipeline = built(plugins={"filter": {"enabled": [{"name": "NodePorts"}]}})
    assert [plugin.name for plugin in pipeline.filters][:3] == [
        "NodePorts",
        "NodeName",
        "NodeUnschedulable",
    ]
    assert pipeline.pre_filter[0].name != "NodePorts"


def test_a_disabled_plugin_is_not_part_of_the_pipeline() -> None:
    pipeline = built(plugins={"multiPoint": {"disabled": [{"name": "ImageLocality"}]}})
    assert "ImageLocality" not in [scorer.name for scorer in pipeline.scores]
    assert "ImageLocality" not in pipeline.plugins_of_node_only


def test_scores_have_kube_schedulers_weights_unless_the_profile_gives_others() -> None:
    upstream = {scorer.name: scorer.weight for scorer in built().scores}
    assert upstream["TaintToleration"] == 3
    assert upstream["NodeResourcesFit"] == 1
    own = {scorer.name: scorer.weight for scorer in with_racks(weight=7).scores}
    assert own == upstream | {"RackAware": 7}


def test_a_plugin_is_built_once_however_many_points_it_serves() -> None:
    pipeline = with_racks()
    scoring: object = next(s.plugin for s in pipeline.scores if s.name == "RackAware")
    assert scoring is next(p for p in pipeline.pre_score if p.name == "RackAware")


def test_two_pipelines_share_no_plugin() -> None:
    assert with_racks().queue_sort is not with_racks().queue_sort


def test_a_plugin_gets_its_arguments_or_their_defaults() -> None:
    def most(pipeline: Pipeline) -> int:
        (racks,) = (s.plugin for s in pipeline.scores if isinstance(s.plugin, RackAware))
        return racks.args.most

    assert most(with_racks(most=3)) == 3
    assert most(built(plugins={"multiPoint": {"enabled": [{"name": "RackAware"}]}})) == 1


def test_a_constructor_that_fails_is_named_with_its_cause() -> None:
    with pytest.raises(ProfileInvalid) as failure:
        with_racks(most=0)
    text = "plugin RackAware cannot be built: ValueError: most must be positive"
    assert str(failure.value).startswith(f"spec.pluginConfig[0]: {text} (")
    (mistake,) = failure.value.errors
    assert mistake.plugin == "RackAware"
    assert isinstance(failure.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        *(("pod_group_formats", value) for value in ("team", ["team"], 5, [GroupFormat(["team"])])),  # type: ignore[arg-type] # which is the mistake
        ("group_policy", "Strict"),
        ("normalize", "reversed"),
    ],
)
def test_what_a_plugin_says_of_itself_must_be_of_use(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: object
) -> None:
    """Invalid formats of pod groups would stop all pods, also those of other profiles.

    An unknown `normalize` would count as MAX.
    """
    monkeypatch.setattr(RackAware, attribute, value, raising=False)
    with pytest.raises(ProfileInvalid, match=f"its {attribute} must be") as failure:
        with_racks()
    assert [mistake.plugin for mistake in failure.value.errors] == ["RackAware"]


def test_without_a_percentage_all_nodes_are_evaluated_and_zero_is_the_adaptive_rule() -> None:
    assert built().percentage_of_nodes_to_score == 100
    assert built(percentageOfNodesToScore=0).percentage_of_nodes_to_score == 0


def test_plugins_with_queueing_hints_are_found_by_name() -> None:
    queueing_hint = with_racks().enqueue_extensions
    assert queueing_hint["NodeName"].name == "NodeName"
    assert "RackAware" not in queueing_hint


def test_plugins_whose_answers_identical_pods_share_are_known() -> None:
    shared = with_racks().plugins_of_node_only
    assert {"RackAware", "NodeResourcesFit"} <= shared
    assert not {"InterPodAffinity", "NodeName"} & shared


def test_only_quota_rejects_a_pod_for_all_nodes_at_once() -> None:
    assert built().plugins_of_no_node == {"CapacityScheduling"}


class Licences(RackAware):
    """A plugin that may reject a pod for all nodes, or for a node after the decision."""

    name: ClassVar[str] = "Licences"

    def pre_filter(self, _pod: Pod, _cluster: ClusterView) -> Skip:
        return SKIP

    def permit(self, _pod: Pod, _node: str) -> Unschedulable:
        return Unschedulable("no licence is left")


@pytest.mark.parametrize(
    ("points", "rejects_for_all"),
    [(["preFilter"], True), (["preFilter", "permit"], False)],
)
def test_a_plugin_that_may_reject_a_chosen_node_is_not_asked_for_all_nodes_in_advance(
    points: list[str], *, rejects_for_all: bool
) -> None:
    plugins = {point: {"enabled": [{"name": "Licences"}]} for point in points}
    assert ("Licences" in built(plugins=plugins).plugins_of_no_node) is rejects_for_all


def test_plugins_with_a_method_that_saves_work_are_found_by_name() -> None:
    pipeline = built()
    assert set(pipeline.device_reading) == {"NodeResourcesFit", "NodeResourcesBalancedAllocation"}
    assert set(pipeline.resource_filters) == {"NodeResourcesFit"}
    keyed = pipeline.keyed_filters.keys() & pipeline.keyed_scores.keys()
    assert keyed == {"NodeAffinity", "TaintToleration"}


def test_plugins_and_pipeline_have_the_rules_of_the_profiles_version() -> None:
    enabled = {"multiPoint": {"enabled": [{"name": "RackAware"}]}}
    for version in ("1.34", "1.37"):
        pipeline = built(kubernetesVersion=version, plugins=enabled)
        plugin = next(scorer.plugin for scorer in pipeline.scores if scorer.name == "RackAware")
        assert isinstance(plugin, RackAware)
        assert plugin.handle.kubernetes is pipeline.kubernetes is KUBERNETES_RULES[version]
