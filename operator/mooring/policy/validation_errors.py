"""Converts pydantic's validation errors to `FieldError`s with messages for users.

A user needs the path in the file, the whole allowed range, and the name that was probably meant.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean, join_path

_KINDS: Final = {
    "int": "an integer",
    "float": "a number",
    "string": "text (quote it)",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "model": "an object",
    "dict": "an object",
    "mapping": "an object",
}
_LENGTHS: Final = {
    "too_short": "must have {min_length} or more items, has {actual_length}",
    "too_long": "must have {max_length} or fewer items, has {actual_length}",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have {max_length} or fewer characters",
}
_BOUND_ERRORS: Final = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


class BrokenRule(NamedTuple):
    """A mistake; `owner` is the path of the field that breaks a rule.

    If the rule is about several fields of an object, `owner` is the path of the object.
    """

    owner: str
    mistake: FieldError
    unknown_field: bool = False


def broken_rules(
    error: ValidationError, model: type[BaseModel], document: object
) -> Iterator[BrokenRule]:
    """Yield the mistakes in `document`, which was read as `model`, with paths from its top."""
    errors = error.errors(include_url=False)
    # A list seems too short if items of it are invalid, which pydantic does not count.
    invalid_inside = {d["loc"][:end] for d in errors for end in range(len(d["loc"]))}
    for details in errors:
        if details["type"] != "too_short" or details["loc"] not in invalid_inside:
            yield from _broken(details, model, document)


def _broken(
    details: ErrorDetails, model: type[BaseModel], document: object
) -> Iterator[BrokenRule]:
    steps, tag = _steps(details, document)
    path = _path(steps)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, ProfileInvalid):
        yield from (BrokenRule(path, mistake.under(path)) for mistake in cause.errors)
    elif details["type"] == "extra_forbidden":
        owners = _with_tag(_models_at(model, steps[:-1]), tag)
        mistake = FieldError(path, _unknown_field(str(steps[-1]), owners, tag))
        yield BrokenRule(path, mistake, unknown_field=True)
    elif details["type"] in ("union_tag_invalid", "union_tag_not_found"):
        field = str(details["ctx"]["discriminator"]).strip("'")
        yield BrokenRule(path, FieldError(join_path(path, field), _bad_tag(details)))
    else:
        yield BrokenRule(path, FieldError(path, _message(details, _field_at(model, steps))))


def _steps(details: ErrorDetails, document: object) -> tuple[list[int | str], str | None]:
    """Return the error's location without the tags of unions, and the innermost tag."""
    steps: list[int | str] = []
    tag = None
    here = document
    absent = [details["loc"][-1]] if details["type"] == "missing" else []
    # A step that does not exist in the document is a tag.
    for step in details["loc"][: len(details["loc"]) - len(absent)]:
        in_list = isinstance(step, int) and isinstance(here, list)
        in_object = isinstance(step, str) and isinstance(here, dict) and step in here
        if in_list or in_object:
            here = cast("Any", here)[step]
            steps.append(step)
        else:
            tag = str(step)
    return [*steps, *absent], tag


def _path(steps: Iterable[int | str]) -> str:
    path = ""
    for step in steps:
        plain = isinstance(step, str) and step.isidentifier()
        path = join_path(path, str(step) if plain else f"[{step}]")
    return path


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from _models_in(argument)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_at(model: type[BaseModel], steps: Iterable[int | str]) -> list[type[BaseModel]]:
    models = [model]
    for step in steps:
        if isinstance(step, str):
            fields = [_fields(owner).get(step) for owner in models]
            models = [m for field in fields if field for m in _models_in(field.annotation)]
    return models


def _with_tag(models: list[type[BaseModel]], tag: str | None) -> list[type[BaseModel]]:
    tagged = [
        model
        for model in models
        if any(tag in get_args(field.annotation) for field in model.model_fields.values())
    ]
    return tagged or models


def _field_at(model: type[BaseModel], steps: list[int | str]) -> FieldInfo | None:
    names = [number for number, step in enumerate(steps) if isinstance(step, str)]
    if not names:
        return None
    owners = _models_at(model, steps[: names[-1]])
    fields = (_fields(owner).get(str(steps[names[-1]])) for owner in owners)
    return next((field for field in fields if field), None)


def _unknown_field(name: str, owners: list[type[BaseModel]], tag: str | None) -> str:
    for owner in owners:
        unsupported: Mapping[str, str] = getattr(owner, "unsupported", {})
        if name in unsupported:
            return unsupported[name]
    known = sorted({alias for owner in owners for alias in _fields(owner)})
    condition = f" where type is {tag}" if tag and known else ""
    hint = did_you_mean(name, known) or (f"; known are {', '.join(known)}" if known else "")
    return f'unknown field "{name}"{condition}{hint}'


def _bad_tag(details: ErrorDetails) -> str:
    if details["type"] == "union_tag_not_found":
        return "is required"
    context = details["ctx"]
    return _choice(str(context["tag"]), _words(str(context["expected_tags"])))


def _words(expected: str) -> list[str]:
    words = (word.strip(" '") for word in expected.replace(" or ", ",").split(","))
    return [word for word in words if word]


def _choice(given: object, choices: list[str]) -> str:
    allowed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    numbers, hint = choices[0][:1].isdigit(), ""
    if isinstance(given, str):
        hint = did_you_mean(given, choices) if not numbers else ""
    # 1.37 without quotes is a number.
    elif numbers:
        allowed += " in quotes"
    return f"must be {allowed}, got {_shown(given)}{hint}"


def _message(details: ErrorDetails, field: FieldInfo | None) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    base = kind.removesuffix("_error").removesuffix("_type").removesuffix("_parsing")
    match kind:
        case "missing":
            message = "is required"
        case "literal_error":
            message = _choice(given, _words(str(context["expected"])))
        case "value_error":
            message = str(context["error"])
        case _ if kind in _BOUND_ERRORS:
            message = f"must be {_bounds(field, context)}, got {given}"
        case _ if kind in _LENGTHS:
            message = _LENGTHS[kind].format(**context)
        case _ if base in _KINDS:
            message = f"must be {_KINDS[base]}, got {_shown(given)}"
        case _:
            text = details["msg"]
            message = f"{text[:1].lower()}{text[1:]}, got {_shown(given)}"
    return message


def _bounds(field: FieldInfo | None, context: Mapping[str, Any]) -> str:
    rules = field.metadata if field else []
    low = next((rule.ge for rule in rules if hasattr(rule, "ge")), None)
    high = next((rule.le for rule in rules if hasattr(rule, "le")), None)
    if low is not None and high is not None:
        return f"between {low} and {high}"
    words = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}
    return next(f"{words[bound]} {context[bound]}" for bound in words if bound in context)


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case int() | float():
            return str(value)
        case Mapping():
            return "an object"
        case None:
            return "nothing"
        case _:
            return "a list"
