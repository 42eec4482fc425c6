from collections.abc import Iterator

import numpy as np
import pytest

from conformance.scenes.draw import Draw
from dra.families import FAMILIES, drawn
from dra.in_cluster import KINDS, InCluster
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
    selected_by,
)
from dra.oracle import VERSIONS
from mooring.cel.cel_errors import CompileError
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.cel_selectors import Selector, Selectors
from mooring.claims.plugin.equivalence import Result
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES

GPU = "gpu.example.com"

each_version = pytest.mark.parametrize(
    "minor", [*(pytest.param(old, marks=pytest.mark.deep) for old in VERSIONS[:-1]), VERSIONS[-1]]
)


def shape(answer: Result) -> object:
    """Return the parts of the result that are equal on all nodes of a class."""
    if isinstance(answer, AllocationError):
        return answer.text
    if answer is None:
        return None
    return [[(each.request, each.consumed) for each in one.results] for one in answer]


@each_version
@pytest.mark.parametrize("family", FAMILIES)
def test_classes_give_the_result_of_each_node(family: str, minor: str) -> None:
    for given in drawn(25, "classes", [family]):
        asked = InCluster(given, minor)
        try:
            expected = asked.by_node(given["claims"])
        except AllocationError as error:
            with pytest.raises(AllocationError) as caught:
                asked.by_class(given["claims"])
            assert caught.value.text == error.text, given["id"]  # noqa: PT017 # of both ways
            continue
        found = asked.by_class(given["claims"])
        for row, answer in enumerate(expected):
            assert shape(found.of(row)) == shape(answer), given["id"]
            assert found.fits[row] == isinstance(answer, list)


@each_version
@pytest.mark.parametrize("family", FAMILIES)
def test_a_search_in_attempts_gives_the_same_answers(family: str, minor: str) -> None:
    for given in drawn(6, "slices", [family]):
        asked = InCluster(given, minor, most_per_attempt=1)
        try:
            expected = asked.by_node(given["claims"])
        except AllocationError as error:
            with pytest.raises(AllocationError) as caught:
                asked.in_attempts(given["claims"])
            assert caught.value.text == error.text, given["id"]  # noqa: PT017 # of both ways
            continue
        found, _ = asked.in_attempts(given["claims"])
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
    asked = InCluster(fleet_of(20), most_per_attempt=1_000)
    names = claim("c", [request("r", exactly("gpu", 1, f'device.attributes["{GPU}"].uuid == ""'))])
    found, decisions = asked.in_attempts([names])
    assert not found.fits.any()
    assert 3 < decisions <= 20
    assert asked.in_attempts([names])[1] == 1


def test_slices_that_were_all_written_anew_are_compared_in_attempts() -> None:
    given = fleet_of(20)
    asked = InCluster(given, most_per_attempt=1)
    found, _ = asked.in_attempts([ONE])
    assert asked.in_attempts([ONE])[1] == 1
    for raw in given["slices"]:
        asked.delete(Kind.RESOURCE_SLICE, raw)
        asked.put(Kind.RESOURCE_SLICE, raw)
    again, decisions = asked.in_attempts([ONE])
    assert decisions >= 20
    assert again.fits.tolist() == found.fits.tolist()


