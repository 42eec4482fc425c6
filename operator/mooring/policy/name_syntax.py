"""The syntax of names in the Kubernetes API (apimachinery `util/validation`, core `helpers.go`)."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_PATTERN: Final = f"^({_SUBDOMAIN.pattern}/)?{_NAME.pattern}$"
_EXTENDED_PATTERN: Final = f"^{_SUBDOMAIN.pattern}/{_NAME.pattern}$"


def is_object_name(text: str) -> bool:
    """Return whether an API object can have this name (a DNS-1123 subdomain)."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def _is_qualified(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_object_name(prefix)) and _NAME.fullmatch(name) is not None


def qualified_name(text: str) -> str:
    """Return the text if it is a valid label key or resource name; else raise ValueError."""
    if not _is_qualified(text):
        raise ValueError(
            f'"{text}" is not a qualified name: letters, digits, "-", "_" and ".", at most 63, '
            'optionally after a DNS name and "/", as in example.com/my-name'
        )
    return text


def label_value(text: str) -> str:
    """Return the text if it is a valid label value; else raise ValueError with the reason."""
    if text and not _NAME.fullmatch(text):
        raise ValueError(
            f'"{text}" is not a label value: at most 63 letters, digits, "-", "_" and ".", '
            "beginning and ending with a letter or digit"
        )
    return text


def is_extended_resource(text: str) -> bool:
    """Return whether the resource is not Kubernetes' own (IsExtendedResourceName, helpers.go)."""
    native = "/" not in text or "kubernetes.io/" in text
    return not native and not text.startswith("requests.") and _is_qualified(f"requests.{text}")


def _extended_resource(text: str) -> str:
    qualified_name(text)
    if not is_extended_resource(text):
        raise ValueError(
            f'"{text}" is not an extended resource: it needs a domain of its own, '
            "as in example.com/gpu"
        )
    return text


QualifiedName = Annotated[
    str,
    AfterValidator(qualified_name),
    WithJsonSchema({"type": "string", "maxLength": 317, "pattern": _QUALIFIED_PATTERN}),
]
"""A label key, topology key or resource name: an optional DNS prefix and at most 63 characters."""

LabelValue = Annotated[
    str,
    AfterValidator(label_value),
    WithJsonSchema({"type": "string", "maxLength": 63, "pattern": f"^({_NAME.pattern})?$"}),
]
"""A label's value; it may be empty."""

ExtendedResource = Annotated[
    str,
    AfterValidator(_extended_resource),
    WithJsonSchema({"type": "string", "maxLength": 317, "pattern": _EXTENDED_PATTERN}),
]
"""A resource name outside the kubernetes.io domain, such as `example.com/gpu`."""
