"""Cases by family: each draws the objects of one case, and is about one part of the allocator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from conformance.scenes.draw import Draw
from dra.expressions import FAILING, GOOD, WRONG
from dra.objects import (
    ALL_NODES,
    PER_DEVICE,
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
    first_available,
    node,
    on_node,
    renumbered,
    request,
    resource_slice,
    result,
    selected_by,
)

DRIVER: Final = "gpu.example.com"
OTHER_DRIVER: Final = "net.example.com"
DOMAIN: Final = f'device.attributes["{DRIVER}"]'
GPU: Final = device_class("gpu", f'device.driver == "{DRIVER}"')
ANY: Final = device_class("any")
MODELS: Final = ("a100", "h100", "l4")
TAINTS: Final = ("NoSchedule", "NoExecute", "None")


def drawn(count: int, seed: str, families: Sequence[str] = ()) -> Iterator[Case]:
    """Yield cases of each family in turn, of all if none is named; each says its id."""
    names = families or tuple(FAMILIES)
    for index in range(count):
        family = names[index % len(names)]
        draw = Draw(f"{seed}/{family}/{index // len(names)}")
        yield {
            "id": f"{family}-{index // len(names)}",
            "family": family,
            **FAMILIES[family](draw),
        }


def _gpu(draw: Draw, name: str, **fields: object) -> Object:
    """Return a device with attributes, of which some may be absent."""
    values: dict[str, str | int | bool] = {"index": draw.randrange(3), "model": draw.choice(MODELS)}
    if draw.chance(0.5):
        values["numa"] = draw.randrange(2)
    if draw.chance(0.3):
        values["healthy"] = draw.chance(0.7)
    if draw.chance(0.3):
        values["version"] = draw.choice(("v1.2.3", "v2.0.0", "v1.10.0-rc.1"))
    capacity = {"memory": {"value": draw.choice(("40Gi", "80Gi", "24G", "1.5Gi"))}}
    return device(name, attributes(**values), capacity=capacity, **fields)


def _gpus(draw: Draw, least: int, most: int) -> list[Object]:
    return [_gpu(draw, f"d{index}") for index in range(draw.randint(least, most))]


def _fleet(draw: Draw, names: Sequence[str], least: int = 2, most: int = 5) -> list[Object]:
    return [
        resource_slice(f"slice-{name}", on_node(name), _gpus(draw, least, most), pool=name)
        for name in names
    ]


def _names(draw: Draw, least: int = 1, most: int = 3) -> list[str]:
    return [f"n{index}" for index in range(draw.randint(least, most))]


def _nodes(names: Sequence[str]) -> list[Object]:
    return [node(name) for name in names]


def _taken(draw: Draw, slices: Sequence[Object], share: float) -> list[Object]:
    """Return claims that have some of the slices' devices."""
    results = [
        result(each["spec"]["driver"], each["spec"]["pool"]["name"], listed["name"])
        for each in slices
        for listed in each["spec"].get("devices", ())
        if draw.chance(share)
    ]
    return [allocated_claim("taken", results)] if results else []


def _selector(draw: Draw) -> list[str]:
    return [draw.choice(GOOD)] if draw.chance(0.35) else []


def _requests(draw: Draw, least: int = 1, most: int = 2, count: int = 2) -> list[Object]:
    return [
        request(f"r{index}", exactly("gpu", draw.randint(1, count), *_selector(draw)))
        for index in range(draw.randint(least, most))
    ]


def _claims(draw: Draw) -> list[Object]:
    return [claim(f"c{index}", _requests(draw)) for index in range(draw.randint(1, 2))]


def counts(draw: Draw) -> Case:
    """Draw claims for numbers of devices, some of which are in use."""
    names = _names(draw)
    slices = _fleet(draw, names, 3, 7)
    return case(_nodes(names), slices, [GPU], _claims(draw), _taken(draw, slices, 0.3))


