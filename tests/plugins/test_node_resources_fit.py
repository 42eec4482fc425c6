from typing import Any

import pytest

from deciding import Deciding
from device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.plugins.node_resources_fit import NodeResourcesFit
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers, Rejected

GPU = "example.com/gpu"


def resource(name: str, weight: int = 1) -> dict[str, Any]:
    return {"name": name, "weight": weight}


def ratio(*points: tuple[int, int], **fields: Any) -> dict[str, Any]:
    shape = [{"utilization": used, "score": score} for used, score in points]
    return {
        "type": "RequestedToCapacityRatio",
        "requestedToCapacityRatio": {"shape": shape},
        **fields,
    }


def test_a_node_is_out_where_any_request_is_more_than_is_left() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("room", cpu="4"),
        node("full", cpu="4"),
        pod("placed", cpu="3500m", node="full"),
    )
    assert asking.rejections(pod(cpu="1")) == {
        "full": Rejected(("Insufficient cpu",), resolvable=True)
    }


def test_a_request_of_exactly_what_is_left_fits() -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="4"), pod("placed", cpu="3", node="n1"))
    assert asking.rejections(pod(cpu="1")) == {}


def test_every_lacking_resource_is_named() -> None:
    asking = PluginAnswers(
        NodeResourcesFit, node("n1", cpu="1", memory="1Gi", pods=1), pod(node="n1")
    )
    wanted = pod("other", cpu="1", memory="2Gi", requests={GPU: 1})
    assert asking.rejections(wanted) == {
        "n1": Rejected(
            ("Too many pods", "Insufficient memory", f"Insufficient {GPU}"), resolvable=False
        )
    }


def test_eviction_helps_unless_an_empty_node_is_too_small() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("small", cpu="1"),
        node("full", cpu="8"),
        pod("placed", cpu="8", node="full"),
    )
    rejections = asking.rejections(pod(cpu="2"))
    assert rejections is not None
    assert {name: rejection.resolvable for name, rejection in rejections.items()} == {
        "small": False,
        "full": True,
    }


@pytest.mark.parametrize("pods", [2, 3, 4])
def test_requests_beyond_int64_leave_nothing_free(pods: int) -> None:
    """Whoever may create pods may have them name a node, and request what no node has."""
    huge = [pod(f"p{n}", cpu="5P", memory="4Ei", node="n1") for n in range(pods)]
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="8", memory="16Gi"), *huge)
    assert asking.rejections(pod(cpu="1", memory="1Gi")) == {
        "n1": Rejected(("Insufficient cpu", "Insufficient memory"), resolvable=True)
    }
    assert asking.scores(pod(cpu="1", memory="1Gi")) == {"n1": 0}


def test_a_pod_without_requests_needs_only_a_slot() -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="0", memory="0"), node("n2", pods=0))
    assert asking.rejections(pod()) == {"n2": Rejected(("Too many pods",), resolvable=True)}


def test_a_resource_nobody_offers_is_insufficient_everywhere() -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1"))
    assert asking.rejections(pod(requests={GPU: 1})) == {
        "n1": Rejected((f"Insufficient {GPU}",), resolvable=False)
    }


@pytest.mark.parametrize(
    "args", [{"ignoredResources": [GPU]}, {"ignoredResourceGroups": ["example.com"]}]
)
def test_ignored_resources_and_groups_are_others_business(args: dict[str, Any]) -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="1"), **args)
    assert asking.rejections(pod(requests={GPU: 1})) == {}
    assert asking.rejections(pod(cpu="2", requests={GPU: 1})) == {
        "n1": Rejected(("Insufficient cpu",), resolvable=False)
    }


