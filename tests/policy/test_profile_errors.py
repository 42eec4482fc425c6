import pytest

from mooring.policy.profile_errors import (
    FieldError,
    ProfileInvalid,
    did_you_mean,
    join_path,
    split_path,
)


@pytest.mark.parametrize(
    ("parent", "child", "path"),
    [
        ("spec", "plugins", "spec.plugins"),
        ("spec.extenders", "[1].weight", "spec.extenders[1].weight"),
        ("", "spec", "spec"),
        ("spec", "", "spec"),
    ],
)
def test_a_path_is_joined_with_dots_and_bare_indexes(parent: str, child: str, path: str) -> None:
    assert join_path(parent, child) == path


def test_a_path_is_split_into_fields_indexes_and_keys() -> None:
    assert split_path("a.b[0][x.y/z].c") == ("a", "b", "0", "x.y/z", "c")
    assert split_path("") == ()


def test_a_mistake_reads_as_path_and_message() -> None:
    mistake = FieldError("weight", "must be 1").under("resources[2]")
    assert str(mistake) == "resources[2].weight: must be 1"


def test_a_mistake_of_the_whole_document_has_no_path() -> None:
    assert str(FieldError("", "must be an object")) == "must be an object"


def test_the_error_text_holds_every_mistake() -> None:
    invalid = ProfileInvalid([FieldError("a", "is required"), FieldError("b", "must be 1")])
    assert str(invalid) == "a: is required; b: must be 1"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("NodeResourceFit", ", did you mean NodeResourcesFit?"),
        ("noderesourcesfit", ", did you mean NodeResourcesFit?"),
        ("Zebra", ""),
    ],
)
def test_a_misspelled_name_gets_the_most_similar_one_as_a_hint(word: str, hint: str) -> None:
    assert did_you_mean(word, ["NodeName", "NodeResourcesFit"]) == hint


@pytest.mark.parametrize("path", ["spec.plugins", "spec.plugins.score", "spec.plugins[0].name"])
def test_a_mistake_lies_in_its_field_and_in_every_field_around_it(path: str) -> None:
    assert FieldError(path, "is wrong").lies_in_any(("spec.plugins",))


@pytest.mark.parametrize("path", ["spec.pluginsOfOthers", "spec", "plugins"])
def test_a_mistake_does_not_lie_in_another_field(path: str) -> None:
    assert not FieldError(path, "is wrong").lies_in_any(("spec.plugins",))


def test_of_many_mistakes_the_first_are_named_and_the_others_counted() -> None:
    invalid = ProfileInvalid(FieldError(f"weights[{i}]", "must be 1") for i in range(1000))
    assert len(invalid.errors) == 1000
    assert str(invalid).startswith("weights[0]: must be 1; weights[1]: must be 1; ")
    assert str(invalid).endswith("weights[19]: must be 1; and 980 more mistakes")
