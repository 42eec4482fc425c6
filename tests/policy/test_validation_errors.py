from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from mooring.policy.reading import PolicyModel, read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


class Round(PolicyModel):
    type: Literal["Round"] = "Round"
    radius: int = Field(ge=1, le=9)


class Square(PolicyModel):
    unsupported: ClassVar[Mapping[str, str]] = {"radius": "must not be set: squares have corners"}

    type: Literal["Square"] = "Square"
    side: float = Field(0.5, gt=0)


class Drawing(PolicyModel):
    shapes: tuple[Annotated[Round | Square, Field(discriminator="type")], ...] = Field(
        (), min_length=1, max_length=2
    )
    colours: dict[str, int] = Field({})
    name: str = Field("x", min_length=1, max_length=3)
    visible: bool = True


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({"name": 3}, "name", "must be text (quote it), got 3"),
        ({"name": ""}, "name", "must have 1 or more characters"),
        ({"name": "long"}, "name", "must have 3 or fewer characters"),
        ({"visible": "yes"}, "visible", 'must be true or false, got "yes"'),
        ({"shapes": {}}, "shapes", "must be a list, got an object"),
        ({"shapes": []}, "shapes", "must have 1 or more items, has 0"),
        ({"shapes": [{"type": "Square"}] * 3}, "shapes", "must have 2 or fewer items, has 3"),
        ({"colours": {"a.b/c": "red"}}, "colours[a.b/c]", 'must be an integer, got "red"'),
        ({"colours": {"sky": True}}, "colours.sky", "must be an integer, got true"),
        ({"colour": 1}, "colour", 'unknown field "colour", did you mean colours?'),
        (
            {"zebra": 1},
            "zebra",
            'unknown field "zebra"; known are colours, name, shapes, visible',
        ),
        ([], "", "must be an object, got a list"),
        (None, "", "must be an object, got nothing"),
    ],
)
def test_a_mistake_is_described_with_the_names_of_the_document(
    document: object, path: str, message: str, mistakes: Mistakes
) -> None:
    assert mistakes(lambda: read(Drawing, document, "")) == {path: message}


@pytest.mark.parametrize(
    ("shape", "path", "message"),
    [
        ({}, "type", "is required"),
        ({"type": "Rund"}, "type", 'must be one of Round, Square, got "Rund", did you mean Round?'),
        ({"type": "Round"}, "radius", "is required"),
        ({"type": "Round", "radius": 10}, "radius", "must be between 1 and 9, got 10"),
        ({"type": "Square", "side": 0}, "side", "must be greater than 0.0, got 0"),
        ({"type": "Square", "radius": 1}, "radius", "must not be set: squares have corners"),
        (
            {"type": "Round", "radius": 1, "side": 2},
            "side",
            'unknown field "side" where type is Round; known are radius, type',
        ),
    ],
)
def test_the_tag_of_a_union_is_no_part_of_a_path(
    shape: object, path: str, message: str, mistakes: Mistakes
) -> None:
    found = mistakes(lambda: read(Drawing, {"shapes": [{"type": "Square"}, shape]}, "spec"))
    assert found == {f"spec.shapes[1].{path}": message}


def test_a_list_with_an_invalid_item_is_not_reported_as_too_short(mistakes: Mistakes) -> None:
    found = mistakes(lambda: read(Drawing, {"shapes": [{"type": "Round", "radius": 0}]}, ""))
    assert found == {"shapes[0].radius": "must be between 1 and 9, got 0"}


def test_errors_of_a_third_partys_models_are_reworded_too(mistakes: Mistakes) -> None:
    class Foreign(BaseModel):
        max_speed: int = 1

    found = mistakes(lambda: read(Foreign, {"max_sped": 2}, "args"))
    assert found == {"args.max_sped": 'unknown field "max_sped", did you mean max_speed?'}


def test_any_other_error_keeps_pydantics_message(mistakes: Mistakes) -> None:
    class Odd(BaseModel):
        even: int = Field(0, multiple_of=2)

    found = mistakes(lambda: read(Odd, {"even": 3}, ""))
    assert found == {"even": "input should be a multiple of 2, got 3"}
