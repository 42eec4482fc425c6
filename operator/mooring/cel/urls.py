"""URLs as Go's package `net/url` reads them, as far as expressions can see."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mooring.cel.formatting import go_quoted
from mooring.cel.types import NAMED, Type
from mooring.cel.values import NO_OVERLOAD, Failure, Opaque, work

__all__ = ["UrlValue", "parse_url"]


@dataclass(frozen=True, slots=True, eq=False)
class UrlValue(Opaque):
    """A parsed URL."""

    cel_type: ClassVar[Type] = NAMED["URL"]
    go_type: ClassVar[str] = "cel.URL"
    short_name: ClassVar[str] = "URL"
    text: str
    scheme: str
    host: str
    path: str
    query: str

    def equals(self, other: Any) -> bool | Failure:
        """Return whether the URLs are written alike."""
        return self.text == other.text if isinstance(other, UrlValue) else NO_OVERLOAD

    @property
    def hostname(self) -> str:
        """The host without the port, and without the brackets of IPv6."""
        host = self.host[: -len(self.port) - 1] if self.port else self.host.removesuffix(":")
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        """The port, "" if there is none."""
        found = re.search(r":([0-9]*)$", self.host)
        bracket = self.host.startswith("[") and not re.match(r"\[[^]]*\]:", self.host)
        return found[1] if found and not bracket else ""

    @property
    def parameters(self) -> Mapping[str, list[str]]:
        """The parameters of the query; those that are not well encoded are left out."""
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
_HOST_ALLOWED: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]*")


def _decoded(text: str) -> str | None:
    if _ESCAPE.search(text):
        return None
    raw = text.replace("+", " ").encode()
    made = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), raw)
    return made.decode(errors="replace")


def parse_url(text: str, for_request: bool = False) -> UrlValue | Failure:
    """Return the URL; with `for_request` only what may stand in a request, which is absolute."""
    wrong = _failure(text)
    work.spend_on_text(len(text))
    if _CONTROL.search(text) or (for_request and not text):
        return wrong("net/url: invalid control character in URL" if text else "empty url")
    rest, _, fragment = (text, "", "") if for_request else text.partition("#")
    if rest.startswith(":"):
        return wrong("missing protocol scheme")
    named = _SCHEME.match(rest)
    scheme = named[1] if named is not None else ""
    path, _, query = rest[len(scheme) + 1 if scheme else 0 :].partition("?")
    if not path.startswith("/"):
        if scheme:
            return UrlValue(text, scheme.lower(), "", "", query)
        if for_request:
            return wrong("invalid URI for request")
        if ":" in path.partition("/")[0]:
            return wrong("first path segment in URL cannot contain colon")
    host = ""
    if path.startswith("//") and (scheme or not path.startswith("///")):
        authority, slash, after = path[2:].partition("/")
        path = slash + after
        found = _host(authority)
        if isinstance(found, Failure):
            return wrong(found.text)
        host = found
    escape = _ESCAPE.search(path) or _ESCAPE.search(fragment)
    if escape is not None:
        return wrong(f"invalid URL escape {go_quoted(escape[0])}")
    return UrlValue(text, scheme.lower(), host, _escaped(path), query)


def _failure(text: str) -> Callable[[str], Failure]:
    return lambda why: Failure(f"parse {go_quoted(text)}: {why}")


def _host(authority: str) -> str | Failure:
    """Return the host with its port; the name of a user is left out."""
    _user, at, host = authority.rpartition("@")
    if at and not re.fullmatch(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", _user):
        return Failure("net/url: invalid userinfo")
    if host.startswith("["):
        bracket = host.rfind("]")
        if bracket < 0:
            return Failure("missing ']' in host")
        port = host[bracket + 1 :]
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if not re.fullmatch(r"(:[0-9]*)?", port, re.ASCII):
        return Failure(f"invalid port {go_quoted(port)} after host")
    escape = _ESCAPE.search(host)
    if escape is not None:
        return Failure(f"invalid URL escape {go_quoted(escape[0])}")
    if not _HOST_ALLOWED.fullmatch(host):
        character = next(each for each in host if not _HOST_ALLOWED.fullmatch(each))
        return Failure(f"invalid character {go_quoted(character)} in host name")
    return _decoded(host.replace("+", "%2B")) or ""


def _escaped(path: str) -> str:
    """Return the path with what may not stand in it escaped."""
    if re.fullmatch(r"(?:[A-Za-z0-9\-._~$&+,/:;=@!'()*\[\]]|%[0-9A-Fa-f]{2})*", path):
        return path
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path.encode())
    safe = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~$&+,/:;=@"
    return "".join(chr(each) if each in safe else f"%{each:02X}" for each in decoded)
