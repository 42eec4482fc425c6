"""Checks the shape of the API server's answers."""

from typing import Any

import orjson
import pytest

from mooring.kube.response_checks import event_of, items_of
from mooring.model.manifest_error import ManifestError

METADATA = {"name": "a", "uid": "u1", "resourceVersion": "7"}
A: dict[str, Any] = {"metadata": METADATA, "spec": {}}


def page(items: Any, **metadata: Any) -> dict[str, Any]:
    return {"kind": "PodList", "metadata": {"resourceVersion": "7", **metadata}, "items": items}


def line(kind: str, obj: Any) -> bytes:
    return orjson.dumps({"type": kind, "object": obj})


def test_a_list_gives_its_objects_and_null_is_an_empty_list() -> None:
    assert items_of(page([A, A])) == [A, A]
    assert items_of(page(None)) == []
    assert items_of({"metadata": {"resourceVersion": "7"}}) == []


@pytest.mark.parametrize(
    ("malformed", "words"),
    [
        (page(5), "items: must be a list, not 5"),
        (page("pods"), "items: must be a list, not 'pods'"),
        (page({"a": 1}), "items: must be a list, not {'a': 1}"),
        (page([A, 5]), "items[1]: must be an object, not 5"),
        (page([None]), "items[0]: must be an object, not None"),
        (page([{}]), "items[0] metadata: is missing; it must be an object"),
        (page([{"metadata": []}]), "items[0] metadata: must be an object, not []"),
        (page([A, {"metadata": {}}]), "items[1] metadata.name: is missing; every object needs a"),
        (
            page([{"metadata": {"name": "a"}}]),
            "items[0] metadata.uid: is missing; it must be a str",
        ),
        (page([{"metadata": {"name": "a", "uid": 5}}]), "items[0] metadata.uid: must be a string"),
        (
            page([], resourceVersion=None),
            "metadata.resourceVersion: is missing; it must be a string",
        ),
        (page([], **{"continue": 5}), "metadata.continue: must be a string, not 5"),
        ({"items": []}, "metadata: is missing; it must be an object"),
        ({**page([]), "kind": 5}, "kind: must be a string, not 5"),
        ([], "it must be an object, not []"),
        (None, "it must be an object, not None"),
    ],
)
def test_a_list_that_nobody_could_read_is_one_line(malformed: Any, words: str) -> None:
    with pytest.raises(ManifestError) as failure:
        items_of(malformed)
    assert str(failure.value).startswith(words)


def test_an_event_gives_its_type_and_object() -> None:
    assert event_of(line("ADDED", A)) == ("ADDED", A)
    bookmark = {"metadata": {"resourceVersion": "8", "annotations": {"a": "b"}}}
    assert event_of(line("BOOKMARK", bookmark)) == ("BOOKMARK", bookmark)
    error = {"kind": "Status", "code": 410}
    assert event_of(line("ERROR", error)) == ("ERROR", error)


@pytest.mark.parametrize(
    ("malformed", "words"),
    [
        (b"{", "not JSON: b'{' ("),
        (b"5", "it must be an object, not 5"),
        (orjson.dumps({"object": A}), "type: is missing; it must be a string"),
        (orjson.dumps({"type": "ADDED"}), "object: is missing; it must be an object"),
        (line("ADDED", 5), "object: must be an object, not 5"),
        (line("ADDED", {}), "ADDED object metadata: is missing"),
        (
            line("ADDED", {"metadata": {**METADATA, "uid": ""}}),
            "ADDED object metadata.uid: is miss",
        ),
        (line("ADDED", {"metadata": {**METADATA, "name": None}}), "ADDED object metadata.name: is"),
        (
            line("ADDED", {"metadata": {**METADATA, "resourceVersion": 7}}),
            "ADDED object metadata.resourceVersion: must be a string, not 7",
        ),
        (
            line("BOOKMARK", {"metadata": {}}),
            "BOOKMARK object metadata.resourceVersion: is missing",
        ),
        (
            line("BOOKMARK", {"metadata": {"resourceVersion": "8", "annotations": "a"}}),
            "BOOKMARK object metadata.annotations: must be an object, not 'a'",
        ),
        (line("ERROR", {"code": "410"}), "ERROR object code: must be a whole number, not '410'"),
        (line("ERROR", {}), "ERROR object code: is missing; it must be a whole number"),
    ],
)
def test_an_event_that_nobody_could_read_is_one_line(malformed: bytes, words: str) -> None:
    with pytest.raises(ManifestError) as failure:
        event_of(malformed)
    assert str(failure.value).startswith(words)
