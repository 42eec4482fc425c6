"""Scheduler extenders: HTTP services that filter, score, preempt or bind in addition to plugins.

Source: staging `kube-scheduler/config/v1/types.go` and `apis/config/validation/validation.go`.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from mooring.model.bounded_cache import cached
from mooring.policy.durations import Duration
from mooring.policy.name_syntax import ExtendedResource
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.reading import PolicyModel

_DEFAULT_TIMEOUT: Final = timedelta(seconds=5)
_URL: Final = r"^https?://[^\s/]+\S*$"
_UNESCAPED: Final = "in user and password, characters such as / ? # [ and @ must be escaped"

Verb = Annotated[str, Field(max_length=253)]
Path = Annotated[str, Field(max_length=4096)]


def _from_base64(given: object) -> bytes:
    # As Go, which ignores line breaks.
    if isinstance(given, bytes):
        return given
    try:
        return b64decode("".join(str(given).split()), validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


PEM = Annotated[
    bytes,
    PlainValidator(_from_base64),
    PlainSerializer(lambda data: b64encode(data).decode(), return_type=str),
    WithJsonSchema({"type": "string", "format": "byte", "maxLength": 65536}),
]


def _url(text: str) -> str:
    meant = _without_secrets(text)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        # Its text has what is read as the port, which may be a part of the password.
        why = _UNESCAPED if "@" in text else error
        raise ValueError(f'is no URL: "{meant}": {why}') from None
    if not host or not re.fullmatch(_URL, text):
        raise ValueError(f'must begin with http:// or https:// and a host, got "{meant}"')
    return text


def _without_secrets(text: str) -> str:
    # The URL may be invalid.
    before, _, rest = text.rpartition("@")
    scheme, found, _ = before.partition("://")
    return f"{scheme + found if found else ''}{rest}".partition("?")[0]


@cached(2**20)  # the name is read several times for each pod
def without_secrets(url: str) -> str:
    """Return the `urlPrefix` of a valid extender without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class ManagedResource(PolicyModel):
    """An extended resource that an extender manages."""

    name: ExtendedResource
    """The resource's name, such as example.com/gpu."""
    ignored_by_scheduler: bool = False
    """Whether NodeResourcesFit leaves this resource unchecked."""


class TLSConfig(PolicyModel):
    """Certificates for TLS with an extender. A data field takes precedence over its file field."""

    insecure: bool = False
    """Do not verify the server's certificate. For tests only."""
    server_name: str = Field("", max_length=253)
    """The server name to send and to verify, if it is not the URL's host."""
    cert_file: Path = ""
    """The path of the file with the client certificate."""
    key_file: Path = ""
    """The path of the file with the private key of the client."""
    ca_file: Path = ""
    """The path of the file with the certificates to trust."""
    cert_data: PEM = b""
    """The client certificate, PEM in base64."""
    key_data: PEM = Field(b"", repr=False)
    """The client key, PEM in base64. A SchedulingProfile is not a Secret: prefer `keyFile`."""
    ca_data: PEM = b""
    """The certificates to trust, PEM in base64."""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files to read; a path is left out if its data field is set."""
        given = ((self.ca_data, self.ca_file), (self.cert_data, self.cert_file))
        return tuple(
            path for data, path in (*given, (self.key_data, self.key_file)) if path and not data
        )

    def without_files(self) -> "TLSConfig":
        """Return a copy without files; it has the certificate and key only if both are inline."""
        unread: dict[str, str | bytes] = {"ca_file": "", "cert_file": "", "key_file": ""}
        if not (self.cert_data and self.key_data):
            unread |= {"cert_data": b"", "key_data": b""}
        return self.model_copy(update=unread)

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for `insecure` with a CA, and for only one of certificate and key."""
        if self.insecure and (self.ca_file or self.ca_data):
            yield FieldError("insecure", "must be false where caFile or caData is given")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            yield FieldError("", "needs both a client certificate and its key, or neither")


