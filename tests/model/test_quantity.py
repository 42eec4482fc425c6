from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity, parse_count, parse_milli, parse_quantity

INT64_MAX = 2**63 - 1
SUFFIXES = {
    "": Fraction(1),
    **{s: Fraction(1000) ** p for p, s in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{s: Fraction(1024) ** p for p, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    "m": Fraction(1, 10**3),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
    **{f"{e}{x}": Fraction(10) ** x for e in "eE" for x in (-12, -3, 0, 3, 18)},
    "e+2": Fraction(100),
}


def slowly(sign: str, number: str, suffix: str, thousandths: int) -> int:
    """Compute the expected quantity with exact fractions."""
    exact = Fraction(f"0{number}") * SUFFIXES[suffix] * thousandths
    amount = min(ceil(exact), INT64_MAX)
    return -amount if sign == "-" else amount


numbers = st.from_regex(r"[0-9]{1,22}(\.[0-9]{0,12})?|\.[0-9]{1,12}", fullmatch=True)


@given(st.sampled_from(("", "+", "-")), numbers, st.sampled_from(sorted(SUFFIXES)))
def test_every_quantity_equals_exact_arithmetic(sign: str, number: str, suffix: str) -> None:
    text = sign + number + suffix
    assert parse_count(text) == slowly(sign, number, suffix, 1)
    assert parse_milli(text) == slowly(sign, number, suffix, 1000)
    assert parse_quantity(text).whole == parse_count(text)


@given(st.integers(0, INT64_MAX))
def test_whole_numbers_stay_as_they_are(number: int) -> None:
    assert parse_count(str(number)) == parse_count(number) == number


@pytest.mark.parametrize(
    ("text", "millicores"),
    [("500m", 500), ("0.5", 500), (".5", 500), ("2", 2000), ("1.", 1000), ("2e3", 2_000_000)],
)
def test_cpu_is_read_in_millicores(text: str, millicores: int) -> None:
    assert parse_milli(text) == millicores


@pytest.mark.parametrize(
    ("text", "count"),
    [("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("1k", 1000), ("1E", 10**18), ("1E3", 1000)],
)
def test_bytes_are_read_in_binary_and_decimal_units(text: str, count: int) -> None:
    assert parse_count(text) == count


def test_a_fraction_of_the_unit_is_rounded_up() -> None:
    assert parse_milli("0.0001") == 1
    assert parse_count("100m") == 1
    assert parse_milli("1e-999999999") == 1


def test_more_than_an_int64_is_capped() -> None:
    assert parse_count("9e18") == 9 * 10**18
    assert parse_count("10E") == parse_count("1e999999999999") == INT64_MAX
    assert parse_milli("-10E") == -INT64_MAX


def test_zero_with_a_huge_exponent_is_zero() -> None:
    assert parse_count("0e999999999999") == 0


@pytest.mark.parametrize(("number", "millicores"), [(2, 2000), (0.5, 500), (1e-7, 1), (1e22, None)])
def test_unquoted_numbers_of_a_manifest_are_quantities_too(
    number: float, millicores: int | None
) -> None:
    assert parse_milli(number) == (INT64_MAX if millicores is None else millicores)


BROKEN = ["", " ", "1 ", " 1", "m", "Gi", ".", "-", "5GB", "1ki", "1gi", "0x10", "1e", "1e1.5"]
BROKEN += ["1.2.3", "--1", "nan", "inf", "1,5", "\u0663", "1\n", "1" * 300]


@pytest.mark.parametrize("parse", [parse_milli, parse_count])
@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_no_quantity_raises_an_error(text: str, parse: Callable[[str], int]) -> None:
    with pytest.raises(ManifestError):
        parse(text)


@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}, float("nan"), float("inf")])
def test_a_value_that_is_neither_text_nor_number_raises_an_error(value: object) -> None:
    with pytest.raises(ManifestError):
        parse_count(value)  # type: ignore[arg-type]  # what a manifest may hold all the same


def test_the_error_names_the_field_shows_the_value_and_gives_examples() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_milli("5GB", "spec.containers[0].resources.requests.memory")
    assert str(caught.value) == (
        "spec.containers[0].resources.requests.memory: '5GB' is not a quantity; write a number "
        "with an optional suffix, such as 250m or 1.5 for cpu, 512Mi or 2G for memory"
    )


def test_a_very_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_milli("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Mi", "1000Mi"),
        ("512", "512"),
        ("100Ki", "100Ki"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("1.5", "1500m"),
        ("1000k", "1M"),
        ("-1024Ki", "-1Mi"),
        ("1e3", "1e3"),
        ("12e2", "1200"),
        ("1e-3", "1e-3"),
        ("0.1n", "1n"),
        ("9Ei", str(INT64_MAX)),
        ("12E", "12E"),
    ],
)
def test_an_exact_quantity_is_written_as_the_api_server_writes_it(
    text: str, canonical: str
) -> None:
    assert parse_quantity(text).text == canonical


def test_exact_quantities_compare_by_their_amounts() -> None:
    assert parse_quantity("1Gi") == parse_quantity("1073741824")
    assert parse_quantity("1Gi") < parse_quantity("1073741824.000000001")
    assert hash(parse_quantity("1")) == hash(parse_quantity("1000m"))


@given(st.integers(1, 2**64 * 10**9), st.integers(0, 2**64 * 10**9))
def test_amounts_from_the_least_of_a_whole_amount_on_are_rounded_to_at_least_that(
    nano: int, other: int
) -> None:
    least = Quantity(nano).least_of_whole
    assert least.whole == Quantity(nano).whole
    assert (Quantity(other) >= least) == (Quantity(other).whole >= least.whole)


@given(st.sampled_from(["", "-"]), st.decimals(0, 10**9, places=9), st.sampled_from([*SUFFIXES]))
def test_an_exact_quantity_is_that_of_fractions(sign: str, number: Decimal, suffix: str) -> None:
    exact = ceil(Fraction(number) * SUFFIXES[suffix] * 10**9)
    if suffix.endswith("i"):
        exact = min(exact, INT64_MAX * 10**9)
    quantity = parse_quantity(f"{sign}{number:f}{suffix}")
    assert quantity.nano == (-exact if sign else exact)
    assert parse_quantity(quantity.text) == quantity


@pytest.mark.parametrize("text", BROKEN)
def test_text_that_is_no_quantity_has_no_exact_amount(text: str) -> None:
    with pytest.raises(ManifestError, match="is not a quantity"):
        parse_quantity(text)