def backtracking(draw: Draw) -> Case:
    """Draw requests of which the first must give back what the later ones need."""
    devices = [
        device(f"d{index}", attributes(index=index, model=draw.choice(MODELS)))
        for index in range(draw.randint(3, 6))
    ]
    wanted = [
        exactly("any", draw.randint(1, 2), f"{DOMAIN}.index <= {draw.randrange(1, 6)}")
        for _ in range(draw.randint(2, 4))
    ]
    requests = [request(f"r{index}", each) for index, each in enumerate(wanted)]
    split = draw.randrange(1, len(requests) + 1)
    claims = [claim("first", requests[:split])]
    if requests[split:]:
        claims.append(claim("second", requests[split:]))
    same = {"matchAttribute": f"{DRIVER}/model"}
    if draw.chance(0.4):
        claims[0]["spec"]["devices"]["constraints"] = [same]
    return case([node("n0")], [resource_slice("s", on_node("n0"), devices)], [ANY], claims)


def order(draw: Draw) -> Case:
    """Draw pools and slices whose names are not in the order in which they are listed."""
    slices = []
    names = ("b", "a", "A", "a-1", "a.1", "10", "9", "a/b")
    for driver in draw.some((DRIVER, OTHER_DRIVER, "GPU.example.com", "gpu-x.example.com"), 1, 3):
        for pool in draw.some(names, 1, 3):
            for part in draw.some(("z", "a", "B", "0"), 1, 2):
                devices = _gpus(draw, 1, 2)
                if draw.chance(0.25):
                    devices[0]["bindingConditions"] = ["Ready"]
                    devices[0]["bindingFailureConditions"] = ["Failed"]
                slices.append(
                    resource_slice(
                        f"{part}-{driver}-{pool}", on_node("n0"), devices, driver=driver, pool=pool
                    )
                )
    _unique_devices(slices)
    draw.shuffle(slices)
    claims = [claim("c", [request("r", exactly("any", draw.randint(1, 6)))])]
    taken = _taken(draw, slices, 0.2)
    return case([node("n0")], renumbered(slices), [ANY], claims, taken)


def _unique_devices(slices: Sequence[Object]) -> None:
    listed = [each for one in slices for each in one["spec"].get("devices", ())]
    for index, each in enumerate(listed):
        each["name"] = f"d{(index * 7) % len(listed)}-{index}"


def generations(draw: Draw) -> Case:
    """Draw pools of several generations, of which some are incomplete or obsolete."""
    slices = []
    for index in range(draw.randint(2, 6)):
        where = draw.choice((on_node("n0"), on_node("n1"), ALL_NODES, selected_by("zone", "a")))
        slices.append(
            resource_slice(
                f"s{index}",
                where,
                [_gpu(draw, f"d{index}-{each}") for each in range(draw.randint(0, 2))],
                pool=draw.choice(("p", "p", "q")),
                generation=draw.choice((1, 2, 2, 3)),
                count=draw.choice((1, 1, 2, 2, 3, 0)),
            )
        )
    if draw.chance(0.6):
        renumbered(slices)
    nodes = [node("n0", zone="a"), node("n1", zone="b")]
    wanted = exactly("gpu", None if draw.chance(0.2) else draw.randint(1, 3))
    return case(nodes, slices, [GPU], [claim("c", [request("r", wanted)])])


def invalid_pools(draw: Draw) -> Case:
    """Draw pools with devices or counter sets twice, or that consume what does not exist."""
    names = draw.choice((("d0", "d0"), ("d0", "d1"), ("d1", "d1", "d2")))
    consumed = [
        *(consumption("set", c=str(draw.randrange(3))) for _ in range(draw.randrange(2))),
        *(consumption(draw.choice(("set", "nothing")), x="1") for _ in range(draw.randrange(2))),
    ]
    devices = [
        device(
            name, None, **({"consumesCounters": consumed} if draw.chance(0.5) and consumed else {})
        )
        for name in names
    ]
    sets = [counter_set("set", c="4") for _ in range(draw.choice((0, 1, 1, 2)))]
    slices = [
        resource_slice("devices", on_node("n0"), devices),
        resource_slice("others", draw.choice((on_node("n1"), ALL_NODES)), [device("d5")]),
        resource_slice("good", on_node("n0"), [device("good")], pool=draw.choice(("a", "z"))),
    ]
    if sets:
        where = on_node(draw.choice(("n0", "n1")))
        slices.append(resource_slice("counters", where, counters=sets))
    nodes = _nodes(["n0", "n1"])
    wanted = exactly("any", None if draw.chance(0.3) else draw.randint(1, 3))
    return case(nodes, renumbered(slices), [ANY], [claim("c", [request("r", wanted)])])


