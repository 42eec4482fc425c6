"""Metrics are parsed from Prometheus' text format."""

import pytest

from mooring.cli.scrape import Reading
from mooring.simulate.manifests import InputError


@pytest.mark.parametrize("page", ["<html>log in first</html>", "hello", '{"kind": "Status"}'])
def test_a_page_of_another_server_is_a_mistake(page: str) -> None:
    with pytest.raises(InputError, match="tells no metrics; is it Mooring"):
        Reading.of(page, 0.0)


def test_samples_are_added_up_by_their_labels() -> None:
    samples = {'queue="active",zone="a"': 2, 'queue="active",zone="b"': 3, 'queue="gated"': 1}
    page = "".join(f"pods{{{labels}}} {value}\n" for labels, value in samples.items())
    reading = Reading.of(page, 0.0)
    assert reading.total("pods", queue="active") == 5.0
    assert reading.total("others") == 0.0
    assert sorted(reading.by("pods", "zone")) == [(("",), 1.0), (("a",), 2.0), (("b",), 3.0)]
