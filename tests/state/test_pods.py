import pytest

from mooring.model.pod import parse_pod
from mooring.state.pods import PodState, PodTable
from mooring.testing.builders import pod


def placed(name: str, row: int, *, assumed: bool = False) -> PodState:
    return PodState(parse_pod(pod(name)), row, assumed)


def test_pods_are_found_by_key_and_by_row() -> None:
    table = PodTable()
    for name, row in (("a", 0), ("b", 0), ("c", 1)):
        table.put(placed(name, row))
    found = table.get("default/a")
    assert found is not None
    assert found.row == 0
    assert table.on(0).keys() == {"default/a", "default/b"}
    assert table.on(7) == {}
    assert (len(table), {p.pod.name for p in table}) == (3, {"a", "b", "c"})


def test_a_key_belongs_to_one_pod() -> None:
    table = PodTable()
    table.put(placed("a", 0))
    with pytest.raises(ValueError, match="default/a is placed already"):
        table.put(placed("a", 1))


def test_a_removed_pod_is_in_no_index() -> None:
    table = PodTable()
    entry = placed("a", 0, assumed=True)
    table.put(entry)
    assert table.assumed == {"default/a": entry}
    assert table.pop("default/a") is entry
    assert (len(table), table.on(0), table.assumed) == (0, {}, {})
    assert table.pop("default/a") is None