def all_devices(draw: Draw) -> Case:
    """Draw requests for all devices of a class."""
    names = _names(draw, 1, 2)
    slices = _fleet(draw, names, 0, 5)
    if draw.chance(0.2):
        slices[0]["spec"]["pool"]["resourceSliceCount"] = 2
    every = exactly("gpu", None, *_selector(draw))
    if draw.chance(0.2):
        every["adminAccess"] = True
    requests = [request("all", every)]
    if draw.chance(0.4):
        one = request("one", exactly("gpu", draw.randint(1, 2), *_selector(draw)))
        requests.insert(draw.randrange(2), one)
    constraints = []
    if draw.chance(0.3):
        kind = draw.choice(("matchAttribute", "distinctAttribute"))
        constraints.append({kind: f"{DRIVER}/{draw.choice(('model', 'index', 'numa'))}"})
    taken = _taken(draw, slices, 0.1)
    claims = [claim("c", requests, constraints)]
    return case(_nodes(names), slices, [GPU], claims, taken)


def _mistyped(draw: Draw) -> list[Object]:
    """Return devices whose attribute x is of any type, or absent, or with its domain."""
    values: tuple[str | int | bool, ...] = ("a", "b", "1", 1, 2, True, False, "v1.0.0", "v1.0.1")
    devices = []
    for index in range(draw.randint(3, 6)):
        name = draw.choice(("x", "x", "x", "x", "x", f"{DRIVER}__x", f"{OTHER_DRIVER}__x", "y"))
        chosen = draw.choice(values[:2]) if draw.chance(0.65) else draw.choice(values)
        devices.append(device(f"d{index}", attributes(**{name: chosen})))
    return devices


def _constrained(draw: Draw, kind: str) -> Case:
    requests = [
        request(f"r{index}", exactly("any", draw.choice((1, 1, 2, 3))))
        for index in range(draw.randint(1, 2))
    ]
    if draw.chance(0.3):
        two = (exactly("any", draw.randint(1, 3)), exactly("any", 1))
        requests.append(first_available("fa", *two))
    constraints: list[Object] = []
    for _ in range(draw.randint(1, 2)):
        domain = draw.choice((DRIVER, DRIVER, OTHER_DRIVER))
        constraint: Object = {kind: f"{domain}/x"}
        if draw.chance(0.4):
            named = draw.some([each["name"] for each in requests], 1, 2)
            constraint["requests"] = ["fa/a" if each == "fa" else each for each in named]
        constraints.append(constraint)
    slices = [
        resource_slice("s", on_node("n0"), _mistyped(draw), pool="n0"),
        resource_slice("t", on_node("n0"), _mistyped(draw), driver=OTHER_DRIVER, pool="n0"),
    ]
    claims = [claim("c", requests, constraints)]
    taken = _taken(draw, slices, 0.1)
    return case([node("n0")], slices[: draw.randint(1, 2)], [ANY], claims, taken)


def match_attribute(draw: Draw) -> Case:
    """Draw claims whose devices must have one attribute in common."""
    return _constrained(draw, "matchAttribute")


def distinct_attribute(draw: Draw) -> Case:
    """Draw claims whose devices must differ in one attribute."""
    return _constrained(draw, "distinctAttribute")


def first_of_several(draw: Draw) -> Case:
    """Draw requests for the first of several that is available."""
    names = _names(draw, 1, 2)
    slices = _fleet(draw, names)
    requests = [
        first_available(
            f"f{index}",
            *(
                exactly("gpu", None if draw.chance(0.15) else draw.randint(1, 4), *_selector(draw))
                for _ in range(draw.randint(1, 3))
            ),
        )
        for index in range(draw.randint(1, 2))
    ]
    if draw.chance(0.5):
        requests.insert(draw.randrange(2), request("r", exactly("gpu", draw.randint(1, 2))))
    classes = [device_class("gpu", *_selector(draw), config=[_config(draw, "class")])]
    named = [requests[0]["name"], f"{requests[-1]['name']}/a"]
    config = [{**_config(draw, "claim"), "requests": draw.some(named, 0, 2)}]
    claims = [claim("c", requests, config=config)]
    return case(_nodes(names), slices, classes, claims, _taken(draw, slices, 0.2))


