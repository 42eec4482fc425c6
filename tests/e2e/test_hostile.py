"""Hostile objects of one tenant on a real API server, beside an ordinary tenant.

Whatever the hostile tenant sends, the operator survives, an ordinary pod of the other tenant is
bound in time, and the memory of the hostile objects is freed after their deletion.
"""

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.usage import usage_of
from controlplane import ApiError, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from e2e.replicas import PROFILES, create_pods, delete_now, eventually, pod, ready
from faults.scene import Member, Scene, create_priorities
from node_selectors import expression, required_nodes, term
from pod_terms import spread_evenly
from policies import profile

Raw = dict[str, Any]

NODES: Final = 1000
BOUND_SECONDS: Final = 5.0
"""An ordinary pod is bound within this time, whatever others send. (Alone: 0.1.)

On a busy machine the operator's own CPU seconds count, and three times as much may pass.
"""
GROWTH_MIB: Final = 40.0
"""Memory may be larger by so much after hostile objects have come and gone."""
REJECTED: Final = frozenset({400, 403, 413, 422})
"""What the API server answers to what it does not take."""
LIMIT_BYTES: Final = 1_400_000
"""etcd takes requests of up to 1.5 MiB."""

few = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.function_scoped_fixture,
    ],
)
"""Every example asks a real API server; the same ones in every run."""


class Tenants:
    """A running operator, a hostile tenant, and an ordinary tenant."""

    def __init__(self, scene: Scene, member: Member, client: Client) -> None:
        self.access = scene.plane.access
        self._scene = scene
        self.member = member
        self.client = client
        self._read = 0
        self.hostile = create_namespace(scene.plane.access, "hostile")
        self.honest = create_namespace(scene.plane.access, "honest")
        self._number = 0

    def send(self, *pods: Raw) -> int:
        """Send the pods; return how many the API server accepted."""
        taken = 0
        for raw in pods:
            try:
                create_pods(self.client, self.hostile, raw)
                taken += 1
            except ApiError as error:
                if error.status not in REJECTED:
                    raise
            except (OSError, HTTPException):  # hung up on: the request was too large
                continue
        return taken

    def restart(self) -> None:
        """Restart the operator, and wait until it mirrors the cluster."""
        self.member.terminate()
        self.member = self._scene.start("--no-leader-elect")
        self.member.wait_until_ready()
        self._read = 0

    def forget_log(self) -> None:
        """Ignore the log written so far."""
        self._read = len(self.member.text)

    def withdraw(self) -> None:
        """Delete all hostile objects from the cluster."""
        path = f"/api/v1/namespaces/{self.hostile}/pods"
        self.client.request("DELETE", path, {"gracePeriodSeconds": 0})
        left = f"{path}?limit=1"
        eventually(lambda: self.client.get(left)["items"], lambda items: not items, "no pods")

    def seconds_to_bind(self) -> float:
        """Return the seconds until an ordinary pod is bound."""
        self._number += 1
        name = f"ordinary-{self._number}"
        path = f"/api/v1/namespaces/{self.honest}/pods/{name}"
        begun = time.monotonic()
        create_pods(self.client, self.honest, pod(name, cpu="1m"))
        eventually(lambda: self.client.get(path)["spec"].get("nodeName"), bool, f"{name} bound")
        waited = time.monotonic() - begun
        delete_now(self.client, self.honest, name)
        return waited

    def assert_unharmed(self) -> None:
        """Check that the operator lives, logged no unexpected error, and binds a pod in time."""
        used = usage_of(self.member.pid).cpu_seconds
        waited = self.seconds_to_bind()
        assert self.member.runs, self.member.text[-3000:]
        used = usage_of(self.member.pid).cpu_seconds - used
        assert min(waited, used) < BOUND_SECONDS, f"an ordinary pod waited {waited:.1f} s"
        assert waited < 3 * BOUND_SECONDS, f"an ordinary pod waited {waited:.1f} s"
        assert self.member.get("/livez")[0] == 200
        text = self.member.text
        new, self._read = text[self._read :], len(text)
        assert "Traceback" not in new, new[-3000:]


