"""Draws expressions by their grammar, and devices to evaluate them for, from a seed.

Most expressions have the right types, because others say little; some have not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from mooring.model.quantity import parse_quantity

Case = dict[str, Any]
"""An expression, and devices in the form that `oracle.go` reads."""

_DRIVERS: Final = ("gpu.example.com", "nic.example.org")
_DOMAINS: Final = (*_DRIVERS, "vendor.io", "absent.io")
_ATTRIBUTES: Final = ("model", "memory", "healthy", "version", "index", "family")
_CAPACITIES: Final = ("memory", "slots", "rate")
_LONG: Final = "a" * 52
_TEXTS: Final = {
    "TEXT": (
        *("", "a", "A100", "h100-80GB", "gpu.example.com", "x,y,,z", "  spaced\t", "日本語", "ÄöÜ"),
        *("0", "-7", "1.5", "true", "1.2.3", "v1.2", "10.0.0.1", "10.0.0.0/8", "fd00::1", _LONG),
        *("http://u@h.example:80/p/a?q=1&q=2", "1Gi", "40", "2h45m", "2024-02-29T12:30:45.5Z"),
    ),
    "QUANTITY": (
        *("0", "1", "40Gi", "1.5Gi", "500m", "1e3", "0.5", "-1", "1n", "0.1n", "8Ei", "1k", "9Ei"),
        *("9223372036854775807", "12345678901234567890", "1500m", "1024Mi", "1E", "2e-3", "16Ei"),
        *("000.500", "3Ki", "100Ti", "+5", "1.0", "", "abc", "1.", ".5", "1Kx", "1e", "--1", "."),
        *("-", "1.2.3", "5 ", "1i", "1e19", "0.3Ki", "7.5m"),
    ),
    "VERSION": (
        *("1.2.3", "1.10.0", "0.0.1", "1.2.3-alpha.1", "1.2.3-alpha", "1.2.3+build.5", "1.2.3-1"),
        *("2.0.0-rc.1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3+", "", "1.a.3", "1.2.3-01"),
        *("1.2.3-é", "1.0.0-beta.11", "18446744073709551615.0.0", "99999999999999999999.0.0"),
        *("v01.02", "v2", "1.2-rc", "1..3", "1.2.", "a.b.c"),
    ),
    "PATTERN": (
        *("^a", "[A-Z]+[0-9]+", "(a|b)*c", "a{2,3}", ".*", r"\d+", "^$", "(?i)H100", r"\bGB"),
        *("x*?", "[^a-z]", "(", "[", "a**", r"\pL+", "[[:alpha:]]", "a|b|", "\\", "(?:A)(1)0+$"),
        *("^(aa)+$", r"\w+?\b", "(?P<n>a)", "a{1001}", "[z-a]", r"\q", "(?z)", r"[\d.]+", "é|Ä"),
    ),
    "ADDRESS": (
        *("10.0.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.5", "::1", "fe80::1", "fd00::1", "::"),
        *(
            "0.0.0.0",
            "1.2.3",
            "::ffff:1.2.3.4",
            "256.1.1.1",
            "01.2.3.4",
            "FE80::1",
            "ff02::1",
        ),  # an example
        "255.255.255.255",
    ),
    "NETWORK": (
        *("10.0.0.0/8", "10.1.2.3/16", "::/0", "fd00::/8", "1.2.3.4/33", "10.0.0.0", "1.2.3.4/32"),
        *("fe80::/10", "10.0.0.0/08", "10.0.0.0/"),
    ),
    "LINK": (
        *("http://example.com/a/b?x=1#f", "https://[::1]:8080/p%20q", "/abs/path", "relative", ""),
        *("mailto:a@b", "http://h:port/", "http://a b/", "https://user:pw@host:443/x?y=%41&z"),
        *("//host/x", "http://h/%zz", "1http://x", "HTTP://UPPER/", "a:b:c", ":x"),
    ),
    "DURATION": ("1h", "1m30s", "100ms", "-5s", "0", "1.5h", "1ns", "90061s"),
    "TIMESTAMP": (
        *("2024-02-29T12:30:45Z", "1970-01-01T00:00:00Z", "2023-12-31T23:59:59.123456789+02:00"),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    ),
    "DOMAIN": _DOMAINS,
}
"""What becomes a literal text."""
_WORDS: Final = {
    "KEY": ("a", "b", "c"),
    "NAME": (*_ATTRIBUTES, "none"),
    "CAPACITY": (*_CAPACITIES, "none"),
    "ARITHMETIC": tuple("+-*/%"),
    "SUM": ("+", "-"),
    "SAME": ("==", "!="),
    "ORDER": ("==", "!=", "<", "<=", ">", ">="),
    "MACRO": ("exists", "all", "exists_one"),
    "MACRO2": ("exists", "all", "exists_one", "existsOne"),
    "FIND": ("contains", "startsWith", "endsWith"),
    "COMPARE": ("isGreaterThan", "isLessThan"),
    "CHANGE": ("lowerAscii", "upperAscii", "trim"),
    "FORMAT": ("dns1123Label", "dns1123Subdomain", "labelValue", "qualifiedName", "uuid", "uri"),
    "DATE": ("FullYear", "Month", "DayOfYear", "Date", "DayOfWeek", "Hours", "Milliseconds"),
    "SPAN": ("Hours", "Minutes", "Seconds", "Milliseconds"),
    "KIND": ("Loopback", "Unspecified", "GlobalUnicast", "LinkLocalUnicast", "LinkLocalMulticast"),
    "PART": ("Scheme", "Host", "Hostname", "Port", "EscapedPath"),
    "TYPE": ("int", "string", "bool", "type", "double", "null_type"),
    "SET": ("contains", "intersects", "equivalent"),
    "INT": ("0", "1", "2", "3", "-1", "7", "40", "100", "9223372036854775807"),
    "UINT": ("0u", "1u", "7u", "40u", "18446744073709551615u"),
    "DOUBLE": ("0.0", "1.5", "-2.25", "1e10", "3.0", "0.1", "1e-7", "40.0", "1e300", "123456789.0"),
    "SMALL": tuple("012345"),
}
"""What is written as it is."""
_SIMPLE: Final[Mapping[str, Sequence[str]]] = {
    "any": ("device.attributes[DOMAIN].NAME", "device.attributes[device.driver].NAME"),
    "attributes": ("device.attributes[DOMAIN]",),
    "int": ("INT",),
    "uint": ("UINT",),
    "double": ("DOUBLE",),
    "string": ("TEXT", "TEXT", "TEXT", "device.driver"),
    "bytes": ('b"abc"', r"b'\xff\x00'", 'bytes("日本")', 'b""'),
    "bool": (
        *("true", "false", "device.attributes[DOMAIN].healthy", "device.allowMultipleAllocations"),
        *("device.attributes[DOMAIN].NAME == {int}", "device.attributes[DOMAIN].NAME == {string}"),
    ),
    "quantity": ("device.capacity[DOMAIN].CAPACITY", "quantity(QUANTITY)"),
    "semver": ("device.attributes[DOMAIN].version", "semver(VERSION)", "semver(VERSION, true)"),
    "duration": ("duration(DURATION)",),
    "timestamp": ("timestamp(TIMESTAMP)",),
    "optional": ("optional.of(INT)", "optional.none()"),
    "map": ("{}", '{"a": {int}}', '{"a": {int}, "b": {int}, "c": {int}}'),
    "entry": ("{string({int}): {int}}",),
}
"""The shortest expressions of each type. Words in capitals are drawn from the tables above."""
_LISTS: Final = (
    *("[{T}, {T}]", "[{T}]", "({L} + {L})", "{L}.sort()", "{L}.reverse()", "{L}.distinct()"),
    *("{L}.slice(SMALL, SMALL)", "{L}.filter({T>bool})", "{list(int).}.map({int>T})"),
    *("{list(string).}.map({string>T})", "{L}.sortBy({T>int})", "[{L}].flatten()"),
    *("{L}.transformList({int,T>T})", "{L}.map({T>bool>T})", "{L} + [{any}]"),
)
_DEEP: Final[Mapping[str, Sequence[str]]] = {
    "any": (
        *("dyn({int})", "dyn({string})", "dyn({double})", "dyn({list(int)})", "dyn({map})"),
        *("device.attributes[DOMAIN][{string}]", "device.attributes[DOMAIN].?NAME.orValue({any})"),
        *("device.attributes[{string}].NAME", "({bool} ? {any} : {any})", "{any}.NAME", "{any}"),
        *("cel.bind(v, device.attributes[DOMAIN], v.NAME)", "({bool} ? {map} : {map}).KEY"),
    ),
    "int": (
        *("({int} ARITHMETIC {int})", "size({string})", "size({list(int)})", "size({map})"),
        *("{bytes}.size()", "{string}.indexOf({string})", "{string}.lastIndexOf({string}, SMALL)"),
        *("{list(int)}.sum()", "{list(int)}.max()", "{list(int)}.min()", "{quantity}.asInteger()"),
        *(
            "{list(string)}.indexOf({string})",
            "{quantity}.compareTo({quantity})",
            "{semver}.major()",
        ),
        *("sign({quantity})", "{semver}.compareTo({semver})", "{semver}.minor()", "int({string})"),
        *("int({double})", "int({uint})", "int({any})", "{duration}.getSPAN()", "-({int})"),
        *("{timestamp}.getDATE()", "{list(int)}[SMALL]", "({bool} ? {int} : {int})", "{map}.KEY"),
        *(
            "{optional}.orValue({int})",
            "{map}[{string}]",
            "ip(ADDRESS).family()",
            "int({duration})",
        ),
        *("cidr(NETWORK).prefixLength()", "{list(int)}.lastIndexOf({int})", "{optional}.value()"),
        *("({any} ARITHMETIC {any})", "size({any})", "{any}.size()", "int({timestamp})"),
    ),
    "uint": ("({uint} ARITHMETIC {uint})", "uint({int})", "uint({double})", "uint({string})"),
    "double": (
        *(
            "({double} + {double})",
            "({double} * {double})",
            "({double} / {double})",
            "double({int})",
        ),
        *("double({uint})", "double({string})", "{quantity}.asApproximateFloat()", "-({double})"),
    ),
    "string": (
        *("({string} + {string})", "{string}.CHANGE()", "{string}.substring(SMALL)", "{string}[0]"),
        *("{string}.substring(SMALL, SMALL)", "{string}.charAt({int})", "string({int})"),
        *("{string}.replace({string}, {string})", "{string}.replace({string}, {string}, SMALL)"),
        *(
            "{list(string)}.join(TEXT)",
            "{list(string)}.join()",
            "string({double})",
            "string({any})",
        ),
        *(
            "string({bool})",
            "string({uint})",
            "string({bytes})",
            "string({duration})",
            "({any} + TEXT)",
        ),
        *(
            "string({timestamp})",
            "{string}.find(PATTERN)",
            "{string}.find({string})",
            "{any}.CHANGE()",
        ),
        *(
            "strings.quote({string})",
            '"%s and %s".format([{string}, {any}])',
            '"%d".format([{int}])',
        ),
        *('"%.2f".format([{double}])', '"%s".format([{list(int)}])', '"%s".format([{map}])'),
        *(
            '"%s".format([{double}])',
            '"%s".format([{bytes}])',
            '"%x".format([{int}])',
            "{any}.find(TEXT)",
        ),
        *(
            '"%x %X".format([{string}, {any}])',
            '"%s".format([{list(string)}])',
            '"%b".format([{int}])',
        ),
        *(
            "url(LINK).getPART()",
            "string(ip(ADDRESS))",
            "string(cidr(NETWORK))",
            "{string}.format([{any}])",
        ),
        *(
            '"%e".format([{double}])',
            '"%s %d".format([{duration}, {any}])',
            '"%q%".format([{any}])',
        ),
    ),
    "bytes": ("({bytes} + {bytes})", "bytes({string})"),
    "map": (
        *("{map}.transformMap({string,int>int})", "{map}.transformMap({string,int>bool>int})"),
        *("{list(int)}.transformMapEntry({int,int>entry})", '{"a": {int}, ?"b": {optional}}'),
    ),
    "quantity": (
        "{quantity}.add({quantity})",
        "{quantity}.sub({quantity})",
        "{quantity}.add({int})",
    ),
    "semver": ("semver({string})", "semver({string}, {bool})"),
    "duration": (
        "({duration} SUM {duration})",
        "({timestamp} - {timestamp})",
        "duration({string})",
    ),
    "timestamp": ("({timestamp} SUM {duration})", "timestamp({int})", "timestamp({string})"),
    "optional": (
        *("optional.of({int})", "optional.ofNonZeroValue({int})", "{map}[?{string}]", "{map}.?KEY"),
        *("{list(int)}[?SMALL]", "{optional}.or({optional})", "{optional}.optMap({int>int})"),
        *("{optional}.optFlatMap({int>optional})", "{list(int)}.first()", "{list(int)}.last()"),
    ),
    "bool": (
        *("({bool} && {bool})", "({bool} || {bool})", "({bool} && {bool})", "({bool} || {bool})"),
        *("!({bool})", "!!({bool})", "({bool} ? {bool} : {bool})", "{int} ORDER {int}"),
        *("{double} ORDER {double}", "{string} ORDER {string}", "{uint} ORDER {uint}"),
        *("{duration} ORDER {duration}", "{timestamp} ORDER {timestamp}", "{bool} ORDER {bool}"),
        *(
            "{int} ORDER {double}",
            "{uint} ORDER {int}",
            "{any} ORDER {int}",
            "{any} ORDER {string}",
        ),
        *(
            "{any} ORDER {any}",
            "{double} ORDER {any}",
            "{any} SAME {semver}",
            "{any} SAME {quantity}",
        ),
        *(
            "{any} SAME {map}",
            "{any} SAME {list(int)}",
            "{quantity} SAME {quantity}",
            "{any} ORDER {uint}",
        ),
        *("{semver} SAME {semver}", "{map} SAME {map}", "{list(string)} SAME {list(string)}"),
        *(
            "{optional} SAME {optional}",
            "{bytes} ORDER {bytes}",
            "{int} in {list(int)}",
            "{any} in {map}",
        ),
        *("{string} in {list(string)}", "{any} in {list(int)}", "{any} in {list(string)}"),
        *("{double} in {list(double)}", "DOMAIN in device.attributes", "DOMAIN in device.capacity"),
        *("{string} in device.attributes[DOMAIN]", "{list(int)}.MACRO({int>bool})"),
        *("{list(string)}.MACRO({string>bool})", "{list(int)}.MACRO2({int,int>bool})"),
        *("device.attributes.MACRO({string>bool})", "{map}.MACRO2({string,int>bool})"),
        *("device.attributes[DOMAIN].MACRO2({string,any>bool})", "{list(bool)}.isSorted()"),
        *("cel.bind(v, {any}, v == {any} || v == {any})", "has(device.attributes[DOMAIN].NAME)"),
        *("has({map}.KEY)", "{string}.FIND({string})", "{any}.FIND({string})", "{any}.FIND({any})"),
        *("{string}.matches(PATTERN)", "{any}.matches(PATTERN)", "{any}.matches({string})"),
        *("{quantity}.COMPARE({quantity})", "{quantity}.isInteger()", "{semver}.COMPARE({semver})"),
        *(
            "{any}.COMPARE({semver})",
            "{any}.COMPARE({quantity})",
            "isQuantity(QUANTITY)",
            "isIP({string})",
        ),
        *("isSemver(VERSION)", "isSemver(VERSION, {bool})", "isIP(ADDRESS)", "isCIDR(NETWORK)"),
        *(
            "isURL(LINK)",
            "ip.isCanonical(ADDRESS)",
            "ip(ADDRESS).isKIND()",
            "{optional}.hasValue()",
        ),
        *(
            "cidr(NETWORK).containsIP(ADDRESS)",
            "cidr(NETWORK).containsCIDR(NETWORK)",
            "bool({any})",
        ),
        *("cidr(NETWORK).masked() SAME cidr(NETWORK)", "cidr(NETWORK).containsIP(ip(ADDRESS))"),
        *("sets.SET({list(int)}, {list(int)})", "sets.SET({list(string)}, {list(string)})"),
        *("format.FORMAT().validate({string}).hasValue()", "type({any}) == TYPE", "{any}"),
        *("{any}.includes({int})", "{list(string)}.includes({string})", "{any}.includes({string})"),
        *("url(LINK).getQuery().MACRO({string>bool})", "has(device.attributes[DOMAIN].NAME.NAME)"),
        *("device.attributes[DOMAIN].?NAME.optMap({any>bool}).orValue({bool})", "{any} == null"),
        *(
            "device.attributes[DOMAIN].?NAME.hasValue()",
            "{list(int)}.isSorted()",
            "{attributes} == {map}",
        ),
    ),
}
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
    """Yield the expressions that people wrote, with the same two devices each."""
    for line in _CORNERS.read_text().splitlines():
        yield {"expression": line, "devices": [*_CORNER_DEVICES]}


def draw_device(random: Random) -> Mapping[str, Any]:
    """Return a device with a few attributes and capacities."""

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
    """Return an expression and devices."""
    kind = "bool" if random.random() < 0.92 else "any"
    return {
        "expression": _Drawn(random).of(kind, random.randrange(1, 5)),
        "devices": [draw_device(random) for _ in range(devices)],
    }


class _Drawn:
    """Draws an expression from the templates; the variables are those in scope with their types."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._variables: list[tuple[str, str]] = []

    def of(self, kind: str, depth: int) -> str:
        """Return an expression of the type, or now and then of another."""
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
        """Return what stands for `int`, or for `int,int>bool`, a loop with its variables."""
        bound, *results = place.rstrip(".").split(">")
        if not results:
            return self.of(bound, depth)
        kinds = bound.split(",")
        names = [f"{'abcxyz'[len(self._variables) % 6]}{i}" for i, _ in enumerate(kinds)]
        self._variables += zip(names, kinds, strict=True)
        bodies = [self.of(result, depth) for result in results]
        del self._variables[-len(kinds) :]
        return ", ".join((*names, *bodies))
