"""The paths of resources, and the parsing of paths."""

from hypothesis import given
from hypothesis import strategies as st

from mooring.kube import api_resources as resources
from mooring.kube.api_resources import (
    CSI_NODE,
    LEASE,
    NODE,
    POD,
    SCHEDULING_PROFILE,
    ApiCall,
    Resource,
)

EVERY = [value for value in vars(resources).values() if isinstance(value, Resource)]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=30)


def test_a_core_resource_lies_under_api() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("team-a", "web-0", "binding") == "/api/v1/namespaces/team-a/pods/web-0/binding"
    assert NODE.path(name="node-1") == "/api/v1/nodes/node-1"


def test_a_resource_of_a_group_lies_under_apis() -> None:
    assert LEASE.path("kube-system") == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert LEASE.api_version == "coordination.k8s.io/v1"
    assert POD.api_version == "v1"


def test_a_name_cannot_change_the_path() -> None:
    assert NODE.path(name="../pods?x") == "/api/v1/nodes/..%2Fpods%3Fx"


def test_a_call_is_named_in_the_words_of_rbac() -> None:
    assert ApiCall.parse("POST", "/api/v1/namespaces/a/pods/web/binding") == ApiCall(
        "create", "pods/binding", "", "a", "web"
    )
    assert ApiCall.parse("GET", "/api/v1/pods").verb == "list"
    assert ApiCall.parse("GET", "/api/v1/pods", watch=True).verb == "watch"
    assert ApiCall.parse("GET", "/api/v1/namespaces/a/pods/web").verb == "get"
    assert ApiCall.parse("PUT", LEASE.path("a", "b")).verb == "update"
    assert ApiCall.parse("PATCH", "/api/v1/nodes/n/status") == ApiCall(
        "patch", "nodes/status", name="n"
    )
    assert ApiCall.parse("DELETE", "/api/v1/namespaces/a/pods").verb == "deletecollection"


def test_a_namespace_itself_is_not_taken_for_a_scope() -> None:
    assert ApiCall.parse("GET", "/api/v1/namespaces/a") == ApiCall("get", "namespaces", name="a")
    assert ApiCall.parse("PUT", "/api/v1/namespaces/a/finalize").resource == "namespaces/finalize"


def test_a_path_outside_the_resource_api_stays_itself() -> None:
    assert ApiCall.parse("GET", "/version") == ApiCall("get", "/version")


def test_a_call_reads_as_a_phrase() -> None:
    assert str(ApiCall.parse("GET", SCHEDULING_PROFILE.path())) == (
        "list schedulingprofiles.scheduling.mooring.dev"
    )
    assert str(ApiCall.parse("GET", POD.path("a"))) == "list pods in namespace a"
    assert str(ApiCall.parse("GET", CSI_NODE.path(name="n"))) == "get csinodes.storage.k8s.io n"
    assert str(ApiCall.parse("POST", POD.path("a", "b", "binding"))) == "create pods/binding a/b"


@given(st.sampled_from(EVERY), NAMES, NAMES)
def test_the_call_of_any_path_names_its_resource(
    resource: Resource, namespace: str, name: str
) -> None:
    scope = namespace if resource.namespaced else None
    call = ApiCall.parse("GET", resource.path(scope, name))
    assert call == ApiCall("get", resource.plural, resource.group, scope, name)


def test_no_two_resources_share_a_collection() -> None:
    assert len({resource.path() for resource in EVERY}) == len(EVERY)
