"""Equal labels and owners share one object that cannot be changed; the memory is limited."""

import copy
import pickle
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import orjson
import pytest

from mooring.model.pod import parse_pod
from mooring.model.shared_values import FrozenDict, Sharing, shared_strings, shared_text
from mooring.testing.builders import pod

OWNER: Final = {"kind": "ReplicaSet", "name": "web-1", "uid": "1-2-3"}
CHANGES: Final[tuple[Callable[[Any], object], ...]] = (
    lambda strings: strings.__setitem__("app", "db"),
    lambda strings: strings.__delitem__("app"),
    lambda strings: strings.__ior__({"app": "db"}),
    lambda strings: strings.clear(),
    lambda strings: strings.pop("app"),
    lambda strings: strings.popitem(),
    lambda strings: strings.setdefault("team", "a"),
    lambda strings: strings.update(app="db"),
)


def parsed(name: str) -> Any:
    """Return a pod that was parsed from JSON, so that it shares no text with other pods."""
    raw = pod(name, labels={"app": "web"}, annotations={"a": "b"}, owner=OWNER, node="n1")
    return parse_pod(orjson.loads(orjson.dumps(raw)))


@pytest.mark.parametrize("field", ["labels", "annotations", "owner", "namespace", "node_name"])
def test_equal_pods_share_what_is_equal(field: str) -> None:
    assert getattr(parsed("a"), field) is getattr(parsed("b"), field)


def test_pods_without_labels_and_claims_share_empty_ones() -> None:
    one, other = parse_pod(pod("a")), parse_pod(pod("b"))
    assert one.labels is other.labels
    assert one.claim_names is other.claim_names


def test_a_pod_keeps_its_name_once() -> None:
    found = parsed("web-1")
    assert (found.key, found.name) == ("default/web-1", "web-1")


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_can_change_what_many_share(change: Callable[[Any], object]) -> None:
    shared = shared_strings({"app": "web"})
    with pytest.raises(TypeError, match="many share"):
        change(shared)
    assert shared == {"app": "web"}


def test_what_was_parsed_stays_as_it_was_when_the_raw_object_changes() -> None:
    raw = pod(labels={"app": "web"})
    found = parse_pod(raw)
    raw["metadata"]["labels"]["app"] = "db"
    assert found.labels == {"app": "web"}


def test_a_frozen_dict_is_like_the_dict_that_it_was_made_from() -> None:
    plain = {"app": "web", "team": "a"}
    frozen = FrozenDict(plain)
    assert frozen == plain
    assert orjson.loads(orjson.dumps(frozen)) == plain
    assert type(frozen | {"a": "b"}) is dict
    assert hash(frozen) == hash(FrozenDict(reversed(plain.items())))
    assert pickle.loads(pickle.dumps(frozen)) == plain  # noqa: S301 - what it has written itself
    assert copy.copy(frozen) is copy.deepcopy(frozen) is frozen


def test_labels_that_are_too_many_to_be_shared_push_out_nobody_elses() -> None:
    shared = shared_text("web".upper())
    for i in range(100):
        shared_strings({f"{i}-{k}": f"v{i}-{k}" for k in range(10_000)})
    assert shared_text("web".upper()) is shared


def test_texts_and_labels_are_found_again_while_others_come() -> None:
    parts = ("often", " seen")
    text, labels = shared_text("".join(parts)), shared_strings({"often": "seen"})
    for number in range(100_000):
        shared_text(f"unique-{number}")
        if number % 100 == 0:
            assert shared_text("".join(parts)) is text
            assert shared_strings({"often": "seen"}) is labels


class TestBound:
    """Values that differ in every pod are forgotten."""

    def test_the_values_seen_last_take_no_more_than_the_bound(self) -> None:
        sharing: Sharing[str, str] = Sharing(100_000, len)
        for number in range(10_000):
            sharing.put(str(number), str(number))
            assert 0 < sharing.bytes <= sharing.most_bytes
        assert sharing.get("9999") == "9999"
        assert sharing.get("1") is None
        assert len(sharing) < 400

    def test_bytes_are_those_of_what_is_kept_also_after_values_were_used_again(self) -> None:
        sharing: Sharing[str, str] = Sharing(100_000, len)
        numbers = count()
        for _ in range(5000):
            text = str(next(numbers) % 300)
            if sharing.get(text) is None:
                sharing.put(text, text)
        kept = [*sharing._young, *sharing._old]
        assert sharing.bytes == sum(256 + len(key) for key in kept)

    def test_a_large_value_is_not_kept(self) -> None:
        sharing: Sharing[str, str] = Sharing(100_000, len)
        sharing.put("x" * 2000, "x")
        assert (sharing.bytes, len(sharing)) == (0, 0)
