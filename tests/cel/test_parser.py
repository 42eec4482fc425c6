import pytest

from mooring.cel.cel_errors import CompileError
from mooring.cel.parser import MOST_LEVELS, parse
from mooring.cel.tree import Comprehension, Expression, FunctionCall, Ident, Literal, UInt


def shown(node: Expression) -> str:
    """Return the tree as text, with a pair of brackets for each call."""
    match node:
        case FunctionCall():
            parts = [*([node.target] if node.target else []), *node.args]
            return f"({' '.join((node.function, *map(shown, parts)))})"
        case Ident():
            return node.name
        case Literal():
            return repr(node.value)
    return type(node).__name__


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("1 + 2 * 3 - 4 < 5 == true", "(_==_ (_<_ (_-_ (_+_ 1 (_*_ 2 3)) 4) 5) True)"),
        ("a || b && c || d", "(_||_ (_||_ a (_&&_ b c)) d)"),
        ("a && b && c && d", "(_&&_ (_&&_ a b) (_&&_ c d))"),
        ("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))"),
        ("-1 - -x", "(_-_ -1 (-_ x))"),
        ("!!a || !b", "(_||_ a (!_ b))"),
        ("x.f(1)[?2]", "(_[?_] (f x 1) 2)"),
        ("x.?y", "(_?._ x 'y')"),
    ],
)
def test_operators_bind_as_in_cel(source: str, tree: str) -> None:
    assert shown(parse(source)) == tree


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("0x1F", 31),
        ("7u", UInt(7)),
        ("-9223372036854775808", -(2**63)),
        ("1.5e3", 1500.0),
        (r"'\u00e9\x41\101\n'", "éAA\n"),
        (r"b'\xff\101'", b"\xffA"),
        (r"r'\d'", r"\d"),
        ('"""two\nlines"""', "two\nlines"),
        ("null", None),
    ],
)
def test_literals_have_their_values(source: str, value: object) -> None:
    node = parse(source)
    assert isinstance(node, Literal)
    assert (node.value, type(node.value)) == (value, type(value))


def test_macros_become_loops() -> None:
    assert isinstance(parse("[1].exists(x, x > 0)"), Comprehension)
    assert isinstance(parse("{}.transformMap(k, v, v)"), Comprehension)
    assert isinstance(parse("cel.bind(x, 1, x)"), Comprehension)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 +", "mismatched input '<EOF>'"),
        ("a b", "mismatched input 'b' expecting <EOF>"),
        ("a # b", "token recognition error at: '#'"),
        ("9223372036854775808", "invalid int literal"),
        ("1" * 9000, "invalid int literal"),
        ("'\\q'", "unable to unescape string"),
        ("while", "reserved identifier: while"),
        ("has(a)", "invalid argument to has() macro"),
        ("[1].exists(1, true)", "argument must be a simple name"),
    ],
)
def test_a_mistake_is_shown_with_its_place(source: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        parse(source)
    assert "compilation failed: ERROR: <input>:1:" in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 4_000 + "1" + ")" * 4_000,
        "[" * 4_000 + "]" * 4_000,
        "1" + " + 1" * 2_000,
        "a" + ".b" * 4_000,
        "optional.of(1)" + ".optMap(x, x)" * 400,
    ],
    ids=["brackets", "lists", "sums", "fields", "optMap"],
)
def test_a_tree_too_large_to_walk_is_refused(source: str) -> None:
    with pytest.raises(CompileError, match=f"nested more than {MOST_LEVELS} levels|20000 parts"):
        parse(source)


def test_many_conditions_are_no_deep_tree() -> None:
    assert parse(" || ".join(["a"] * 1_000)).depth < 12