@pytest.mark.parametrize(
    ("args", "resource"),
    [
        ({"ignoredResources": ["cpu"]}, "cpu"),
        ({"ignoredResources": ["hugepages-2Mi"]}, "hugepages-2Mi"),
        ({"ignoredResources": ["example.kubernetes.io/a"]}, "example.kubernetes.io/a"),
        ({"ignoredResourceGroups": ["example.kubernetes.io"]}, "example.kubernetes.io/a"),
    ],
)
def test_resources_of_kubernetes_itself_are_never_ignored(
    args: dict[str, Any], resource: str
) -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="1"), **args)
    assert asking.rejections(pod(requests={resource: 2})) == {
        "n1": Rejected((f"Insufficient {resource}",), resolvable=False)
    }


def test_by_default_the_emptier_node_scores_higher() -> None:
    """The score is the mean of the free percentages of cpu and memory, with the pod."""
    asking = PluginAnswers(
        NodeResourcesFit,
        node("large", cpu="4", memory="4Gi"),
        node("small", cpu="2", memory="8Gi"),
    )
    assert asking.scores(pod(cpu="1", memory="2Gi")) == {"large": 62, "small": 62}
    assert asking.scores(pod(cpu="1", memory="1Gi")) == {"large": 75, "small": (50 + 87) // 2}


def test_most_allocated_prefers_the_fuller_node() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("empty", cpu="4", memory="4Gi"),
        node("used", cpu="4", memory="4Gi"),
        pod("placed", cpu="2", memory="2Gi", node="used"),
        scoringStrategy={"type": "MostAllocated"},
    )
    assert asking.scores(pod(cpu="1", memory="1Gi")) == {"empty": 25, "used": 75}


def test_containers_that_request_nothing_count_a_little_in_scores() -> None:
    """Scores count 100m of 1 core and 200 MiB of 1000 MiB for the container."""
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="1", memory="1000Mi"))
    assert asking.scores(pod()) == {"n1": (90 + 80) // 2}


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ({"type": "MostAllocated"}, 100),
        ({"type": "LeastAllocated"}, 0),
        (ratio((0, 0), (100, 10)), 100),
    ],
)
@pytest.mark.parametrize("bound", ["1Gi", 2**62, 2**63 - 1])
@pytest.mark.parametrize("wanted", ["10Ti", 2**63 - 1])
def test_requests_as_large_as_64_bits_allow_fill_every_node(
    strategy: dict[str, Any], score: int, bound: str | int, wanted: str | int
) -> None:
    strategy = {**strategy, "resources": [resource("memory")]}
    asking = PluginAnswers(
        NodeResourcesFit, node("n1"), pod(memory=bound, node="n1"), scoringStrategy=strategy
    )
    assert asking.scores(pod("large", memory=wanted)) == {"n1": score}


def test_a_node_that_offers_as_much_as_64_bits_allow_is_scored() -> None:
    strategy = {"type": "LeastAllocated", "resources": [resource(GPU)]}
    offering = node("n1", resources={GPU: 2**63 - 1})
    asking = PluginAnswers(NodeResourcesFit, offering, scoringStrategy=strategy)
    assert asking.scores(pod(requests={GPU: 1})) == {"n1": 99}


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ({"type": "LeastAllocated"}, 74),
        ({"type": "MostAllocated"}, 25),
        (ratio((0, 0), (100, 10)), 25),
    ],
)
def test_amounts_over_2_to_the_56_are_scored_exactly(strategy: dict[str, Any], score: int) -> None:
    strategy = {**strategy, "resources": [resource(GPU)]}
    used = pod("other", requests={GPU: 2**60 + 2**55}, node="n1")
    offering = node("n1", resources={GPU: 2**62})
    asking = PluginAnswers(NodeResourcesFit, offering, used, scoringStrategy=strategy)
    assert asking.scores(pod(requests={GPU: 2**50})) == {"n1": score}