def _config(draw: Draw, source: str) -> Object:
    return {"opaque": {"driver": DRIVER, "parameters": {"from": source, "n": draw.randrange(9)}}}


def configurations(draw: Draw) -> Case:
    """Draw classes and claims with configurations for some requests."""
    names = _names(draw, 1, 1)
    slices = _fleet(draw, names, 4, 6)
    classes = [
        device_class(name, config=[_config(draw, name) for _ in range(draw.randint(0, 2))])
        for name in ("one", "two")
    ]
    requests = [
        request(f"r{index}", exactly(draw.choice(("one", "two")), 1))
        for index in range(draw.randint(1, 3))
    ]
    requests.append(first_available("f", exactly("one", draw.choice((1, 9))), exactly("two", 1)))
    choices = [*(each["name"] for each in requests), "f/a", "f/b"]
    config = [
        {**_config(draw, "claim"), "requests": draw.some(choices, 0, len(choices))}
        for _ in range(draw.randint(0, 3))
    ]
    for each in config:
        if not each["requests"]:
            del each["requests"]
    return case(_nodes(names), slices, classes, [claim("c", requests, config=config)])


def at_the_limit(draw: Draw) -> Case:
    """Draw claims for about as many devices as an allocation may have, which is 32."""
    devices = [device(f"d{index}") for index in range(draw.choice((31, 32, 33, 40)))]
    slices = [resource_slice("s", on_node("n0"), devices, pool="n0")]
    requests = [request("r", exactly("any", draw.choice((1, 16, 30, 31, 32, 33))))]
    if draw.chance(0.6):
        sizes = (draw.choice((1, 2, 16, 32, None)) for _ in range(draw.randint(1, 3)))
        requests.append(first_available("f", *(exactly("any", size) for size in sizes)))
    if draw.chance(0.2):
        requests.append(request("all", exactly("any", None)))
    if draw.chance(0.3):
        huge = draw.choice((2**31, 2**62, 2**63 - 1))
        requests.append(request("huge", exactly("any", huge)))
    claims = [claim("c", requests)]
    if draw.chance(0.2):
        claims.append(claim("d", [request("r", exactly("any", 1))]))
    return case([node("n0")], slices, [ANY], claims, _taken(draw, slices, 0.05))


def admin_access(draw: Draw) -> Case:
    """Draw requests with admin access beside others."""
    names = _names(draw, 1, 2)
    slices = _fleet(draw, names)
    if draw.chance(0.3):
        for each in slices[0]["spec"]["devices"]:
            each["allowMultipleAllocations"] = True
    claims = []
    for index in range(draw.randint(1, 2)):
        requests = _requests(draw)
        for each in requests:
            if draw.chance(0.6):
                each["exactly"]["adminAccess"] = draw.chance(0.9)
            if draw.chance(0.2):
                each["exactly"].pop("count")
                each["exactly"]["allocationMode"] = "All"
        claims.append(claim(f"c{index}", requests))
    taken = _taken(draw, slices, 0.3)
    for each in taken:
        for one in each["status"]["allocation"]["devices"]["results"]:
            if draw.chance(0.3):
                one["adminAccess"] = True
    return case(_nodes(names), slices, [GPU], claims, taken)


def _toleration(draw: Draw) -> Object:
    toleration: Object = {}
    if draw.chance(0.8):
        toleration["key"] = draw.choice(("k", "l"))
    if draw.chance(0.6):
        toleration["effect"] = draw.choice(TAINTS[:2])
    toleration["operator"] = draw.choice(("Equal", "Exists")) if "key" in toleration else "Exists"
    if toleration["operator"] == "Equal":
        toleration["value"] = draw.choice(("v", "w"))
    if toleration.get("effect") == "NoExecute" and draw.chance(0.5):
        toleration["tolerationSeconds"] = draw.choice((0, 30, 3600))
    return toleration


