"""The errors between Mooring and the API server.

    KubeError
      ConfigError              no usable kubeconfig or service account; a user's mistake
      ApiError                 any request that did not succeed
        UnreachableError       no connection: the request never left
          UnansweredError      it left, but no whole answer came: a write may have happened
          NotLeadingError      a write that was not sent, because the lease is not valid
          NotWantedError       a write that was not sent, because it is not wanted any more
        UnauthorizedError 401, ForbiddenError 403, NotFoundError 404, ConflictError 409,
        GoneError 410, InvalidError 400 and 422, ServerError 5xx
        TooManyRequestsError 429
          DisruptionBudgetError  429 of the Eviction API: a disruption budget forbids it for now

No other errors leave the package: errors of aiohttp and kubernetes_asyncio are chained as
`__cause__`. `asyncio.CancelledError` always passes through. `explain` turns each error into one
line for users.
"""

import re
from typing import Any, Final, TypeVar

import orjson

from mooring.kube.api_resources import MOORING_GROUP, ApiCall

_Typed = TypeVar("_Typed", int, str, list[Any], dict[str, Any])

LEASE_NOT_VALID: Final = "the lease of this replica is not valid at the moment"
"""The message of NotLeadingError."""
NOT_WANTED: Final = "it is not wanted any more"
"""The message of NotWantedError."""


class KubeError(Exception):
    """The root of every error of this package."""


class ConfigError(KubeError):
    """Raised if the connection to the API server cannot be configured; the text is one line."""


class ApiError(KubeError):
    """A request that did not succeed.

    Attributes:
        call: The verb and the resource of the request.
        server: The API server's URL.
        message: The server's message, or the transport's if no answer came.
        status: The HTTP status, None if no answer came.
        reason: The machine-readable reason of the answer, such as `AlreadyExists`; may be empty.
        retry_after: The seconds to wait before the next try, if the server says so, else None.
        subject: The name of the object that the answer is about; "" if the answer names no object.
    """

    def __init__(
        self,
        call: ApiCall,
        message: str,
        *,
        server: str = "",
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
        subject: str = "",
    ) -> None:
        super().__init__(call, message)
        self.call = call
        self.message = message
        self.server = server
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.subject = subject

    @property
    def verb(self) -> str:
        """The RBAC verb of the request."""
        return self.call.verb

    @property
    def resource(self) -> str:
        """The resource with its subresource: `pods/binding`."""
        return self.call.resource

    @property
    def kind(self) -> tuple[type, int | None, str]:
        """A key of the error's cause; errors about different objects may have equal keys."""
        return type(self), self.status, self.reason

    def __str__(self) -> str:
        answer = " ".join(str(part) for part in (self.status, self.reason) if part)
        return f"{self.call}: {self.message}" + (f" ({answer})" if answer else "")


class UnreachableError(ApiError):
    """Raised if no connection could be made, so the server has not seen the request."""


class UnansweredError(UnreachableError):
    """Raised if the connection broke or timed out after the request; a write may have happened."""


class NotLeadingError(UnreachableError):
    """Raised if a write was not sent, because this replica's lease is not valid at the moment."""


class NotWantedError(UnreachableError):
    """Raised if a write was not sent, because its caller no longer wants it."""


class UnauthorizedError(ApiError):
    """401: the credentials are missing, wrong or expired, even after they were renewed."""


class ForbiddenError(ApiError):
    """403: RBAC, a quota or another admission rule refused; do not retry at once."""


class NotFoundError(ApiError):
    """404: the object does not exist, or the server lacks its type (then `subject` is empty)."""


class ConflictError(ApiError):
    """409: the object exists already, or is not in the state that the request needs."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; the caller must list again."""


class TooManyRequestsError(ApiError):
    """429: the server is overloaded."""


class DisruptionBudgetError(TooManyRequestsError):
    """429 of the Eviction API: a disruption budget forbids it now; do not retry at once."""


class InvalidError(ApiError):
    """400 or 422: the server cannot accept this request."""


