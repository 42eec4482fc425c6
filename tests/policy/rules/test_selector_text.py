import re

import pytest

from mooring.policy.rules.selector_text import parse_selector


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("app=db", "app=db"),
        ("app == db , tier!=web", "app=db,tier!=web"),
        ("app in (db, cache),!old", "app in (db,cache),!old"),
        ("acme.example/app notin (db)", "acme.example/app!=db"),
        ("app,in,notin", "app,in,notin"),
        ("! app", "!app"),
        ("app=", "app="),
        ("app in (a,b,c,d)", "app in (a,b,c,...)"),
    ],
)
def test_a_selector_is_written_as_for_kubectl(text: str, shown: str) -> None:
    assert ",".join(condition.text for condition in parse_selector(text).requirements) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", '"" is no condition of a selector: write app=db'),
        ("app=db,", '"" is no condition'),
        ("app in db", '"app in db" is no condition'),
        ("a=b, c = d e", '"c = d e" is no condition'),
        ("app in (a(b))", '"app in (a(b))" is no condition'),
        ("app=a=b", "no condition"),
        ("!app=db", "no condition"),
        ("appin (a)", "no condition"),
        ("-app", '"-app" is not a qualified name'),
        ("app=a/b", '"a/b" is not a label value'),
        ("app in (a, b c)", '"b c" is not a label value'),
    ],
)
def test_what_is_no_selector_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_selector(text)