def taints(draw: Draw) -> Case:
    """Draw devices with taints and requests that tolerate some."""
    names = _names(draw, 1, 2)
    slices = _fleet(draw, names, 1, 5)
    for each in slices:
        for one in each["spec"]["devices"]:
            listed = [
                {
                    "key": draw.choice(("k", "l")),
                    **({"value": draw.choice(("v", "w"))} if draw.chance(0.7) else {}),
                    "effect": draw.choice(TAINTS),
                    "timeAdded": "2026-11-23T08:00:00Z",
                }
                for _ in range(draw.choice((0, 1, 1, 2)))
            ]
            if listed:
                one["taints"] = listed
    requests = _requests(draw, 1, 2, 2)
    for each in requests:
        if draw.chance(0.7):
            tolerations = [_toleration(draw) for _ in range(draw.randint(1, 2))]
            each["exactly"]["tolerations"] = tolerations
        if draw.chance(0.2):
            each["exactly"].pop("count")
            each["exactly"]["allocationMode"] = "All"
    if draw.chance(0.3):
        second = exactly("gpu", 1, tolerations=[{"operator": "Exists"}])
        requests.append(first_available("f", exactly("gpu", 1), second))
    claims = [claim("c", requests)]
    return case(_nodes(names), slices, [GPU], claims, _taken(draw, slices, 0.1))


def _partitioned(draw: Draw, prefix: str, sets: Sequence[str]) -> list[Object]:
    """Return devices that consume the counters c and, some, m of these sets."""
    devices = []
    for index in range(draw.randint(2, 5)):
        consumed = []
        for name in draw.some(sets, 0, len(sets)):
            counters = {"c": str(draw.choice((0, 1, 1, 2)))}
            if draw.chance(0.2):
                counters["m"] = draw.choice(("1Gi", "2Gi", "500M"))
            consumed.append(consumption(name, **counters))
        fields = {"consumesCounters": consumed} if consumed else {}
        devices.append(_gpu(draw, f"{prefix}{index}", **fields))
    return devices


def _counter_sets(draw: Draw, sets: Sequence[str]) -> list[Object]:
    return [
        counter_set(name, c=str(draw.choice((2, 4, 6))), m=draw.choice(("1Gi", "4Gi", "2G")))
        for name in sets
    ]


def counters(draw: Draw) -> Case:
    """Draw devices that are partitions of others, on one or several nodes."""
    sets = draw.some(("x", "y"), 1, 2)
    names = _names(draw, 1, 2)
    slices = [
        resource_slice(f"s-{name}", on_node(name), _partitioned(draw, f"{name}-", sets))
        for name in names
    ]
    where = draw.choice((on_node("n0"), on_node("n0"), ALL_NODES, selected_by("zone", "a")))
    slices.append(resource_slice("counters", where, counters=_counter_sets(draw, sets)))
    nodes = [node(name, zone=draw.choice(("a", "b"))) for name in names]
    taken = _taken(draw, slices, 0.15)
    return case(nodes, renumbered(slices), [GPU], _claims(draw), taken)


def counters_of_two_drivers(draw: Draw) -> Case:
    """Draw two drivers that call their pools and counter sets alike."""
    slices = []
    for driver in (DRIVER, OTHER_DRIVER):
        devices = _partitioned(draw, "d", ("x",))
        slices += [
            resource_slice(f"s-{driver}", on_node("n0"), devices, driver=driver),
            resource_slice(
                f"c-{driver}", on_node("n0"), driver=driver, counters=_counter_sets(draw, ("x",))
            ),
        ]
    requests = [
        request(f"r{index}", exactly("any", draw.randint(1, 2)))
        for index in range(draw.randint(1, 3))
    ]
    if draw.chance(0.5):
        requests[0]["exactly"]["selectors"] = [
            {"cel": {"expression": f'device.driver == "{OTHER_DRIVER}"'}}
        ]
    taken = _taken(draw, slices, 0.2)
    return case([node("n0")], renumbered(slices), [ANY], [claim("c", requests)], taken)


def overdrawn_counters(draw: Draw) -> Case:
    """Draw pools whose devices in use consume more than their counter sets have."""
    sets = ("x", "y")
    devices = _partitioned(draw, "d", sets)
    devices.append(device("free"))
    slices = [
        resource_slice("s", on_node("n0"), devices),
        resource_slice("other", on_node("n1"), _partitioned(draw, "o", sets)),
        resource_slice(
            "c",
            on_node(draw.choice(("n0", "n1"))),
            counters=[counter_set(name, c=draw.choice(("1", "2")), m="1Gi") for name in sets],
        ),
    ]
    if draw.chance(0.8):
        renumbered(slices)
    claims = [claim("c", [request("r", exactly("any", draw.randint(1, 2)))])]
    taken = _taken(draw, slices, 0.6)
    return case(_nodes(["n0", "n1"]), slices, [ANY], claims, taken)


