from collections import Counter
from collections.abc import Iterator
from functools import cache

from dra.families import FAMILIES
from dra.objects import Case
from dra.oracle import VERSIONS, Answer
from dra.recorded import Recorded, read


@cache
def recorded() -> list[Recorded]:
    return list(read())


def answers() -> Iterator[tuple[Case, Answer]]:
    for case, by_version in recorded():
        for found in by_version.values():
            for answer in found:
                yield case, answer


def test_every_family_is_recorded_with_an_answer_of_each_version_for_each_node() -> None:
    families = Counter(case["family"] for case, _ in recorded())
    assert set(families) == set(FAMILIES)
    assert min(families.values()) >= 30
    for case, by_version in recorded():
        assert set(by_version) == set(VERSIONS)
        assert {len(found) for found in by_version.values()} == {len(case["nodes"])}


def test_most_families_have_cases_with_and_without_devices() -> None:
    allocated = {case["family"] for case, answer in answers() if "allocations" in answer}
    rejected = {case["family"] for case, answer in answers() if "allocations" not in answer}
    assert allocated == set(FAMILIES)
    assert set(FAMILIES) - rejected <= {"configurations"}


def test_the_two_versions_differ_in_some_cases() -> None:
    differing = [case["family"] for case, found in recorded() if found["1.36"] != found["1.37"]]
    assert {"distinct_attribute", "overdrawn_counters", "consumable_capacity"} <= set(differing)


def test_no_recorded_allocation_has_a_device_that_is_in_use() -> None:
    for case, answer in answers():
        in_use = {
            (result["driver"], result["pool"], result["device"])
            for claim in case["allocated"]
            for result in claim["status"]["allocation"]["devices"]["results"]
            if not result.get("adminAccess") and "shareID" not in result
        }
        for allocation in answer.get("allocations", ()):
            for result in allocation["devices"].get("results", ()):
                device = (result["driver"], result["pool"], result["device"])
                assert result.get("adminAccess") or device not in in_use
