"""The functions of texts (cel-go's `ext/strings.go`, kube-apiserver's `library/regex.go`)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.cel.formatting import format_text, quoted
from mooring.cel.regular_expressions import Pattern, PatternError, compile_pattern
from mooring.cel.values import NO_OVERLOAD, Failure, at_once, text_of, work

Value = Any
_SPACES: Final = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
_MORE_SPACES: Final = "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _out_of_range(index: int) -> Failure:
    return Failure(f"index out of range: {index}")


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Value, Value], Value]:
    def compute(text: Value, part: Value) -> Value:
        return test(text, part) if type(text) is type(part) is str else NO_OVERLOAD

    return compute


def _char_at(text: str, index: int) -> Value:
    return text[index : index + 1] if 0 <= index <= len(text) else _out_of_range(index)


def _index_of(text: str, part: str, offset: int = 0) -> Value:
    if offset < 0:
        return _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> Value:
    if offset is None:
        if not part:
            return len(text)
        return text.rfind(part)
    if offset < 0:
        return _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _found_from(search: Callable[[str, str, int], Value]) -> Callable[[str, str, int], Value]:
    def compute(text: str, part: str, offset: int) -> Value:
        # Before Kubernetes 1.37, "" was found at any offset, even outside of the text.
        return search(text, part, offset) if part else offset

    return compute


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    most = text.count(old) if old else len(text) + 1
    replaced = most if count < 0 else min(count, most)
    work.spend_on_text(len(text) + replaced * len(new))
    return text.replace(old, new, min(max(count, -1), 2**31))


def _split(text: str, separator: str, count: int = -1) -> Value:
    if count == 0:
        return ()
    work.spend(text.count(separator) if separator else len(text))
    if not separator:
        parts = list(text) if count < 0 else [*text[: count - 1], text[count - 1 :]]
        return tuple(part for part in parts if part)
    return tuple(text.split(separator, min(count - 1, 2**31) if count > 0 else -1))


def _substring(text: str, start: int, end: int | None = None) -> Value:
    if end is not None and start > end:
        return Failure(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, len(text) if end is None else end):
        if not 0 <= index <= len(text):
            return _out_of_range(index)
    return text[start:end]


def _join(items: Value, separator: str = "") -> Value:
    parts = list[str]()
    for item in at_once(items):
        if type(item) is not str:
            return Failure(f"join: invalid input: {text_of(item)}")
        parts.append(item)
        work.spend_on_text(len(item) + len(separator))
    return separator.join(parts)


def _pattern(pattern: str, prefix: str = "") -> Pattern | Failure:
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        return Failure(f"{prefix}{error}")


def matches(text: Value, pattern: Value) -> Value:
    """Return whether a part of the text matches the regular expression."""
    if type(pattern) is not str:
        return NO_OVERLOAD
    compiled = _pattern(pattern)
    return compiled if isinstance(compiled, Failure) else compiled.matches(text)


def _find(text: str, pattern: str) -> Value:
    compiled = _pattern(pattern, "Illegal regex: ")
    return compiled if isinstance(compiled, Failure) else compiled.find(text)


def _find_all(text: str, pattern: str, most: int = -1) -> Value:
    compiled = _pattern(pattern, "Illegal regex: ")
    if isinstance(compiled, Failure):
        return compiled
    return tuple(compiled.find_all(text, most))


OVERLOADS: Final[Mapping[str, Callable[..., Value]]] = {
    "contains_string": _text_test(lambda text, part: part in text),
    "ends_with_string": _text_test(str.endswith),
    "starts_with_string": _text_test(str.startswith),
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_SPACES + _MORE_SPACES),
    "string_format": format_text,
    "strings_quote": quoted,
    "list_join": _join,
    "list_join_string": _join,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
OF_PATTERNS: Final[Mapping[str, Callable[..., Value]]] = {
    "matches": matches,
    "find": _find,
    "findAll": _find_all,
}
"""Functions with a regular expression as second argument."""
OVERLOADS_1_36: Final[Mapping[str, Callable[..., Value]]] = {
    "string_index_of_string_int": _found_from(_index_of),
    "string_last_index_of_string_int": _found_from(_last_index_of),
}
"""The implementations before Kubernetes 1.37, by the id of the overload."""