def _policy(draw: Draw) -> Object:
    """Return how much of a capacity may be requested."""
    if draw.chance(0.5):
        valid: Object = {"min": draw.choice(("1Gi", "2Gi", "1", "100m"))}
        if draw.chance(0.7):
            valid["step"] = draw.choice(("1Gi", "512Mi", "3Gi", "250m"))
        if draw.chance(0.5):
            valid["max"] = draw.choice(("4Gi", "8Gi", "7Gi"))
        return {"default": valid["min"], "validRange": valid}
    values = draw.choice((["1Gi", "2Gi", "4Gi"], ["2Gi"], ["500M", "1G"]))
    return {"default": draw.choice(values), "validValues": values}


def _shared_devices(draw: Draw) -> list[Object]:
    devices = []
    for index in range(draw.randint(1, 4)):
        memory: Object = {"value": draw.choice(("8Gi", "4Gi", "10G", "6Gi"))}
        if draw.chance(0.6):
            memory["requestPolicy"] = _policy(draw)
        capacity: Object = {"memory": memory}
        if draw.chance(0.3):
            capacity["cores"] = {"value": draw.choice(("10", "2500m"))}
        fields: Object = {"capacity": capacity}
        if draw.chance(0.7):
            fields["allowMultipleAllocations"] = True
        devices.append(device(f"d{index}", attributes(model=draw.choice(MODELS)), **fields))
    return devices


def _shares(draw: Draw, devices: Sequence[Object], pool: str) -> list[Object]:
    """Return claims that have a part of some devices, or all of others."""
    results = []
    for each in devices:
        if not draw.chance(0.4):
            continue
        if not each.get("allowMultipleAllocations") or draw.chance(0.15):
            results.append(result(DRIVER, pool, each["name"]))
            continue
        for share in range(draw.randint(1, 2)):
            consumed = {"memory": draw.choice(("1Gi", "2Gi", "3G", "4Gi"))}
            fields: Object = {"shareID": f"{each['name']}-{share}"}
            if draw.chance(0.9):
                fields["consumedCapacity"] = consumed
            results.append(result(DRIVER, pool, each["name"], **fields))
    return [allocated_claim("taken", results)] if results else []


def _capacity(draw: Draw) -> Object:
    if draw.chance(0.25):
        return {}
    amount = draw.choice(("1Gi", "2Gi", "1500M", "1", "3Gi", "4Gi", "300m", "1073741825", "9Gi"))
    requests: Object = {"memory": amount}
    if draw.chance(0.15):
        requests["cores"] = draw.choice(("1", "500m", "3"))
    if draw.chance(0.05):
        requests["unknown"] = "1"
    return {"capacity": {"requests": requests}}


def consumable_capacity(draw: Draw) -> Case:
    """Draw devices that claims share, each with a part of the capacity."""
    devices = _shared_devices(draw)
    claims = []
    for index in range(draw.randint(1, 2)):
        requests = [
            request(f"r{each}", exactly("any", draw.randint(1, 2), **_capacity(draw)))
            for each in range(draw.randint(1, 3))
        ]
        if draw.chance(0.2):
            every = exactly("any", None, **_capacity(draw))
            requests.append(request("all", every))
        if draw.chance(0.2):
            big = {"capacity": {"requests": {"memory": "20Gi"}}}
            two = (exactly("any", 1, **big), exactly("any", 1, **_capacity(draw)))
            requests.append(first_available("f", *two))
        claims.append(claim(f"c{index}", requests))
    if draw.chance(0.2):
        constraints = [{"distinctAttribute": f"{DRIVER}/model"}]
        claims[0]["spec"]["devices"]["constraints"] = constraints
    slices = [resource_slice("s", on_node("n0"), devices)]
    return case([node("n0")], slices, [ANY], claims, _shares(draw, devices, "pool"))


