import itertools

import pytest

from mooring.cel.kubernetes_values import (
    QuantityValue,
    VersionValue,
    parse_address,
    parse_network,
    parse_quantity,
    parse_version,
)
from mooring.cel.values import Failure


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1", 1),
        ("40Gi", 40 * 2**30),
        ("1e3", 1000),
        ("1e0000000001", 10),
        ("8Ei", None),
        ("1.5Gi", None),
        ("500m", None),
    ],
)
def test_only_some_amounts_are_kept_as_an_integer(text: str, whole: int | None) -> None:
    amount = parse_quantity(text)
    assert isinstance(amount, QuantityValue)
    assert amount.as_int() == whole


def test_comparing_with_a_decimal_makes_an_amount_one_too() -> None:
    whole, decimal = parse_quantity("1"), parse_quantity("1.5Gi")
    assert isinstance(whole, QuantityValue)
    assert isinstance(decimal, QuantityValue)
    assert whole.as_int() == 1
    assert whole.compared(decimal) == -1
    assert whole.as_int() is None


@pytest.mark.parametrize("text", ["", "1.2.3", "1Kx", "1e", "5 ", "1e999999999"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    assert isinstance(parse_quantity(text), Failure)


def test_versions_are_ordered_by_the_rules_of_semver() -> None:
    ordered = ["1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0", "1.10.0"]
    versions = [parse_version(text) for text in ordered]
    for first, second in itertools.pairwise(versions):
        assert isinstance(first, VersionValue)
        assert isinstance(second, VersionValue)
        assert (first.compared(second), second.compared(first)) == (-1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.2", "No Major.Minor.Patch elements found"),
        ("01.2.3", 'Major number must not contain leading zeroes "01"'),
        ("1.a.3", 'Invalid character(s) found in minor number "a"'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3+", "Build meta data is empty"),
        ("99999999999999999999.0.0", None),
    ],
)
def test_what_is_wrong_with_a_version_is_said(text: str, message: str | None) -> None:
    out_of_range = 'strconv.ParseUint: parsing "99999999999999999999": value out of range'
    assert parse_version(text) == Failure(message or out_of_range)


def test_addresses_mapped_into_ipv6_are_refused() -> None:
    assert isinstance(parse_address("::ffff:1.2.3.4"), Failure)
    assert isinstance(parse_address("fe80::1%eth0"), Failure)
    assert isinstance(parse_network("10.0.0.0/08"), Failure)
    assert isinstance(parse_network("10.0.0.0/33"), Failure)