@pytest.fixture(scope="module")
def tenants(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    create_priorities(plane.access)
    create_nodes(plane.access, NODES, zones=3)
    with (
        Scene.of(plane, tmp_path_factory.mktemp("hostile")) as scene,
        plane.access.client() as client,
    ):
        member = scene.start("--no-leader-elect")
        member.wait_until_ready()
        tenants = Tenants(scene, member, client)
        tenants.seconds_to_bind()
        yield tenants


@pytest.fixture(autouse=True)
def alone(tenants: Tenants) -> Iterator[None]:
    """Delete the objects of each test after it; ignore the log written before it."""
    tenants.forget_log()
    yield
    tenants.withdraw()


def invented(what: str, count: int, salt: str) -> list[str]:
    return [f"{salt}.example/{what}-{number}" for number in range(count)]


def with_label(key: str) -> Raw:
    return term(expression(key, "Exists"))


def with_preferences(name: str, count: int) -> Raw:
    terms = [{"weight": 1, "preference": with_label(key)} for key in invented("key", count, name)]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return pod(name, affinity={"nodeAffinity": {preferred: terms}})


def with_requirements(name: str, count: int) -> Raw:
    terms = [with_label(key) for key in invented("key", count, name)]
    return pod(name, affinity=required_nodes(*terms))


def with_resources(name: str, count: int) -> Raw:
    requests = dict.fromkeys(invented("resource", count, name), "1")
    return pod(name, requests=requests, limits=requests)


def with_labels(name: str, count: int) -> Raw:
    return pod(name, labels=dict.fromkeys(invented("label", count, name), "x"))


def with_affinities(name: str, count: int) -> Raw:
    terms = [
        {
            "weight": 1,
            "podAffinityTerm": {
                "topologyKey": key,
                "labelSelector": {"matchLabels": {f"label-{number}": "x"}},
            },
        }
        for number, key in enumerate(invented("topology", count, name))
    ]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    return pod(name, affinity={"podAntiAffinity": {preferred: terms}})


def with_constraints(name: str, count: int) -> Raw:
    constraints = [
        spread_evenly({"app": name}, key, whenUnsatisfiable="ScheduleAnyway")
        for key in invented("topology", count, name)
    ]
    return pod(name, topologySpreadConstraints=constraints)


def with_containers(name: str, count: int) -> Raw:
    raw = pod(name)
    resources = {"requests": {"cpu": "1m"}}
    raw["spec"]["containers"] = [
        {"name": f"c-{number}", "image": f"{name}.example/i:{number}", "resources": resources}
        for number in range(count)
    ]
    return raw


def with_tolerations(name: str, count: int) -> Raw:
    keys = invented("taint", count, name)
    return pod(name, tolerations=[{"key": key, "operator": "Exists"} for key in keys])


KINDS: Final = (
    with_preferences,
    with_requirements,
    with_resources,
    with_labels,
    with_affinities,
    with_constraints,
    with_containers,
    with_tolerations,
)
"""The kinds of pod that have very much of one thing."""
MOST: Final = 400
"""So much of it the drawn pods have at most."""


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (with_labels, 1000),
        (with_containers, 500),
        (with_tolerations, 1000),
        (with_resources, 200),
        (with_resources, 500),
        (with_preferences, 1000),
        (with_requirements, 1000),
        (with_affinities, 300),
        (with_constraints, 300),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_pods_with_very_much_of_one_thing_delay_nobody_and_leave_no_memory(
    tenants: Tenants, make: Callable[[str, int], Raw], count: int
) -> None:
    before = tenants.member.rss_mib()
    kind = make.__name__.replace("_", "-")
    assert tenants.send(*(make(f"{kind}-{number}", count) for number in range(8)))
    tenants.assert_unharmed()
    tenants.withdraw()
    tenants.assert_unharmed()
    grown = tenants.member.rss_mib() - before
    assert grown < GROWTH_MIB, f"{grown:.0f} MiB stay behind"


def test_pods_of_two_kinds_at_once_that_once_cost_7_seconds_and_130_mib_delay_nobody(
    tenants: Tenants, record_property: Callable[[str, object], None]
) -> None:
    """Pods with 400 resources exceed the limit; pods with the most allowed resources come too."""
    tenants.restart()
    tenants.seconds_to_bind()
    before = tenants.member.rss_mib()
    tenants.send(*(with_preferences(f"keys-{number}", 1000) for number in range(8)))
    tenants.send(*(with_resources(f"resources-{number}", 400) for number in range(10)))
    tenants.send(*(with_resources(f"fewer-resources-{number}", 200) for number in range(10)))
    record_property("seconds", tenants.seconds_to_bind())
    tenants.assert_unharmed()
    tenants.withdraw()
    tenants.assert_unharmed()
    grown = tenants.member.rss_mib() - before
    record_property("MiB", grown)
    assert grown < GROWTH_MIB, f"{grown:.0f} MiB stay behind"


def test_a_pod_short_of_more_than_64_resources_is_told_that_it_is_unschedulable(
    tenants: Tenants,
) -> None:
    assert tenants.send(with_resources("many", 70))
    path = f"/api/v1/namespaces/{tenants.hostile}/pods/many"

    def reason() -> str:
        conditions = tenants.client.get(path)["status"].get("conditions", ())
        return next((c["reason"] for c in conditions if c["type"] == "PodScheduled"), "")

    try:
        assert eventually(reason, bool, "a condition") == "Unschedulable"
    finally:
        tenants.withdraw()


names = st.uuids().map(lambda uuid: f"h-{uuid.hex[:12]}")
numbers = st.sampled_from(
    [
        *("0", "1", "9223372036854775807", "9223372036854775808", "99999999999999999999999999"),
        *("1e18", "1e30", "9E", "1Ei", "7.9999999999E", "0.000000001", "1n", "1u", "1e-9"),
    ]
)
odd_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=200
)
resources = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "pods"]
    ),
    numbers,
)
counts = st.integers(1, MOST)