def shared_partitions(draw: Draw) -> Case:
    """Draw partitions of a device that claims share."""
    devices = _shared_devices(draw)
    for each in devices:
        if draw.chance(0.7):
            each["consumesCounters"] = [consumption("x", c=str(draw.choice((1, 2))))]
    slices = renumbered(
        [
            resource_slice("s", on_node("n0"), devices),
            resource_slice("c", on_node("n0"), counters=[counter_set("x", c=draw.choice("123"))]),
        ]
    )
    requests = [
        request(f"r{index}", exactly("any", draw.randint(1, 2), **_capacity(draw)))
        for index in range(draw.randint(1, 3))
    ]
    taken = _shares(draw, devices, "pool")
    return case([node("n0")], slices, [ANY], [claim("c", requests)], taken)


def expressions(draw: Draw) -> Case:
    """Draw selectors of all kinds, whose errors are seen only if the search gets so far."""
    kinds: Mapping[str, Sequence[str]] = {"good": GOOD, "failing": FAILING, "wrong": WRONG}
    chosen = draw.choices(("good", "failing", "wrong"), (7, 3, 1), k=2)
    devices = [_gpu(draw, f"d{index}") for index in range(draw.randint(1, 4))]
    for each in devices:
        if draw.chance(0.3):
            each["attributes"].pop("model")
    slices = [
        resource_slice("s", on_node("n0"), devices),
        resource_slice("t", on_node("n0"), _gpus(draw, 0, 2), driver=OTHER_DRIVER, pool="z"),
    ]
    classes = [device_class("gpu", draw.choice(kinds[chosen[0]]))]
    wanted = exactly("gpu", draw.randint(1, 2), draw.choice(kinds[chosen[1]]))
    claims = [claim("c", [request("r", wanted)])]
    if draw.chance(0.2):
        claims[0]["spec"]["devices"]["requests"].append(request("x", exactly("gpu", None)))
    return case([node("n0")], slices, classes, claims, _taken(draw, slices, 0.2))


def places(draw: Draw) -> Case:
    """Draw devices that several nodes reach, by name, selector or all, per slice or per device."""
    names = _names(draw, 2, 3)
    choices = (*(on_node(name) for name in names), ALL_NODES, selected_by("zone", "a"))
    slices = []
    for index in range(draw.randint(1, 4)):
        per_device = draw.chance(0.4)
        devices = [
            device(f"d{index}-{each}", **(draw.choice(choices) if per_device else {}))
            for each in range(draw.randint(1, 3))
        ]
        for each in devices:
            if draw.chance(0.15):
                each["bindsToNode"] = True
        where = PER_DEVICE if per_device else draw.choice((*choices, selected_by("rack", "1", "2")))
        slices.append(resource_slice(f"s{index}", where, devices, pool=draw.choice("pq")))
    if draw.chance(0.8):
        renumbered(slices)
    labels = ({"zone": draw.choice("ab"), "rack": draw.choice("123")} for _ in names)
    nodes = [node(name, **each) for name, each in zip(names, labels, strict=True)]
    requests = [
        request(f"r{index}", exactly("any", draw.randint(1, 3)))
        for index in range(draw.randint(1, 2))
    ]
    return case(nodes, slices, [ANY], [claim("c", requests)], _taken(draw, slices, 0.1))


def scarce(draw: Draw) -> Case:
    """Draw claims for nearly all devices under several constraints, so that much is searched."""
    devices = []
    for index in range(draw.randint(5, 9)):
        values = attributes(model=draw.choice(MODELS[:2]), numa=draw.randrange(3))
        fields: Object = {}
        if draw.chance(0.3):
            fields["consumesCounters"] = [consumption("x", c=draw.choice("12"))]
        if draw.chance(0.2):
            fields["taints"] = [{"key": "k", "effect": "NoSchedule"}]
        devices.append(device(f"d{index}", values, **fields))
    slices = [
        resource_slice("s", on_node("n0"), devices),
        resource_slice("c", on_node("n0"), counters=[counter_set("x", c=draw.choice("2468"))]),
    ]
    claims = []
    for name in ("c", "d")[: draw.randint(1, 2)]:
        requests = []
        for index in range(draw.randint(2, 3)):
            wanted = exactly("any", draw.choice((1, 2, 2, 3)), *_few(draw))
            if draw.chance(0.2):
                wanted["tolerations"] = [{"operator": "Exists"}]
            requests.append(request(f"r{index}", wanted))
        if draw.chance(0.3):
            several = (exactly("any", draw.randint(1, 3), *_few(draw)) for _ in range(2))
            requests.insert(draw.randrange(2), first_available("f", *several))
        if draw.chance(0.15):
            requests.append(request("all", exactly("any", None, f"{DOMAIN}.numa == 0")))
        constraints: list[Object] = []
        for _ in range(draw.randint(0, 2)):
            kind = draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            named = draw.some([each["name"] for each in requests], 1, 3)
            attribute = f"{DRIVER}/{draw.choice(('model', 'numa'))}"
            constraints.append({kind: attribute, "requests": named})
        claims.append(claim(name, requests, constraints))
    taken = _taken(draw, slices, 0.05)
    return case([node("n0")], renumbered(slices), [ANY], claims, taken)


