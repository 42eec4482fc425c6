"""What the command measures are decisions that place every pod for which there are devices."""

import pytest

from bench.claims import SHAPES, Shape, main, measure

NODES = 12
DEVICES = 8
PODS = 4


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("percent", [0, 50, 100])
def test_each_pod_is_placed_for_which_there_are_devices(shape: Shape, percent: int) -> None:
    costs = measure(shape, NODES, DEVICES, PODS, percent)
    assert len(costs.decisions) == PODS
    fits = shape.name != "impossible" and (percent < 100 or shape.name == "admin")
    assert costs.placed == (2 + PODS if fits else 0)


def test_a_line_is_printed_for_each_share_of_devices_in_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(NODES, DEVICES, PODS, "one")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "12 x 8, one            0 %",
        "12 x 8, one           50 %",
        "12 x 8, one          100 %",
    ]