def test_from_1_38_on_the_requests_of_a_pod_as_a_whole_are_scored() -> None:
    strategy = {"type": "LeastAllocated", "resources": [resource("cpu")]}
    wanted = pod(cpu="500m", spec={"resources": {"requests": {"cpu": "3"}}})
    for version, score in (("1.37", 87), ("1.38", 25)):
        asking = PluginAnswers(
            NodeResourcesFit, node("n1", cpu="4"), kubernetes=version, scoringStrategy=strategy
        )
        assert asking.scores(wanted) == {"n1": score}


def test_weights_of_the_resources_make_a_weighted_mean_rounded_down() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("n1", cpu="4", memory="4Gi"),
        scoringStrategy={
            "type": "LeastAllocated",
            "resources": [resource("cpu", 3), resource("memory", 1)],
        },
    )
    assert asking.scores(pod(cpu="2", memory="1Gi")) == {"n1": (3 * 50 + 75) // 4}


def test_an_extended_resource_counts_only_for_pods_that_request_it() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("n1", cpu="4", resources={GPU: 4}),
        scoringStrategy={"type": "LeastAllocated", "resources": [resource("cpu"), resource(GPU)]},
    )
    assert asking.scores(pod(cpu="2")) == {"n1": 50}
    assert asking.scores(pod(cpu="2", requests={GPU: 1})) == {"n1": (50 + 75) // 2}


def test_a_node_that_offers_none_of_a_resource_is_scored_by_the_others() -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1", cpu="4", memory="0"))
    assert asking.scores(pod(cpu="1", memory="1Gi")) == {"n1": 75}


@pytest.mark.parametrize(
    ("points", "score"),
    [
        (((0, 0), (100, 10)), 50),
        (((0, 10), (100, 0)), 50),
        (((0, 0), (40, 10), (60, 2)), 60),
        (((70, 3), (80, 9)), 30),
        (((10, 1), (20, 4)), 40),
    ],
)
def test_a_ratio_is_linear_between_its_points_and_flat_outside(
    points: tuple[tuple[int, int], ...], score: int
) -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("n1", cpu="4"),
        scoringStrategy=ratio(*points, resources=[resource("cpu")]),
    )
    assert asking.scores(pod(cpu="2")) == {"n1": score}


def test_resources_a_ratio_scores_0_are_left_out_of_its_mean_which_is_rounded() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        node("n1", cpu="8", memory="8Gi", resources={GPU: 3}),
        scoringStrategy=ratio(
            (0, 0), (100, 10), resources=[resource("cpu"), resource("memory"), resource(GPU)]
        ),
    )
    wanted = pod(cpu="1", memory="0", requests={GPU: 1})
    assert asking.scores(wanted) == {"n1": round((12 + 33) / 2 + 0.01)}


