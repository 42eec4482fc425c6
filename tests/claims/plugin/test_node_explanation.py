from dra.asking import allocator_of, inventory_of
from dra.objects import (
    ALL_NODES,
    PER_DEVICE,
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
    first_available,
    node,
    on_node,
    renumbered,
    request,
    resource_slice,
    result,
)
from dra.small_selectors import compile_small
from mooring.claims.plugin.node_explanation import ExplainedRequest
from mooring.claims.plugin.pools import pools_of_node
from mooring.model.kubernetes_rules import KUBERNETES_RULES

GPU = "gpu.example.com"
TAINTED = [{"key": "k", "effect": "NoExecute"}]
LARGE = {"memory": {"value": "2Gi"}}


def explain(
    slices: list[Object], *claims: Object, taken: tuple[str, ...] = ()
) -> list[ExplainedRequest]:
    allocated = [allocated_claim("t", [result(GPU, "pool", each) for each in taken])]
    classes = [device_class("gpu", f'device.driver == "{GPU}"')]
    asked = case([node("n")], slices, classes, claims, allocated)
    pools = pools_of_node(inventory_of(asked, "1.37"), "n", {}, KUBERNETES_RULES["1.37"])
    return allocator_of(asked, "1.37", compile_small).explain("n", {}, pools)


def test_each_device_counts_with_the_first_reason_against_it() -> None:
    index, both = attributes(index=1), attributes(index=1, x=1)
    listed = [
        device("taken", attributes(index=0)),
        device("taken-too", both, capacity=LARGE),
        device("index", attributes(index=0, x=1), taints=TAINTED),
        device("capacity", both, capacity={"memory": {"value": "1Gi"}}),
        device("counters", index, capacity=LARGE, consumesCounters=[consumption("set", c="9")]),
        device("taint", index, capacity=LARGE, taints=TAINTED),
        device("attribute", index, capacity=LARGE),
        device("good", both, capacity=LARGE),
        device("good-too", both, capacity=LARGE),
    ]
    slices = renumbered(
        [
            resource_slice("s", ALL_NODES, listed),
            resource_slice("c", ALL_NODES, counters=[counter_set("set", c="4")]),
            resource_slice("net", ALL_NODES, [device("n")], driver="net.example.com"),
        ]
    )
    large = {"requests": {"memory": "2Gi"}}
    wanted = exactly("gpu", 3, f'device.attributes["{GPU}"].index >= 1', capacity=large)
    constraint = {"matchAttribute": f"{GPU}/x"}
    found = explain(
        slices, claim("c", [request("r", wanted)], [constraint]), taken=("taken", "taken-too")
    )
    assert [(one.claim, one.request, one.wanted, one.left) for one in found] == [
        ("default/c", "r", 3, 2)
    ]
    assert found[0].excluded == {
        "in use": 1,
        "selector #0 of class gpu": 1,
        "selector #0 of request r": 2,
        "too little capacity": 1,
        "too few shared counters": 1,
        "taint k:NoExecute": 1,
        f"no attribute {GPU}/x": 1,
    }


def test_pools_that_are_not_usable_exclude_their_devices() -> None:
    slices = [
        resource_slice("a", ALL_NODES, [device("d"), device("e")], pool="a", count=2),
        resource_slice("b", ALL_NODES, [device("d"), device("d")], pool="b"),
    ]
    found = explain(slices, claim("c", [request("r", exactly("gpu"))]))
    assert found[0].excluded == {"incomplete pool": 2, "invalid pool": 2}


def test_a_selector_that_fails_is_a_reason_and_so_is_another_node() -> None:
    listed = [device("d", **on_node("other")), device("e", **on_node("n"))]
    slices = [resource_slice("a", PER_DEVICE, listed)]
    failing = exactly("gpu", 1, f'device.attributes["{GPU}"].index >= 1')
    found = explain(slices, claim("c", [first_available("f", exactly("gpu"), failing)]))
    assert [one.request for one in found] == ["f/a", "f/b"]
    assert (found[0].left, found[0].excluded) == (1, {"on other nodes": 1})
    texts = [text for text in found[1].excluded if "CEL runtime error: no such key" in text]
    assert len(texts) == 2
