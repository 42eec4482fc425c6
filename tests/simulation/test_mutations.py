"""The simulation finds mistakes that were put into Mooring on purpose.

`make soak` looks for all of them. The seed that finds a mistake depends on every request and so
changes with the code; this test has a mistake that many seeds find.
"""

import pytest

from simulation.mutations import MUTATIONS, Mutation, found_by, mutated


def test_a_mistake_is_found_and_the_seed_is_told() -> None:
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    found = found_by(by_name["name-for-uid"], 0, 25)
    assert found is not None
    assert found[0] in range(25)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_place_of_each_mistake_stands_once_in_the_sources(mutation: Mutation) -> None:
    assert mutation.new in mutated(mutation)


def test_a_mistake_whose_place_has_changed_is_an_error() -> None:
    gone = Mutation("gone", "nothing", "run/replica.py", "no such text", "")
    with pytest.raises(ValueError, match=r"gone: run/replica\.py has it 0x"):
        mutated(gone)