def test_claims_that_ask_the_same_go_on_with_each_others_search() -> None:
    asked = InCluster(fleet_of(20), most_per_attempt=1_000)
    other = {**IMPOSSIBLE, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    ended = 0
    for number in range(100):
        asked.evaluations.begin_attempt()
        try:
            found = asked.by_class([(IMPOSSIBLE, other)[number % 2]])
        except PluginFailed:
            ended += 1
            continue
        assert not found.fits.any()
        break
    assert 0 < ended < 99


def test_what_is_wrong_is_said_of_the_claims_that_are_asked_about() -> None:
    asked = InCluster(fleet_of(2), most_per_attempt=1)
    fails = f'device.attributes["{GPU}"].uuid != "n0-0" && device.attributes["{GPU}"].none == 1'
    mine = claim("c", [request("r", exactly("gpu", 3, fails))])
    other = {**mine, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    asked.evaluations.begin_attempt()
    with pytest.raises(PluginFailed):
        asked.by_class([mine])
    with pytest.raises(AllocationError) as caught:
        asked.in_attempts([other])
    assert caught.value.text.startswith("claim elsewhere/other: selector #0")


def test_answers_are_bounded_in_bytes_but_for_those_that_are_needed_now() -> None:
    asked = InCluster(fleet_of(20), most_bytes=1)
    asked.by_class([ONE])
    first = asked.nodes.bytes
    for row in range(20):
        asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{row}", [result(GPU, f"n{row}", "d0")]))
        assert asked.by_class([ONE]).fits.all()
        asked.by_class([BOTH])
    assert asked.nodes.bytes < 1.5 * first
    assert len(asked.by_class([ONE]).by_class()[0]) == 1


def fleet_of(count: int, *allocated: Object) -> Case:
    """Return a case of `count` nodes with two devices each; the nodes differ only in UUIDs."""
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
    found = asked.by_class([BOTH])
    assert len(found.by_class()[0]) == 2
    assert np.flatnonzero(~found.fits).tolist() == [7]
    assert asked.nodes.searches == 1


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
    asked.by_class([ONE])
    other = {**ONE, "metadata": {"name": "other", "namespace": "elsewhere", "uid": "u"}}
    assert asked.by_class([other]).fits.all()
    assert asked.nodes.searches == 1


def test_another_class_of_the_same_name_is_asked_anew() -> None:
    asked = InCluster(fleet_of(5))
    assert asked.by_class([ONE]).fits.all()
    asked.put(Kind.DEVICE_CLASS, device_class("gpu", "false"))
    assert not asked.by_class([ONE]).fits.any()


def test_attributes_that_are_read_make_nodes_different() -> None:
    asked = InCluster(fleet_of(5))
    mine = claim(
        "c", [request("r", exactly("gpu", 1, f'device.attributes["{GPU}"].uuid == "n3-1"'))]
    )
    found = asked.by_class([mine])
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
    assert asked.by_class([ONE]).fits.all()
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(GPU, "pool", "n1")]))
    assert not asked.by_class([ONE]).fits.any()


def test_rows_without_a_node_get_nothing() -> None:
    asked = InCluster(fleet_of(2))
    asked.delete(Kind.NODE, node("n0"))
    assert asked.by_class([ONE]).fits.tolist() == [False, True]


STEPS = 40
CHANGING = (
    "counts",
    "generations",
    "counters",
    "consumable_capacity",
    "shared_partitions",
    "places",
    "invalid_pools",
    "taints",
)


def changes(draw: Draw, given: Case) -> Iterator[tuple[Kind, Object, bool]]:
    """Yield random changes: kind, object, and True to store the object or False to delete it."""
    listed = [(kind, raw) for field, kind in KINDS.items() for raw in given[field]]
    for _ in range(STEPS):
        kind, raw = draw.choice(listed)
        if kind is Kind.NODE and draw.chance(0.5):
            labels = {**raw["metadata"]["labels"], "zone": draw.choice("ab")}
            raw = {**raw, "metadata": {**raw["metadata"], "labels": labels}}
        if kind is Kind.RESOURCE_SLICE and draw.chance(0.3):
            pool = {**raw["spec"]["pool"], "generation": draw.randint(1, 3)}
            raw = {**raw, "spec": {**raw["spec"], "pool": pool}}
        yield kind, raw, draw.chance(0.7)


def shapes(answers: list[Result]) -> list[object]:
    return [
        [[each.request for each in one.results] for one in answer]
        if isinstance(answer, list)
        else answer and answer.text
        for answer in answers
    ]


@each_version
@pytest.mark.parametrize("family", CHANGING)
def test_classes_follow_every_change(family: str, minor: str) -> None:
    follow_changes(family, minor)


def follow_changes(family: str, minor: str, most: int | None = None, **bounds: int) -> None:
    for number in range(4):
        draw = Draw(f"changes/{family}/{number}")
        given = FAMILIES[family](draw)
        asked = InCluster(None, minor, most, **bounds)
        for raw in given["classes"]:
            asked.put(Kind.DEVICE_CLASS, raw)
        for kind, raw, stays in changes(draw, given):
            if stays:
                asked.put(kind, raw)
            elif kind is not Kind.DEVICE_CLASS:
                asked.delete(kind, raw)
            try:
                expected = shapes(asked.by_node(given["claims"]))
            except AllocationError:
                with pytest.raises(AllocationError):
                    asked.in_attempts(given["claims"])
                continue
            found, _ = asked.in_attempts(given["claims"])
            assert shapes([found.of(row) for row in range(len(expected))]) == expected


