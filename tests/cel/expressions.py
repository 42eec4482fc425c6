"""Makes random expressions by grammar.yaml, and random devices to evaluate the expressions for.

Most expressions have the right types; a few are wrong on purpose. A seed makes all of it
repeatable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from mooring.model.quantity import parse_quantity

Case = dict[str, Any]
"""An expression, and devices in the form that `oracle.go` reads."""

_DRIVERS: Final = ("gpu.example.com", "nic.example.org")
_DOMAINS: Final = (*_DRIVERS, "vendor.io", "absent.io")
_ATTRIBUTES: Final = ("model", "memory", "healthy", "version", "index", "family")
_CAPACITIES: Final = ("memory", "slots", "rate")
_GRAMMAR: Final = yaml.safe_load((Path(__file__).parent / "grammar.yaml").read_text())
_TEXTS: Final[Mapping[str, Sequence[str]]] = _GRAMMAR["texts"]
_WORDS: Final[Mapping[str, Sequence[str]]] = _GRAMMAR["words"]
_SIMPLE: Final[Mapping[str, Sequence[str]]] = _GRAMMAR["simple"]
_DEEP: Final[Mapping[str, Sequence[str]]] = _GRAMMAR["deep"]
_LISTS: Final[Sequence[str]] = _GRAMMAR["lists"]
_WORD: Final = re.compile("|".join(sorted((*_TEXTS, *_WORDS), key=len, reverse=True)))
_PLACE: Final = re.compile(r"\{([a-zTL][^{}\" ]*)\}")


_CORNERS: Final = Path(__file__).parent / "data" / "corners.txt"
"""Expressions that drawing hardly finds, one a line."""
_CORNER_DEVICES: Final = (
    {
        "Driver": "a",
        "Attributes": {
            "x": {"int": 1},
            "s": {"string": "a" * 64},
            "v": {"version": "1.2.3-rc.1+b"},
            "b": {"bool": True},
            "o.io/z": {"string": "日本"},
        },
        "Capacity": {"m": {"value": "40Gi"}, "d": {"value": "1500m"}, "big": {"value": "8Ei"}},
        "AllowMultipleAllocations": True,
    },
    {"Driver": "b"},
)


def corner_cases() -> Iterator[Case]:
    """Yield a case for each expression in data/corners.txt, with the same two devices."""
    for line in _CORNERS.read_text().splitlines():
        yield {"expression": line, "devices": [*_CORNER_DEVICES]}


def draw_device(random: Random) -> Mapping[str, Any]:
    """Return a random device with a few attributes and capacities."""

    def name(plain: str) -> str:
        return f"{random.choice(_DOMAINS[:3])}/{plain}" if random.random() < 0.3 else plain

    amounts = _TEXTS["QUANTITY"][:23]
    device: dict[str, Any] = {
        "Driver": random.choice(_DRIVERS),
        "Attributes": {
            name(each): _attribute(random, each) for each in _ATTRIBUTES if random.random() < 0.75
        },
        "Capacity": {
            # The API server writes quantities in their canonical form.
            name(each): {"value": parse_quantity(random.choice(amounts)).text}
            for each in _CAPACITIES
            if random.random() < 0.8
        },
    }
    if random.random() < 0.5:
        device["AllowMultipleAllocations"] = random.random() < 0.5
    return device


def _attribute(random: Random, name: str) -> Mapping[str, Any]:
    usual = {"memory": "int", "index": "int", "healthy": "bool", "version": "version"}
    kind = usual.get(name, "string")
    if random.random() < 0.2:
        kind = random.choice(("int", "bool", "string", "version"))
    values: Sequence[Any] = {
        "int": (0, 1, 7, 40, -1, 2**63 - 1, -(2**63), random.randrange(100)),
        "bool": (True, False),
        "version": _TEXTS["VERSION"][:8],
        "string": _TEXTS["TEXT"],
    }[kind]
    return {kind: random.choice(values)}


def draw_case(random: Random, devices: int = 3) -> Case:
    kind = "bool" if random.random() < 0.92 else "any"
    return {
        "expression": _Drawn(random).of(kind, random.randrange(1, 5)),
        "devices": [draw_device(random) for _ in range(devices)],
    }


class _Drawn:
    """Makes a random expression; `_variables` has the names and types of the variables in scope."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._variables: list[tuple[str, str]] = []

    def of(self, kind: str, depth: int) -> str:
        """Return an expression of type `kind`; in 2% of the calls, of a random type."""
        if self._random.random() < 0.02:
            kind = self._random.choice(("int", "string", "bool", "any", "list(int)", "quantity"))
        known = [name for name, type_ in self._variables if type_ == kind]
        if known and self._random.random() < 0.5:
            return self._random.choice(known)
        element = kind[5:-1] if kind.startswith("list(") else ""
        if element and depth <= 0:
            inner = (self.of(element, 0) for _ in range(self._random.randrange(4)))
            return f"[{', '.join(inner)}]"
        templates = _LISTS if element else _DEEP.get(kind, _SIMPLE.get(kind, ()))
        if depth <= 0 or (not element and self._random.random() < 0.15):
            templates = _SIMPLE[kind]
        template = self._random.choice(templates)
        if element:
            template = template.replace("{L}", f"{{{kind}}}").replace("{T}", f"{{{element}}}")
            template = re.sub(r"\bT(?=[>,}])", element, template)
        template = _WORD.sub(lambda found: self._word(found[0]), template)
        return _PLACE.sub(lambda found: self._place(found[1], depth - 1), template)

    def _word(self, name: str) -> str:
        if name in _WORDS:
            return self._random.choice(_WORDS[name])
        text = self._random.choice(_TEXTS[name]).replace("\\", "\\\\").replace("\t", "\\t")
        return f'"{text}"'

    def _place(self, place: str, depth: int) -> str:
        """Return the text for a placeholder.

        For `int`, return an expression of this type. For `int,int>bool`, return two new variables
        of type int and an expression of type bool.
        """
        bound, *results = place.rstrip(".").split(">")
        if not results:
            return self.of(bound, depth)
        kinds = bound.split(",")
        names = [f"{'abcxyz'[len(self._variables) % 6]}{i}" for i, _ in enumerate(kinds)]
        self._variables += zip(names, kinds, strict=True)
        bodies = [self.of(result, depth) for result in results]
        del self._variables[-len(kinds) :]
        return ", ".join((*names, *bodies))