@st.composite
def hostile_pods(draw: st.DrawFn) -> Raw:
    """Draw a pod that is unusual in one of many ways."""
    name = draw(names)
    make = draw(st.sampled_from(KINDS))
    raw = make(name, draw(counts)) if draw(st.booleans()) else pod(name)
    spec, container = raw["spec"], raw["spec"]["containers"][0]
    if draw(st.booleans()):
        requests = draw(resources)
        container["resources"] = {"requests": requests, "limits": requests}
        spec["overhead"] = draw(resources)
    raw["metadata"]["annotations"] = {
        "example.com/odd": draw(odd_text),
        "example.com/big": "\u2028" * draw(st.sampled_from([0, 1, 30_000])),
        "kubectl.kubernetes.io/last-applied-configuration": "[" * draw(st.integers(0, 100_000)),
    }
    container["args"] = [draw(odd_text)]
    container["env"] = [{"name": "A", "value": draw(odd_text)}]
    container["ports"] = [
        {"containerPort": 1, "hostPort": port}
        for port in draw(st.lists(st.integers(1, 65535), max_size=50, unique=True))
    ]
    if draw(st.booleans()):
        operator = draw(st.sampled_from(["Gt", "Lt", "In", "NotIn"]))
        value = draw(st.one_of(st.integers().map(str), st.just("x"), st.just("")))
        spec["affinity"] = required_nodes(term(expression("k", operator, value)))
    return raw


@given(st.lists(hostile_pods(), min_size=1, max_size=4))
@few
def test_no_pod_that_the_api_server_takes_harms_another_tenant(
    tenants: Tenants, pods: list[Raw]
) -> None:
    tenants.send(*(raw for raw in pods if len(json.dumps(raw)) < LIMIT_BYTES))
    tenants.assert_unharmed()
    tenants.withdraw()


def with_args(args: Any) -> Raw:
    plugin_config = [{"name": "NodeResourcesFit", "args": args}]
    return profile("hostile", pluginConfig=plugin_config)


def send_profile(tenants: Tenants, raw: Raw) -> bool:
    """Send the profile; return whether the API server accepted it."""
    try:
        tenants.client.post(PROFILES, raw)
    except ApiError as error:
        if error.status not in REJECTED:
            raise
        return False
    return True


def assert_profiles_still_work(tenants: Tenants) -> None:
    """Check that another profile comes into force, and that its pods are bound."""
    path = f"{PROFILES}/sane"
    tenants.client.post(PROFILES, profile("sane"))
    try:
        eventually(lambda: ready(tenants.client.get(path))[0], bool, "a verdict about a profile")
        assert ready(tenants.client.get(path))[0] == "True"
    finally:
        tenants.client.delete(path)


@pytest.mark.parametrize("depth", [50, 400, 1500, 5000])
def test_a_profile_with_deep_args_harms_no_other(tenants: Tenants, depth: int) -> None:
    # Neither json.dumps nor json.loads can do this: kubectl sends it and takes it away again.
    text = json.dumps(with_args("HERE")).replace('"HERE"', '{"a":' * depth + "1" + "}" * depth)
    kubectl = tenants.access.kubectl
    kubectl("create", "--validate=false", "-f", "-", stdin=text)
    try:
        tenants.assert_unharmed()
        assert_profiles_still_work(tenants)
    finally:
        kubectl("delete", "--wait=false", "schedulingprofiles", "hostile")
    assert_profiles_still_work(tenants)


def test_a_replica_that_begins_beside_a_profile_with_deep_args_places_pods(
    tenants: Tenants,
) -> None:
    text = json.dumps(with_args("HERE")).replace('"HERE"', '{"a":' * 1500 + "1" + "}" * 1500)
    tenants.access.kubectl("create", "--validate=false", "-f", "-", stdin=text)
    try:
        tenants.restart()
        tenants.assert_unharmed()
    finally:
        tenants.access.kubectl("delete", "--wait=false", "schedulingprofiles", "hostile")


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), odd_text),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(odd_text, inner, max_size=5),
        max_leaves=30,
    ),
    st.sampled_from([0, 100_000]),
)
@few
def test_no_args_of_a_profile_harm_another(tenants: Tenants, args: Any, padding: int) -> None:
    raw = with_args({"hostile": args, "padding": "x" * padding})
    if send_profile(tenants, raw):
        path = f"{PROFILES}/hostile"
        eventually(lambda: ready(tenants.client.get(path))[0], bool, "a verdict about a profile")
        tenants.client.delete(path)
    tenants.assert_unharmed()


def test_the_operator_is_what_it_was_when_all_is_over(tenants: Tenants) -> None:
    assert_profiles_still_work(tenants)
    tenants.assert_unharmed()
