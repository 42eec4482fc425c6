import pytest

from mooring.cel.urls import UrlValue, parse_url
from mooring.cel.values import Failure, work


def test_a_url_has_its_parts() -> None:
    work.begin()
    url = parse_url("HTTPS://user@[::1]:8080/a%20b?x=1&y=%41&x=2#f")
    assert isinstance(url, UrlValue)
    assert (url.scheme, url.host, url.hostname, url.port) == ("https", "[::1]:8080", "::1", "8080")
    assert url.path == "/a%20b"
    assert url.parameters == {"x": ["1", "2"], "y": ["A"]}


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("*", "", "*"),
        ("ftp://a:1:2/", "a:1:2", "/"),
        ("http://[fe80::1%25en0]:80/", "[fe80::1%en0]:80", "/"),
        ("//a#", "", "//a%23"),
    ],
)
def test_a_url_of_a_request_may_be_unusual(text: str, host: str, path: str) -> None:
    work.begin()
    url = parse_url(text, for_request=True)
    assert isinstance(url, UrlValue)
    assert (url.host, url.path) == (host, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty url"),
        ("relative", "invalid URI for request"),
        (":x", "missing protocol scheme"),
        ("http://h:port/", 'invalid port ":port" after host'),
        ("http://h/%zz", 'invalid URL escape "%zz"'),
        ("http://[::1", "missing ']' in host"),
        ("http://h:1:2/", 'invalid port ":1:2" after host'),
        ("http://a[b]/", "invalid IP-literal"),
        ("http://[1.2.3.4]/", "invalid IP-literal"),
        ("http://[abc]/", 'invalid host: ParseAddr("abc"): unable to parse IP'),
        ("http://a%41/", 'invalid URL escape "%41"'),
        ("http:// %zz/", 'invalid character " " in host name'),
        ("http://h/\x00", "net/url: invalid control character in URL"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_as_go_says_it(text: str, message: str) -> None:
    work.begin()
    found = parse_url(text, for_request=True)
    assert isinstance(found, Failure)
    assert found.text.endswith(message)
