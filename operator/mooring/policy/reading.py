"""Read a document as a pydantic model, strictly, and report every mistake with its path.

Documents are read as JSON is: text is not a number, a list is not an object, `null` means absent
(as in the Kubernetes API), and an unknown field is an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from mooring.policy.errors import FieldError, ProfileInvalid
from mooring.policy.validation_errors import field_errors

__all__ = ["PolicyModel", "read"]

Model = TypeVar("Model", bound=BaseModel)


class PolicyModel(BaseModel):
    """Base of all models of this package: frozen, camelCase in documents, no unknown fields.

    The docstring of a field is its description in the CRD. `unsupported` contains fields that
    kube-scheduler has and Mooring does not support, with the message for a user who sets one.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    unsupported: ClassVar[Mapping[str, str]] = {}

    def mistakes(self) -> Iterator[FieldError]:
        """The mistakes that concern several fields; their paths are relative to the model."""
        yield from ()

    @model_validator(mode="after")
    def _has_no_mistakes(self) -> Self:
        if mistakes := tuple(self.mistakes()):
            raise ProfileInvalid(mistakes)
        return self


def read(model: type[Model], document: object, path: str) -> Model:
    """Read the document as the model.

    Raises:
        ProfileInvalid: With every mistake; their paths begin with `path`. The rules between
            fields of one object are checked only if each of the fields is valid.
    """
    plain = _plain(document)
    try:
        text = orjson.dumps(plain)
    except TypeError as error:
        raise ProfileInvalid([FieldError(path, f"cannot be written as JSON: {error}")]) from None
    try:
        return model.model_validate_json(
            text, strict=True, extra="forbid", by_alias=True, by_name=False
        )
    except ValidationError as error:
        mistakes = field_errors(error, model, plain)
        raise ProfileInvalid(mistake.under(path) for mistake in mistakes) from None


def _plain(value: object) -> Any:
    """The value as dicts and lists (kopf passes read-only views), without fields that are null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
