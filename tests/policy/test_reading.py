from collections.abc import Callable, Iterator
from datetime import date
from types import MappingProxyType

import pytest
from pydantic import Field

from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import MOST_MISTAKES, PolicyModel, read

Steps = Callable[[Callable[[], object]], int]
Mistakes = Callable[[Callable[[], object]], dict[str, str]]


class Wheel(PolicyModel):
    spoke_count: int = 32


class Bicycle(PolicyModel):
    wheels: tuple[Wheel, ...] = ()
    owner: str | None = None

    def mistakes(self) -> Iterator[FieldError]:
        if len(self.wheels) not in (0, 2):
            yield FieldError("wheels", f"must be two, are {len(self.wheels)}")
            yield FieldError("wheels[0]", "is alone")


class Span(PolicyModel):
    start: int
    end: int


class Spans(PolicyModel):
    spans: tuple[Span, ...]


def spans(number: int) -> dict[str, object]:
    """Return a document with `number` spans; each span has two mistakes."""
    return {"spans": [{"start": "a", "end": "b"}] * number}


def test_ten_times_as_many_mistakes_take_ten_times_as_many_steps(
    steps: Steps, mistakes: Mistakes
) -> None:
    """Reading a document must not take long, because no decision is made meanwhile."""

    def reading(number: int) -> int:
        return steps(lambda: mistakes(lambda: read(Spans, spans(number), "")))

    assert reading(500) < 11 * reading(50)


def test_of_very_many_mistakes_the_first_are_told_and_that_there_are_more(
    mistakes: Mistakes,
) -> None:
    found = mistakes(lambda: read(Spans, spans(MOST_MISTAKES), "all"))
    assert len(found) == MOST_MISTAKES + 1
    assert found["all.spans[0].start"] == 'must be an integer, got "a"'
    assert found["all"] == "has more mistakes than these 1,000"
    assert len(mistakes(lambda: read(Spans, spans(MOST_MISTAKES // 2), ""))) == MOST_MISTAKES


def test_fields_are_read_under_their_camel_case_names() -> None:
    assert read(Wheel, {"spokeCount": 28}, "") == Wheel(spoke_count=28)


def test_the_python_name_of_a_field_is_not_its_name_in_a_document(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(Wheel, {"spoke_count": 28}, "wheel"))
    assert found == {"wheel.spoke_count": 'unknown field "spoke_count", did you mean spokeCount?'}


def test_null_means_absent() -> None:
    assert read(Bicycle, {"wheels": None, "owner": None}, "") == Bicycle()


def test_read_only_views_are_read_like_dicts() -> None:
    document = MappingProxyType({"wheels": (MappingProxyType({"spokeCount": 1}),) * 2})
    assert read(Bicycle, document, "").wheels[1].spoke_count == 1


@pytest.mark.parametrize("given", ["28", 28.0, True])
def test_a_number_is_not_read_from_anything_else(given: object, mistakes: Mistakes) -> None:
    (message,) = mistakes(lambda: read(Wheel, {"spokeCount": given}, "")).values()
    assert message.startswith("must be an integer, got ")


def test_rules_between_fields_report_every_mistake_with_its_path(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(Bicycle, {"wheels": [{}]}, "bike"))
    assert found == {"bike.wheels": "must be two, are 1", "bike.wheels[0]": "is alone"}


def test_a_rule_between_fields_is_checked_although_another_field_is_wrong(
    mistakes: Mistakes,
) -> None:
    found = mistakes(lambda: read(Bicycle, {"wheels": [{"spokeCount": "x"}]}, ""))
    assert [*found] == ["wheels[0].spokeCount", "wheels", "wheels[0]"]
    assert [*mistakes(lambda: read(Bicycle, {"wheels": [{}], "bell": 1}, ""))] == [
        "bell",
        "wheels",
        "wheels[0]",
    ]


class Trip(PolicyModel):
    bicycle: Bicycle
    first_day: int = Field(1, ge=1)
    last_day: int = 1

    def mistakes(self) -> Iterator[FieldError]:
        if self.last_day < self.first_day:
            yield FieldError("lastDay", "must not be before firstDay")


def test_what_may_only_follow_from_a_wrong_field_is_not_reported(mistakes: Mistakes) -> None:
    days = {"firstDay": -7, "lastDay": -3}
    assert [*mistakes(lambda: read(Trip, {"bicycle": {}, **days}, ""))] == ["firstDay"]
    wrong = {"bicycle": {"wheels": "round"}, "firstDay": 2}
    assert [*mistakes(lambda: read(Trip, wrong, ""))] == ["bicycle.wheels", "lastDay"]
    assert [*mistakes(lambda: read(Trip, {"bicycle": 3}, ""))] == ["bicycle"]


def test_a_date_of_yaml_is_text() -> None:
    assert read(Bicycle, {"owner": date(2026, 1, 2)}, "").owner == "2026-01-02"


def test_a_value_that_json_does_not_have_is_a_mistake_of_its_field(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(Bicycle, {"owner": {1, 2}, "wheels": [2**70]}, "bike"))
    assert found == {
        "bike.owner": "cannot be written as JSON: Type is not JSON serializable: set",
        "bike.wheels[0]": "must be a number of at most 64 bits",
    }


def test_a_document_that_is_nested_too_deeply_for_json_is_a_mistake(mistakes: Mistakes) -> None:
    nested: list[object] = []
    for _ in range(300):
        nested = [nested]
    found = mistakes(lambda: read(Bicycle, {"wheels": nested}, "bike"))
    assert found == {"bike": "cannot be written as JSON: Recursion limit reached"}
