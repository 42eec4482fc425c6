from cel.evaluating import answer, is_true, work_of

ABSENT = 'device.attributes["gpu.example.com"].absent'


def test_an_error_counts_only_if_nothing_decides_without_it() -> None:
    assert is_true(f"{ABSENT} == 1 || true")
    assert is_true(f"true || {ABSENT} == 1")
    assert answer(f"{ABSENT} == 1 && false") is False
    assert answer(f"{ABSENT} == 1 && true") == "no such key: absent"
    assert answer("1 == 1 && device.attributes['gpu.example.com'].memory") == "no such overload"


def test_a_loop_stops_at_the_first_answer_and_takes_errors_along() -> None:
    assert is_true(f"[1, 2].exists(x, {ABSENT} == x || x == 2)")
    assert answer(f"[1, 2].all(x, x < 2 && {ABSENT} == x)") is False
    assert answer(f"[1, 2].exists_one(x, {ABSENT} == x)") == "no such key: absent"


def test_a_bound_value_that_is_not_used_is_not_computed() -> None:
    assert is_true(f"cel.bind(x, {ABSENT}, true)")


def test_a_list_that_is_bound_empty_grows_as_in_cel_go() -> None:
    assert is_true("cel.bind(x, [], (x + [1]).size() + (x + [2]).size()) == 3")


def test_loops_with_two_variables_see_indexes_or_keys() -> None:
    assert is_true("['a', 'b'].exists(i, x, i == 1 && x == 'b')")
    assert is_true("{'a': 1}.all(k, v, k == 'a' && v == 1)")
    assert is_true("[1, 2].transformList(i, x, i > 0, x * 2) == [4]")
    assert is_true("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1) == {'b': 3}")
    assert is_true("['a'].transformMapEntry(i, x, {x: i}) == {'a': 0}")
    assert answer("[1, 1].transformMapEntry(i, x, {x: i}) == {}") == (
        "insert failed: key 1 already exists"
    )


def test_optional_values_may_be_absent() -> None:
    path = 'device.attributes["gpu.example.com"].?'
    assert is_true(f"{path}absent.orValue(7) == 7")
    assert is_true(f"{path}memory.optMap(x, x + 1).orValue(0) == 41")
    assert is_true(f"!{path}absent.hasValue() && {path}memory.hasValue()")
    assert answer(f"{path}absent.value() == 1") == "optional.none() dereference"
    assert is_true("[?optional.none(), ?optional.of(1)] == [1]")
    assert is_true("{?'a': optional.none(), ?'b': optional.of(1)} == {'b': 1}")


def test_what_is_not_optional_has_a_value_until_1_37() -> None:
    expression = 'device.attributes["gpu.example.com"].memory.orValue(1) == 40'
    assert answer(expression, attributes_may_be_lists=False) is True
    assert answer(expression) == "no such overload"


def test_work_are_the_nodes_of_the_tree_in_each_round_and_the_elements_of_lists() -> None:
    assert work_of("true") == 1
    assert work_of('device.driver == "gpu.example.com"') == 5
    once, ten = (work_of(f"{[*range(n)]}.exists(x, x == -1) || true") for n in (1, 10))
    assert 9 * 5 < ten - once < 9 * 15
    assert work_of("7 in dyn([1, 2, 7])") == work_of("7 in dyn([])") + 9


def test_sorting_what_is_no_list_is_the_crash_that_it_is_in_cel_go() -> None:
    assert answer('device.attributes["gpu.example.com"].memory.distinct() == []') == (
        "internal error: interface conversion: types.Int is not traits.Lister: missing method"
        " Contains"
    )


def test_a_version_in_a_list_of_texts_is_the_crash_that_it_is_in_cel_go() -> None:
    assert answer('device.attributes["vendor.io"].firmware in ["1.10.0"]') == (
        "internal error: runtime error: hash of unhashable type cel.Semver"
    )
