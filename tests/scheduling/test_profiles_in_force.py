from typing import Any

import pytest

from mooring.extenders.extenders import tls_problem
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.scheduling.profiles_in_force import Profiles
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import api_object, cluster, namespace, pod
from mooring.testing.fakes import handle


class Fails:
    """A plugin whose constructor raises an error."""

    name = "Fails"
    depends_on_node_only = True

    def __init__(self, _args: NoArgs, _handle: Handle) -> None:
        raise RuntimeError("no licence")

    def pre_enqueue(self, _pod: Pod) -> Unschedulable | None:
        return None


STATE = cluster(namespace("batch", {"env": "batch"}))
CLUSTER = ClusterView(STATE)
REGISTRY = Registry((*SHIPPED, Fails), {})


def profiles(**specs: dict[str, Any]) -> Profiles:
    known = Profiles(REGISTRY, handle(STATE))
    for name, raw in specs.items():
        put(known, name, **raw)
    return known


def put(known: Profiles, name: str, **raw: Any) -> None:
    spec = read(SchedulingProfileSpec, raw, "spec")
    known.put(SchedulingProfile(name, spec), resolve(spec, REGISTRY))


def of(known: Profiles, scheduler: str, namespace_name: str = "default") -> str | None:
    raw = pod(namespace=namespace_name, spec={"schedulerName": scheduler})
    found = known.of(parse_pod(raw), CLUSTER)
    return found.profile.name if found is not None else None


def test_a_profile_has_the_rules_of_the_server_unless_it_names_a_version() -> None:
    state = cluster()
    state.follow_server("1.36")
    known = Profiles(REGISTRY, handle(state))
    for name, spec in (("follows", {}), ("pinned", {"kubernetesVersion": "1.35"})):
        known.apply(api_object("SchedulingProfile", name, spec=spec))
    versions = {n: e.pipeline.kubernetes.version for n, e in known.in_force.items()}
    assert versions == {"follows": "1.36", "pinned": "1.35"}


def test_a_profile_in_mode_shadow_takes_no_pod_and_is_found_where_no_active_one_takes_it() -> None:
    names = {"schedulerNames": ["a", "b"]}
    known = profiles(
        shadow={"mode": "Shadow", "match": {**names, "precedence": 9}},
        active={"match": {"schedulerNames": ["b"]}},
    )
    assert known.has_shadows
    assert (of(known, "a"), of(known, "b")) == (None, "active")
    shadows = [
        known.shadow_of(parse_pod(pod(spec={"schedulerName": name})), CLUSTER)
        for name in ("a", "b", "c")
    ]
    assert [entry.profile.name if entry else None for entry in shadows] == ["shadow", None, None]
    known.remove("shadow")
    assert not known.has_shadows


def test_a_pods_profile_is_found_by_scheduler_name() -> None:
    known = profiles(a={}, b={})
    assert (of(known, "a"), of(known, "b"), of(known, "c")) == ("a", "b", None)


def test_a_pods_profile_is_found_by_the_labels_of_its_namespace() -> None:
    batch = {"schedulerNames": ["x"], "namespaceSelector": {"matchLabels": {"env": "batch"}}}
    known = profiles(all={"match": {"schedulerNames": ["x"]}}, some={"match": batch})
    put(known, "some", match=batch | {"precedence": 1})
    assert (of(known, "x", "batch"), of(known, "x", "default")) == ("some", "all")


def test_a_profile_that_is_put_again_replaces_its_pipeline() -> None:
    known = profiles(a={})
    before = known.in_force["a"].pipeline
    put(known, "a", percentageOfNodesToScore=7)
    after = known.in_force["a"].pipeline
    assert (before.percentage_of_nodes_to_score, after.percentage_of_nodes_to_score) == (100, 7)
    assert after is not before


def test_a_profile_that_cannot_be_built_leaves_the_last_one_in_force() -> None:
    known = profiles(a={"percentageOfNodesToScore": 7})
    with pytest.raises(ProfileInvalid, match=r"Fails cannot be built: RuntimeError: no licence"):
        put(known, "a", plugins={"preEnqueue": {"enabled": [{"name": "Fails"}]}})
    assert known.in_force["a"].pipeline.percentage_of_nodes_to_score == 7
    assert of(known, "a") == "a"


def test_a_removed_profile_takes_no_pods_and_its_absence_is_no_error() -> None:
    known = profiles(a={})
    known.remove("a")
    known.remove("a")
    assert of(known, "a") is None
    assert known.in_force == {}


def test_a_profile_whose_extender_has_unusable_certificates_is_invalid() -> None:
    known = Profiles(REGISTRY, handle(STATE), tls_problem=tls_problem)
    with pytest.raises(ProfileInvalid) as invalid:
        put(
            known,
            "a",
            extenders=[
                {"urlPrefix": "http://plain"},
                {"urlPrefix": "https://x", "tlsConfig": {"caFile": "/no/such/ca.crt"}},
            ],
        )
    (mistake,) = invalid.value.errors
    assert str(mistake) == (
        "spec.extenders[1].tlsConfig: caFile /no/such/ca.crt cannot be used: No such file or "
        "directory"
    )
    assert known.in_force == {}