class Extender(PolicyModel):
    """An HTTP service. Mooring does not call a verb that is empty or absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.prioritizeVerb) || self.prioritizeVerb == '' "
                    "|| (has(self.weight) && self.weight > 0)",
                    "message": "weight must be at least 1 where prioritizeVerb is given",
                    "fieldPath": ".weight",
                }
            ]
        }
    )

    url_prefix: Annotated[str, AfterValidator(_url)] = Field(
        max_length=2048, json_schema_extra={"pattern": _URL}
    )
    """The extender's URL; a verb is appended after a slash."""
    filter_verb: Verb = ""
    """The path below `urlPrefix` for calls that filter nodes."""
    preempt_verb: Verb = ""
    """The path below `urlPrefix` for calls that check the victims of a preemption."""
    prioritize_verb: Verb = ""
    """The path below `urlPrefix` for calls that score nodes from 0 to 10."""
    weight: int = Field(0, ge=0, le=2**31 - 1)
    """The factor of the extender's scores; at least 1 if `prioritizeVerb` is given."""
    bind_verb: Verb = ""
    """The path below `urlPrefix` for calls that bind a pod. Only one extender may have it."""
    enable_https: bool = Field(default=False, alias="enableHTTPS")
    """Use TLS with `tlsConfig`; without trusted certificates the server is not verified."""
    tls_config: TLSConfig | None = None
    """The certificates and keys for TLS, if `enableHTTPS` is true."""
    http_timeout: Duration = _DEFAULT_TIMEOUT
    """The time limit of one call, such as 500ms; 0 means the default, 5s."""
    node_cache_capable: bool = False
    """The extender has a cache of nodes: send node names instead of node objects."""
    managed_resources: tuple[ManagedResource, ...] = Field(
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    """Only pods that request one of these resources are sent to the extender; if empty, every pod
    is."""
    ignorable: bool = False
    """Schedule without the extender if it fails or cannot be reached."""

    @property
    def name(self) -> str:
        """The URL without user and password, by which messages and metrics name the extender."""
        return without_secrets(self.url_prefix)

    @property
    def timeout(self) -> timedelta:
        """The time limit of one call."""
        return self.http_timeout or _DEFAULT_TIMEOUT

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for `prioritizeVerb` without weight, and for a negative time limit."""
        if self.prioritize_verb and self.weight == 0:
            yield FieldError("weight", "must be at least 1 where prioritizeVerb is given")
        if self.http_timeout < timedelta(0):
            yield FieldError("httpTimeout", "must be 0s or more")


def in_call_order(extenders: Iterable[Extender]) -> tuple[Extender, ...]:
    """Return the extenders in the order of calls: ignorable extenders last (buildExtenders)."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def _agree(extenders: tuple[Extender, ...]) -> tuple[Extender, ...]:
    mistakes = []
    binders = [number for number, extender in enumerate(extenders) if extender.bind_verb]
    for number in binders[1:]:
        message = f"must not be given: only one extender can bind, and [{binders[0]}] does"
        mistakes.append(FieldError(f"[{number}].bindVerb", message))
    owners = dict[str, str]()
    for number, extender in enumerate(extenders):
        for position, resource in enumerate(extender.managed_resources):
            path = f"[{number}].managedResources[{position}].name"
            if resource.name in owners:
                message = f'"{resource.name}" is managed already by {owners[resource.name]}'
                mistakes.append(FieldError(path, message))
            owners.setdefault(resource.name, f"[{number}]")
    if mistakes:
        raise ProfileInvalid(mistakes)
    return extenders


Extenders = Annotated[
    tuple[Extender, ...],
    Field(
        max_length=16,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.filter(e, has(e.bindVerb) && e.bindVerb != '').size() <= 1",
                    "message": "only one extender can have a bindVerb",
                }
            ]
        },
    ),
    AfterValidator(_agree),
]
"""The extenders in call order: at most one of them binds, and at most one manages each resource."""
