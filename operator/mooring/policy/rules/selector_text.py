"""Parses a label selector in the syntax of kubectl: `app in (db, cache), !old`."""

import re
from typing import Final

from mooring.model.selectors import LabelSelector, Operator, Requirement
from mooring.policy.name_syntax import label_value, qualified_name

_SHOWN: Final = 60
"""The maximum number of characters of an invalid selector that a message quotes."""
_CONDITION: Final = re.compile(
    r"\s*+(?:!\s*+(?P<absent>[^\s!=,()]++)"
    r"|(?P<key>[^\s!=,()]++)\s*+(?:(?P<operator>==?|!=)\s*+(?P<value>[^\s!=,()]*+)"
    r"|(?P<set>(?<=\s)in|(?<=\s)notin)\s*+\((?P<values>[^()]*+)\))?)\s*+(?P<end>,|$)"
)
"""Matches one condition of a selector in kubectl's syntax, and the comma after the condition."""


def parse_selector(text: str) -> LabelSelector:
    """Parse a selector of `kubectl get --selector`: `app in (a, b), !old`.

    Raises ValueError if the text is no selector; the message says where and why.
    """
    conditions, at, more = list[Requirement](), 0, True
    while more:
        found = _CONDITION.match(text, at)
        if found is None:
            raise ValueError(
                f'"{text[at:].strip()[:_SHOWN]}" is no condition of a selector: '
                "write app=db, app!=db, app in (db, cache), app notin (db), app or !app"
            )
        conditions.append(_condition(found))
        at, more = found.end(), bool(found["end"])
    return LabelSelector(tuple(conditions))


def _condition(found: re.Match[str]) -> Requirement:
    key = qualified_name(found["absent"] or found["key"])
    if found["absent"]:
        return Requirement(key, "DoesNotExist")
    if found["operator"]:
        operator: Operator = "NotIn" if found["operator"] == "!=" else "In"
        return Requirement(key, operator, (label_value(found["value"]),))
    if found["set"]:
        values = tuple(label_value(value.strip()) for value in found["values"].split(","))
        return Requirement(key, "In" if found["set"] == "in" else "NotIn", values)
    return Requirement(key, "Exists")