class TestCures:
    SMALL, LARGE = node("n1", cpu="1"), node("n1", cpu="8")

    def test_a_node_with_enough_resources_queues_when_it_is_added_or_grows(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.LARGE)
        assert asking.queueing_hint(pod(cpu="2"), after=self.LARGE)
        assert asking.queueing_hint(pod(cpu="2"), before=self.SMALL, after=self.LARGE)

    def test_a_node_that_is_too_small_does_not_queue(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.SMALL)
        assert not asking.queueing_hint(pod(cpu="2"), after=self.SMALL)

    def test_a_node_that_grew_in_nothing_the_pod_requests_does_not_queue(self) -> None:
        more_memory = node("n1", cpu="8", memory="64Gi")
        asking = PluginAnswers(NodeResourcesFit, more_memory)
        assert not asking.queueing_hint(pod(cpu="2"), before=self.LARGE, after=more_memory)

    def test_a_deleted_pod_queues_if_the_resources_suffice_now(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.LARGE, pod("other", cpu="5", node="n1"))
        assert asking.queueing_hint(pod(cpu="3"), before=pod("gone", cpu="3", node="n1"))
        assert not asking.queueing_hint(pod(cpu="4"), before=pod("gone", cpu="3", node="n1"))

    def test_a_pod_deleted_after_its_node_queues(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.LARGE)
        assert asking.queueing_hint(pod(cpu="3"), before=pod("gone", cpu="3", node="n2"))

    def test_a_pod_that_shrank_queues(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.LARGE, pod("other", cpu="5", node="n1"))
        before, after = pod("other", cpu="8", node="n1"), pod("other", cpu="5", node="n1")
        assert asking.queueing_hint(pod(cpu="3"), before=before, after=after)
        assert not asking.queueing_hint(pod(cpu="3"), before=after, after=after)

    @pytest.mark.parametrize(
        ("before", "after", "queues"),
        [
            (LARGE, SMALL, True),
            (LARGE, node("n1", cpu="3"), False),
            (SMALL, node("n1", cpu="500m"), False),
        ],
    )
    def test_a_nominated_node_that_becomes_too_small_queues(
        self, before: dict[str, Any], after: dict[str, Any], *, queues: bool
    ) -> None:
        waiting, other = pod(cpu="2"), node("n2", cpu="8")
        asking = PluginAnswers(NodeResourcesFit, after, other)
        assert not asking.queueing_hint(waiting, before=before, after=after)
        asking.state.nominate(parse_pod(waiting), "n2")
        assert not asking.queueing_hint(waiting, before=before, after=after)
        asking.state.nominate(parse_pod(waiting), "n1")
        assert bool(asking.queueing_hint(waiting, before=before, after=after)) is queues

    def test_resources_that_preemption_could_complete_queue_a_pod_that_preempts(self) -> None:
        asking = PluginAnswers(NodeResourcesFit, self.LARGE, pod("low", cpu="6", node="n1"))
        gone = pod("gone", cpu="1", node="n1")
        assert asking.queueing_hint(pod(cpu="4", priority=5), before=gone)
        never = pod(cpu="4", priority=5, spec={"preemptionPolicy": "Never"})
        assert not asking.queueing_hint(never, before=gone)


@pytest.mark.parametrize("resources", [63, 64, 65, 200])
def test_a_node_that_lacks_any_number_of_resources_is_rejected_with_every_reason(
    resources: int,
) -> None:
    """With the reason for pod slots, 64 resources need a second word of 64 bits."""
    names = [f"example.com/r{i:03}" for i in range(resources)]
    asking = PluginAnswers(NodeResourcesFit, node("n1"))
    wanted = pod(requests=dict.fromkeys(names, 1))
    reasons = tuple(f"Insufficient {name}" for name in names)
    assert asking.rejections(wanted) == {"n1": Rejected(reasons, resolvable=False)}


def test_a_node_that_has_any_number_of_resources_takes_the_pod() -> None:
    amounts = {f"example.com/r{i:03}": 1 for i in range(200)}
    asking = PluginAnswers(NodeResourcesFit, node("n1", resources=amounts))
    assert asking.rejections(pod(requests=amounts)) == {}


# ---- Resources that classes of devices stand for

GPUS = device_class("gpu", extendedResourceName=GPU)


def test_a_resource_of_a_class_is_left_to_devices_where_the_node_does_not_offer_it() -> None:
    asking = PluginAnswers(
        NodeResourcesFit,
        GPUS,
        node("devices"),
        node("zero", resources={GPU: 0}),
        node("offers", resources={GPU: 2}),
        node("few", resources={GPU: 1}),
        node("full", resources={GPU: 2}),
        pod("placed", requests={GPU: 1}, node="full"),
    )
    lacking = (f"Insufficient {GPU}",)
    assert asking.rejections(pod(requests={GPU: 2})) == {
        "few": Rejected(lacking, resolvable=False),
        "full": Rejected(lacking, resolvable=True),
    }


def test_other_resources_are_still_looked_at_on_nodes_with_devices() -> None:
    asking = PluginAnswers(NodeResourcesFit, GPUS, node("n1", cpu="1"))
    assert asking.rejections(pod(cpu="2", requests={GPU: 1})) == {
        "n1": Rejected(("Insufficient cpu",), resolvable=False)
    }


