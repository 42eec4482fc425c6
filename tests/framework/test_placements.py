import numpy as np

from mooring.framework.placements import Placement


def test_a_domain_is_named_by_the_last_part_of_its_label() -> None:
    rows = np.zeros(0, np.int64)
    assert Placement(rows, "topology.kubernetes.io/zone", "eu-1").text == "zone eu-1"
    assert Placement(rows).text == ""
