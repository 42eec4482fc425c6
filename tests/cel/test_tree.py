from mooring.cel.parser import parse
from mooring.cel.tree import Expression, FunctionCall, copied

SOURCE = "[1, ?a].exists(x, {x: b.c}.d(-x)) && has(e.f) || x[?1] == b'a'"


def nodes(node: Expression) -> list[Expression]:
    return [node, *(each for part in node.parts() for each in nodes(part))]


def test_a_copy_has_the_same_shape_and_no_node_of_the_original() -> None:
    original = parse(SOURCE)
    made = copied(original)
    assert [(type(each), each.at, each.depth, each.size) for each in nodes(made)] == [
        (type(each), each.at, each.depth, each.size) for each in nodes(original)
    ]
    assert not {*map(id, nodes(made))} & {*map(id, nodes(original))}


def test_a_node_knows_its_levels_and_its_parts() -> None:
    root = parse("a.b + f(c, 1)")
    assert isinstance(root, FunctionCall)
    assert (root.depth, root.size) == (3, 6)
