"""A short test with each release of Kubernetes: the chosen release, and all that are built."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

import replica
from controlplane import ControlPlane
from controlplane.build import SERVER_PROGRAMS, built_releases, control_plane, programs_folder
from controlplane.client import ApiError, Client
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.releases import RELEASES, Release, chosen_release
from e2e.node_pool import NodePool
from e2e.replicas import PROFILES, Replicas, eventually, messages_of, ready
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.kube.api_resources import COSCHEDULING_POD_GROUP
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.pod import parse_pod
from mooring.model.resources import parse_containers
from mooring.simulate.admission import Admission, Forbidden
from mooring.testing.builders import coscheduling_pod_group, pod_group
from policies import profile

Raw = dict[str, Any]


def chosen_or_built() -> list[Release]:
    """Return the built releases, and the chosen one even if it is not built (its tests fail)."""
    built = built_releases(SERVER_PROGRAMS)
    return [release for release in RELEASES if release in built or release is chosen_release()]


@pytest.fixture(scope="module", params=chosen_or_built(), ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def plane(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a server with Mooring as shipped, and with PodGroups if the release has them."""
    folder = programs_folder(control_plane(release), SERVER_PROGRAMS)
    logs = tmp_path_factory.mktemp(release.minor)
    with ControlPlane(programs=folder, flags=release.pod_group_flags()) as plane:
        replica.apply_manifests(plane.access)
        with Replicas.of(plane.access, logs) as replicas, plane.access.client() as client:
            classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
            client.post(classes, {"metadata": {"name": "high"}, "value": 1000})
            scheduler = replicas.start()
            scheduler.wait_until_leads()
            yield plane
            assert scheduler.get("/readyz")[0] == 200
            assert scheduler.terminate() == 0


@pytest.fixture
def pool(plane: ControlPlane, client: Client) -> Iterator[NodePool]:
    """Yield a namespace, and nodes that only its pods select."""
    pool = NodePool(create_namespace(plane.access, "pool"), plane.access, client)
    yield pool
    delete_namespace(plane.access, pool.name)


def test_pods_are_bound_and_one_that_does_not_fit_says_why(
    pool: NodePool, release: Release
) -> None:
    version = pool.client.get("/version")["gitVersion"]
    assert version == release.version
    pool.add_nodes(2, cpu="2")
    for name in ("a", "b"):
        pool.add_pod(name, cpu="1500m")
    assert sorted(pool.wait_until_bound("a", "b").values()) == [1, 1]
    pool.add_pod("c", cpu="1500m")
    assert "2 Insufficient cpu" in pool.wait_until_unschedulable("c")["message"]


def test_a_pod_of_higher_priority_takes_the_place_of_another(pool: NodePool) -> None:
    pool.add_nodes(1, cpu="2")
    pool.add_pod("low", cpu="1500m", terminationGracePeriodSeconds=0)
    pool.wait_until_bound("low")
    pool.add_pod("high", cpu="1500m", priorityClassName="high")
    pool.wait_until_bound("high")
    assert pool.bound().keys() == {"high"}


def waits_for_its_gang(pool: NodePool, path: str, group: Raw, fields: Raw) -> None:
    """Check that two of three members wait, and that all are bound after the third was created."""
    pool.add_nodes(3, cpu="2", prefix=f"{group['apiVersion'].partition('/')[0]}-")
    pool.client.post(path, group)
    names = [f"{group['metadata']['name']}-{number}" for number in range(3)]
    for name in names[:2]:
        pool.add_pod(name, cpu="1500m", **fields)
    said = partial(messages_of, pool.client, pool.name)
    eventually(said, lambda found: any("2 of 3 members" in text for text in found), "the reason")
    pool.add_pod(names[2], cpu="1500m", **fields)
    pool.wait_until_bound(*names)


def test_a_gang_is_bound_when_it_is_complete(pool: NodePool, release: Release) -> None:
    """The test includes Kubernetes' own PodGroups if the release has them."""
    waits_for_its_gang(
        pool,
        COSCHEDULING_POD_GROUP.path(pool.name),
        coscheduling_pod_group("labelled", 3, namespace=pool.name),
        {"labels": {COSCHEDULING_LABEL: "labelled"}},
    )
    if release.has_pod_groups:
        waits_for_its_gang(
            pool,
            release.pod_groups(pool.name),
            release.versioned(pod_group("named", 3, namespace=pool.name)),
            {"schedulingGroup": {"podGroupName": "named"}},
        )


