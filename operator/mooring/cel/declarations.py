"""Declares the functions that expressions may call, with all overloads.

The ids of overloads are those of cel-go and kube-apiserver. Sources: cel-go's
`common/stdlib/standard.go`, `cel/library.go` and `ext/`; kube-apiserver's `pkg/cel/library`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from mooring.cel.types import (
    NAMED,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
    type_of,
)


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function; the first parameter of a method is the object before the dot.

    `name` is the overload's id. `is_generic`: some type has a type parameter, such as A in list(A).
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    is_method: bool
    is_generic: bool


_OPERATORS: Final = """
conditional _?_:_(bool, A, A) A
logical_and _&&_(bool, bool) bool
logical_or _||_(bool, bool) bool
logical_not !_(bool) bool
not_strictly_false @not_strictly_false(bool) bool
equals _==_(A, A) bool
not_equals _!=_(A, A) bool
add_bytes _+_(bytes, bytes) bytes
add_double _+_(double, double) double
add_duration_duration _+_(duration, duration) duration
add_duration_timestamp _+_(duration, timestamp) timestamp
add_timestamp_duration _+_(timestamp, duration) timestamp
add_int64 _+_(int, int) int
add_list _+_(list(A), list(A)) list(A)
add_string _+_(string, string) string
add_uint64 _+_(uint, uint) uint
divide_double _/_(double, double) double
divide_int64 _/_(int, int) int
divide_uint64 _/_(uint, uint) uint
modulo_int64 _%_(int, int) int
modulo_uint64 _%_(uint, uint) uint
multiply_double _*_(double, double) double
multiply_int64 _*_(int, int) int
multiply_uint64 _*_(uint, uint) uint
negate_double -_(double) double
negate_int64 -_(int) int
subtract_double _-_(double, double) double
subtract_duration_duration _-_(duration, duration) duration
subtract_int64 _-_(int, int) int
subtract_timestamp_duration _-_(timestamp, duration) timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) duration
subtract_uint64 _-_(uint, uint) uint
index_list _[_](list(A), int) A
index_map _[_](map(A, B), A) B
in_list @in(A, list(A)) bool
in_map @in(A, map(A, B)) bool
"""
_CONVERSIONS: Final = """
size_bytes size(bytes) int
bytes_size bytes.size() int
size_list size(list(A)) int
list_size list(A).size() int
size_map size(map(A, B)) int
map_size map(A, B).size() int
size_string size(string) int
string_size string.size() int
type type(A) type(A)
bool_to_bool bool(bool) bool
string_to_bool bool(string) bool
bytes_to_bytes bytes(bytes) bytes
string_to_bytes bytes(string) bytes
double_to_double double(double) double
int64_to_double double(int) double
string_to_double double(string) double
uint64_to_double double(uint) double
duration_to_duration duration(duration) duration
string_to_duration duration(string) duration
to_dyn dyn(A) dyn
int64_to_int64 int(int) int
double_to_int64 int(double) int
duration_to_int64 int(duration) int
string_to_int64 int(string) int
timestamp_to_int64 int(timestamp) int
uint64_to_int64 int(uint) int
string_to_string string(string) string
bool_to_string string(bool) string
bytes_to_string string(bytes) string
double_to_string string(double) string
duration_to_string string(duration) string
int64_to_string string(int) string
timestamp_to_string string(timestamp) string
uint64_to_string string(uint) string
timestamp_to_timestamp timestamp(timestamp) timestamp
int64_to_timestamp timestamp(int) timestamp
string_to_timestamp timestamp(string) timestamp
uint64_to_uint64 uint(uint) uint
double_to_uint64 uint(double) uint
int64_to_uint64 uint(int) uint
string_to_uint64 uint(string) uint
contains_string string.contains(string) bool
ends_with_string string.endsWith(string) bool
starts_with_string string.startsWith(string) bool
matches matches(string, string) bool
matches_string string.matches(string) bool
"""
_STRINGS: Final = """
string_char_at_int string.charAt(int) string
string_index_of_string string.indexOf(string) int
string_index_of_string_int string.indexOf(string, int) int
list_a_index_of_int list(A).indexOf(A) int
string_last_index_of_string string.lastIndexOf(string) int
string_last_index_of_string_int string.lastIndexOf(string, int) int
list_a_last_index_of_int list(A).lastIndexOf(A) int
string_lower_ascii string.lowerAscii() string
string_upper_ascii string.upperAscii() string
string_replace_string_string string.replace(string, string) string
string_replace_string_string_int string.replace(string, string, int) string
string_split_string string.split(string) list(string)
string_split_string_int string.split(string, int) list(string)
string_substring_int string.substring(int) string
string_substring_int_int string.substring(int, int) string
string_trim string.trim() string
string_format string.format(list(dyn)) string
strings_quote strings.quote(string) string
list_join list(string).join() string
list_join_string list(string).join(string) string
string_find_string string.find(string) string
string_find_all_string string.findAll(string) list(string)
string_find_all_string_int string.findAll(string, int) list(string)
"""
_LISTS: Final = """
@mapInsert_map_key_value cel.@mapInsert(map(K, V), K, V) map(K, V)
@mapInsert_map_map cel.@mapInsert(map(K, V), map(K, V)) map(K, V)
list_slice list(T).slice(int, int) list(T)
list_flatten list(list(T)).flatten() list(T)
list_flatten_int list(dyn).flatten(int) list(dyn)
lists_range lists.range(int) list(int)
list_reverse list(T).reverse() list(T)
list_distinct list(T).distinct() list(T)
list_sets_contains_list sets.contains(list(T), list(T)) bool
list_sets_equivalent_list sets.equivalent(list(T), list(T)) bool
list_sets_intersects_list sets.intersects(list(T), list(T)) bool
list_last list(V).last() optional(V)
list_first list(V).first() optional(V)
"""
_OPTIONALS: Final = """
optional_list_index_int _[_](optional(list(V)), int) optional(V)
optional_map_index_value _[_](optional(map(K, V)), K) optional(V)
list_optindex_optional_int _[?_](list(V), int) optional(V)
optional_list_optindex_optional_int _[?_](optional(list(V)), int) optional(V)
map_optindex_optional_value _[?_](map(K, V), K) optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) optional(V)
optional_of optional.of(V) optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue(V) optional(V)
optional_none optional.none() optional(V)
optional_value optional(V).value() V
optional_hasValue optional(V).hasValue() bool
optional_or_optional optional(V).or(optional(V)) optional(V)
optional_orValue_value optional(V).orValue(V) V
select_optional_field _?._(dyn, string) optional(V)
optional_unwrap optional.unwrap(list(optional(V))) list(V)
optional_unwrapOpt list(optional(V)).unwrapOpt() list(V)
"""
_KUBERNETES: Final = """
ip_to_string string(IP) string
cidr_to_string string(CIDR) string
string_to_quantity quantity(string) Quantity
is_quantity_string isQuantity(string) bool
quantity_sign sign(Quantity) int
quantity_is_greater_than Quantity.isGreaterThan(Quantity) bool
semver_is_greater_than Semver.isGreaterThan(Semver) bool
quantity_is_less_than Quantity.isLessThan(Quantity) bool
semver_is_less_than Semver.isLessThan(Semver) bool
quantity_compare_to Quantity.compareTo(Quantity) int
semver_compare_to Semver.compareTo(Semver) int
quantity_get_float Quantity.asApproximateFloat() double
quantity_get_int Quantity.asInteger() int
quantity_is_integer Quantity.isInteger() bool
quantity_add Quantity.add(Quantity) Quantity
quantity_add_int Quantity.add(int) Quantity
quantity_sub Quantity.sub(Quantity) Quantity
quantity_sub_int Quantity.sub(int) Quantity
string_to_semver semver(string) Semver
string_bool_to_semver semver(string, bool) Semver
is_semver_string isSemver(string) bool
is_semver_string_bool isSemver(string, bool) bool
semver_major Semver.major() int
semver_minor Semver.minor() int
semver_patch Semver.patch() int
string_to_url url(string) URL
is_url_string isURL(string) bool
url_get_scheme URL.getScheme() string
url_get_host URL.getHost() string
url_get_hostname URL.getHostname() string
url_get_port URL.getPort() string
url_get_escaped_path URL.getEscapedPath() string
url_get_query URL.getQuery() map(string, list(string))
string_to_ip ip(string) IP
cidr_ip CIDR.ip() IP
ip_family IP.family() int
ip_is_canonical ip.isCanonical(string) bool
ip_is_unspecified IP.isUnspecified() bool
ip_is_loopback IP.isLoopback() bool
ip_is_link_local_multicast IP.isLinkLocalMulticast() bool
ip_is_link_local_unicast IP.isLinkLocalUnicast() bool
ip_is_global_unicast IP.isGlobalUnicast() bool
is_ip isIP(string) bool
string_to_cidr cidr(string) CIDR
cidr_contains_ip_string CIDR.containsIP(string) bool
cidr_contains_ip_ip CIDR.containsIP(IP) bool
cidr_contains_cidr_string CIDR.containsCIDR(string) bool
cidr_contains_cidr CIDR.containsCIDR(CIDR) bool
cidr_prefix_length CIDR.prefixLength() int
cidr_masked CIDR.masked() CIDR
is_cidr isCIDR(string) bool
format-validate Format.validate(string) optional(list(string))
format-named format.named(string) optional(Format)
list_includes_dyn_dyn dyn.includes(dyn) bool
"""
_COMPARED: Final = ("bool", "int64", "uint64", "double", "string", "bytes", "timestamp", "duration")
_NUMBERS: Final = ("int64", "uint64", "double")
_TIMES: Final = {
    "getFullYear": "year",
    "getMonth": "month",
    "getDayOfYear": "day_of_year",
    "getDayOfMonth": "day_of_month",
    "getDate": "day_of_month_1_based",
    "getDayOfWeek": "day_of_week",
    "getHours": "hours",
    "getMinutes": "minutes",
    "getSeconds": "seconds",
    "getMilliseconds": "milliseconds",
}
_OF_LISTS: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_FORMATS: Final = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
]
_NAMESPACES: Final = frozenset(("optional", "strings", "lists", "sets", "ip", "format", "cel"))


@cache
def functions(newer: bool = True) -> Mapping[str, tuple[Overload, ...]]:
    """Return the overloads of every CEL function by the function's name, in the order of cel-go.

    `newer` is False for versions before Kubernetes 1.37: indexOf and lastIndexOf have their
    overloads for lists first.
    """
    found = _by_function((*_standard_lines(mixed=True), *_further_lines()))
    if not newer:
        for overloads in (found["indexOf"], found["lastIndexOf"]):
            overloads.sort(key=lambda overload: overload.parameters[0].kind != "list")
    return {function: tuple(overloads) for function, overloads in found.items()}


def standard_functions() -> Mapping[str, tuple[Overload, ...]]:
    """Return CEL's standard functions; these compare only numbers of the same type."""
    found = _by_function(_standard_lines(mixed=False))
    return {function: tuple(overloads) for function, overloads in found.items()}


