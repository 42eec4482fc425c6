from collections.abc import Callable
from datetime import timedelta

import pytest

from mooring.policy.extender import Extender, Extenders
from mooring.policy.reading import PolicyModel, read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]

URL = "http://127.0.0.1:32766/gpushare-scheduler"


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


def test_two_extenders_must_not_both_bind_or_manage_one_resource(mistakes: Mistakes) -> None:
    first = {**manager("a.com/x", "a.com/y"), "bindVerb": "bind"}
    second = {**manager("a.com/z", "a.com/y"), "bindVerb": "bind"}
    assert mistakes(lambda: read(Holder, {"extenders": [first, second]}, "spec")) == {
        "spec.extenders[1].bindVerb": "must not be given: only one extender can bind, and [0] does",
        "spec.extenders[1].managedResources[1].name": '"a.com/y" is managed already by [0]',
    }