@pytest.mark.parametrize("family", CHANGING)
def test_classes_that_are_made_in_attempts_follow_every_change(family: str) -> None:
    follow_changes(family, "1.37", most=1)


def test_numbers_begin_anew_when_too_much_is_remembered() -> None:
    follow_changes("counts", "1.37", most_bytes=1)


def test_what_the_nodes_need_is_kept_however_much_it_is() -> None:
    asked = InCluster(FAMILIES["counts"](Draw("needed")), most_per_attempt=1, most_bytes=1)
    claims = [claim("c", [request("r", exactly("gpu"))])]
    asked.put(Kind.DEVICE_CLASS, device_class("gpu"))
    asked.in_attempts(claims)
    assert asked.in_attempts(claims)[1] == 1


NIC = "nic.example.com"
OF_GPU = f'device.driver == "{GPU}" && device.attributes["{GPU}"]'
IN_ZONE = selected_by("zone", "a")
WANTED = (
    claim("c", [request("r", exactly("any", 2))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.model == "b"'))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid < "n3"'))]),
    claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid == "n3-{GPU}-01"'))]),
)
"""Claims that read nothing, what is common to devices, what is individual, and compare that."""


def like_nodes(draw: Draw, names: list[str]) -> Iterator[Object]:
    """Yield random slices for these nodes; most differ only in UUIDs and names."""
    for name in names:
        for driver in draw.some([GPU, NIC], 1, 2):
            parts = 1 + draw.chance(0.3)
            model, pool = draw.choice("ab"), draw.choice([name, "pool-of-" + name])
            for part in range(parts):
                listed = [
                    device(
                        f"d{part}{i}", attributes(uuid=f"{name}-{driver}-{part}{i}", model=model)
                    )
                    for i in range(2)
                ]
                yield resource_slice(
                    f"{draw.choice('xy')}-{name}-{driver}-{part}",
                    on_node(name),
                    listed,
                    driver=driver,
                    pool=pool,
                    generation=draw.choice([1, 1, 1, 2]),
                    count=1 if pool == name else 2,
                )
        if draw.chance(0.2):
            listed = [device(f"d0{i}", attributes(uuid=f"x{i}", model="a")) for i in range(3)]
            pool, where = draw.choice(["m", "n3"]), draw.choice([{"allNodes": True}, IN_ZONE])
            yield resource_slice("shared", where, listed, driver=NIC, pool=pool)


@pytest.mark.deep
@pytest.mark.parametrize("number", range(24))
def test_nodes_that_are_alike_have_the_answers_of_each(number: int) -> None:
    draw, names = Draw(f"alike/{number}"), [f"n{index}" for index in range(6)]
    nodes = [node(each, zone=draw.choice("ab")) for each in names]
    asked = InCluster(case(nodes, [], [device_class("any")], []))
    for raw in like_nodes(draw, names * 3):  # the later ones take the place of earlier ones
        asked.put(Kind.RESOURCE_SLICE, raw)
        pool = raw["spec"]["pool"]["name"]
        held = result(raw["spec"]["driver"], pool, draw.choice(["d00", "d01"]))
        if draw.chance(0.4):
            asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{draw.randint(0, 3)}", [held]))
        for wanted in WANTED:
            expected = shapes(asked.by_node([wanted]))
            found = asked.by_class([wanted])
            assert shapes([found.of(row) for row in range(len(expected))]) == expected


def many_like_nodes(count: int) -> InCluster:
    names = [f"n{index:03}" for index in range(count)]
    asked = InCluster(
        case([node(each) for each in names], [], [device_class("any")], []), most_per_attempt=1_000
    )
    for name in names:
        asked.put(Kind.RESOURCE_SLICE, like_slice(name))
    return asked


def like_slice(name: str, model: str = "a") -> Object:
    listed = [device(f"d{i}", attributes(uuid=f"{name}-{i}", model=model)) for i in range(8)]
    return resource_slice(f"s-{name}", on_node(name), listed, pool=name)


