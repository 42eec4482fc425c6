import pytest

from bench.scheduler_perf.templates import Template, UnknownConstructError


def rendered(text: str, **values: object) -> str:
    return Template(text).render(values)


def test_values_and_functions_stand_where_the_actions_were() -> None:
    assert rendered("node-{{.Index}}", Index=7) == "node-7"
    assert rendered("{{ DivideInt .Index 4 }}/{{Mod .Index 4}}", Index=7) == "1/3"
    assert rendered("{{AddInt .base (DivideInt .Index .size)}}", base=8000.0, Index=9, size=2) == (
        "8004"
    )


def test_a_pipe_gives_its_value_to_the_next_function_as_its_last_argument() -> None:
    assert rendered("{{$all := (or .all nil) | JSON}}{{$all}}", all=[{"a": "<b>"}]) == (
        '[{"a":"<b>"}]'
    )
    assert rendered("{{$all := (or .all nil) | JSON}}{{$all}}") == "null"


def test_a_choice_takes_the_branch_of_its_condition() -> None:
    text = '{{if eq .kind "a"}}A{{else if .other}}B{{else}}C{{end}}'
    assert [rendered(text, kind=kind, other=other) for kind, other in (("a", 0), ("b", 1))] == [
        "A",
        "B",
    ]
    assert rendered(text) == "C"


def test_a_loop_counts_to_a_number_or_goes_through_a_list() -> None:
    assert rendered("{{range 3}}<{{.}}>{{end}}") == "<0><1><2>"
    assert rendered("{{range $i := (.n | Int)}}{{$i}}{{$.word}}{{end}}", n=2.0, word="x") == "0x1x"
    assert rendered("{{range .names}}{{.}},{{end}}", names=["a", "b"]) == "a,b,"


def test_a_variable_of_a_block_ends_with_it() -> None:
    assert rendered("{{$a := 1}}{{if true}}{{$a := 2}}{{$a}}{{end}}{{$a}}") == "21"


def test_a_marked_action_takes_the_space_beside_it() -> None:
    assert rendered("a \n {{- .b -}} \n c{{/* said */}}", b="b") == "abc"


def test_a_remainder_has_the_sign_of_the_first_number_as_in_go() -> None:
    assert rendered("{{Mod -7 4}}") == "-3"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{{printf .a}}", "the function printf"),
        ("{{template .a}}", "the function template"),
        ("{{.a = 1}}", "= 1 in"),
        ("{{.a .b}}", r"\.b in"),
        ("{{if .a}}b", "if that ends with the template"),
        ("{{range .a}}b{{else}}c{{end}}", "range that ends with else"),
        ("{{end}}", "without a beginning"),
        ("{{.a", "not closed"),
        ("{{(.a}}", "parenthesis that is not closed"),
    ],
)
def test_what_is_unknown_is_named_when_the_template_is_read(text: str, named: str) -> None:
    with pytest.raises(UnknownConstructError, match=named):
        Template(text)


@pytest.mark.parametrize("text", ["{{.a}}", "{{$a}}", "{{Int .a}}", "{{DivideInt 1 0}}"])
def test_a_value_that_is_missing_is_not_rendered_as_something_else(text: str) -> None:
    with pytest.raises(UnknownConstructError):
        rendered(text)


def test_a_template_without_the_index_makes_the_same_object_each_time() -> None:
    assert not Template("a: {{.Count}}").depends_on_index
    assert Template("a: {{Mod .Index 2}}").depends_on_index
