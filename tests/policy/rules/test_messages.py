import pytest

from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.rules.expressions import check


def mistake(source: str) -> str:
    with pytest.raises(ProfileInvalid) as caught:
        check(source)
    (found,) = caught.value.errors
    return found.message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("pod.qosClass = 'a'", "= is no operator: write == to compare"),
        ("true & true", "& is no operator: write && for and"),
        ("true | true", "| is no operator: write || for or"),
        ("pod.priority ~ 3", 'the character "~" means nothing here'),
        ("pod.qosClass == 'a", "a text begins here, and its end ' is not found"),
        (r'pod.qosClass == "\q"', "this text has a backslash that means nothing: write two"),
        ("pod.qosClass == \u2018a\u2019", "\u2018 is no quotation mark of CEL: write \" or '"),
        ("true and true", '"and" is no operator: write &&'),
        ("1 2", '"2" is too much: an operator such as && or == is missing before it'),
        ("pod.qosClass ==", "the expression ends here, but something is missing"),
        ("(true", ") is missing"),
        ("[true, (false]", ') is missing before "]"'),
        ("&& true", '"&&" cannot stand here'),
        ("pod.labels.a.", "the expression ends here, but something is missing"),
    ],
)
def test_a_syntax_error_is_one_line_that_says_what_to_write(source: str, said: str) -> None:
    found = mistake(source)
    assert found.startswith("line 1, column ")
    assert said in found
    assert "expecting" not in found


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "node.labels.x > 3",
            "> does not work with a string and an int: write int(...) around the string, or",
        ),
        (
            "pod.requests.cpu * 1.5 > 2.0",
            "an int and a double: CEL does not mix these, write double(...) around the int",
        ),
        ("pod.priority > 3u", "> does not work with an int and a uint: write the number without u"),
        ("pod.priority == true", "== does not work with an int and a bool"),
        ("-pod.qosClass == 'a'", "- does not take a string: it needs a number"),
        ("pod.qosClass && true", "must be a bool, is a string"),
        ("!pod.qosClass", "! needs a condition that is true or false, not a string"),
        ("pod.qosClass ? 1 : 2", "what stands before ? must be true or false, not a string"),
        ("true ? 1 : 'a'", "on both sides of : must be of one type, not an int and a string"),
        ("pod.qosClass['a'] == 'b'", "[...] does not work with a string and a string"),
        ("'a' in 'b'", "for a part of a text write text.contains(...)"),
        ("size(3) > 1", "size does not take an int"),
        ("'a'.startsWith(3)", "startsWith does not take a string and an int"),
    ],
)
def test_types_that_do_not_fit_are_named_with_what_to_write(source: str, said: str) -> None:
    found = mistake(source)
    assert said in found
    assert "overload" not in found


def test_only_the_first_syntax_error_is_shown_because_the_others_follow_from_it() -> None:
    assert mistake("pod.priority ~ 3 ~ 4 5") == (
        'line 1, column 14: the character "~" means nothing here'
    )


def test_a_message_that_has_no_plain_words_is_shown_as_it_is() -> None:
    assert mistake("99999999999999999999 > 1") == "line 1, column 1: invalid int literal"
    assert mistake("if > 1") == "line 1, column 1: reserved identifier: if"
