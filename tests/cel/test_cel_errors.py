from mooring.cel.cel_errors import ExpressionMistake, compile_error


def test_mistakes_are_shown_in_order_with_their_lines() -> None:
    error = compile_error(
        "a +\n  bb", [ExpressionMistake(6, "second"), ExpressionMistake(0, "first")]
    )
    assert str(error) == (
        "compilation failed: ERROR: <input>:1:1: first\n | a +\n | ^\n"
        "ERROR: <input>:2:3: second\n |   bb\n | ..^"
    )


def test_wide_characters_get_wide_dots() -> None:
    assert str(compile_error("日x", [ExpressionMistake(1, "wrong")])).endswith("| 日x\n | ．^")  # noqa: RUF001 # as cel-go draws