def test_a_changed_slice_costs_only_the_nodes_of_its_pool() -> None:
    asked = many_like_nodes(200)
    _, decisions = asked.in_attempts([WANTED[1]])
    assert 10 < decisions < 60  # two to five rows in each, and a hundredth of that to look at each
    for model in "ba":
        asked.put(Kind.RESOURCE_SLICE, like_slice("n007", model))
        found, decisions = asked.in_attempts([WANTED[1]])
        assert decisions < 10
        assert found.fits.tolist() == [row == 7 and model == "b" for row in range(200)]


def test_a_selector_that_compares_uuids_makes_only_the_node_different_that_has_one() -> None:
    asked = many_like_nodes(50)
    wanted = claim("c", [request("r", exactly("any", 1, f'{OF_GPU}.uuid == "n007-3"'))])
    found, _ = asked.in_attempts([wanted])
    assert np.flatnonzero(found.fits).tolist() == [7]
    assert len(found.by_class()[0]) == 2


FABRIC = "fabric.example.com"
NODES = 200


def reading(attribute: str) -> Object:
    selector = f'device.attributes["{GPU}"].?{attribute}.orValue("") != "x"'
    return claim("c", [request("r", exactly("gpu", 1, selector))])


def of_both(*selectors: str) -> Object:
    own, shared = exactly("gpu", 1, *selectors), exactly("fabric")
    return claim("c", [request("own", own), request("shared", shared)])


def fabric(*names: str, pool: str = "fabric") -> Object:
    listed = [device(name) for name in names]
    return resource_slice("shared", {"allNodes": True}, listed, driver=FABRIC, pool=pool)


def many_nodes(most: int = 1_000) -> InCluster:
    names = [f"n{index:03}" for index in range(NODES)]
    classes = [
        device_class("gpu", f'device.driver == "{GPU}"'),
        device_class("fabric", f'device.driver == "{FABRIC}"'),
    ]
    slices = [
        resource_slice(
            f"s-{name}",
            on_node(name),
            [device(f"d{i}", attributes(uuid=f"{name}-{i}", model="a")) for i in range(4)],
            driver=GPU,
            pool=name,
        )
        for name in names
    ]
    given = case([node(name) for name in names], slices, classes, [])
    return InCluster(given, most_per_attempt=most)


def test_what_claims_read_that_nobody_read_before_costs_some_microseconds_a_node() -> None:
    asked = many_nodes()
    _, decisions = asked.in_attempts([reading("model")])
    assert decisions > NODES * 20 / 1_000
    for attribute in ("family", "sriov", "health"):
        found, decisions = asked.in_attempts([reading(attribute)])
        assert decisions <= NODES * 50 / 1_000
        assert found.fits.all()
        assert len(found.by_class()[0]) == 1


def test_the_use_of_a_shared_device_is_looked_up_once_and_not_on_each_node() -> None:
    asked = many_nodes(3_000)
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", "f1", "f2"))
    assert asked.in_attempts([of_both()])[0].fits.all()
    for number in range(3):
        held = result(FABRIC, "fabric", f"f{number}")
        asked.put(Kind.RESOURCE_CLAIM, allocated_claim(f"t{number}", [held]))
        found, decisions = asked.in_attempts([of_both()])
        assert decisions <= 4
        assert found.fits.all() == found.fits.any() == (number < 2)


def test_nodes_that_uuids_tell_apart_follow_the_use_of_a_shared_device() -> None:
    asked = many_nodes()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0"))
    wanted = of_both(f'device.attributes["{GPU}"].uuid == "n007-3"')
    assert np.flatnonzero(asked.in_attempts([wanted])[0].fits).tolist() == [7]
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(FABRIC, "fabric", "f0")]))
    assert not asked.in_attempts([wanted])[0].fits.any()
    asked.delete(Kind.RESOURCE_CLAIM, allocated_claim("t", []))
    assert np.flatnonzero(asked.in_attempts([wanted])[0].fits).tolist() == [7]