class ServerError(ApiError):
    """5xx: the server failed; a write may have happened."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}

_BUDGET_CAUSE: Final = "DisruptionBudget"
"""The cause in the details of a 429 answer if a disruption budget refuses the eviction. Without
this cause, the server is overloaded."""


def error_from_response(
    call: ApiCall, status: int, body: bytes, *, server: str = "", retry_after: str | None = None
) -> ApiError:
    """Return the error for an answer whose status is not 2xx; `body` is a Status object or text."""
    try:
        details = orjson.loads(body)
    except orjson.JSONDecodeError:
        details = None
    if not isinstance(details, dict) or details.get("kind") != "Status":
        details = {"message": body[:500].decode(errors="replace").strip() or f"HTTP {status}"}
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return error_from_status(call, details | {"code": status}, server=server, retry_after=seconds)


def error_from_status(
    call: ApiCall, status: dict[str, Any], *, server: str = "", retry_after: float | None = None
) -> ApiError:
    """Return the error for a Status object, from an answer or from an ERROR event of a watch."""
    code = _typed(status.get("code"), int) or 500
    kind = _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    details = _typed(status.get("details"), dict)
    causes = [_typed(cause, dict) for cause in _typed(details.get("causes"), list)]
    if code == 429 and any(cause.get("reason") == _BUDGET_CAUSE for cause in causes):
        kind = DisruptionBudgetError
    return kind(
        call,
        _typed(status.get("message"), str) or f"HTTP {code}",
        server=server,
        status=code,
        reason=_typed(status.get("reason"), str),
        retry_after=retry_after,
        subject=_typed(details.get("name"), str),
    )


def _typed(value: object, wanted: type[_Typed]) -> _Typed:
    return value if isinstance(value, wanted) else wanted()


ANONYMOUS: Final = "system:anonymous"
"""The user of a request without credentials."""

_RBAC_REFUSAL = re.compile(r'User "([^"]*)" cannot ')


_QUOTA = re.compile(r"\b(exceeded|failed) quota: ")
_ADMISSION = re.compile(r"admission webhook \"|(Validating|Mutating)AdmissionPolicy '")
"""Matches the message of a denial by admission; webhooks may choose any HTTP status for it."""


def exceeds_quota(error: KubeError) -> bool:
    """Return whether a ResourceQuota forbids the write (plugin/pkg/admission/resourcequota)."""
    return isinstance(error, ForbiddenError) and _QUOTA.search(error.message) is not None


def denied_by_admission(error: KubeError) -> bool:
    """Return whether an admission policy, webhook or plugin denies the write.

    Returns False for an exceeded ResourceQuota.
    """
    if not isinstance(error, ApiError) or error.status is None or error.status >= 500:
        return False
    if _ADMISSION.search(error.message) is not None:
        return True
    forbidden = isinstance(error, ForbiddenError) and _refused_user(error) is None
    return forbidden and not exceeds_quota(error)


def explain(error: KubeError) -> str:
    """Return one line for a user: what is wrong, where, and how to correct it."""
    if not isinstance(error, ApiError):
        return " ".join(str(error).split())
    user = _refused_user(error)
    if isinstance(error, NotLeadingError | NotWantedError):
        line = f"{error.call} was not sent: {error.message}"
    elif isinstance(error, UnansweredError):
        line = (
            f"no answer from the API server at {error.server} to {error.call}: {error.message}; "
            "it is tried again where that is safe"
        )
    elif isinstance(error, UnreachableError):
        line = (
            f"cannot reach the API server at {error.server}: {error.message}; check that it runs "
            "and that KUBECONFIG (or --kubeconfig, --context) names the right cluster and CA"
        )
    elif denied_by_admission(error):
        line = str(error)
    elif isinstance(error, UnauthorizedError) or user == ANONYMOUS:
        line = (
            f"the API server at {error.server} knows no user by the credentials for {error.call}; "
            "renew the token, certificate or login plugin of the kubeconfig or service account"
        )
    elif user is not None:
        line = f'user "{user}" may not {error.call}; grant it with: kubectl apply -k manifests/'
    elif isinstance(error, NotFoundError) and not error.subject:
        line = _explain_unknown_type(error)
    else:
        line = str(error)
    return " ".join(line.split())


def _refused_user(error: ApiError) -> str | None:
    refusal = _RBAC_REFUSAL.search(error.message) if isinstance(error, ForbiddenError) else None
    return refusal[1] if refusal else None


def _explain_unknown_type(error: NotFoundError) -> str:
    kind = error.resource.partition("/")[0]
    if error.call.group == MOORING_GROUP:
        return (
            f"the cluster has no {kind}.{MOORING_GROUP}: its CustomResourceDefinition is missing; "
            "create it with: kubectl apply -f crds/"
        )
    where = f"{kind}.{error.call.group}" if error.call.group else kind
    return (
        f"the API server at {error.server} does not serve {where} ({error.message}); "
        "check that the URL is an API server's and its version is supported"
    )
