"""Turns documents into JSON; no other module does this.

A document is a dataclass, or a list or mapping of dataclasses. Its fields are written in camel
case. A field with the default None is left out while its value is None. A document refers to pods
only by `PodRef` or `TextAboutPods`, so that the names of pods can be hidden from users who may not
get these pods (`mooring.observe.viewer`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final

import orjson

from mooring.framework.decision import NodeScore, PodRef, Rejection, TextAboutPods

HIDDEN: Final = "a pod that you may not get"
"""Replaces the name of a pod that the user may not get."""

_Sees = Callable[[PodRef], bool]


def dumps(document: Any, sees: _Sees | None = None) -> bytes:
    """Return the document as JSON, without the names of pods for which `sees` returns False.

    If `sees` is None, all names stay. Characters that UTF-8 cannot encode are replaced.
    """
    value_of = partial(_value_of, sees) if sees is not None else _whole_value_of
    try:
        return orjson.dumps(document, value_of, orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:  # plugins may return characters that UTF-8 cannot encode
        return orjson.dumps(_replaced(document, value_of))


def plain(document: Any) -> Any:
    """Return the document as dicts, lists, strings and numbers."""
    return orjson.loads(dumps(document))


def fields_of(document: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by their names in JSON, with unchanged values."""
    values_of, names, optional = _parsed(document.__class__)
    found = dict(zip(names, values_of(document), strict=True))
    for name in optional:
        if found[name] is None:
            del found[name]
    return found


@cache  # as many entries as there are classes
def _parsed(kind: type) -> tuple[Callable[[Any], Sequence[Any]], Sequence[str], Sequence[str]]:
    """Return a reader of a dataclass's fields, their names, and the names of optional fields."""
    every = fields(kind)
    names = [name_of(each.name) for each in every]
    optional = [name_of(each.name) for each in every if each.default is None]
    if len(every) == 1:  # attrgetter would return the value alone
        return lambda document: [getattr(document, every[0].name)], names, optional
    return attrgetter(*(each.name for each in every)), names, optional


def _whole_value_of(value: Any) -> Any:
    """Return a JSON value in place of an object that orjson cannot write."""
    # The cells of tables come first, because there are many, and without reading their fields.
    if type(value) is Rejection:
        reasons = value.reasons
        return {"plugin": value.plugin, "reasons": reasons, "resolvable": value.resolvable}
    if type(value) is NodeScore:
        return {"plugins": value.plugins, "total": value.total}
    if isinstance(value, PodRef):
        return value.key
    if isinstance(value, TextAboutPods):
        return value.text
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a document has a {type(value).__name__}")


def _value_of(sees: _Sees, value: Any) -> Any:
    if isinstance(value, PodRef) and not sees(value):
        return HIDDEN
    if isinstance(value, TextAboutPods) and not all(map(sees, value.pods)):
        return value.otherwise
    return _whole_value_of(value)


@cache  # as many entries as there are names of fields
def name_of(field: str) -> str:
    """Return a field's name in JSON, in camel case."""
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others))


def _replaced(value: Any, value_of: Callable[[Any], Any]) -> Any:
    """Return a document as dicts and lists; `value_of` converts all other objects."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        # UTF-8 cannot encode half a surrogate pair; it becomes "?".
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_replaced(k, value_of): _replaced(v, value_of) for k, v in value.items()}
    if type(value) in (list, tuple):
        return [_replaced(each, value_of) for each in value]
    return _replaced(value_of(value), value_of)