def _by_function(lines: Iterable[str]) -> dict[str, list[Overload]]:
    found = dict[str, list[Overload]]()
    for line in lines:
        name, signature = line.split(" ", 1)
        function, overload = _parsed(name, signature)
        found.setdefault(function, []).append(overload)
    return found


def _standard_lines(*, mixed: bool) -> Iterator[str]:
    """Yield a line with the id and the signature of each standard overload."""
    for block in (_OPERATORS, _CONVERSIONS):
        yield from block.strip().split("\n")
    for operator, word in (
        ("_<_", "less"),
        ("_<=_", "less_equals"),
        ("_>_", "greater"),
        ("_>=_", "greater_equals"),
    ):
        for first in _COMPARED:
            # `mixed`: int, uint and double can be compared with each other.
            for second in _NUMBERS if mixed and first in _NUMBERS else (first,):
                suffix = first if first == second else f"{first}_{second}"
                types = f"{first.removesuffix('64')}, {second.removesuffix('64')}"
                yield f"{word}_{suffix} {operator}({types}) bool"
    for function, part in _TIMES.items():
        with_zone = "seconds_tz" if part == "seconds" else f"{part}_with_tz"
        yield f"timestamp_to_{part} timestamp.{function}() int"
        yield f"timestamp_to_{with_zone} timestamp.{function}(string) int"
        if part in {"hours", "minutes", "seconds", "milliseconds"}:
            yield f"duration_to_{part} duration.{function}() int"


