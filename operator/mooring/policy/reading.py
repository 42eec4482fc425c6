"""Reads a document as a pydantic model, strictly, and reports every mistake with its path.

Text is not a number, and an unknown field is an error. `null` means absent, as in the Kubernetes
API.
"""

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping
from itertools import islice, pairwise
from textwrap import dedent
from typing import Any, ClassVar, Final, Self, TypeVar

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from mooring.policy.profile_errors import FieldError, ProfileInvalid, join_path, split_path
from mooring.policy.validation_errors import BrokenRule, broken_rules

MOST_MISTAKES: Final = 1_000
"""The most mistakes of a document that are reported, because each report takes some time."""
_MORE: Final = f"has more mistakes than these {MOST_MISTAKES:,}"

Model = TypeVar("Model", bound=BaseModel)


class PolicyModel(BaseModel):
    """Base of all models of this package: frozen, camelCase in documents, no unknown fields.

    The docstring of a field is its description in the CRD. `unsupported` maps fields of
    kube-scheduler that Mooring does not support to messages for users. A model's validator is built
    at its first use, because a process uses only few models.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )

    unsupported: ClassVar[Mapping[str, str]] = {}

    def mistakes(self) -> Iterator[FieldError]:
        """Yield the mistakes that concern several fields; their paths are relative to the model."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_mistakes(self) -> Self:
        if mistakes := tuple(self.mistakes()):
            raise ProfileInvalid(mistakes)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """Return the JSON schema, with the docstrings of fields as their descriptions."""
        # Pydantic's `use_attribute_docstrings` does the same, but reads all sources at each start.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in _field_docstrings(cls).items():
            alias = cls.model_fields[name].alias
            properties[alias if alias in properties else name].setdefault("description", text)
        return schema


def _field_docstrings(model: type[PolicyModel]) -> dict[str, str]:
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, PolicyModel):
            continue
        definition = ast.parse(dedent(inspect.getsource(cls))).body[0]
        for field, below in pairwise(ast.iter_child_nodes(definition)):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name in model.model_fields:
                    found[name] = inspect.cleandoc(text)
    return found


def read(model: type[Model], document: object, path: str) -> Model:
    """Parse the document into an object of the model.

    Raises ProfileInvalid with at most `MOST_MISTAKES` mistakes, and a note if there are more. The
    paths of the mistakes begin with `path`.
    """
    plain = _plain(document)
    try:
        text = orjson.dumps(plain)
    except TypeError as error:
        mistakes = [*islice(_not_json(plain), MOST_MISTAKES)] or [_not_written(error)]
        raise ProfileInvalid(mistake.under(path) for mistake in mistakes) from None
    try:
        return _validated(model, text)
    except ValidationError as error:
        mistakes = _all_mistakes(model, plain, error)
        raise ProfileInvalid(mistake.under(path) for mistake in mistakes) from None


def _not_json(value: Any, path: str = "") -> Iterator[FieldError]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _not_json(item, join_path(path, key if key.isidentifier() else f"[{key}]"))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{path}[{index}]")
    else:
        try:
            orjson.dumps(value)
        except TypeError as error:
            yield _not_written(error, path)


def _not_written(error: TypeError, path: str = "") -> FieldError:
    if "64-bit" in str(error):
        return FieldError(path, "must be a number of at most 64 bits")
    return FieldError(path, f"cannot be written as JSON: {error}")


def _validated(model: type[Model], text: bytes) -> Model:
    return model.model_validate_json(
        text, strict=True, extra="forbid", by_alias=True, by_name=False
    )


def _all_mistakes(
    model: type[BaseModel], document: Any, error: ValidationError
) -> list[FieldError]:
    # Pydantic checks rules about several fields of an object only if each field is valid. So the
    # wrong fields are removed, and the document is read again, until it has no mistakes.
    found: list[FieldError] = []
    removed, incomplete = set[tuple[str, ...]](), set[tuple[str, ...]]()
    while True:
        broken = tuple(islice(broken_rules(error, model, document), MOST_MISTAKES + 1))
        found += [
            rule.mistake for rule in broken if not _may_follow_from(rule, removed, incomplete)
        ]
        if len(found) > MOST_MISTAKES:
            return [*found[:MOST_MISTAKES], FieldError("", _MORE)]
        for rule in broken:
            gone = _remove(document, split_path(rule.mistake.path))
            if not gone:
                return found
            if not rule.unknown_field:
                removed.add(gone)
                incomplete.add(gone[:-1])
        try:
            _validated(model, orjson.dumps(document))
        except ValidationError as further:
            error = further
        else:
            return found


def _may_follow_from(
    rule: BrokenRule, removed: Collection[tuple[str, ...]], incomplete: Collection[tuple[str, ...]]
) -> bool:
    owner = split_path(rule.owner)
    return owner in incomplete or any(owner[:end] in removed for end in range(len(owner) + 1))


def _remove(document: Any, path: tuple[str, ...]) -> tuple[str, ...]:
    # A list is removed as a whole, so that no item gets a new index. Where a required field is
    # absent, its object is removed.
    while path:
        *above, last = path
        owner = document
        for step in above:
            if isinstance(owner, list):
                owner = owner[int(step)]
            else:
                owner = owner.get(step) if isinstance(owner, dict) else None
        if isinstance(owner, dict) and last in owner:
            del owner[last]
            break
        path = path[:-1]
    return path


def _plain(value: object) -> Any:
    if isinstance(value, str | int | float):  # first: whether something is a Mapping takes longer
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