def _few(draw: Draw) -> list[str]:
    if draw.chance(0.5):
        return []
    return [
        draw.choice((f'{DOMAIN}.model == "a100"', f"{DOMAIN}.numa <= 1", f"{DOMAIN}.numa >= 1"))
    ]


def hostile(draw: Draw) -> Case:
    """Draw what nobody means: missing classes, no requests, unknown names, odd amounts."""
    slices = _fleet(draw, ["n0"], 0, 3)
    requests = _requests(draw, 0, 2)
    kind = draw.randrange(8)
    if kind == 0:
        requests.append(request("x", exactly("missing", 1)))
    elif kind == 1:
        requests.append(request("x", exactly("", 1)))
    elif kind == 2:
        requests.append({"name": "x", "exactly": {"deviceClassName": "gpu", "allocationMode": "?"}})
    elif kind == 3:
        requests.append(request("x", {**exactly("gpu", 1), "selectors": [{}]}))
    elif kind == 4:
        requests.append(request("x", exactly("gpu", draw.choice((33, 2**63 - 1)))))
    elif kind == 5:
        greater = {"key": "cores", "operator": "Gt", "values": [draw.choice(("7", "9"))]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [greater]}]}
        slices.append(resource_slice("odd", {"nodeSelector": terms}, [device("d")], pool="odd"))
    elif kind == 6:
        slices.append(resource_slice("nowhere", {}, [device("d")], pool="nowhere"))
    else:
        amount = draw.choice(("-1", "1e30", "9223372036854775808", "0", "1n", "0.0000000001"))
        requests.append(request("x", exactly("gpu", 1, capacity={"requests": {"memory": amount}})))
    constraints: list[Object] = [{}] if draw.chance(0.1) else []
    labels = draw.choice(({}, {"cores": "8"}, {"cores": "many"}))
    return case([node("n0", **labels)], slices, [GPU], [claim("c", requests, constraints)])


def mixed(draw: Draw) -> Case:
    """Draw a bit of everything."""
    first, second = draw.sample(_MIXABLE, 2)
    one, two = first(draw), second(draw)
    nodes = {each["metadata"]["name"]: each for each in (*one["nodes"], *two["nodes"])}
    classes = {each["metadata"]["name"]: each for each in (*one["classes"], *two["classes"])}
    for each in (*two["slices"], *two["claims"], *two["allocated"]):
        each["metadata"]["name"] += "-two"
    for each in two["slices"]:
        each["spec"]["pool"]["name"] += "-two"
    for each in two["allocated"]:
        for taken in each["status"]["allocation"]["devices"]["results"]:
            taken["pool"] += "-two"
    return case(
        list(nodes.values()),
        [*one["slices"], *two["slices"]],
        list(classes.values()),
        [*one["claims"], *two["claims"]],
        [*one["allocated"], *two["allocated"]],
    )


_MIXABLE: Final = (
    counts,
    all_devices,
    match_attribute,
    distinct_attribute,
    first_of_several,
    admin_access,
    taints,
    counters,
    consumable_capacity,
    places,
)

FAMILIES: Final[Mapping[str, Callable[[Draw], Case]]] = {
    each.__name__: each
    for each in (
        counts,
        backtracking,
        order,
        generations,
        invalid_pools,
        all_devices,
        match_attribute,
        distinct_attribute,
        first_of_several,
        configurations,
        at_the_limit,
        admin_access,
        taints,
        counters,
        counters_of_two_drivers,
        overdrawn_counters,
        consumable_capacity,
        shared_partitions,
        expressions,
        places,
        scarce,
        hostile,
        mixed,
    )
}
"""By name what draws a case."""