def _further_lines() -> Iterator[str]:
    for block in (_STRINGS, _LISTS, _OPTIONALS, _KUBERNETES):
        yield from block.strip().split("\n")
    for each in _OF_LISTS:
        shown = NAMED[each].name
        yield f"list_{shown}_sort list({each}).sort() list({each})"
        keyed = "@sortByAssociatedKeys"
        yield f"list_{shown}_{keyed[1:]} list(T).{keyed}(list({each})) list(T)"
        yield f"list_{each}_is_sorted_bool list({each}).isSorted() bool"
        yield f"list_{each}_max_{each} list({each}).max() {each}"
        yield f"list_{each}_min_{each} list({each}).min() {each}"
        if each in {"int", "uint", "double", "duration"}:
            yield f"list_{each}_sum_{each} list({each}).sum() {each}"
    for each in _FORMATS:
        yield f"format.{each} format.{each}() Format"


def _parsed(name: str, signature: str) -> tuple[str, Overload]:
    """Parse a signature; return the name of the function, and the overload."""
    # For example `string.size() int`.
    call, result = _split_result(signature)
    opened = _matching(call)
    head, inner = call[:opened], call[opened + 1 : -1]
    function, target = head, ""
    before, _, last = head.rpartition(".")
    if before and not head.startswith("_") and before not in _NAMESPACES:
        function, target = last, before
    parameters = [_type(each) for each in _split(inner)]
    if target:
        parameters.insert(0, _type(target))
    generic = any(_is_generic(each) for each in (*parameters, _type(result)))
    return function, Overload(name, tuple(parameters), _type(result), bool(target), generic)


