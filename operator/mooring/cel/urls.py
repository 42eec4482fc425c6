"""Parses URLs as Go's package `net/url` does, but only the parts that expressions can read."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mooring.cel.formatting import go_quoted
from mooring.cel.kubernetes_values import address_mistake
from mooring.cel.types import NAMED, Type
from mooring.cel.values import NO_OVERLOAD, Failure, Opaque, work


@dataclass(frozen=True, slots=True, eq=False)
class UrlValue(Opaque):
    """A parsed URL, as a value of expressions."""

    cel_type: ClassVar[Type] = NAMED["URL"]
    go_type: ClassVar[str] = "cel.URL"
    short_name: ClassVar[str] = "URL"
    text: str
    scheme: str
    host: str
    path: str
    query: str

    def equals(self, other: Any) -> bool | Failure:
        """Return whether the URLs have the same text; NO_OVERLOAD if `other` is no URL."""
        return self.text == other.text if isinstance(other, UrlValue) else NO_OVERLOAD

    @property
    def hostname(self) -> str:
        """The host without the port, and without the brackets of an IPv6 address."""
        host = self.host[: -len(self.port) - 1] if self.port else self.host.removesuffix(":")
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        """The port; "" without a port."""
        found = re.search(r":([0-9]*)$", self.host)
        bracket = self.host.startswith("[") and not re.match(r"\[[^]]*\]:", self.host)
        return found[1] if found and not bracket else ""

    @property
    def parameters(self) -> Mapping[str, list[str]]:
        """The parameters of the query; malformed parameters are left out."""
        found = dict[str, list[str]]()
        for part in self.query.split("&"):
            key, _, value = part.partition("=")
            if not part or ";" in part:
                continue
            decoded = _decoded(key), _decoded(value)
            if decoded[0] is not None and decoded[1] is not None:
                found.setdefault(decoded[0], []).append(decoded[1])
        return found


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_NOT_HOST: Final = r"[^A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]"
_NOT_IN_HOST: Final = re.compile(rf"%(?!25|[89A-Fa-f][0-9A-Fa-f]).{{0,2}}|{_NOT_HOST}")
_NOT_IN_ZONE: Final = re.compile(rf"{_ESCAPE.pattern}|{_NOT_HOST}")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT: Final = re.compile("(:[0-9]*)?")


def _decoded(text: str) -> str | None:
    if _ESCAPE.search(text):
        return None
    raw = text.replace("+", " ").encode()
    made = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), raw)
    return made.decode(errors="replace")


def parse_url(text: str, for_request: bool = False) -> UrlValue | Failure:
    """Parse a URL; return a Failure with Go's message if it is malformed.

    With `for_request`, the URL must have a scheme or an absolute path.
    """
    wrong = _failure(text)
    work.spend_on_text(len(text))
    work.read()
    if _CONTROL.search(text) or (for_request and not text):
        return wrong("net/url: invalid control character in URL" if text else "empty url")
    rest, _, fragment = (text, "", "") if for_request else text.partition("#")
    if rest.startswith(":"):
        return wrong("missing protocol scheme")
    named = _SCHEME.match(rest)
    scheme = named[1] if named is not None else ""
    path, _, query = rest[len(scheme) + 1 if scheme else 0 :].partition("?")
    if not path.startswith("/"):
        if scheme or text == "*":
            path = "" if scheme else text
        elif for_request:
            return wrong("invalid URI for request")
        elif ":" in path.partition("/")[0]:
            return wrong("first path segment in URL cannot contain colon")
    host = ""
    if path.startswith("//") and (scheme or not (for_request or path.startswith("///"))):
        authority, slash, after = path[2:].partition("/")
        path = slash + after
        found = _host(authority, scheme.lower())
        if isinstance(found, Failure):
            return wrong(found.text)
        host = found
    escape = _ESCAPE.search(path) or _ESCAPE.search(fragment)
    if escape is not None:
        return wrong(f"invalid URL escape {go_quoted(escape[0])}")
    return UrlValue(text, scheme.lower(), host, _escaped(path), query)


def _failure(text: str) -> Callable[[str], Failure]:
    return lambda why: Failure(f"parse {go_quoted(text)}: {why}")


def _host(authority: str, scheme: str) -> str | Failure:
    """Return the host and port in a URL's authority, or why the authority is invalid."""
    _user, at, host = authority.rpartition("@")
    if "[" in host:
        found = _literal(host)
    else:
        strict = scheme in {"http", "https"}
        colon = host.find(":") if strict else host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
        found = _unescaped(host) if _PORT.fullmatch(port) else _wrong_port(port)
    if isinstance(found, Failure) or not at:
        return found
    if not _USER.fullmatch(_user):
        return Failure("net/url: invalid userinfo")
    escape = _ESCAPE.search(_user)
    return Failure(f"invalid URL escape {go_quoted(escape[0])}") if escape else found


def _literal(host: str) -> str | Failure:
    """Parse an IPv6 address in brackets with an optional port; return it without escapes."""
    bracket = host.rfind("]")
    if host.rfind("[") > 0:
        return Failure("invalid IP-literal")
    if bracket < 0:
        return Failure("missing ']' in host")
    port = host[bracket + 1 :]
    if not _PORT.fullmatch(port):
        return _wrong_port(port)
    before, percent, zone = host[1:bracket].partition("%25")
    parts = [_unescaped(before), _unescaped(percent + zone, in_zone=True)]
    wrong = next((each for each in parts if isinstance(each, Failure)), None)
    if wrong is not None:
        return wrong
    address = "".join(map(str, parts))
    try:
        is_4 = ipaddress.ip_address(address).version == 4
    except ValueError:
        return Failure(f"invalid host: {address_mistake(address)}")
    return Failure("invalid IP-literal") if is_4 else f"[{address}]{port}"


def _wrong_port(port: str) -> Failure:
    return Failure(f"invalid port {go_quoted(port)} after host")


def _unescaped(host: str, in_zone: bool = False) -> str | Failure:
    # Only non-ASCII characters may be escaped; in an IPv6 zone, any character may.
    wrong = (_NOT_IN_ZONE if in_zone else _NOT_IN_HOST).search(host)
    if wrong is not None:
        shown = go_quoted(wrong[0])
        is_escape = wrong[0].startswith("%")
        return Failure(
            f"invalid URL escape {shown}"
            if is_escape
            else f"invalid character {shown} in host name"
        )
    return _decoded(host.replace("+", "%2B")) or ""


def _escaped(path: str) -> str:
    if re.fullmatch(r"(?:[A-Za-z0-9\-._~$&+,/:;=@!'()*\[\]]|%[0-9A-Fa-f]{2})*", path):
        return path
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path.encode())
    safe = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~$&+,/:;=@"
    return "".join(chr(each) if each in safe else f"%{each:02X}" for each in decoded)
