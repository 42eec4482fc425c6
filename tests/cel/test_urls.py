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
    ("text", "message"),
    [
        ("", "empty url"),
        ("relative", "invalid URI for request"),
        (":x", "missing protocol scheme"),
        ("http://h:port/", 'invalid port ":port" after host'),
        ("http://h/%zz", 'invalid URL escape "%zz"'),
        ("http://[::1", "missing ']' in host"),
        ("http://h/\x00", "net/url: invalid control character in URL"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_as_go_says_it(text: str, message: str) -> None:
    work.begin()
    found = parse_url(text, for_request=True)
    assert isinstance(found, Failure)
    assert found.text.endswith(message)
