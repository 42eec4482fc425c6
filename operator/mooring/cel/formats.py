"""The named formats of texts, such as the format of DNS labels.

Source: kube-apiserver's `pkg/cel/library/format.go` and apimachinery's `pkg/util/validation`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from mooring.cel.kubernetes_values import FormatValue
from mooring.cel.urls import parse_url
from mooring.cel.values import Failure

_LABEL: Final = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_LABEL_1035: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE: Final = re.compile(f"({_QUALIFIED.pattern})?")
_TIME_OF_DAY: Final = re.compile(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})"
)
_UUID: Final = re.compile(
    "[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)


def _too_long(text: str, most: int) -> list[str]:
    return [f"must be no more than {most} bytes"] if len(text.encode()) > most else []


def _must_match(text: str, form: re.Pattern[str], message: str, *examples: str) -> list[str]:
    if form.fullmatch(text):
        return []
    shown = " or ".join(f"'{example}', " for example in examples)
    return [f"{message} (e.g. {shown}regex used for validation is '{form.pattern}')"]


def _label(text: str) -> list[str]:
    if _SUBDOMAIN.fullmatch(text) and "." in text:
        return [*_too_long(text, 63), "must not contain dots"]
    return _too_long(text, 63) + _must_match(
        text,
        _LABEL,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
        " must start and end with an alphanumeric character",
        "my-name",
        "123-abc",
    )


def _subdomain(text: str) -> list[str]:
    return _too_long(text, 253) + _must_match(
        text,
        _SUBDOMAIN,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
        " '.', and must start and end with an alphanumeric character",
        "example.com",
    )


def _label_1035(text: str) -> list[str]:
    return _too_long(text, 63) + _must_match(
        text,
        _LABEL_1035,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
        " alphabetic character, and end with an alphanumeric character",
        "my-name",
        "abc-123",
    )


def _label_value(text: str) -> list[str]:
    return _too_long(text, 63) + _must_match(
        text,
        _VALUE,
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
        " '.', and must start and end with an alphanumeric character",
        "MyValue",
        "my_value",
        "12345",
    )


def _qualified_name(text: str) -> list[str]:
    message = (
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
        " alphanumeric character"
    )
    examples = ("MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > 2:
        (wrong,) = _must_match("", _QUALIFIED, f"a qualified name {message}", *examples)
        return [
            f"{wrong} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found = list[str]()
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {each}" for each in _subdomain(parts[0])]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    found += [f"name part {each}" for each in _too_long(name, 63)]
    return found + _must_match(name, _QUALIFIED, f"name part {message}", *examples)


def _without_dash(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    def checked(text: str) -> list[str]:
        # A prefix may end with a dash.
        return check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return checked


def _uri(text: str) -> list[str]:
    parsed = parse_url(text, for_request=True)
    return [parsed.text] if isinstance(parsed, Failure) else []


def _bytes(text: str) -> list[str]:
    try:
        encoded = text.replace("\n", "").replace("\r", "")
        if not text or len(encoded) % 4:
            return ["invalid base64"]
        base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _is_date(text: str) -> bool:
    try:
        return re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None and bool(
            date.fromisoformat(text)
        )
    except ValueError:
        return False


def _datetime(text: str) -> list[str]:
    day, _t, rest = text.lower().partition("t")
    found = _TIME_OF_DAY.fullmatch(rest.partition("t")[0])
    return [] if found is not None and _is_date(day) else ["invalid datetime"]


_CHECKS: Final[Mapping[str, tuple[str, Callable[[str], list[str]]]]] = {
    "dns1123Label": ("DNS1123Label", _label),
    "dns1123Subdomain": ("DNS1123Subdomain", _subdomain),
    "dns1035Label": ("DNS1035Label", _label_1035),
    "qualifiedName": ("QualifiedName", _qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", _without_dash(_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", _without_dash(_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", _without_dash(_label_1035)),
    "labelValue": ("LabelValue", _label_value),
    "uri": ("URI", _uri),
    "uuid": (
        "uuid",
        lambda text: [] if _UUID.fullmatch(text) else ["does not match the UUID format"],
    ),
    "byte": ("byte", _bytes),
    "date": ("date", lambda text: [] if _is_date(text) else ["invalid date"]),
    "datetime": ("datetime", _datetime),
}
FORMATS: Final[Mapping[str, FormatValue]] = {
    name: FormatValue(shown) for name, (shown, _check) in _CHECKS.items()
}
"""Maps the name of each format to its value in expressions."""
_BY_NAME: Final = dict(_CHECKS.values())


def mistakes_of(format_value: FormatValue, text: str) -> list[str]:
    """Return the mistakes in the text; the list is empty if the text has the format."""
    return _BY_NAME[format_value.name](text)
