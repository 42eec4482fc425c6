from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mooring.policy.extender import Extender, Extenders
from mooring.policy.reading import PolicyModel, read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]

URL = "http://127.0.0.1:32766/gpushare-scheduler"
UNESCAPED = "in user and password, characters such as / ? # [ and @ must be escaped"


class Holder(PolicyModel):
    extenders: Extenders = ()


def extender(**fields: object) -> dict[str, object]:
    return {"urlPrefix": URL, **fields}


def manager(*resources: str) -> dict[str, object]:
    return extender(managedResources=[{"name": name} for name in resources])


def test_every_field_of_an_extender_is_read() -> None:
    document = extender(
        filterVerb="filter",
        bindVerb="bind",
        enableHTTPS=False,
        nodeCacheCapable=True,
        managedResources=[{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
        ignorable=False,
    )
    read_back = read(Extender, document, "").model_dump(by_alias=True, exclude_unset=True)
    assert read_back == {**document, "managedResources": tuple(document["managedResources"])}  # type: ignore[arg-type]  # a list by construction


@pytest.mark.parametrize(
    ("given", "seconds"), [({}, 5), ({"httpTimeout": "0s"}, 5), ({"httpTimeout": "100ms"}, 0.1)]
)
def test_the_default_timeout_of_a_call_is_five_seconds(
    given: dict[str, object], seconds: float
) -> None:
    assert read(Extender, extender(**given), "").timeout == timedelta(seconds=seconds)


def test_certificates_are_base64_with_or_without_line_breaks() -> None:
    tls = read(Extender, extender(tlsConfig={"caData": "Y2\nE="}), "").tls_config
    assert tls is not None
    assert tls.ca_data == b"ca"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, {"urlPrefix": "is required"}),
        (
            {"urlPrefix": "example.com"},
            {"urlPrefix": 'must begin with http:// or https:// and a host, got "example.com"'},
        ),
        (
            {"urlPrefix": "htp://me:secret@example.com/x?token=secret"},
            {
                "urlPrefix": "must begin with http:// or https:// and a host, got "
                '"htp://example.com/x"'
            },
        ),
        (
            {"urlPrefix": "https://me:secret@[::1:8080/"},
            {"urlPrefix": f'is no URL: "https://[::1:8080/": {UNESCAPED}'},
        ),
        *(
            (
                {"urlPrefix": f"https://me:{password}@example.com/x"},
                {"urlPrefix": f'is no URL: "https://example.com/x": {UNESCAPED}'},
            )
            for password in ("sec#ret", "sec?ret", "sec/ret", "[sec]ret")
        ),
        (
            {"urlPrefix": "https://me:secret@ex\u2100mple.com/"},
            {"urlPrefix": f'is no URL: "https://ex\u2100mple.com/": {UNESCAPED}'},
        ),
        (
            {"urlPrefix": "https://example.com:http/"},
            {
                "urlPrefix": 'is no URL: "https://example.com:http/": Port could not be cast to '
                "integer value as 'http'"
            },
        ),
        (
            {"urlPrefix": "https://me:secret@:443/x"},
            {"urlPrefix": 'must begin with http:// or https:// and a host, got "https://:443/x"'},
        ),
        (
            {"urlPrefix": "https://[::1:8080/"},
            {"urlPrefix": 'is no URL: "https://[::1:8080/": Invalid IPv6 URL'},
        ),
        (
            extender(prioritizeVerb="prioritize"),
            {"weight": "must be at least 1 where prioritizeVerb is given"},
        ),
        (extender(weight=-1), {"weight": "must be between 0 and 2147483647, got -1"}),
        (extender(httpTimeout="-1s"), {"httpTimeout": "must be 0s or more"}),
        (
            extender(httpTimeout=5),
            {"httpTimeout": "must be a duration such as 30s or 1m30s, got 5"},
        ),
        (extender(tlsConfig={"keyData": "?"}), {"tlsConfig.keyData": "must be base64"}),
        (
            extender(tlsConfig={"insecure": True, "caFile": "/ca"}),
            {"tlsConfig.insecure": "must be false where caFile or caData is given"},
        ),
        (
            extender(tlsConfig={"certFile": "/cert"}),
            {"tlsConfig": "needs both a client certificate and its key, or neither"},
        ),
        (
            manager("cpu"),
            {
                "managedResources[0].name": '"cpu" is not an extended resource: it needs a domain '
                "of its own, as in example.com/gpu"
            },
        ),
        (
            extender(enableHttps=True),
            {"enableHttps": 'unknown field "enableHttps", did you mean enableHTTPS?'},
        ),
    ],
)
def test_a_mistake_in_an_extender_is_located_and_explained(
    document: dict[str, Any], expected: dict[str, str], mistakes: Mistakes
) -> None:
    assert mistakes(lambda: read(Extender, document, "")) == expected


def test_two_extenders_must_not_both_bind_or_manage_one_resource(mistakes: Mistakes) -> None:
    first = {**manager("a.com/x", "a.com/y"), "bindVerb": "bind"}
    second = {**manager("a.com/z", "a.com/y"), "bindVerb": "bind"}
    assert mistakes(lambda: read(Holder, {"extenders": [first, second]}, "spec")) == {
        "spec.extenders[1].bindVerb": "must not be given: only one extender can bind, and [0] does",
        "spec.extenders[1].managedResources[1].name": '"a.com/y" is managed already by [0]',
    }