def test_before_1_36_no_class_stands_for_a_resource() -> None:
    asking = PluginAnswers(NodeResourcesFit, GPUS, node("n1"), kubernetes="1.35")
    assert asking.rejections(pod(requests={GPU: 1})) == {
        "n1": Rejected((f"Insufficient {GPU}",), resolvable=False)
    }
    assert not asking.queueing_hint(pod(requests={GPU: 1}), after=GPUS)


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        (None, GPUS, True),
        (None, device_class("gpu"), False),
        (device_class("gpu"), GPUS, True),
        (GPUS, device_class("gpu", "true", extendedResourceName=GPU), False),
        (GPUS, device_class("gpu"), False),
    ],
)
def test_a_class_helps_when_it_comes_to_stand_for_a_requested_resource(
    before: dict[str, Any] | None, after: dict[str, Any], *, helps: bool
) -> None:
    asking = PluginAnswers(NodeResourcesFit, node("n1"))
    assert asking.queueing_hint(pod(requests={GPU: 1}), before=before, after=after) == helps


def test_a_new_class_helps_pods_that_request_the_resource_of_its_name() -> None:
    wanted = pod(requests={"deviceclass.resource.kubernetes.io/gpu": 1})
    asking = PluginAnswers(NodeResourcesFit, node("n1"))
    assert asking.queueing_hint(wanted, after=device_class("gpu"))
    assert not asking.queueing_hint(wanted, before=device_class("gpu"), after=device_class("gpu"))


def test_a_change_of_a_node_that_may_have_devices_helps() -> None:
    """As in kube-scheduler, any change of such a node gives QUEUE."""
    n1, wanted = node("n1"), pod(requests={GPU: 1})
    assert PluginAnswers(NodeResourcesFit, GPUS, n1).queueing_hint(wanted, before=n1, after=n1)
    assert not PluginAnswers(NodeResourcesFit, n1).queueing_hint(wanted, before=n1, after=n1)


def test_devices_of_the_class_are_what_a_node_offers_for_scores() -> None:
    strategy = {"type": "LeastAllocated", "resources": [resource(GPU)]}
    devices = resource_slice("s1", ["d0", "d1", "d2", "d3"], node="devices")
    used = device_claim(allocation=allocated("d0", node="devices"))
    objects = (GPUS, devices, used, node("devices"), node("none"), node("own", resources={GPU: 4}))
    wanted = pod(requests={GPU: 1})
    asking = PluginAnswers(NodeResourcesFit, *objects, scoringStrategy=strategy)
    assert asking.scores(wanted) == {"devices": 50, "none": 0, "own": 75}
    older = PluginAnswers(NodeResourcesFit, *objects, scoringStrategy=strategy, kubernetes="1.35")
    assert older.scores(wanted) == {"devices": 0, "none": 0, "own": 75}


def test_kept_scores_follow_the_devices() -> None:
    args = {"scoringStrategy": {"type": "LeastAllocated", "resources": [resource(GPU)]}}
    slices = [resource_slice(name, ["d0", "d1", "d2", "d3"], node=name) for name in ("a", "b")]
    deciding = Deciding(
        GPUS,
        node("a"),
        node("b"),
        *slices,
        pluginConfig=[{"name": "NodeResourcesFit", "args": args}],
    )
    wanted = pod(requests={GPU: 1})

    def score(name: str) -> int:
        scores = deciding.decision(wanted).scores
        assert scores is not None
        return scores[name].plugins["NodeResourcesFit"]

    assert (score("a"), score("b")) == (75, 75)
    claim = parse_resource_claim(device_claim(allocation=allocated("d0", "d1", node="a")))
    deciding.state.put(Kind.RESOURCE_CLAIM, claim.key, claim)
    assert (score("a"), score("b")) == (25, 75)
