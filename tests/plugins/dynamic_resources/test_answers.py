import numpy as np
import pytest

from dra.families import FAMILIES, drawn
from dra.in_cluster import InCluster
from dra.objects import (
    Case,
    Object,
    allocated_claim,
    attributes,
    case,
    claim,
    consumption,
    counter_set,
    device,
    device_class,
    exactly,
    node,
    on_node,
    renumbered,
    request,
    resource_slice,
    result,
)
from dra.oracle import VERSIONS
from mooring.cel.device_selector import CompileError
from mooring.framework.evaluations import StillEvaluating
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.answers import Answer
from mooring.plugins.dynamic_resources.selectors import Selector, Selectors

GPU = "gpu.example.com"


def shape(answer: Answer) -> object:
    """Return what is the same on all nodes that are alike."""
    if isinstance(answer, AllocationError):
        return answer.text
    if answer is None:
        return None
    return [[(each.request, each.consumed) for each in one.results] for one in answer]


@pytest.mark.parametrize("minor", VERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_patterns_give_the_answer_of_each_node(family: str, minor: str) -> None:
    for given in drawn(25, "patterns", [family]):
        asked = InCluster(given, minor)
        try:
            expected = asked.by_node(given["claims"])
        except AllocationError as error:
            with pytest.raises(AllocationError) as caught:
                asked.by_pattern(given["claims"])
            assert caught.value.text == error.text, given["id"]  # noqa: PT017 # of both ways
            continue
        found = asked.by_pattern(given["claims"])
        for row, answer in enumerate(expected):
            assert shape(found.of(row)) == shape(answer), given["id"]
            assert found.fits[row] == isinstance(answer, list)


@pytest.mark.parametrize("minor", VERSIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_search_in_slices_gives_the_same_answers(family: str, minor: str) -> None:
    for given in drawn(6, "slices", [family]):
        asked = InCluster(given, minor, most_per_decision=1)
        try:
            expected = asked.by_node(given["claims"])
        except AllocationError as error:
            with pytest.raises(AllocationError) as caught:
                asked.in_slices(given["claims"])
            assert caught.value.text == error.text, given["id"]  # noqa: PT017 # of both ways
            continue
        found, _ = asked.in_slices(given["claims"])
        for row, answer in enumerate(expected):
            assert shape(found.of(row)) == shape(answer), given["id"]
            repeated = asked.repeated(given["claims"], row)
            assert repeated == (answer if isinstance(answer, list) else None), given["id"]


IMPOSSIBLE = claim(
    "c",
    [request("a", exactly("gpu")), request("b", exactly("gpu", 2))],
    [{"requests": ["a", "b"], "matchAttribute": f"{GPU}/numa"}],
)


def test_an_attempt_goes_on_where_the_one_before_has_ended() -> None:
    asked = InCluster(fleet_of(20), most_per_decision=1)
    names = claim("c", [request("r", exactly("gpu", 1, f'device.attributes["{GPU}"].uuid == ""'))])
    found, decisions = asked.in_slices([names])
    assert not found.fits.any()
    assert 20 < decisions <= 12 * 20  # few for each node
    assert asked.in_slices([names])[1] == 1


def test_slices_that_were_all_written_anew_are_compared_in_slices() -> None:
    given = fleet_of(20)
    asked = InCluster(given, most_per_decision=1)
    found, _ = asked.in_slices([ONE])
    assert asked.in_slices([ONE])[1] == 1
    for raw in given["slices"]:
        asked.delete(Kind.RESOURCE_SLICE, raw)
        asked.put(Kind.RESOURCE_SLICE, raw)
    again, decisions = asked.in_slices([ONE])
    assert decisions >= 20
    assert again.fits.tolist() == found.fits.tolist()


def test_claims_that_ask_the_same_go_on_with_each_others_search() -> None:
    asked = InCluster(fleet_of(20), most_per_decision=1)
    other = {**IMPOSSIBLE, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    ended = 0
    for number in range(100):
        asked.evaluations.begin_decision()
        try:
            found = asked.by_pattern([(IMPOSSIBLE, other)[number % 2]])
        except StillEvaluating:
            ended += 1
            continue
        assert not found.fits.any()
        break
    assert 0 < ended < 99


def test_what_is_wrong_is_said_of_the_claims_that_are_asked_about() -> None:
    asked = InCluster(fleet_of(2), most_per_decision=1)
    fails = f'device.attributes["{GPU}"].uuid != "n0-0" && device.attributes["{GPU}"].none == 1'
    mine = claim("c", [request("r", exactly("gpu", 3, fails))])
    other = {**mine, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    asked.evaluations.begin_decision()
    with pytest.raises(StillEvaluating):
        asked.by_pattern([mine])
    with pytest.raises(AllocationError) as caught:
        asked.in_slices([other])
    assert caught.value.text.startswith("claim elsewhere/other: selector #0")


def test_answers_are_bounded_in_bytes_but_for_those_that_are_needed_now() -> None:
    asked = InCluster(fleet_of(20), most_bytes=1)
    asked.by_pattern([ONE])
    first = asked.bytes_of_answers
    for row in range(20):
        asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{row}", [result(GPU, f"n{row}", "d0")]))
        assert asked.by_pattern([ONE]).fits.all()
        asked.by_pattern([BOTH])
    assert asked.bytes_of_answers < 1.5 * first
    assert len(asked.by_pattern([ONE]).by_pattern()[0]) == 1


def fleet_of(count: int, *allocated: Object) -> Case:
    """Return nodes of two devices each, which differ by their UUIDs only."""
    names = [f"n{index}" for index in range(count)]
    slices = [
        resource_slice(
            name,
            on_node(name),
            [device(f"d{i}", attributes(uuid=f"{name}-{i}", numa=i)) for i in range(2)],
            pool=name,
        )
        for name in names
    ]
    classes = [device_class("gpu", f'device.driver == "{GPU}"')]
    return case([node(name) for name in names], slices, classes, [], allocated)


ONE = claim("c", [request("r", exactly("gpu"))])
BOTH = claim("c", [request("r", exactly("gpu", 2))])


def test_nodes_that_are_alike_are_searched_once() -> None:
    asked = InCluster(fleet_of(50, allocated_claim("t", [result(GPU, "n7", "d0")])))
    found = asked.by_pattern([BOTH])
    assert len(found.by_pattern()[0]) == 2
    assert np.flatnonzero(~found.fits).tolist() == [7]
    assert asked.searches == 1


def test_a_node_that_is_alike_repeats_the_solution_without_asking_selectors() -> None:
    def not_asked(expression: str) -> Selector | CompileError:
        raise AssertionError(expression)

    asked, selectors = InCluster(fleet_of(3)), Selectors(not_asked, KUBERNETES_RULES["1.37"])
    allocations = asked.repeated([BOTH], 2, selectors)
    assert allocations == asked.by_node([BOTH])[2]


def test_a_device_that_was_taken_since_the_answer_is_not_repeated() -> None:
    asked = InCluster(fleet_of(2))
    first = asked.repeated([ONE], 1)
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(GPU, "n1", "d0")]))
    second = asked.repeated([ONE], 1)
    assert first is not None
    assert second is not None
    devices = [each.results[0].device.device for each in (*first, *second)]
    assert devices == ["d0", "d1"]
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("u", [result(GPU, "n1", "d1")]))
    assert asked.repeated([ONE], 1) is None