@pytest.mark.parametrize("kept", [1, 16_384])
def test_a_shared_slice_may_change_its_devices_and_its_pool(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.claims.state.slices._KEPT", kept)
    asked = many_nodes()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0"))
    assert asked.in_attempts([of_both()])[0].fits.all()
    asked.put(Kind.RESOURCE_SLICE, fabric())
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", "f1"))
    asked.put(Kind.RESOURCE_SLICE, fabric())
    assert not asked.in_attempts([of_both()])[0].fits.any()
    asked.put(Kind.RESOURCE_SLICE, fabric("f0", pool="other"))
    assert asked.in_attempts([of_both()])[0].fits.all()
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(FABRIC, "other", "f0")]))
    assert not asked.in_attempts([of_both()])[0].fits.any()


def test_a_shared_pool_that_comes_back_under_its_name_is_looked_at_again() -> None:
    asked = many_nodes()
    for number in (1, 0, 2):
        raw = fabric(*(f"f{number}-{i}" for i in range(number)))
        asked.put(Kind.RESOURCE_SLICE, raw)
        assert asked.in_attempts([of_both()])[0].fits.all() == (number > 0)
        asked.delete(Kind.RESOURCE_SLICE, raw)
        assert not asked.in_attempts([of_both()])[0].fits.any()


def test_nodes_that_went_and_came_are_not_taken_for_those_that_were_there() -> None:
    asked = many_nodes()
    asked.in_attempts([reading("model")])
    for index in range(0, NODES, 2):
        asked.delete(Kind.NODE, node(f"n{index:03}"))
    found, _ = asked.in_attempts([reading("model")])
    assert found.fits.sum() == NODES // 2
    for index in range(0, NODES, 4):
        asked.put(Kind.NODE, node(f"n{index:03}"))
    asked.put(Kind.NODE, node("without"))
    found, _ = asked.in_attempts([reading("model")])
    assert found.fits.sum() == NODES * 3 // 4


def test_a_node_that_came_and_went_hides_no_other_change() -> None:
    asked = InCluster(fleet_of(3))
    assert asked.by_class([BOTH]).fits.all()
    asked.put(Kind.NODE, node("more"))
    asked.delete(Kind.NODE, node("more"))
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(GPU, "n1", "d0")]))
    assert asked.by_class([BOTH]).fits.tolist() == [True, False, True]


def test_claims_that_waited_while_a_node_was_replaced_see_the_new_node() -> None:
    asked = InCluster(fleet_of(3))
    by_numa = claim("c", [request("r", exactly("gpu", 1, f'device.attributes["{GPU}"].numa == 1'))])
    assert asked.by_class([by_numa]).fits.all()
    asked.delete(Kind.NODE, node("n2"))
    assert asked.by_class([ONE]).fits.all()
    asked.put(Kind.NODE, node("without-devices"))
    assert asked.by_class([ONE]).fits.tolist() == [True, True, False]
    assert asked.by_class([by_numa]).fits.tolist() == [True, True, False]


def test_nodes_of_single_devices_are_alike_and_so_are_those_that_a_rule_taints() -> None:
    names = [f"n{index}" for index in range(6)]
    slices = [
        resource_slice(name, on_node(name), [device(f"gpu-{name}", attributes(uuid=name))])
        for name in names
    ]
    for raw, name in zip(slices, names, strict=True):
        raw["spec"]["pool"]["name"] = name
    asked = InCluster(case([node(name) for name in names], slices, [device_class("gpu")], []))
    assert len(asked.by_class([ONE]).by_class()[0]) == 1
    selected = {"deviceSelector": {"driver": GPU}, "taint": {"key": "sick", "effect": "NoSchedule"}}
    rule = {"metadata": {"name": "sick"}, "spec": selected}
    asked.put(Kind.DEVICE_TAINT_RULE, rule)
    found = asked.by_class([ONE])
    assert not found.fits.any()
    assert len(found.by_class()[0]) == 1


def test_nodes_that_share_a_pool_of_slices_of_their_own_are_alike() -> None:
    names = [f"n{index}" for index in range(4)]
    slices = [resource_slice(name, on_node(name), [device(f"d-{name}")]) for name in names]
    asked = InCluster(
        case([node(name) for name in names], renumbered(slices), [device_class("gpu")], [])
    )
    assert len(asked.by_class([ONE]).by_class()[0]) == 1
    asked.put(Kind.RESOURCE_CLAIM, allocated_claim("t", [result(GPU, "pool", "d-n2")]))
    found = asked.by_class([ONE])
    assert found.fits.tolist() == [True, True, False, True]
    assert len(found.by_class()[0]) == 2
