"""Writes requests to extenders as JSON, and reads their answers."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.extenders.protocol import (
    AnswerError,
    binding_request,
    decode_binding,
    decode_filter,
    decode_preemption,
    decode_priorities,
    nodes_request,
    preemption_request,
)
from mooring.framework.post_filter import PreemptionCandidate
from mooring.model.pod import parse_pod
from mooring.policy.extender import Extender
from mooring.policy.reading import read
from mooring.testing.builders import pod

WEB = parse_pod(pod("web", namespace="ns"))
POD = b'{"metadata":{"name":"web"}}'


def filtered(answer: object, *sent: str, by_name: bool = True) -> Any:
    return decode_filter(orjson.dumps(answer), sent or ("n1", "n2"), extender(by_name=by_name))


def extender(*, by_name: bool = True) -> Extender:
    return read(Extender, {"urlPrefix": "http://e", "nodeCacheCapable": by_name}, "")


def reasons(answer: object, *sent: str) -> dict[str, str]:
    return {node: failure.reason for node, failure in filtered(answer, *sent)[1].items()}


def test_the_keys_of_requests_are_those_of_go_structs_with_explicit_nulls() -> None:
    assert orjson.loads(nodes_request(POD, ["n1"], None)) == {
        "Pod": {"metadata": {"name": "web"}},
        "Nodes": None,
        "NodeNames": ["n1"],
    }
    assert orjson.loads(nodes_request(POD, ["n1"], [b'{"metadata":{"name":"n1"}}'])) == {
        "Pod": {"metadata": {"name": "web"}},
        "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]},
        "NodeNames": None,
    }
    assert orjson.loads(binding_request(WEB, "n1")) == {
        "PodName": "web",
        "PodNamespace": "ns",
        "PodUID": "pod-ns-web",
        "Node": "n1",
    }


def test_victims_are_sent_as_uids_or_as_whole_pods() -> None:
    candidates = [PreemptionCandidate("n1", (WEB,), 1)]
    assert orjson.loads(preemption_request(POD, candidates, None)) == {
        "Pod": {"metadata": {"name": "web"}},
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": WEB.uid}], "NumPDBViolations": 1}},
    }
    whole = orjson.loads(preemption_request(POD, candidates, {WEB.uid: b'{"kind":"Pod"}'}))
    assert whole["NodeNameToMetaVictims"] is None
    assert whole["NodeNameToVictims"] == {"n1": {"Pods": [{"kind": "Pod"}], "NumPDBViolations": 1}}


@pytest.mark.parametrize("key", ["NodeNames", "nodenames", "nodeNames", "NODENAMES"])
def test_keys_are_read_in_any_case(key: str) -> None:
    assert filtered({key: ["n2"], "failedNodes": {"n1": "full"}})[0] == ("n2",)
    assert reasons({key: ["n2"], "failedNodes": {"n1": "full"}}) == {"n1": "full"}


def test_the_answer_of_an_extender_with_a_cache_may_be_names_or_nodes() -> None:
    items = {"items": [{"metadata": {"name": "n2"}}]}
    assert filtered({"NodeNames": ["n1"], "Nodes": items})[0] == ("n1",)
    assert filtered({"NodeNames": None, "Nodes": items})[0] == ("n2",)
    assert filtered({"NodeNames": ["n1"], "Nodes": items}, by_name=False)[0] == ("n2",)


@pytest.mark.parametrize("answer", [None, {}, {"NodeNames": None, "Nodes": None}])
def test_without_names_and_nodes_no_node_passes(answer: object) -> None:
    assert filtered(answer)[0] == ()


def test_a_node_that_was_not_sent_is_an_error_among_the_passed_and_ignored_among_the_failed() -> (
    None
):
    with pytest.raises(AnswerError, match='claims a filtered node "n9" which is not found'):
        filtered({"NodeNames": ["n1", "n9"]})
    items = {"items": [{"metadata": {"name": "n9"}}]}
    with pytest.raises(AnswerError, match="n9"):
        filtered({"Nodes": items}, by_name=False)
    assert "n9" not in reasons({"NodeNames": [], "FailedNodes": {"n9": "full"}})


def test_an_error_in_the_answer_is_the_extenders_text_on_one_line() -> None:
    with pytest.raises(AnswerError, match=r"^no cards left$"):
        filtered({"NodeNames": ["n1"], "Error": "no cards\n left"})
    with pytest.raises(AnswerError, match=r"^already bound$"):
        decode_binding(b'{"error":"already bound"}')
    decode_binding(b'{"Error":""}')
    decode_binding(b"null")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "not JSON: it is empty"),
        (b"<html>", "not JSON"),
        (b"[]", "the answer must be an object, and is a list"),
        (b'{"NodeNames":"n1"}', "NodeNames must be a list, and is a text"),
        (b'{"NodeNames":[1]}', "NodeNames must be a text, and is a number"),
        (b'{"Nodes":{"items":[{"metadata":{}}]}}', 'claims a filtered node "" which is not found'),
        (b'{"NodeNames":[null]}', 'claims a filtered node "" which is not found'),
        (b'{"FailedNodes":["n1"]}', "FailedNodes must be an object, and is a list"),
        (b'{"FailedNodes":{"n1":{}}}', "FailedNodes must be a text, and is an object"),
        (b'{"Error":7}', "Error must be a text, and is a number"),
        (b"[" * 5000 + b"]" * 5000, "not JSON"),
    ],
)
def test_an_answer_of_the_wrong_form_is_named(answer: bytes, problem: str) -> None:
    with pytest.raises(AnswerError, match=problem.replace(".", r"\.")):
        decode_filter(answer, ("n1",), extender())


def test_priorities_are_integers_in_the_order_of_the_nodes() -> None:
    answer = [{"Host": "n1", "Score": 7}, {"host": "n2", "score": 3}, {"Host": "n1", "Score": 1}]
    assert decode_priorities(orjson.dumps(answer), ("n2", "n3", "n1")) == [3, 0, 8]
    assert decode_priorities(orjson.dumps(answer), ("n3",)) == [0]
    assert decode_priorities(b"null", ("n1",)) is None
    assert decode_priorities(b"[]", ("n1",)) is None
    for score in (7.0, "7", True):
        with pytest.raises(AnswerError, match="Score must be an integer"):
            decode_priorities(orjson.dumps([{"Host": "n1", "Score": score}]), ("n1",))
    with pytest.raises(AnswerError, match="the answer must be a list"):
        decode_priorities(b"{}", ("n1",))


@given(
    st.lists(
        st.tuples(st.sampled_from(("n1", "n2", "n3", "n4", "")), st.integers(-11, 11)), max_size=5
    )
)
def test_priorities_mean_the_same_with_keys_of_any_case(found: list[tuple[str, int]]) -> None:
    nodes = ("n1", "n2", "n3")
    expected = [sum(score for host, score in found if host == node) for node in nodes]
    for host, score in (("Host", "Score"), ("host", "Score"), ("hOST", "score")):
        answer = orjson.dumps([{host: name, score: value} for name, value in found])
        assert decode_priorities(answer, nodes) == (expected if found else None)


def test_victims_are_read_as_uids_by_node() -> None:
    answer = {"nodeNameToMetaVictims": {"n1": {"pods": [{"uid": "u"}], "numPDBViolations": 2}}}
    assert decode_preemption(orjson.dumps(answer)) == {"n1": (["u"], 2)}
    assert decode_preemption(b'{"NodeNameToMetaVictims":{"n1":null}}') == {"n1": ([], 0)}
    assert decode_preemption(b"{}") == {}
    with pytest.raises(AnswerError, match=r"Pods\.UID must be a text, and is a number"):
        decode_preemption(b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":1}]}}}')


KEYS = st.sampled_from(
    (
        *("NodeNames", "Nodes", "items", "metadata", "name", "FailedNodes", "Error", "nodenames"),
        *("Host", "Score", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "n1"),
        *("FailedAndUnresolvableNodes", "ERROR", "score"),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS | st.text(), inner),
)


def complaints(body: bytes) -> list[str]:
    """Return the AnswerErrors of all decoders for this body; let other exceptions pass."""
    found: list[str] = []
    for decode in (
        lambda: decode_filter(body, ("n1",), extender()),
        lambda: decode_filter(body, ("n1",), extender(by_name=False)),
        lambda: decode_priorities(body, ("n1", "Host")),
        lambda: decode_preemption(body),
        lambda: decode_binding(body),
    ):
        try:
            decode()
        except AnswerError as error:
            found.append(str(error))
    return found


@given(JSON)
def test_whatever_comes_back_is_read_or_is_an_answer_error_of_one_line(found: object) -> None:
    texts = complaints(json.dumps(found).encode())
    assert all(text and "\n" not in text for text in texts)


@given(st.binary(max_size=200))
def test_bytes_that_are_not_json_are_an_answer_error(body: bytes) -> None:
    assert all(complaints(body))


@given(
    st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["pass", "fail", "gone"])),
    st.sampled_from([str.lower, str.upper, str.title, str]),
)
def test_each_sent_node_is_read_as_the_extender_put_it(fates: dict[str, str], case: Any) -> None:
    answer = {
        case("NodeNames"): [node for node, fate in fates.items() if fate == "pass"],
        case("FailedNodes"): {node: "full" for node, fate in fates.items() if fate == "fail"},
        case("Error"): "",
    }
    passed, failed = filtered(answer, *fates, "n0")
    left_out = {node: "fail" if failed[node].reason == "full" else "gone" for node in failed}
    assert dict.fromkeys(passed, "pass") | left_out == fates | {"n0": "gone"}