def test_answers_are_remembered_for_claims_that_ask_the_same() -> None:
    asked = InCluster(fleet_of(5))
    asked.by_pattern([ONE])
    other = {**ONE, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    assert asked.by_pattern([other]).fits.all()
    assert asked.searches == 1


def test_another_class_of_the_same_name_is_asked_anew() -> None:
    asked = InCluster(fleet_of(5))
    assert asked.by_pattern([ONE]).fits.all()
    asked.put(Kind.DEVICE_CLASS, device_class("gpu", "false"))
    assert not asked.by_pattern([ONE]).fits.any()


def test_attributes_that_are_read_make_nodes_different() -> None:
    asked = InCluster(fleet_of(5))
    mine = claim(
        "c", [request("r", exactly("gpu", 1, f'device.attributes["{GPU}"].uuid == "n3-1"'))]
    )
    found = asked.by_pattern([mine])
    assert np.flatnonzero(found.fits).tolist() == [3]


def test_devices_in_use_on_another_node_leave_fewer_counters_of_their_pool() -> None:
    slices = [
        resource_slice(
            name, on_node(name), [device(name, consumesCounters=[consumption("set", c="2")])]
        )
        for name in ("n0", "n1")
    ]
    slices.append(resource_slice("c", on_node("n0"), counters=[counter_set("set", c="3")]))
    classes = [device_class("gpu")]
    asked = InCluster(case([node("n0"), node("n1")], renumbered(slices), classes, []))
    assert asked.by_pattern([ONE]).fits.all()
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(GPU, "pool", "n1")]))
    assert not asked.by_pattern([ONE]).fits.any()


def test_rows_without_a_node_get_nothing() -> None:
    asked = InCluster(fleet_of(2))
    asked.delete(Kind.NODE, node("n0"))
    assert asked.by_pattern([ONE]).fits.tolist() == [False, True]