def test_the_next_pods_follow_a_changed_profile(pool: NodePool) -> None:
    def apply(generation: int, strategy: str) -> None:
        args = {"scoringStrategy": {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}}
        score = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
        spec: dict[str, Any] = {
            "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
            "plugins": {"score": score},
        }
        path = f"{PROFILES}/{pool.name}"
        if generation == 1:
            pool.client.post(PROFILES, profile(pool.name, **spec))
        else:
            pool.client.patch(path, {"spec": spec})
        eventually(
            partial(pool.client.get, path),
            lambda raw: (
                raw.get("status", {}).get("observedGeneration") == generation
                and ready(raw)[0] == "True"
            ),
            f"{strategy} in force",
        )

    pool.add_nodes(2, cpu="4")
    apply(1, "LeastAllocated")
    for name in ("a", "b"):
        pool.add_pod(name, cpu="1", scheduler=pool.name)
        pool.wait_until_bound(name)
    assert sorted(pool.wait_until_bound("a", "b").values()) == [1, 1]
    apply(2, "MostAllocated")
    for name in ("c", "d"):
        pool.add_pod(name, cpu="1", scheduler=pool.name)
        pool.wait_until_bound(name)
    assert sorted(pool.wait_until_bound("c", "d").values()) == [1, 3]
    pool.client.delete(f"{PROFILES}/{pool.name}")


CPU_LIMITS = ("500m", "1", "1500m")
LIMIT_RANGES: tuple[Raw, ...] = (
    {"type": "Container", "defaultRequest": {"cpu": "250m", "memory": "64Mi"}},
    {"type": "Container", "default": {"cpu": "1", "memory": "128Mi"}, "min": {"cpu": "100m"}},
    {"type": "Pod", "max": {"cpu": "5"}, "min": {"memory": "96Mi"}},
)


def pod_with_resources(dice: Random, name: str, namespace: str) -> Raw:
    """Return a pod with random requests and limits of its containers and perhaps of itself."""

    def container(number: int, **fields: Any) -> Raw:
        limits = {"cpu": dice.choice(CPU_LIMITS)} if dice.random() < 0.3 else {}
        least = limits.get("cpu", "300m")
        requests = {"cpu": dice.choice(("200m", least))} if dice.random() < 0.4 else {}
        if dice.random() < 0.3:
            limits["memory"], requests["memory"] = "256Mi", dice.choice(("32Mi", "256Mi"))
        resources = {"limits": limits, "requests": requests}
        image = "registry.example/c:1"
        return {"name": f"c{number}", "image": image, "resources": resources, **fields}

    spec: Raw = {"containers": [container(n) for n in range(dice.randint(1, 3))]}
    if dice.random() < 0.4:
        sidecar = {"restartPolicy": "Always"} if dice.random() < 0.5 else {}
        spec["initContainers"] = [container(9, **sidecar)]
    if dice.random() < 0.7:
        limits = {"cpu": dice.choice(("4", "6")), "memory": "1Gi", "hugepages-2Mi": "4Mi"}
        kept = dice.sample(sorted(limits), dice.randint(1, 3))
        spec["resources"] = {"limits": {each: limits[each] for each in kept}}
        if dice.random() < 0.3:
            spec["resources"]["requests"] = {"cpu": "4"}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def answer_of_server(client: Client, path: str, raw: Raw) -> Raw | str:
    """Return the pod as the API server would store it, or the text of its rejection."""
    try:
        stored: Raw = client.post(f"{path}?dryRun=All", raw)
    except ApiError as error:
        return str(error)
    return stored


def answer_of_simulate(admission: Admission, raw: Raw) -> Raw | str:
    """Return the pod as `mooring simulate` completes it, or the text of its rejection."""
    try:
        return admission.pod(raw)
    except Forbidden as error:
        return f"403: {error}"


def what_counts(answer: Raw | str) -> list[Any]:
    """Return the requests of a stored pod, or the sorted reasons of a rejection."""
    if isinstance(answer, str):
        head, _, reasons = answer.partition("forbidden: ")
        return [head, *sorted(reasons.strip("[]").split(", "))]
    groups = (parse_containers(answer["spec"], g) for g in ("containers", "initContainers"))
    return [parse_pod(answer).spec.demand, *groups]


@pytest.mark.parametrize("item", LIMIT_RANGES, ids=("requests", "limits", "pods"))
def test_simulate_fills_in_requests_and_refuses_as_the_api_server_does(
    pool: NodePool, release: Release, item: Raw
) -> None:
    """Pod-level limits matter most: since 1.37 they are applied after LimitRanges."""
    path = f"/api/v1/namespaces/{pool.name}"
    made = {"metadata": {"name": "small"}, "spec": {"limits": [item]}}
    stored = pool.client.post(f"{path}/limitranges", made)
    admission = Admission((), (), [stored], kubernetes=KUBERNETES_RULES[release.minor])
    dice, compared = Random(20261123), 0  # noqa: S311 - reproducible, not secret
    for number in range(80):
        raw = pod_with_resources(dice, f"p{number}", pool.name)
        theirs = answer_of_server(pool.client, f"{path}/pods", raw)
        if isinstance(theirs, str) and theirs.startswith("422: "):
            continue  # a request above a limit is for the API server to find
        assert what_counts(answer_of_simulate(admission, raw)) == what_counts(theirs), raw
        compared += 1
    assert compared > 20
