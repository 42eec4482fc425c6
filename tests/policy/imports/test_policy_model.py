from datetime import timedelta
from typing import Any

from mooring.policy.imports.policy_model import read_policy


def policy(**fields: object) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def test_a_list_that_is_absent_or_null_is_not_an_empty_list() -> None:
    read_back = read_policy(policy(predicates=None, priorities=[]))
    assert read_back.predicates is None
    assert read_back.priorities == ()


def test_an_extender_in_the_form_of_a_policy_is_read() -> None:
    old = {"urlPrefix": "http://a", "enableHttps": True, "httpTimeout": 100_000_000}
    (extender,) = read_policy(policy(extenders=[old])).extenders
    assert extender.enable_https
    assert extender.timeout == timedelta(milliseconds=100)
