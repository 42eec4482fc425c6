"""Converts answers to errors, and errors to lines for users."""

import orjson
import pytest

from kube.api_server import status_object
from mooring.kube.api_resources import NODE, POD, SCHEDULING_PROFILE, ApiCall
from mooring.kube.errors import (
    ApiError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnansweredError,
    UnauthorizedError,
    UnreachableError,
    denied_by_admission,
    error_from_response,
    error_from_status,
    exceeds_quota,
    explain,
)

BIND = ApiCall.parse("POST", POD.path("team-a", "web", "binding"))
LIST_PROFILES = ApiCall.parse("GET", SCHEDULING_PROFILE.path())
SERVER = "https://10.0.0.1:6443"


def refusal(call: ApiCall, code: int, reason: str, message: str, **details: str) -> ApiError:
    body = orjson.dumps(status_object(code, reason, message, **details))
    return error_from_response(call, code, body, server=SERVER)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, ApiError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (429, TooManyRequestsError),
        (500, ServerError),
        (503, ServerError),
    ],
)
def test_every_status_has_its_error(status: int, kind: type[ApiError]) -> None:
    error = refusal(BIND, status, "SomeReason", "words")
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, "SomeReason", "words")
    assert (error.verb, error.resource) == ("create", "pods/binding")
    assert str(error) == f"create pods/binding team-a/web: words ({status} SomeReason)"


@pytest.mark.parametrize("body", [b"404 page not found", b"", b"[1]", b'"text"', b"\xff<html>"])
def test_an_answer_that_is_no_status_object_still_gives_an_error(body: bytes) -> None:
    error = error_from_response(BIND, 502, body)
    assert type(error) is ServerError
    assert error.message


@pytest.mark.parametrize("field", ["message", "reason", "details", "code"])
@pytest.mark.parametrize("value", [5, "text", [5], {"causes": 5}, {"causes": [5]}, {"name": 5}])
def test_a_malformed_status_object_still_gives_an_error(field: str, value: object) -> None:
    body = orjson.dumps({"kind": "Status", field: value})
    error = error_from_response(BIND, 429, body)
    assert type(error) is TooManyRequestsError
    assert "create pods/binding" in explain(error)
    event = error_from_status(BIND, {"code": 429, field: value})
    assert "create pods/binding" in explain(event)


def test_the_wait_a_server_asks_for_is_in_seconds() -> None:
    assert error_from_response(BIND, 429, b"", retry_after="7").retry_after == 7
    assert error_from_response(BIND, 429, b"", retry_after="tomorrow").retry_after is None
    assert error_from_response(BIND, 429, b"").retry_after is None


def test_a_refused_verb_names_verb_resource_user_and_the_cure() -> None:
    message = (
        'pods "web" is forbidden: User "system:serviceaccount:mooring-system:mooring" cannot '
        'create resource "pods/binding" in API group "" in the namespace "team-a"'
    )
    assert explain(refusal(BIND, 403, "Forbidden", message, name="web")) == (
        'user "system:serviceaccount:mooring-system:mooring" may not create pods/binding '
        "team-a/web; grant it with: kubectl apply -k manifests/"
    )


def test_a_refusal_by_quota_is_not_taken_for_rbac() -> None:
    line = explain(refusal(BIND, 403, "Forbidden", "exceeded quota: small", name="web"))
    assert line == "create pods/binding team-a/web: exceeded quota: small (403 Forbidden)"


POLICY = "ValidatingAdmissionPolicy 'no-binding' with binding 'all' denied request: not today"
WEBHOOK = 'admission webhook "guard.example" denied the request: not today'


@pytest.mark.parametrize(
    ("status", "message", "denied", "quota"),
    [
        (422, POLICY, True, False),
        (401, POLICY, True, False),
        (400, WEBHOOK, True, False),
        (403, WEBHOOK, True, False),
        (403, 'pods "web" is forbidden: node is not yours', True, False),
        (403, 'pods "web" is forbidden: exceeded quota: small, requested: pods=1', False, True),
        (403, 'pods "web" is forbidden: failed quota: small: must specify cpu', False, True),
        (403, 'pods "web" is forbidden: User "x" cannot create resource "pods"', False, False),
        (422, "spec: Invalid value", False, False),
        (500, WEBHOOK, False, False),
    ],
)
def test_a_denial_by_admission_and_a_quota_are_told_from_other_refusals(
    *, status: int, message: str, denied: bool, quota: bool
) -> None:
    error = refusal(BIND, status, "Forbidden", message, name="web")
    assert (denied_by_admission(error), exceeds_quota(error)) == (denied, quota)
    if denied:
        assert message in explain(error)


def test_an_error_of_the_connection_is_no_denial() -> None:
    assert not denied_by_admission(UnreachableError(BIND, "connection refused"))
    assert not denied_by_admission(ConfigError("no kubeconfig"))


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found\n",
        orjson.dumps(
            status_object(404, "NotFound", "the server could not find the requested resource")
        ),
    ],
)
def test_a_missing_crd_says_which_and_how_to_create_it(body: bytes) -> None:
    assert explain(error_from_response(LIST_PROFILES, 404, body, server=SERVER)) == (
        "the cluster has no schedulingprofiles.scheduling.mooring.dev: its "
        "CustomResourceDefinition is missing; create it with: kubectl apply -f crds/"
    )


def test_a_missing_object_of_a_known_type_is_just_missing() -> None:
    call = ApiCall.parse("GET", SCHEDULING_PROFILE.path(name="x"))
    line = explain(refusal(call, 404, "NotFound", 'schedulingprofiles "x" not found', name="x"))
    assert line == (
        "get schedulingprofiles.scheduling.mooring.dev x: "
        'schedulingprofiles "x" not found (404 NotFound)'
    )


def test_a_server_that_does_not_know_nodes_is_no_api_server() -> None:
    call = ApiCall.parse("GET", NODE.path())
    line = explain(error_from_response(call, 404, b"not\nfound", server=SERVER))
    assert line == (
        f"the API server at {SERVER} does not serve nodes (not found); "
        "check that the URL is an API server's and its version is supported"
    )


def test_an_unreachable_server_is_named_with_what_to_check() -> None:
    line = explain(UnreachableError(BIND, "connection refused", server=SERVER))
    assert line == (
        f"cannot reach the API server at {SERVER}: connection refused; check that it runs and "
        "that KUBECONFIG (or --kubeconfig, --context) names the right cluster and CA"
    )


def test_a_lost_answer_does_not_claim_that_the_server_is_away() -> None:
    line = explain(UnansweredError(BIND, "it took too long", server=SERVER))
    assert line.startswith(f"no answer from the API server at {SERVER} to create pods/binding")


def test_refused_credentials_say_to_renew_them() -> None:
    line = explain(refusal(BIND, 401, "Unauthorized", "Unauthorized"))
    assert line.startswith(f"the API server at {SERVER} knows no user by the credentials")


def test_an_anonymous_request_is_not_told_to_change_rbac() -> None:
    message = 'nodes is forbidden: User "system:anonymous" cannot list resource "nodes"'
    call = ApiCall.parse("GET", NODE.path())
    line = explain(refusal(call, 403, "Forbidden", message))
    assert line.startswith(f"the API server at {SERVER} knows no user by the credentials for list")


def test_every_explanation_is_one_line() -> None:
    assert explain(ConfigError("two\n  lines")) == "two lines"
    assert "\n" not in explain(refusal(BIND, 422, "Invalid", "spec:\n\tbad"))