def _split_result(signature: str) -> tuple[str, str]:
    depth = 0
    for at in range(len(signature) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(signature[at], 0)
        if signature[at] == " " and depth == 0:
            return signature[:at], signature[at + 1 :]
    raise ValueError(signature)


def _matching(call: str) -> int:
    """Return the index of the bracket in `call` that opens its arguments."""
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(call[at], 0)
        if depth == 0:
            return at
    raise ValueError(call)


def _split(inner: str) -> Iterator[str]:
    """Yield the parts of a text between commas outside of brackets."""
    depth, start = 0, 0
    for at, each in enumerate(inner):
        depth += {"(": 1, ")": -1}.get(each, 0)
        if each == "," and depth == 0:
            yield inner[start:at].strip()
            start = at + 1
    if inner[start:].strip():
        yield inner[start:].strip()


def _type(text: str) -> Type:
    name, _, rest = text.partition("(")
    inner = [_type(each) for each in _split(rest[:-1])] if rest else []
    match name:
        case "list":
            return list_of(*inner)
        case "map":
            return map_of(*inner)
        case "optional":
            return optional_of(*inner)
        case "type" if inner:
            return type_of(*inner)
        case _ if len(name) == 1:
            return parameter(name)
    return NAMED[name]


def _is_generic(given: Type) -> bool:
    return given.kind == "param" or any(map(_is_generic, given.parameters))
