"""Documents are dataclasses; one module writes all of them as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import orjson
import pytest

from mooring.framework.decision import NodeScore, PodRef, TextAboutPods
from mooring.model.shared_values import FrozenDict
from mooring.observe.documents import HIDDEN, dumps, fields_of, plain

WEB = PodRef.of_key("shop/web")


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Document:
    pod: PodRef
    node_name: str | None
    colour: Colour
    scores: Mapping[str, NodeScore]
    left_out_if_none: str | None = None


DOCUMENT = Document(WEB, None, Colour.RED, MappingProxyType({"n1": NodeScore({"A": 1}, 1)}))


def test_a_dataclass_is_an_object_with_its_fields_in_camel_case() -> None:
    assert plain([DOCUMENT]) == [
        {
            "pod": "shop/web",
            "nodeName": None,
            "colour": "red",
            "scores": {"n1": {"plugins": {"A": 1}, "total": 1}},
        }
    ]


def test_a_field_that_is_none_by_default_is_there_when_it_is_not() -> None:
    assert "leftOutIfNone" not in fields_of(DOCUMENT)
    told = Document(WEB, None, Colour.RED, {}, "told")
    assert fields_of(told)["leftOutIfNone"] == "told"


def test_pods_that_may_not_be_seen_are_not_named() -> None:
    text = TextAboutPods("shop/web ends", (WEB,), "a pod ends")
    assert orjson.loads(dumps([WEB, text], lambda _: False)) == [HIDDEN, "a pod ends"]
    assert orjson.loads(dumps([WEB, text], lambda pod: pod is WEB)) == ["shop/web", "shop/web ends"]


def test_a_text_is_shown_only_to_those_who_may_see_all_its_pods() -> None:
    text = TextAboutPods("two pods", (WEB, PodRef.of_key("bank/vault")), "pods")
    assert dumps(text, lambda pod: pod.namespace == "shop") == b'"pods"'


def test_characters_that_utf_8_has_not_are_replaced_wherever_they_are() -> None:
    colour = TextAboutPods("\ud800", (), "")
    document = {"a": [DOCUMENT, ("\ud800", colour, 1, 2.5, True, None)]}
    assert plain(document) == {"a": [plain(DOCUMENT), ["?", "?", 1, 2.5, True, None]]}


def test_labels_that_many_share_are_part_of_documents() -> None:
    document = {"labels": FrozenDict({"app": "web"}), "message": "\ud800"}
    assert plain(document) == {"labels": {"app": "web"}, "message": "?"}


def test_what_is_no_document_is_an_error() -> None:
    with pytest.raises(TypeError, match="a document has a object"):
        dumps([object()])
